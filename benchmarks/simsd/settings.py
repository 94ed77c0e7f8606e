"""The settings that the report decodes: which pair, which options, on how many problems."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from benchmarks.simsd.config import SimsdConfig
from decoders.options import DecodeOptions

MAIN, SELF, EXACT_SLOTS = "main", "self", "exact slots"
ABLATION_LENGTH = 4
"""Draft tokens of the ablations (every block has as many positions)."""


@dataclass(frozen=True)
class Setting:
    """``pair`` is the main one, the target drafting for itself, the main one with exact states in
    the mask's place, or another pair's number;
    ``group`` is the table that it stands in; ``copied`` is SimSD's rotary copy."""

    group: str
    name: str
    pair: str
    options: DecodeOptions
    count: int
    copied: bool = True

    @property
    def key(self) -> str:
        """Names it among all of the report."""
        return f"{self.group}-{self.name}".replace(" ", "-")


def plan_settings(config: SimsdConfig, block: int) -> list[Setting]:
    """All settings; the baseline of a group is the ``standard`` run of the same pair, rule and
    problems."""
    return [
        *_quality(config),
        *_gammas(config, block),
        *_orders(config),
        *_ablations(config),
        *_temperatures(config),
        *_exact(config),
        *_pairs(config),
    ]


def _options(config: SimsdConfig, method: str, **values: Any) -> DecodeOptions:
    shared = {"max_new_tokens": config.max_new_tokens, "batch_size": config.batch_size}
    return DecodeOptions.model_validate({"method": method} | shared | values)


def _quality(config: SimsdConfig) -> Iterator[Setting]:
    for cap in config.problem_caps:
        for method in ("standard", "simsd"):
            options = _options(config, method, cap=cap)
            yield Setting("quality", f"{method} cap={cap:g}", MAIN, options, config.problems)


def _gammas(config: SimsdConfig, block: int) -> Iterator[Setting]:
    count = config.sweep_problems
    yield Setting("gamma", "standard", MAIN, _options(config, "standard"), count)
    for gamma in (*(g for g in config.gammas if g < block), 0):
        name = f"gamma {gamma or block}"
        yield Setting("gamma", name, MAIN, _options(config, "simsd", gamma=gamma), count)


def _orders(config: SimsdConfig) -> Iterator[Setting]:
    count = config.sweep_problems
    yield Setting("order", "standard", MAIN, _options(config, "standard"), count)
    for order in ("temporal", "positional"):
        for rest in ("redraft", "target-argmax", "draft-argmax"):
            options = _options(config, "simsd", order=order, rest=rest)
            yield Setting("order", f"{order} {rest}", MAIN, options, count)


def _ablations(config: SimsdConfig) -> Iterator[Setting]:
    # Short drafts: where nothing is accepted, every forward throws a whole draft away.
    count, simsd = config.sweep_problems, _options(config, "simsd", gamma=ABLATION_LENGTH)
    yield Setting("ablation", "standard", MAIN, _options(config, "standard"), count)
    yield Setting("ablation", "rotary copy", MAIN, simsd, count)
    yield Setting("ablation", "own positions", MAIN, simsd, count, copied=False)
    whole = _options(config, "simsd")
    yield Setting("ablation", "drafter is the target", SELF, whole, count)


def _temperatures(config: SimsdConfig) -> Iterator[Setting]:
    count = config.sweep_problems
    for temperature in config.temperatures:
        for method in ("standard", "simsd"):
            options = _options(config, method, temperature=temperature)
            yield Setting("temperature", f"{method} T={temperature:g}", MAIN, options, count)


def _exact(config: SimsdConfig) -> Iterator[Setting]:
    count = config.sweep_problems
    for cap in config.caps:
        yield Setting(
            "exact", f"standard cap={cap:g}", MAIN, _options(config, "standard", cap=cap), count
        )
        for verify in ("exact", "mask"):
            options = _options(config, "simsd", cap=cap, verify=verify)
            yield Setting("exact", f"{verify} cap={cap:g}", MAIN, options, count)
        options = _options(config, "simsd", cap=cap)
        yield Setting("exact", f"exact slots cap={cap:g}", EXACT_SLOTS, options, count)


def _pairs(config: SimsdConfig) -> Iterator[Setting]:
    for number, _ in enumerate(config.pairs):
        for method in ("standard", "simsd"):
            options, name = _options(config, method), f"pair {number} {method}"
            yield Setting("pairs", name, str(number), options, config.sweep_problems)
