"""LLaDA-8B: bidirectional, same position; Llama's network under names of its own."""

from collections.abc import Collection, Iterator

from models.families.fields import (
    Config,
    pad_id,
    refuse_others,
    require,
    rope_theta,
    stated_block_size,
    stop_ids,
)
from models.layout import Piece, parameter_shapes, split_layer
from models.spec import TargetSpec

MODEL_TYPE = "llada"
MODEL_TYPES = (MODEL_TYPE,)
ARCHITECTURE = "LLaDAModelLM"
DEFAULT_BLOCK_SIZE = 32
MASK_TOKEN_ID = 126336

_REQUIRED = (
    "d_model",
    "n_layers",
    "n_heads",
    "mlp_hidden_size",
    "vocab_size",
    "rms_norm_eps",
    "max_sequence_length",
    "eos_token_id",
)
_KNOWN = {
    "activation_type": "silu",
    "block_type": "llama",
    "layer_norm_type": "rms",
    "include_bias": False,
    "include_qkv_bias": False,
    "attention_layer_norm": False,
    "alibi": False,
    "rope": True,
    "weight_tying": False,
    "scale_logits": False,
    "input_emb_norm": False,
}
_TOPS = {"embed_tokens.weight": "wte", "norm.weight": "ln_f", "lm_head.weight": "ff_out"}
_RENAMED = {
    "input_layernorm.weight": "attn_norm",
    "post_attention_layernorm.weight": "ff_norm",
    "self_attn.q_proj.weight": "q_proj",
    "self_attn.k_proj.weight": "k_proj",
    "self_attn.v_proj.weight": "v_proj",
    "self_attn.o_proj.weight": "attn_out",
    "mlp.gate_proj.weight": "ff_proj",
    "mlp.up_proj.weight": "up_proj",
    "mlp.down_proj.weight": "ff_out",
}


def read_spec(config: Config, generation_config: Config, name: str) -> TargetSpec:
    """The spec of a checkpoint; raises ``ValueError`` naming a field that is missing or unknown.

    ``mlp_hidden_size`` counts, whatever ``mlp_ratio`` says.
    """
    require(config, _REQUIRED, name)
    refuse_others(config, _KNOWN, name)
    heads = config["n_heads"]
    return TargetSpec(
        family=MODEL_TYPE,
        topology="bidirectional",
        hidden_size=config["d_model"],
        num_layers=config["n_layers"],
        num_heads=heads,
        num_kv_heads=config.get("n_kv_heads") or heads,
        head_dim=config["d_model"] // heads,
        intermediate_size=config["mlp_hidden_size"],
        vocab_size=config.get("embedding_size") or config["vocab_size"],
        rope_theta=rope_theta(config, name),
        qk_norm=False,
        rms_norm_eps=config["rms_norm_eps"],
        max_positions=config["max_sequence_length"],
        block_size=stated_block_size(config, name) or DEFAULT_BLOCK_SIZE,
        mask_token_id=config.get("mask_token_id", MASK_TOKEN_ID),
        stop_token_ids=stop_ids(config, generation_config),
        pad_token_id=pad_id(config),
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        "d_model": spec.hidden_size,
        "n_layers": spec.num_layers,
        "n_heads": spec.num_heads,
        "n_kv_heads": spec.num_kv_heads,
        "mlp_hidden_size": spec.intermediate_size,
        "vocab_size": spec.vocab_size,
        "embedding_size": spec.vocab_size,
        "rope_theta": spec.rope_theta,
        "rms_norm_eps": spec.rms_norm_eps,
        "max_sequence_length": spec.max_positions,
        "block_size": spec.block_size,
        "mask_token_id": spec.mask_token_id,
        "eos_token_id": spec.pad_token_id,
        "pad_token_id": spec.pad_token_id,
        "torch_dtype": dtype,
    } | _KNOWN
    generation = {"eos_token_id": list(spec.stop_token_ids), "pad_token_id": spec.pad_token_id}
    return config, generation


def pieces(spec: TargetSpec, _names: Collection[str] = ()) -> Iterator[Piece]:
    """Where every tensor goes."""
    for parameter in parameter_shapes(spec):
        layer = split_layer(parameter)
        if layer is None:
            yield Piece(f"model.transformer.{_TOPS[parameter]}.weight", parameter)
        else:
            number, rest = layer
            yield Piece(f"model.transformer.blocks.{number}.{_RENAMED[rest]}.weight", parameter)
