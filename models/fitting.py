"""Which device holds a target, in which precision and on how many ranks; what cannot fit is refused
before anything is loaded."""

from collections.abc import Sequence
from typing import Any, NamedTuple

from models.checkpoint import DTYPES
from models.config import Quantize, TargetConfig
from models.devices import Device
from models.footprint import (
    LEAST_PREFIX,
    PLAIN_COPIES,
    Need,
    cache_bytes,
    forward_bytes,
    need,
)
from models.spec import TargetSpec


class Precision(NamedTuple):
    """What weights are held in."""

    dtype: str
    quantize: Quantize = "none"

    def __str__(self) -> str:
        quantized = "" if self.quantize == "none" else f" and target.quantize {self.quantize}"
        return f"target.dtype {self.dtype}{quantized}"

    def need(self, spec: TargetSpec, ranks: int) -> Need:
        """Of each of ``ranks``."""
        return need(spec, self.dtype, ranks, self.quantize)


def precisions(spec: TargetSpec) -> list[Precision]:
    """Those that a target can be held in, the usual ones first."""
    found = [Precision(dtype) for dtype in DTYPES]
    return found if spec.experts is not None else [*found, Precision("bfloat16", "int8")]


def check_room(spec: TargetSpec, config: TargetConfig, device: Device, together: int = 1) -> None:
    """Raise ``ValueError`` if ``device`` has no room for ``together`` ranks of ``config.tp``.

    The message says what they need, what there is, and which settings would fit.
    """
    precision = Precision(config.dtype, config.quantize)
    asked = precision.need(spec, config.tp)
    if config.force_fit or together * asked.total <= device.free:
        return
    who = f"{together} ranks need, each," if together > 1 else "a rank needs"
    raise ValueError(
        f"target.path {config.path!r} does not fit on {device.name} with {precision} and target.tp "
        f"{config.tp}: {who} {size(asked.total)} (weights {size(asked.weights)}, prefix cache of "
        f"{LEAST_PREFIX:,} tokens {size(asked.prefix)}, a forward without drafts "
        f"{size(asked.forward)}), and {size(device.free)} of {size(device.total)} are free; "
        f"{_help(spec, device)} (target.force_fit true loads all the same)"
    )


def _help(spec: TargetSpec, device: Device) -> str:
    """The settings that would fit: the fewest ranks of every precision."""
    found = []
    for precision in precisions(spec):
        for ranks in spec.tensor_parallel_sizes:
            asked = precision.need(spec, ranks).total
            if (ranks if device.is_shared else 1) * asked <= device.free:
                found.append(f"{precision} with target.tp {ranks} ({size(asked)} a rank)")
                break
    if found:
        return f"what would fit: {'; '.join(found)}"
    ranks = 1 if device.is_shared else max(spec.tensor_parallel_sizes)
    least = min(precisions(spec), key=lambda each: each.need(spec, ranks).total)
    needed = size(least.need(spec, ranks).total)
    return f"nothing would: even {least} with target.tp {ranks} needs {needed} a rank"


def fit_rows(
    spec: TargetSpec, devices: Sequence[Device], budgets: Sequence[int]
) -> list[dict[str, Any]]:
    """A row for every precision and number of ranks: what a rank takes for weights, the prefix
    cache of 1,000 tokens, and one forward with each of the ``budgets`` of drafts; and where that
    fits."""
    kinds = _kinds(devices)
    return [
        {
            "dtype": dtype if quantize == "none" else f"{dtype}, {quantize}",
            "tp": ranks,
            "weights": size(need(spec, dtype, ranks, quantize).weights),
            "1k tokens": size(1000 * cache_bytes(spec, dtype, ranks)),
            **{f"D={budget}": _forward(spec, dtype, ranks, budget) for budget in budgets},
            **{
                name: _verdict(spec, Precision(dtype, quantize), ranks, kind)
                for name, kind in kinds.items()
            },
        }
        for dtype, quantize in precisions(spec)
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


def _verdict(spec: TargetSpec, precision: Precision, ranks: int, devices: Sequence[Device]) -> str:
    """Whether ``ranks`` fit on devices of one kind, and with how many tokens of prefix in all."""
    if devices[0].is_shared:
        room = [devices[0].free // ranks] * ranks
    else:
        room = sorted((device.free for device in devices), reverse=True)
    if len(room) < ranks:
        return f"no: {ranks} GPUs"
    left = room[ranks - 1] - precision.need(spec, ranks).total
    if left < 0:
        return "no"
    token = cache_bytes(spec, precision.dtype, ranks)
    return f"yes, {LEAST_PREFIX + left // token:,} tokens" if token else "yes"


def size(count: int) -> str:
    """Bytes as people write them, in decimal units."""
    for unit, name in ((10**9, "GB"), (10**6, "MB"), (10**3, "kB")):
        if count >= unit:
            return f"{count / unit:,.1f} {name}"
    return f"{count} B"
