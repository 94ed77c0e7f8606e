"""Do many copies in one forward compute what one alone does, in low precision on this device?"""

from collections.abc import Callable

from actors.runner import open_runner
from benchmarks.gpu.plan import GpuPlan
from benchmarks.gpu.timing import Row
from benchmarks.gpu.traces import prompt_rows
from benchmarks.spot.equality import measure_equality
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import Forwards, TargetConfig


def equality_rows(
    plan: GpuPlan, modes: tuple[Forwards, ...], report: Callable[[int, int], None]
) -> list[Row]:
    """Equal outputs of the bundled target in the plan's precision, by mode, cap and budget, with
    the smallest log-odds margin at a first difference."""
    rules = [DecodeOptions(cap=cap, max_new_tokens=plan.max_new_tokens) for cap in plan.caps]
    found: list[Row] = []
    for mode in modes:
        target = TargetConfig(path=plan.target, dtype=plan.dtype, device=plan.device, forwards=mode)
        with open_runner(target, DrafterConfig(), {"chain"}) as runner:
            rows = measure_equality(runner, prompt_rows(plan), rules, plan.budgets, report)
        found += [{"mode": mode, "dtype": plan.dtype, **row} for row in rows]
    return found
