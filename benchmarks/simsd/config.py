"""What the SimSD report measures (``maskahead report simsd --config``)."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from decoders.options import Temperature
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import find_task


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)


class FidelityConfig(_Frozen):
    """The temporal mask's slots against the exact batch of the states that they stand for."""

    problems: int = Field(default=4, ge=1)
    """Held-out problems of each task, whose blocks are drafted behind the target's own text."""
    layers: tuple[int, ...] = (1, 2, 3, 4, 6)
    """First layers of the target, read out by its own head; those that it has, and all of them."""


class PairConfig(_Frozen):
    """Another target, of another block size as a rule; without a drafter it drafts for itself."""

    target: str
    drafter: str | None = None


class PlacementConfig(_Frozen):
    """Where drafter and target run, in tokens a second, beside every baseline."""

    problems: int = Field(default=2, ge=0)
    """Of each task; 0 leaves this stage out."""
    repeats: int = Field(default=2, ge=1)
    """Passes over the problems, behind one that warms up."""
    together: bool = True
    """All are open at once and take turns; false: one after the other, where GPUs are few."""
    tensor_parallel: tuple[int, ...] = (1, 2)
    forwards: tuple[Literal["plain", "buckets", "graphs"], ...] = ("plain",)
    """Of the target: with and without CUDA graphs where there is a GPU."""


class SimsdConfig(_Frozen):
    """The whole report."""

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    tasks: tuple[str, ...] = ("words", "code")
    problem_seed: int = 7
    """Of the held-out problems."""
    problems: int = Field(default=50, ge=1)
    """Of each task, for standard decoding and the mask with whole blocks drafted."""
    problem_caps: tuple[float, ...] = (1.0,)
    """Of the commit order, for these."""
    sweep_problems: int = Field(default=20, ge=1)
    """Of these the first, for every other setting."""
    max_new_tokens: int = Field(default=256, ge=1)
    batch_size: int = Field(default=8, ge=1)
    gammas: tuple[int, ...] = (1, 2, 4, 8, 16)
    """Draft lengths beside the whole block; those that fit the block."""
    temperatures: tuple[Temperature, ...] = (1.0,)
    """Beside T=0: rejection sampling."""
    caps: tuple[float, ...] = (1.0, 0.9, 0.0)
    """At which the mask is told beside the same drafts as exact states, on the first problems."""
    fidelity: FidelityConfig = FidelityConfig()
    pairs: tuple[PairConfig, ...] = ()
    placement: PlacementConfig = PlacementConfig()

    @model_validator(mode="after")
    def _check(self) -> "SimsdConfig":
        for task in self.tasks:
            find_task(task)
        if self.sweep_problems > self.problems:
            raise ValueError(
                f"sweep_problems {self.sweep_problems}: at most problems ({self.problems}), whose "
                "first ones they are"
            )
        return self
