"""LLaDA-8B: bidirectional, same position; Llama's network under names of its own."""

from collections.abc import Collection, Iterator

from models.families.fields import (
    Config,
    is_tied,
    read_sizes,
    read_tokens,
    refuse_others,
    require,
    rope_theta,
    write_fields,
)
from models.layout import Piece, parameter_shapes, split_layer
from models.spec import TargetSpec

MODEL_TYPE = "llada"
MODEL_TYPES = (MODEL_TYPE,)
ARCHITECTURE = "LLaDAModelLM"
DEFAULT_BLOCK_SIZE = 32
MASK_TOKEN_ID = 126336

_SIZES = {
    "hidden_size": "d_model",
    "num_layers": "n_layers",
    "num_heads": "n_heads",
    "intermediate_size": "mlp_hidden_size",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "rms_norm_eps",
    "max_positions": "max_sequence_length",
}
_REQUIRED = (*_SIZES.values(), "eos_token_id")
_KNOWN = {
    "activation_type": "silu",
    "block_type": "llama",
    "layer_norm_type": "rms",
    "include_bias": False,
    "include_qkv_bias": False,
    "attention_layer_norm": False,
    "alibi": False,
    "rope": True,
    "scale_logits": False,
    "input_emb_norm": False,
}
TIED = "weight_tying"
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
    sizes = read_sizes(config, name, _SIZES)
    sizes["vocab_size"] = config.get("embedding_size") or sizes["vocab_size"]
    return TargetSpec(
        family=MODEL_TYPE,
        topology="bidirectional",
        num_kv_heads=config.get("n_kv_heads") or config["n_heads"],
        head_dim=config["d_model"] // config["n_heads"],
        rope_theta=rope_theta(config, name),
        qk_norm=False,
        tied_embeddings=is_tied(config, TIED),
        **sizes,
        **read_tokens(
            config,
            generation_config,
            name,
            block_size=DEFAULT_BLOCK_SIZE,
            mask_token_id=MASK_TOKEN_ID,
        ),
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    config, generation = write_fields(spec, dtype, ARCHITECTURE, _SIZES)
    config |= _KNOWN | {"n_kv_heads": spec.num_kv_heads, "embedding_size": spec.vocab_size}
    config[TIED] = spec.tied_embeddings
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
