"""LLaDA2.0 and 2.1: block-causal, same position, grouped experts, partly rotating heads."""

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
from models.layout import Piece, expert_pieces, parameter_shapes, split_layer
from models.spec import Experts, TargetSpec

MODEL_TYPE = "llada2_moe"
MODEL_TYPES = (MODEL_TYPE,)
ARCHITECTURE = "LLaDA2MoeModelLM"
DEFAULT_BLOCK_SIZE = 32
MASK_TOKEN_ID = 156895

_REQUIRED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "moe_intermediate_size",
    "num_experts",
    "num_experts_per_tok",
    "num_shared_experts",
    "n_group",
    "topk_group",
    "routed_scaling_factor",
    "first_k_dense_replace",
    "partial_rotary_factor",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "eos_token_id",
)
_KNOWN = {
    "hidden_act": "silu",
    "use_qkv_bias": False,
    "use_bias": False,
    "use_qk_norm": True,
    "score_function": "sigmoid",
    "norm_topk_prob": True,
    "moe_router_enable_expert_bias": True,
    "tie_word_embeddings": False,
    "use_sliding_window": False,
}
_RENAMED = {
    "self_attn.o_proj.weight": "attention.dense.weight",
    "self_attn.q_norm.weight": "attention.query_layernorm.weight",
    "self_attn.k_norm.weight": "attention.key_layernorm.weight",
    "mlp.router.weight": "mlp.gate.weight",
    "mlp.router.bias": "mlp.gate.expert_bias",
}
_FUSED = "attention.query_key_value.weight"


def read_spec(config: Config, generation_config: Config, name: str) -> TargetSpec:
    """The spec of a checkpoint; raises ``ValueError`` naming a field that is missing or unknown."""
    require(config, _REQUIRED, name)
    refuse_others(config, _KNOWN, name)
    return TargetSpec(
        family=MODEL_TYPE,
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        rope_theta=rope_theta(config, name),
        rotary_dim=int(config["head_dim"] * config["partial_rotary_factor"]),
        experts=Experts(
            count=config["num_experts"],
            per_token=config["num_experts_per_tok"],
            intermediate_size=config["moe_intermediate_size"],
            router="grouped_sigmoid",
            groups=config["n_group"],
            groups_per_token=config["topk_group"],
            scaling=config["routed_scaling_factor"],
            shared=config["num_shared_experts"],
            dense_layers=config["first_k_dense_replace"],
        ),
        rms_norm_eps=config["rms_norm_eps"],
        max_positions=config["max_position_embeddings"],
        block_size=stated_block_size(config, name) or DEFAULT_BLOCK_SIZE,
        mask_token_id=config.get("mask_token_id", MASK_TOKEN_ID),
        stop_token_ids=stop_ids(config, generation_config),
        pad_token_id=pad_id(config),
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    assert spec.experts is not None
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
        "moe_intermediate_size": spec.experts.intermediate_size,
        "num_experts": spec.experts.count,
        "num_experts_per_tok": spec.experts.per_token,
        "num_shared_experts": spec.experts.shared,
        "n_group": spec.experts.groups,
        "topk_group": spec.experts.groups_per_token,
        "routed_scaling_factor": spec.experts.scaling,
        "first_k_dense_replace": spec.experts.dense_layers,
        "partial_rotary_factor": (spec.rotary_dim or spec.head_dim) / spec.head_dim,
        "vocab_size": spec.vocab_size,
        "rope_theta": spec.rope_theta,
        "rms_norm_eps": spec.rms_norm_eps,
        "max_position_embeddings": spec.max_positions,
        "block_size": spec.block_size,
        "mask_token_id": spec.mask_token_id,
        "eos_token_id": spec.pad_token_id,
        "pad_token_id": spec.pad_token_id,
        "torch_dtype": dtype,
    } | _KNOWN
    generation = {"eos_token_id": list(spec.stop_token_ids), "pad_token_id": spec.pad_token_id}
    return config, generation


def pieces(spec: TargetSpec, names: Collection[str] = ()) -> Iterator[Piece]:
    """Where every tensor goes; experts may stand alone or merged, as the ``names`` of the
    checkpoint's tensors tell."""
    query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
    rows = {
        "q_proj": (0, query),
        "k_proj": (query, query + key),
        "v_proj": (query + key, query + 2 * key),
    }
    tops = {
        "embed_tokens.weight": "model.word_embeddings.weight",
        "norm.weight": "model.norm.weight",
    }
    for parameter in parameter_shapes(spec):
        layer = split_layer(parameter)
        if layer is None:
            yield Piece(tops.get(parameter, parameter), parameter)
            continue
        number, rest = layer
        prefix = f"model.layers.{number}."
        kind = rest.split(".")[-2] if rest.count(".") else ""
        if kind in rows:
            yield Piece(prefix + _FUSED, parameter, rows=rows[kind])
        elif rest.startswith("mlp.experts."):
            assert spec.experts is not None
            merged = f"{prefix}{rest}"
            if merged in names:
                yield Piece(merged, parameter)
            else:
                spelled = f"{prefix}mlp.experts.{{}}.{rest.rsplit('.', 1)[1]}.weight"
                yield from expert_pieces(parameter, spelled, spec.experts.count)
        elif rest.startswith("mlp.shared."):
            yield Piece(prefix + rest.replace("mlp.shared.", "mlp.shared_experts."), parameter)
        else:
            yield Piece(prefix + _RENAMED.get(rest, rest), parameter)
