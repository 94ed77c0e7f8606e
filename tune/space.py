"""The search space as Optuna draws from it, and the flat form in which settings are shown."""

import random
from itertools import product, zip_longest
from typing import Any, Protocol

from decoders.options import OPTIONS_OF, DecodeOptions
from tune.space_config import CHOICES, SpaceConfig

LIVE_KNOB = "draft_refresh"
"""No trace can replay it, nor the lossy rules of acceptance."""
NEVER_DRAWN = (LIVE_KNOB, "rule")
KNOBS = ("method", "budget", *CHOICES, *NEVER_DRAWN)
INACTIVE = "-"
START_BUDGET = 6


class Draws(Protocol):
    """What is used of an Optuna trial."""

    def suggest_categorical(self, name: str, choices: Any) -> Any: ...
    def suggest_int(self, name: str, low: int, high: int, *, log: bool) -> int: ...


def draw_setting(space: SpaceConfig, trial: Draws) -> dict[str, Any]:
    """One setting: every method with its own knobs only (define-by-run)."""
    method = trial.suggest_categorical("method", list(space.replayed))
    setting: dict[str, Any] = {"method": method}
    for name in CHOICES:
        if name in OPTIONS_OF[method]:
            setting[name] = trial.suggest_categorical(name, space.values(method, name))
    if "budget" in OPTIONS_OF[method]:
        least, most = space.budget.least, space.budget.most
        # A draft more matters among few; a logarithm has no place for zero.
        setting["budget"] = trial.suggest_int("budget", least, most, log=least > 0)
    return setting


def spell_space(space: SpaceConfig, method: str) -> str:
    """What is tried of a method, as in ``chain: budget 1..32, cap 1 or 0.9``."""
    known = OPTIONS_OF[method]
    parts = [f"budget {space.budget.least}..{space.budget.most}"] if "budget" in known else []
    for name in CHOICES:
        values = space.values(method, name) if name in known else []
        told = [v if isinstance(v, str) else f"{v:g}" for v in values]
        parts += [f"{name} {' or '.join(told)}"] if told else []
    return f"{method}: {', '.join(parts)}"


def first_settings(space: SpaceConfig) -> list[dict[str, Any]]:
    """What the search begins with: every method at every rule, with a middling budget, crossing
    blocks or not: of one of these alone a short search might never see the other. Methods take
    turns, so that one of few trials sees each of them."""
    budget = min(max(START_BUDGET, space.budget.least), space.budget.most)
    turns = list(zip_longest(*(space.rules(method) for method in space.replayed)))
    settings = []
    for crosses, turn in product(space.cross_block, turns):
        for method, rule in zip(space.replayed, turn, strict=True):
            if rule is None:
                continue
            values = {name: found[0] for name in CHOICES if (found := space.values(method, name))}
            values |= {"method": method, "budget": budget, "cross_block": crosses} | rule
            settings.append({k: v for k, v in values.items() if k in OPTIONS_OF[method]})
    return settings


def simsd_settings(space: SpaceConfig, count: int, seed: int) -> list[dict[str, Any]]:
    """At most ``count`` of simsd's settings in the space, drawn with ``seed``: they are tried live,
    since what is not lossless cannot be replayed."""
    if "simsd" not in space.methods:
        return []
    names = [name for name in CHOICES if name in OPTIONS_OF["simsd"]]
    grid = [
        dict(zip(names, values, strict=True))
        for values in product(*(space.values("simsd", name) for name in names))
    ]
    plain = {"order": "temporal", "rest": "redraft"}
    valid = [s for s in grid if s["verify"] == "mask" or plain.items() <= s.items()]
    drawn = sorted(random.Random(seed).sample(range(len(valid)), min(count, len(valid))))
    return [{"method": "simsd"} | valid[index] for index in drawn]


def knobs_of(options: DecodeOptions) -> dict[str, Any]:
    """The knobs that this setting's method has, with their values."""
    known = OPTIONS_OF[options.method]
    return {name: getattr(options, name) for name in KNOBS if name in known}


def flat_knobs(options: DecodeOptions) -> dict[str, Any]:
    """Every knob, the same keys for every setting; those that the method lacks are ``-``."""
    active = knobs_of(options)
    return {name: active.get(name, INACTIVE) for name in KNOBS}


def spell(options: DecodeOptions) -> str:
    """A short name, as in ``order budget=8 gamma=0 hedge=0.6 cap=0.9 T=0``."""
    knobs = knobs_of(options)
    method, cap, temperature = knobs.pop("method"), knobs.pop("cap", None), knobs["temperature"]
    del knobs["temperature"]
    switched = {name: knobs.pop(name, 0) for name in ("cross_block", LIVE_KNOB)}
    knobs |= {name: value for name, value in switched.items() if value}
    parts = [f"{name}={v if isinstance(v, str) else f'{v:g}'}" for name, v in knobs.items()]
    if cap is not None:
        parts.append(f"cap={cap:g}")
    return " ".join([method, *parts, f"T={temperature:g}"])


def option_values(options: DecodeOptions) -> dict[str, Any]:
    """All options that the method knows, as a configuration file may give them."""
    return options.model_dump(include=OPTIONS_OF[options.method])
