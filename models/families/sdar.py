"""SDAR (dense): Qwen3's tensor names, block-causal attention, prediction at the same position."""

import re

from models.spec import TargetSpec

MODEL_TYPE = "sdar"
ARCHITECTURE = "SDARForCausalLM"
DEFAULT_BLOCK_SIZE = 4
QWEN3_MASK_TOKEN_ID = 151669

_REQUIRED = (
    "hidden_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "intermediate_size",
    "vocab_size",
    "rms_norm_eps",
    "max_position_embeddings",
    "eos_token_id",
)


def read_spec(config: dict, generation_config: dict, name: str) -> TargetSpec:
    """The spec of a checkpoint from its ``config.json`` and ``generation_config.json``.

    The block size is the configuration's, else the ``-bN`` in the checkpoint's ``name``, else 4.
    Raises ``ValueError`` naming the field when one that has no safe default is missing.
    """
    missing = [key for key in _REQUIRED if key not in config]
    if missing:
        raise ValueError(f"config.json of {name}: missing {', '.join(missing)}")
    _refuse_unknown_layers(config, name)
    stop = generation_config.get("eos_token_id", config["eos_token_id"])
    pad = config.get("pad_token_id")
    return TargetSpec(
        family=MODEL_TYPE,
        hidden_size=config["hidden_size"],
        num_layers=config["num_hidden_layers"],
        num_heads=config["num_attention_heads"],
        num_kv_heads=config["num_key_value_heads"],
        head_dim=config["head_dim"],
        intermediate_size=config["intermediate_size"],
        vocab_size=config["vocab_size"],
        rope_theta=_rope_theta(config, name),
        rms_norm_eps=config["rms_norm_eps"],
        max_positions=config["max_position_embeddings"],
        block_size=config.get("block_size") or _block_size_in(name) or DEFAULT_BLOCK_SIZE,
        mask_token_id=config.get("mask_token_id", QWEN3_MASK_TOKEN_ID),
        stop_token_ids=tuple(stop) if isinstance(stop, list) else (stop,),
        pad_token_id=_first(config["eos_token_id"]) if pad is None else pad,
    )


def write_config(spec: TargetSpec, dtype: str) -> tuple[dict, dict]:
    """``config.json`` and ``generation_config.json`` that :func:`read_spec` reads back."""
    config = {
        "architectures": [ARCHITECTURE],
        "model_type": MODEL_TYPE,
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
        "hidden_act": "silu",
        "attention_bias": False,
        "tie_word_embeddings": False,
        "torch_dtype": dtype,
    }
    generation = {"eos_token_id": list(spec.stop_token_ids), "pad_token_id": spec.pad_token_id}
    return config, generation


def checkpoint_name(parameter: str) -> str:
    """Our parameter name as the checkpoint spells it."""
    return parameter if parameter.startswith("lm_head.") else f"model.{parameter}"


def _refuse_unknown_layers(config: dict, name: str) -> None:
    """Settings that change what the layers compute are refused rather than ignored."""
    known = {"hidden_act": "silu", "attention_bias": False, "use_sliding_window": False}
    for key, value in known.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"config.json of {name}: {key} {config[key]!r}: only {value!r} is known"
            )


def _rope_theta(config: dict, name: str) -> float:
    """``rope_theta``, or the newer ``rope_parameters`` that replaces it; scaling is refused."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise ValueError(f"config.json of {name}: rope type {kind!r} is not known; use default")
    theta = config.get("rope_theta", parameters.get("rope_theta"))
    if theta is None:
        raise ValueError(f"config.json of {name}: missing rope_theta")
    return float(theta)


def _block_size_in(name: str) -> int | None:
    found = re.search(r"-b(\d+)(?!\d)", name)
    return int(found.group(1)) if found else None


def _first(value: int | list[int]) -> int:
    return value[0] if isinstance(value, list) else value
