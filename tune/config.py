"""What a sweep searches, on what, with which effort, and who may win (``configs/sweep.yaml``)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from cluster.session import ClusterConfig
from decoders.options import (
    GAMMA_OF,
    OPTIONS_OF,
    PROPOSERS,
    Acceptance,
    AcceptOrder,
    DecodeOptions,
    Rest,
    Temperature,
    Verify,
    takes,
)
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import find_task

Objective = Literal["speed", "nfe", "accuracy"]


class _Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class TasksConfig(_Frozen):
    """The held-out problems; live trials use the first ones of those that were recorded."""

    names: tuple[str, ...] = ("words", "code")
    recorded: int = Field(default=16, ge=1)
    """Problems of each task that are recorded and replayed."""
    live: int = Field(default=4, ge=1)
    """Problems of each task that a live trial decodes."""
    seed: int = 7
    """Of the held-out problems."""

    @model_validator(mode="after")
    def _check(self) -> "TasksConfig":
        for name in self.names:
            find_task(name)
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"tasks.names {list(self.names)} must name each task once")
        if self.live > self.recorded:
            raise ValueError(
                f"tasks.live {self.live} is more than tasks.recorded {self.recorded}: live trials "
                "are compared with the recorded problems"
            )
        return self


class Range(_Frozen):
    """Whole numbers from ``least`` to ``most``, both included."""

    least: int
    most: int

    @model_validator(mode="after")
    def _check(self) -> "Range":
        if not 0 <= self.least <= self.most:
            raise ValueError(f"range {self.least}..{self.most} must have 0 <= least <= most")
        return self


SWEPT = (*PROPOSERS, "sets", "simsd")
CHOICES = (
    *("cap", "tau", "temperature", "gamma", "hedge", "width", "prune", "cross_block"),
    *("order", "rest", "verify"),
)
"""Knobs of a space that are a list of values."""


class SpaceConfig(_Frozen):
    """The values that are tried; a method takes the knobs that it has and no other."""

    methods: tuple[str, ...] = ("chain", "order")
    """``simsd`` may stand among them: it cannot be replayed, so its settings are only tried live
    (``live.simsd`` of them)."""
    budget: Range = Range(least=1, most=32)
    """Drafts of a forward; none at all (0) is the baseline, which always runs."""
    gamma: tuple[float, ...] = (0.0, 0.01, 0.03, 0.1, 4.0, 8.0, 16.0)
    """Mass floors of order (below 1) and draft lengths of simsd (whole numbers, 0 for the block):
    each method takes what means something to it."""
    hedge: tuple[float, ...] = (0.0, 0.3, 0.6, 0.8)
    width: tuple[int, ...] = (2, 3, 4)
    prune: tuple[float, ...] = (0.0, 0.3, 0.6)
    cross_block: tuple[bool, ...] = (False, True)
    order: tuple[AcceptOrder, ...] = ("temporal",)
    rest: tuple[Rest, ...] = ("redraft",)
    verify: tuple[Verify, ...] = ("mask", "exact")
    cap: tuple[float, ...] = (1.0, 0.9)
    tau: tuple[float, ...] = (0.9,)
    """Of threshold decoding, which ``sets`` drafts over."""
    rule: tuple[Acceptance, ...] = ("exact",)
    """Rules of acceptance of ``sets``. Lossy ones cannot be replayed: they are tried live, each
    beside the exact setting that was chosen."""
    temperature: tuple[Temperature, ...] = (0.0,)

    @model_validator(mode="after")
    def _check(self) -> "SpaceConfig":
        for method in self.methods:
            if method not in SWEPT:
                raise ValueError(
                    f"space.methods {method!r}: a sweep tries methods that draft; choose from "
                    f"{', '.join(SWEPT)}"
                )
        for name in ("methods", *CHOICES, "rule"):
            values = getattr(self, name)
            if not values or len(set(values)) < len(values):
                raise ValueError(f"space.{name} {list(values)} must list each value once")
        for method, meaning in GAMMA_OF.items():
            if method in self.methods and not self.values(method, "gamma"):
                raise ValueError(
                    f"space.gamma {list(self.gamma)} holds nothing for {method}: {meaning}"
                )
        return self

    @property
    def replayed(self) -> tuple[str, ...]:
        """The methods whose forwards replay counts."""
        return tuple(method for method in self.methods if method != "simsd")

    def values(self, method: str, name: str) -> list[Any]:
        """The values of a knob that mean something to a method."""
        return [value for value in getattr(self, name) if takes(method, name, value)]

    def rules(self, method: str) -> tuple[dict[str, float], ...]:
        """What decides the draft-free runs that a method's settings are compared with."""
        knob = "tau" if method == "sets" else "cap"
        values = getattr(self, knob)
        return tuple({knob: value, "temperature": t} for value in values for t in self.temperature)


