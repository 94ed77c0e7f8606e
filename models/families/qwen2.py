"""Qwen2's network under a shifted prediction: Dream-7B (bidirectional) and Fast-dLLM v2
(block-causal), which is why topology and prediction are two properties."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from models.families.fields import (
    Config,
    pad_id,
    refuse_others,
    require,
    rope_theta,
    stated_block_size,
    stop_ids,
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

_REQUIRED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "eos_token_id",
)
_KNOWN = {"hidden_act": "silu", "use_sliding_window": False, "tie_word_embeddings": False}


def read_spec(config: Config, generation_config: Config, name: str) -> TargetSpec:
    """The spec of a checkpoint; raises ``ValueError`` naming a field that is missing or unknown.

    The mask is read from the model's configuration: Dream's generation configuration has none.
    """
    require(config, _REQUIRED, name)
    refuse_others(config, _KNOWN, name)
    variant = VARIANTS[config["model_type"]]
    mask = config.get("mask_token_id")
    block = config.get("bd_size") or stated_block_size(config, name)
    return TargetSpec(
        family=config["model_type"],
        topology=variant.topology,
        prediction="shifted",
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"],
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        rope_theta=rope_theta(config, name),
        qk_norm=False,
        qkv_bias=True,
        rms_norm_eps=config["rms_norm_eps"],
        max_positions=config["max_position_embeddings"],
        block_size=block or DEFAULT_BLOCK_SIZE,
        mask_token_id=variant.mask_token_id if mask is None else mask,
        stop_token_ids=stop_ids(config, generation_config),
        pad_token_id=pad_id(config),
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    config = {
        "architectures": [VARIANTS[spec.family].architecture],
        "model_type": spec.family,
        "hidden_size": spec.hidden_size,
        "num_hidden_layers": spec.num_layers,
        "num_attention_heads": spec.num_heads,
        "num_key_value_heads": spec.num_kv_heads,
        "head_dim": spec.head_dim,
        "intermediate_size": spec.intermediate_size,
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


def pieces(spec: TargetSpec, _names: Collection[str] = ()) -> Iterator[Piece]:
    """Where every tensor goes."""
    for parameter in parameter_shapes(spec):
        top = parameter if parameter.startswith("lm_head.") else f"model.{parameter}"
        yield Piece(top, parameter)
