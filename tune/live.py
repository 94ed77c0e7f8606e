"""One live trial: pairs with its baseline on the target, certificate and accuracy."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from benchmarks.certificate import Certificate, certify
from decoders.options import DecodeOptions
from tune.config import SweepConfig
from tune.counts import RoundFacts, count_rounds
from tune.pairs import Judge, Pairs, Row, measure_pairs
from tune.problems import heldout
from tune.row import TrialRow


class LiveTarget(Protocol):
    """What is used of a target group."""

    def generate(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, trace: bool = False
    ) -> list[dict[str, Any]]: ...
    def record(self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions) -> list[Any]: ...


def live_row(
    key: str,
    options: DecodeOptions,
    config: SweepConfig,
    group: LiveTarget,
    baseline: TrialRow | None,
    judge: Judge = lambda pairs: None,
) -> TrialRow:
    """The row of one setting, paired with its own draft-free run, whose row is ``baseline``; a
    draft-free run (``baseline`` is none) is paired with the reference. ``judge`` may stop it."""
    problems = heldout(config.tasks, config.tasks.live)
    draft_free = options.draft_free()
    opponent = config.reference if baseline is None else draft_free
    first = min(config.live.first * len(config.tasks.names), len(problems.problems))
    pairs = measure_pairs(group, problems.rows, options, opponent, config.live, first, judge)
    problems = problems.first(len(pairs.own.rows))
    certificate = _certify(group, problems.rows, pairs, options, draft_free)
    speed, nfe_factor = pairs.speed(), pairs.base.nfe / pairs.own.nfe
    return TrialRow(
        key=key,
        fidelity="live",
        options=options,
        status="stopped" if pairs.stopped else "done",
        error=pairs.stopped,
        n=len(problems.problems),
        nfe_factor=1.0 if baseline is None else nfe_factor,
        nfe_factor_reference=nfe_factor * _reference(baseline, "nfe_factor_reference"),
        speed=speed,
        baseline_speed=None if baseline is None else baseline.speed_to(config.reference),
        speed_reference=speed.median * _reference(baseline, "speed_reference"),
        tokens_per_second=pairs.own.tokens_per_second,
        latency_p95=pairs.own.latency_p95,
        passes=max(map(len, pairs.own.seconds)),
        certificate=certificate.kind,
        num_different=len(pairs.own.rows) - certificate.equal,
        margin=certificate.margin,
        correct=problems.score([row["text"] for row in pairs.own.rows]),
        **count_rounds(facts_of(pairs.own.rows), options),
    )


def _certify(
    group: LiveTarget,
    prompts: Sequence[Row],
    pairs: Pairs,
    options: DecodeOptions,
    draft_free: DecodeOptions,
) -> Certificate:
    """Outputs compared with draft-free ones; a draft-free run is its own measure."""
    base = pairs.base.rows if options.drafts else pairs.own.rows
    return certify(
        options,
        pairs.own.rows,
        base,
        lambda index: group.record([prompts[index]], draft_free)[0],
    )


def facts_of(rows: Sequence[Row]) -> list[RoundFacts]:
    return [
        RoundFacts(r["kind"], r["drafts"], r["accepted"], sum(map(len, r["steps"])))
        for row in rows
        for r in row["rounds"]
    ]


def _reference(baseline: TrialRow | None, field: str) -> float:
    """How the baseline compares with the reference; 1 where the reference itself was measured."""
    value = 1.0 if baseline is None else getattr(baseline, field)
    assert value is not None, "a finished row has its ratios"
    return value