class ReplayConfig(_Frozen):
    """The cheap fidelity: exact forwards from recorded traces, no target."""

    trials: int = Field(default=40, ge=0)
    concurrency: int = Field(default=2, ge=1)
    """Trials that run at a time, each in a process of its own."""


class LiveConfig(_Frozen):
    """The dear fidelity: the best few on the target, in interleaved pairs with draft-free."""

    trials: int = Field(default=3, ge=0)
    """Settings besides the baselines."""
    simsd: int = Field(default=4, ge=0)
    """Settings of simsd, drawn from all of the space's, where it is among ``space.methods``."""
    repeats: int = Field(default=2, ge=1)
    """Passes over the problems."""
    draft_refresh: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Every setting is tried once more with each of these: what ``decode.draft_refresh`` gains
    stands in no trace."""

    @property
    def settings(self) -> int:
        """How many settings are tried at most, besides the baselines."""
        return self.trials * (1 + len(self.draft_refresh))


class ChampionPolicy(_Frozen):
    """Who may win: exact trials, whose accuracy is not below the standard baseline's."""

    approximate: bool = False
    """Whether a trial whose certificate is not ``exact`` may win."""
    max_loss: float | None = Field(default=None, ge=0, le=1)
    """How much accuracy such a trial may lose at most, with 95 % confidence."""

    @model_validator(mode="after")
    def _check(self) -> "ChampionPolicy":
        if self.approximate and self.max_loss is None:
            raise ValueError("champion.approximate needs champion.max_loss, a bound of its loss")
        return self


class SweepConfig(_Frozen):
    """One sweep; every default is written here."""

    target: TargetConfig = TargetConfig()
    drafter: DrafterConfig = DrafterConfig()
    decode: dict[str, Any] = {}
    """Shared by all trials; each method takes what it knows, the space has the last word."""
    tasks: TasksConfig = TasksConfig()
    space: SpaceConfig = SpaceConfig()
    objectives: tuple[Objective, ...] = ("speed", "nfe", "accuracy")
    """What the search maximises over replayed settings, together."""
    replay: ReplayConfig = ReplayConfig()
    live: LiveConfig = LiveConfig()
    champion: ChampionPolicy = ChampionPolicy()
    trial_seconds: float = Field(default=600.0, gt=0)
    """A trial that takes longer fails."""
    seed: int = 0
    """Of the search."""
    cluster: ClusterConfig = ClusterConfig()

    @model_validator(mode="after")
    def _check(self) -> "SweepConfig":
        # A sweep looks for the fastest exact setting: what makes all of them approximate stays out.
        known = set().union(*OPTIONS_OF.values()) - {"method", "cache_refresh"}
        known -= {"tau", "rule", "edit_tau", "edit_passes"}
        for key in self.decode:
            if key not in known:
                raise ValueError(
                    f"decode.{key} is not shared by a sweep's methods; valid: "
                    f"{', '.join(sorted(known))}"
                )
        if self.decode.get("draft_refresh"):
            raise ValueError(
                f"decode.draft_refresh {self.decode['draft_refresh']}: it cannot be replayed; list "
                "what to try live in live.draft_refresh"
            )
        if self.decode.get("budget") == "auto":
            raise ValueError("decode.budget auto: a sweep's space tries numbers (space.budget)")
        if not self.objectives or len(set(self.objectives)) < len(self.objectives):
            raise ValueError(f"objectives {list(self.objectives)} must list each one once")
        for method in ("standard", *self.space.methods):
            self.options(method=method)
        return self

    def options(self, **values: Any) -> DecodeOptions:
        """The decoding options of one setting: shared values, then ``values``."""
        shared = self.decode | values
        return DecodeOptions.lenient(**{key: shared[key] for key in shared})

    def draft_free(self, cap: float, temperature: float) -> DecodeOptions:
        """The baseline of a rule."""
        return self.options(method="standard", cap=cap, temperature=temperature)

    @property
    def reference(self) -> DecodeOptions:
        """What everything is compared with in the end: standard decoding, uncapped."""
        return self.draft_free(1.0, float(self.decode.get("temperature", 0.0)))

    @property
    def rules(self) -> tuple[DecodeOptions, ...]:
        """Every draft-free run that is recorded, the reference first."""
        found = [
            self.options(method=method, **rule).draft_free()
            for method in self.space.methods
            for rule in self.space.rules(method)
        ]
        return tuple(dict.fromkeys((self.reference, *found)))
