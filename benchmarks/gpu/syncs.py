"""How often a round makes the host wait for the GPU where the code does not say so.

``torch.cuda.set_sync_debug_mode`` warns of every wait that hides in an operation. The waits that
are meant (reading a round's tokens, and its summary when drafts follow) go through an event, and
are counted apart.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import torch

from actors.loading import open_engine
from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.timing import Row
from benchmarks.gpu.traces import prompt_rows
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig

MOST_PLACES = 5


@dataclass
class Waits:
    """Hidden waits, by the line of code that made them."""

    places: Counter[str] = field(default_factory=Counter)

    @property
    def count(self) -> int:
        return self.places.total()


@contextmanager
def counted_waits() -> Iterator[Waits]:
    """Counts hidden waits for a GPU in the ``with`` block; CUDA must be there."""
    waits = Waits()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        before = torch.cuda.get_sync_debug_mode()
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield waits
        finally:
            torch.cuda.set_sync_debug_mode(before)
    waits.places.update(place_of(warning) for warning in caught if is_wait(warning))


def is_wait(warning: warnings.WarningMessage) -> bool:
    return "synchronizing CUDA operation" in str(warning.message)


def place_of(warning: warnings.WarningMessage) -> str:
    """The file and line that waited."""
    return f"{Path(warning.filename).name}:{warning.lineno}"


def measure_syncs(plan: GpuPlan, report: Callable[[int, int], None]) -> list[Row]:
    """Hidden waits a forward of the bundled target, by method, once all graphs are captured."""
    if not plan.on_gpu:
        return []
    target = TargetConfig(path=plan.target, dtype=plan.dtype, device=plan.device)
    engine = open_engine(target, DrafterConfig(), {"chain", "order"})
    rows: list[Row] = []
    settings = [("standard", 0), ("chain", 8), ("order", 8)]
    for method, budget in settings:
        options = DecodeOptions.lenient(
            method=method, budget=budget, cap=0.9, max_new_tokens=plan.max_new_tokens
        )
        requests = engine.requests(prompt_rows(plan)[:2], options)
        for _ in engine.decode(requests):
            pass
        with counted_waits() as waits:
            nfe = sum(result.nfe for result in engine.decode(requests))
        rows.append(
            {
                "method": method,
                "forwards": nfe,
                "hidden_waits": waits.count,
                "per_forward": waits.count / nfe,
                "goal": 0,
                "met": not waits.count,
                "places": dict(waits.places.most_common(MOST_PLACES)),
            }
        )
        report(len(rows), len(settings))
    return rows
