"""Reading configurations: what every family asks of them, and what is refused."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

Config = Mapping[str, Any]


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
    """``rope_theta``, or the newer ``rope_parameters`` that replaces it; scaling is refused."""
    parameters = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = parameters.get("rope_type", parameters.get("type", "default"))
    if kind != "default":
        raise ValueError(f"config.json of {name}: rope type {kind!r} is not known; use default")
    theta = config.get("rope_theta") or parameters.get("rope_theta")
    if theta is None:
        raise ValueError(f"config.json of {name}: missing rope_theta")
    return float(theta)


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


def states_block_size(config: Config, name: str) -> bool:
    """Whether another block size would be one that the checkpoint was not made for."""
    return bool(config.get("bd_size") or stated_block_size(config, name))


def stated_block_size(config: Config, name: str) -> int | None:
    """The block size that the checkpoint says it was made for: its configuration, else its name."""
    return config.get("block_size") or block_size_in(name)
