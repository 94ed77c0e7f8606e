"""SDAR and TraDo, dense and with experts: Qwen3's tensor names, block-causal, same position."""

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

DENSE, MIXED = "sdar", "sdar_moe"
MODEL_TYPES = (DENSE, MIXED)
ARCHITECTURES = {DENSE: "SDARForCausalLM", MIXED: "SDARMoeForCausalLM"}
DEFAULT_BLOCK_SIZE = 4
QWEN3_MASK_TOKEN_ID = 151669

_REQUIRED = (*SIZES.values(), "head_dim", "eos_token_id")
_REQUIRED_MIXED = ("num_experts", "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob")
_KNOWN = {
    "hidden_act": "silu",
    "attention_bias": False,
    "use_sliding_window": False,
}
_KNOWN_MIXED = {"decoder_sparse_step": 1, "mlp_only_layers": []}


def read_spec(config: Config, generation_config: Config, name: str) -> TargetSpec:
    """The spec of a checkpoint; raises ``ValueError`` naming a field that is missing or unknown."""
    mixed = config["model_type"] == MIXED
    require(config, _REQUIRED + (_REQUIRED_MIXED if mixed else ()), name)
    refuse_others(config, _KNOWN | (_KNOWN_MIXED if mixed else {}), name)
    experts = None
    if mixed:
        experts = Experts(
            count=config["num_experts"],
            per_token=config["num_experts_per_tok"],
            intermediate_size=config["moe_intermediate_size"],
            normalized=config["norm_topk_prob"],
        )
    return TargetSpec(
        family=config["model_type"],
        head_dim=config["head_dim"],
        rope_theta=rope_theta(config, name),
        experts=experts,
        tied_embeddings=is_tied(config),
        **read_sizes(config, name),
        **read_tokens(
            config,
            generation_config,
            name,
            block_size=DEFAULT_BLOCK_SIZE,
            mask_token_id=QWEN3_MASK_TOKEN_ID,
        ),
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    config, generation = write_fields(spec, dtype, ARCHITECTURES[spec.family])
    config |= {"head_dim": spec.head_dim, TIED: spec.tied_embeddings}
    config |= {key: value for key, value in _KNOWN.items() if key != "use_sliding_window"}
    if spec.experts is not None:
        config |= _KNOWN_MIXED | {
            "num_experts": spec.experts.count,
            "num_experts_per_tok": spec.experts.per_token,
            "moe_intermediate_size": spec.experts.intermediate_size,
            "norm_topk_prob": spec.experts.normalized,
        }
    return config, generation


def pieces(spec: TargetSpec, _names: Collection[str] = ()) -> Iterator[Piece]:
    """Where every tensor goes."""
    for parameter in parameter_shapes(spec):
        layer = split_layer(parameter)
        if layer is None:
            top = parameter if parameter.startswith("lm_head.") else f"model.{parameter}"
            yield Piece(top, parameter)
            continue
        number, rest = layer
        prefix = f"model.layers.{number}."
        if rest == "mlp.router.weight":
            yield Piece(f"{prefix}mlp.gate.weight", parameter)
        elif rest.startswith("mlp.experts."):
            assert spec.experts is not None
            spelled = f"{prefix}mlp.experts.{{}}.{rest.rsplit('.', 1)[1]}.weight"
            yield from expert_pieces(parameter, spelled, spec.experts.count)
        else:
            yield Piece(prefix + rest, parameter)
