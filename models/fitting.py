"""Which device holds a target, in which dtype and on how many ranks; what cannot fit is refused
before anything is loaded."""

from collections.abc import Sequence
from typing import Any

from models.checkpoint import DTYPES
from models.config import TargetConfig
from models.devices import Device
from models.footprint import (
    PLAIN_COPIES,
    SHOWN_PREFIX,
    cache_bytes,
    forward_bytes,
    need,
    weight_bytes,
)
from models.spec import TargetSpec


def check_room(spec: TargetSpec, config: TargetConfig, device: Device, together: int = 1) -> None:
    """Raise ``ValueError`` if ``device`` has no room for ``together`` ranks of ``config.tp``.

    The message says what they need, what there is, and which settings would fit.
    """
    asked = need(spec, config.dtype, config.tp)
    if config.force_fit or together * asked.total <= device.free:
        return
    ranks = f"{together} ranks, each" if together > 1 else "a rank" if config.tp > 1 else "it"
    raise ValueError(
        f"target.path {config.path!r} does not fit on {device.name} with target.dtype "
        f"{config.dtype} and target.tp {config.tp}: {ranks} needs {size(asked.total)} (weights "
        f"{size(asked.weights)}, prefix of {SHOWN_PREFIX:,} tokens {size(asked.prefix)}, a forward "
        f"without drafts {size(asked.forward)}), and {size(device.free)} of {size(device.total)} "
        f"are free; {_help(spec, config, device)} (target.force_fit true loads all the same)"
    )


def _help(spec: TargetSpec, config: TargetConfig, device: Device) -> str:
    """The settings that would fit: the fewest ranks of every dtype that is no wider."""
    widest = DTYPES[config.dtype].itemsize
    found = []
    for dtype in sorted(DTYPES, key=lambda name: -DTYPES[name].itemsize):
        if DTYPES[dtype].itemsize > widest:
            continue
        for ranks in spec.tensor_parallel_sizes:
            asked = need(spec, dtype, ranks).total
            if (ranks if device.is_shared else 1) * asked <= device.free:
                found.append(f"target.dtype {dtype} with target.tp {ranks} ({size(asked)} a rank)")
                break
    if found:
        return f"what would fit: {'; '.join(found)}"
    dtype = min(DTYPES, key=lambda name: DTYPES[name].itemsize)
    ranks = 1 if device.is_shared else max(spec.tensor_parallel_sizes)
    least = size(need(spec, dtype, ranks).total)
    return f"nothing would: even target.dtype {dtype} with target.tp {ranks} needs {least} a rank"


def fit_rows(
    spec: TargetSpec, devices: Sequence[Device], budgets: Sequence[int]
) -> list[dict[str, Any]]:
    """A row for every dtype and number of ranks: what a rank takes for weights, the prefix cache of
    1,000 tokens, and one forward with each of the ``budgets`` of drafts; and where that fits."""
    return [
        {
            "dtype": dtype,
            "tp": ranks,
            "weights": size(weight_bytes(spec, dtype, ranks)),
            "1k tokens": size(SHOWN_PREFIX * cache_bytes(spec, dtype, ranks)),
            **{f"D={budget}": _forward(spec, dtype, ranks, budget) for budget in budgets},
            **{name: _verdict(spec, dtype, ranks, kind) for name, kind in _kinds(devices).items()},
        }
        for dtype in DTYPES
        for ranks in spec.tensor_parallel_sizes
    ]


def _forward(spec: TargetSpec, dtype: str, ranks: int, budget: int) -> str:
    return size(forward_bytes(spec, dtype, ranks, max(PLAIN_COPIES, 1 + budget)))


def _kinds(devices: Sequence[Device]) -> dict[str, list[Device]]:
    """The CPU, and all GPUs together, by a title that says what is free."""
    cpus = [device for device in devices if device.is_shared]
    gpus = [device for device in devices if not device.is_shared]
    found = {f"cpu, {size(cpus[0].free)} free": cpus}
    if gpus:
        free = ", ".join(size(device.free) for device in gpus)
        found[f"{len(gpus)} cuda, {free} free"] = gpus
    return found


def _verdict(spec: TargetSpec, dtype: str, ranks: int, devices: Sequence[Device]) -> str:
    """Whether ``ranks`` fit on devices of one kind, and how much of the prefix would."""
    asked = need(spec, dtype, ranks)
    if devices[0].is_shared:
        room = [device.free // ranks for device in devices] * ranks
    else:
        room = sorted((device.free for device in devices), reverse=True)
    if len(room) < ranks:
        return f"no: {ranks} GPUs"
    left = room[ranks - 1] - asked.total
    if left < 0:
        return "no"
    token = cache_bytes(spec, dtype, ranks)
    return f"yes, {SHOWN_PREFIX + left // token:,} tokens" if token else "yes"


def size(count: int) -> str:
    """Bytes as people write them, in decimal units."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count} B"
