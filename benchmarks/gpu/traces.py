"""Draft-free traces of the bundled target: what is replayed, and what is drafted from."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from actors.loading import open_engine
from benchmarks.gpu.plan import GpuPlan
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.replay import Root, roots_of
from decoders.trace import Trace
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import problems

PROBLEM_SEED = 7


@dataclass(frozen=True)
class Recorded:
    """Traces by cap, of all tasks together, and the engine that they were recorded with."""

    engine: Engine
    by_cap: dict[float, list[Trace]]

    def roots(self, cap: float) -> Iterator[Root]:
        """The states that a round may begin at."""
        for trace in self.by_cap[cap]:
            yield from (root for root in roots_of(trace) if not root.opens)


def prompt_rows(plan: GpuPlan) -> list[PromptRow]:
    """Held-out problems of all tasks."""
    return [
        PromptRow(id=f"{task} {problem.id}", prompt=problem.prompt)
        for task in plan.tasks
        for problem in problems(task, "heldout", plan.problems, PROBLEM_SEED)
    ]


def record(plan: GpuPlan, report: Callable[[int, int], None]) -> Recorded:
    """Decode without drafts, in fp32 on the CPU: traces are the same wherever they come from."""
    engine = open_engine(TargetConfig(path=plan.target), DrafterConfig(), set(plan.methods))
    rows, found = prompt_rows(plan), {}
    for index, cap in enumerate(plan.caps):
        options = DecodeOptions(cap=cap, max_new_tokens=plan.max_new_tokens, batch_size=4)
        found[cap] = engine.record(rows, options)
        report(index + 1, len(plan.caps))
    return Recorded(engine, found)
