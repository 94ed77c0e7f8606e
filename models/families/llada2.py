"""LLaDA2.0 and 2.1: block-causal, same position, grouped experts, partly rotating heads."""

from collections.abc import Collection, Iterator

from models.families.fields import (
    SIZES,
    TIED,
    Config,
    is_tied,
    read_sizes,
    read_tokens,
    refuse_others,
    require,
    rope_theta,
    write_fields,
)
from models.layout import Piece, expert_pieces, parameter_shapes, split_layer
from models.spec import Experts, TargetSpec

MODEL_TYPE = "llada2_moe"
MODEL_TYPES = (MODEL_TYPE,)
ARCHITECTURE = "LLaDA2MoeModelLM"
DEFAULT_BLOCK_SIZE = 32
MASK_TOKEN_ID = 156895

_EXPERTS = {
    "count": "num_experts",
    "per_token": "num_experts_per_tok",
    "intermediate_size": "moe_intermediate_size",
    "groups": "n_group",
    "groups_per_token": "topk_group",
    "scaling": "routed_scaling_factor",
    "shared": "num_shared_experts",
    "dense_layers": "first_k_dense_replace",
}
_REQUIRED = (
    *SIZES.values(),
    *_EXPERTS.values(),
    "head_dim",
    "partial_rotary_factor",
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
        head_dim=config["head_dim"],
        rope_theta=rope_theta(config, name),
        rotary_dim=int(config["head_dim"] * config["partial_rotary_factor"]),
        tied_embeddings=is_tied(config),
        experts=Experts(
            router="grouped_sigmoid",
            # LLaDA2's router leaves the weight of a single expert as it is.
            normalized=config["num_experts_per_tok"] > 1,
            **{field: config[key] for field, key in _EXPERTS.items()},
        ),
        **read_sizes(config, name),
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
    config, generation = write_fields(spec, dtype, ARCHITECTURE)
    config |= _KNOWN | {key: getattr(spec.experts, field) for field, key in _EXPERTS.items()}
    config |= {"head_dim": spec.head_dim, TIED: spec.tied_embeddings}
    config["partial_rotary_factor"] = (spec.rotary_dim or spec.head_dim) / spec.head_dim
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
