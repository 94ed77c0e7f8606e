"""Qwen2's network under a shifted prediction: Dream-7B (bidirectional) and Fast-dLLM v2
(block-causal), which is why topology and prediction are two properties."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

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
from models.layout import Piece, parameter_shapes
from models.spec import TargetSpec, Topology


class Variant(NamedTuple):
    architecture: str
    topology: Topology
    mask_token_id: int


VARIANTS = {
    "Dream": Variant("DreamModel", "bidirectional", 151666),
    "Fast_dLLM_Qwen": Variant("Fast_dLLM_QwenForCausalLM", "block_causal", 151665),
}
MODEL_TYPES = tuple(VARIANTS)
DEFAULT_BLOCK_SIZE = 32

_REQUIRED = (*SIZES.values(), "eos_token_id")
_KNOWN = {"hidden_act": "silu", "use_sliding_window": False}


def read_spec(config: Config, generation_config: Config, name: str) -> TargetSpec:
    """The spec of a checkpoint; raises ``ValueError`` naming a field that is missing or unknown.

    The mask is read from the model's configuration: Dream's generation configuration has none.
    """
    require(config, _REQUIRED, name)
    refuse_others(config, _KNOWN, name)
    variant, sizes = VARIANTS[config["model_type"]], read_sizes(config, name)
    return TargetSpec(
        family=config["model_type"],
        topology=variant.topology,
        prediction="shifted",
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        rope_theta=rope_theta(config, name),
        qk_norm=False,
        qkv_bias=True,
        tied_embeddings=is_tied(config),
        **sizes,
        **read_tokens(
            config,
            generation_config,
            name,
            block_size=DEFAULT_BLOCK_SIZE,
            mask_token_id=variant.mask_token_id,
        ),
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    config, generation = write_fields(spec, dtype, VARIANTS[spec.family].architecture)
    config |= _KNOWN | {"head_dim": spec.head_dim, TIED: spec.tied_embeddings}
    return config, generation


def pieces(spec: TargetSpec, _names: Collection[str] = ()) -> Iterator[Piece]:
    """Where every tensor goes."""
    for parameter in parameter_shapes(spec):
        top = parameter if parameter.startswith("lm_head.") else f"model.{parameter}"
        yield Piece(top, parameter)
