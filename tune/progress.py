"""What a running sweep shows: stage, trial, best so far, time left; on stderr."""

import time
from collections.abc import Sequence
from dataclasses import replace
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
from rich.text import Text

from tune.plan import Stage, spell_seconds


class SweepProgress:
    """A bar on a terminal, else a plain line for every finished thing."""

    def __init__(self, stages: Sequence[Stage], console: Console | None = None) -> None:
        self.console = console or Console(stderr=True, highlight=False)
        self.stages = list(stages)
        self.current = -1
        self.done = 0
        self.total = 1
        self.best = ""
        self._started = time.monotonic()
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[left]}"),
            console=self.console,
        )
        self._task = self._bar.add_task("start", total=1, left="")
        self._live: Live | None = None

    def __enter__(self) -> "SweepProgress":
        if self.console.is_terminal:
            self._live = Live(self._bar, console=self.console, refresh_per_second=4)
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def replan(self, name: str, seconds: float) -> None:
        """Expect another duration of a stage."""
        self.stages = [
            replace(stage, seconds=seconds) if stage.name == name else stage
            for stage in self.stages
        ]

    def begin(self, name: str, total: int | None = None) -> None:
        """Go on to the stage of that name."""
        self.current = next(i for i, stage in enumerate(self.stages) if stage.name == name)
        self.total = max(1, self.stages[self.current].total if total is None else total)
        self.done = 0
        self._started = time.monotonic()
        self._show("")

    def advance(self, text: str, count: int = 1) -> None:
        """``count`` more things are done, the last of them ``text``."""
        self.done = min(self.total, self.done + count)
        self._show(text)

    def note(self, text: str) -> None:
        """A line beside the stages, as of a place that is waited for; from any thread."""
        self.console.print(Text(text), soft_wrap=True)

    def found_best(self, text: str) -> None:
        """The best so far."""
        self.best = text

    def seconds_left(self) -> float:
        """Of this stage by its own pace, of the next ones as planned."""
        spent = time.monotonic() - self._started
        planned = self.stages[self.current].seconds
        share = self.done / self.total
        here = spent / share - spent if share > 0 else max(0.0, planned - spent)
        return here + sum(stage.seconds for stage in self.stages[self.current + 1 :])

    def _show(self, text: str) -> None:
        stage = self.stages[self.current].name
        best = f"best {self.best}" if self.best else ""
        left = f"{spell_seconds(self.seconds_left())} left"
        self._bar.update(
            self._task,
            description=stage,
            completed=self.done,
            total=self.total,
            left=left,
        )
        if self._live is not None:
            self._live.update(Group(self._bar, Text(f"  {text}"), Text(f"  {best}")))
        else:
            parts = [f"{stage} {self.done}/{self.total}", text, best, left]
            self.console.print(Text(" | ".join(part for part in parts if part)), soft_wrap=True)
