"""Reading configurations: what every family asks of them, and what is refused."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from models.spec import TargetSpec

Config = Mapping[str, Any]

SIZES = {
    "hidden_size": "hidden_size",
    "num_layers": "num_hidden_layers",
    "num_heads": "num_attention_heads",
    "num_kv_heads": "num_key_value_heads",
    "intermediate_size": "intermediate_size",
    "vocab_size": "vocab_size",
    "rms_norm_eps": "rms_norm_eps",
    "max_positions": "max_position_embeddings",
}
"""Fields of a spec, and what ``transformers`` calls them in a configuration."""
TIED = "tie_word_embeddings"
"""Whether the head is the embedding, as ``transformers`` calls it."""


def require(config: Config, keys: Sequence[str], name: str) -> None:
    """Raise ``ValueError`` for keys that are missing: the defaults of a family's class are often
    wrong for its checkpoints, so nothing falls back to them."""
    missing = [key for key in keys if config.get(key) is None]
    if missing:
        raise ValueError(f"config.json of {name}: missing {', '.join(missing)}")


def refuse_others(config: Config, known: Config, name: str) -> None:
    """Settings that change what the layers compute are refused rather than ignored."""
    for key, value in known.items():
        if config.get(key, value) != value:
            raise ValueError(
                f"config.json of {name}: {key} {config[key]!r}: only {value!r} is known"
            )


def rope_theta(config: Config, name: str) -> float:
    """``rope_theta``, or the one in the newer ``rope_parameters``; scaling, wherever it stands, and
    two that differ are refused."""
    found = {"rope_theta": config.get("rope_theta")}
    for key in ("rope_parameters", "rope_scaling"):
        parameters = config.get(key) or {}
        if not isinstance(parameters, Mapping):
            raise ValueError(f"config.json of {name}: {key} {parameters!r} is no object")
        kind = parameters.get("rope_type", parameters.get("type", "default"))
        if kind != "default":
            raise ValueError(f"config.json of {name}: rope type {kind!r} is not known; use default")
        found[f"{key}.rope_theta"] = parameters.get("rope_theta")
    said = {key: theta for key, theta in found.items() if theta is not None}
    if not said:
        raise ValueError(f"config.json of {name}: missing rope_theta")
    for key, theta in said.items():
        if not isinstance(theta, int | float) or theta <= 0:
            raise ValueError(f"config.json of {name}: {key} {theta!r} must be a number above 0")
    if len(set(said.values())) > 1:
        told = ", ".join(f"{key} {theta}" for key, theta in said.items())
        raise ValueError(f"config.json of {name}: {told}: only one can hold")
    return float(next(iter(said.values())))


def is_tied(config: Config, key: str = TIED) -> bool:
    """Whether the head is the embedding; families leave it out where it is not."""
    return bool(config.get(key, False))


def read_sizes(config: Config, name: str, keys: Mapping[str, str] = SIZES) -> dict[str, Any]:
    """Fields of a spec whose keys are known to be there; ``ValueError`` for one that is no size."""
    for key in keys.values():
        if not isinstance(config[key], int | float) or config[key] <= 0:
            raise ValueError(f"config.json of {name}: {key} {config[key]!r} must be above 0")
    return {field: config[key] for field, key in keys.items()}


def read_tokens(
    config: Config, generation_config: Config, name: str, *, block_size: int, mask_token_id: int
) -> dict[str, Any]:
    """The decoding facts of a spec: what the checkpoint states, else the family's defaults."""
    mask = config.get("mask_token_id")
    return {
        "block_size": stated_block_size(config, name) or block_size,
        "mask_token_id": mask_token_id if mask is None else mask,
        "stop_token_ids": stop_ids(config, generation_config),
        "pad_token_id": pad_id(config),
    }


def write_fields(
    spec: TargetSpec, dtype: str, architecture: str, keys: Mapping[str, str] = SIZES
) -> tuple[dict[str, Any], dict[str, Any]]:
    """The part of ``config.json`` that all families have, and ``generation_config.json``."""
    config = {
        "architectures": [architecture],
        "model_type": spec.family,
        **{key: getattr(spec, field) for field, key in keys.items()},
        "rope_theta": spec.rope_theta,
        "block_size": spec.block_size,
        "mask_token_id": spec.mask_token_id,
        "eos_token_id": spec.pad_token_id,
        "pad_token_id": spec.pad_token_id,
        "torch_dtype": dtype,
    }
    generation = {"eos_token_id": list(spec.stop_token_ids), "pad_token_id": spec.pad_token_id}
    return config, generation


def stop_ids(config: Config, generation_config: Config) -> tuple[int, ...]:
    """Of the generation configuration, which knows the turn's end too; else the model's."""
    stop = generation_config.get("eos_token_id")
    stop = config["eos_token_id"] if stop is None else stop
    return tuple(stop) if isinstance(stop, list) else (stop,)


def pad_id(config: Config) -> int:
    """The padding token, else the (first) end of text."""
    pad = config.get("pad_token_id")
    if pad is not None:
        return pad
    eos = config["eos_token_id"]
    return eos[0] if isinstance(eos, list) else eos


def block_size_in(name: str) -> int | None:
    """Of a checkpoint named ``...-b32...``."""
    found = re.search(r"-b(\d+)(?!\d)", name)
    return int(found.group(1)) if found else None


def stated_block_size(config: Config, name: str) -> int | None:
    """The block size that the checkpoint says it was made for: its configuration (Fast-dLLM calls
    it ``bd_size``), else its name."""
    return config.get("block_size") or config.get("bd_size") or block_size_in(name)
