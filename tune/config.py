"""What a sweep searches, on what, with which effort, and who may win (``configs/sweep.yaml``)."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from actors.target_pool import PoolConfig
from cluster.session import ClusterConfig
from decoders.options import OPTIONS_OF, DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig
from models.invalid import one_line
from tasks.registry import find_task
from tune.space_config import SpaceConfig

Objective = Literal["speed", "tokens_per_second", "nfe", "accuracy", "latency"]
"""``speed``: tokens/s over standard decoding's; ``nfe``: forwards of standard decoding over this
one's; ``latency``: the 95th percentile of an answer's seconds, of which less is better."""


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
    data: dict[str, str] = {}
    """By task: a file or folder to read a public task's rows from, instead of the hub."""
    shots: dict[str, Annotated[int, Field(ge=0)]] = {}
    """By task: solved examples before the question."""
    shots_data: dict[str, str] = {}
    """By task: a file or folder to read the solved examples from; beside ``data``, unless its file
    holds them too."""

    @model_validator(mode="after")
    def _check(self) -> "TasksConfig":
        for name in self.names:
            find_task(name)
        for key in ("data", "shots", "shots_data"):
            for name in getattr(self, key):
                if name not in self.names:
                    raise ValueError(f"tasks.{key}.{name}: tasks.names {list(self.names)} lacks it")
        if not self.names or len(set(self.names)) < len(self.names):
            raise ValueError(f"tasks.names {list(self.names)} must name each task once")
        if self.live > self.recorded:
            raise ValueError(
                f"tasks.live {self.live} is more than tasks.recorded {self.recorded}: live trials "
                "are compared with the recorded problems"
            )
        return self


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
    """Passes over the problems, at least."""
    precision: float | None = Field(default=None, gt=0)
    """Passes go on until the 95 % interval of the speed ratio reaches at most this far to either
    side, as a share of the ratio (0.05 is 5 %), or until there were ``max_repeats``."""
    max_repeats: int = Field(default=10, ge=1)
    """Passes at most, where a precision is asked for."""
    first: int = Field(default=3, ge=1)
    """Problems of each task after which a setting is judged for the first time; then between
    passes."""
    stop_hopeless: bool = True
    """End a setting once the interval of its ratio lies below standard decoding or below that of
    the best so far. Only where speed is what wins (``objectives``)."""
    draft_refresh: tuple[Annotated[int, Field(ge=1)], ...] = ()
    """Every setting is tried once more with each of these: what ``decode.draft_refresh`` gains
    stands in no trace."""

    @property
    def settings(self) -> int:
        """How many settings are tried at most, besides the baselines."""
        return self.trials * (1 + len(self.draft_refresh))


class ChampionPolicy(_Frozen):
    """Who may win: exact trials, whose accuracy is not below the standard baseline's, within the
    bounds that are given here."""

    approximate: bool = False
    """Whether a trial whose certificate is not ``exact`` may win."""
    max_loss: float | None = Field(default=None, ge=0, le=1)
    """How much accuracy a winner may lose at most, with 95 % confidence."""
    max_latency: float | None = Field(default=None, gt=0)
    """Seconds that 95 % of a winner's answers take at most."""

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
    """What the search over replayed settings improves, together. The first says who wins; the next
    ones decide between equals."""
    replay: ReplayConfig = ReplayConfig()
    live: LiveConfig = LiveConfig()
    champion: ChampionPolicy = ChampionPolicy()
    trial_seconds: float = Field(default=600.0, gt=0)
    """A trial that takes longer fails."""
    seed: int = Field(default=0, ge=0, lt=2**32)
    """Of the search."""
    cluster: ClusterConfig = ClusterConfig()
    pool: PoolConfig = PoolConfig()

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
            self._check_shared(method)
        return self

    def _check_shared(self, method: str) -> None:
        try:
            options = self.options(method=method)
        except ValidationError as error:
            raise ValueError(one_line(error, prefix="decode.")) from error
        if options.max_new_tokens == 0:
            raise ValueError(
                "decode.max_new_tokens 0: a sweep compares forwards, and nothing would be decoded; "
                "valid: 1 or more"
            )

    def options(self, **values: Any) -> DecodeOptions:
        """The decoding options of one setting: shared values, then ``values``."""
        return DecodeOptions.lenient(**(self.decode | values))

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
