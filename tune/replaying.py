"""The cheap fidelity: a setting's exact forwards, read off recorded draft-free traces.

Seconds are estimated from the rounds with the machine's measured cost curve; accuracy is that of
the rule, since a lossless method's outputs are those of its draft-free run.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from decoders.options import DecodeOptions
from decoders.proposers.base import Proposer
from decoders.proposers.registry import open_proposers
from decoders.proposers.remembering import RememberingOrderProposer
from decoders.replay import replay
from decoders.request import Result
from decoders.trace import Trace
from drafters.bundle import find_order_model, load_order_model
from models.checkpoint import find_checkpoint, target_spec
from tune.config import SweepConfig
from tune.cost import CostCurve
from tune.counts import RoundFacts, count_rounds
from tune.row import Spread, TrialRow


def replay_row(
    key: str,
    options: DecodeOptions,
    traces: Sequence[Trace],
    proposer: Proposer | None,
    cost: CostCurve,
    correct: Mapping[str, bool],
    reference: TrialRow | None,
) -> TrialRow:
    """The row of one setting; ``reference`` is standard decoding's, or none for that row itself."""
    results = replay(traces, options, proposer)
    draft_free = options.draft_free()
    answers = estimated_seconds(results, options, cost)
    seconds = sum(answers)
    own_seconds = sum(estimated_seconds(replay(traces, draft_free, None), draft_free, cost))
    speed = own_seconds / seconds
    counts = count_rounds(facts_of(results), options)
    rate = sum(len(trace.token_ids) for trace in traces) / seconds
    return TrialRow(
        key=key,
        fidelity="replay",
        options=options,
        n=len(results),
        nfe_factor=sum(trace.nfe for trace in traces) / counts["nfe"],
        nfe_factor_reference=_ratio(reference and reference.nfe, counts["nfe"]),
        speed=Spread(median=speed, q25=speed, q75=speed),
        speed_reference=_ratio(rate, reference and reference.tokens_per_second),
        tokens_per_second=rate,
        latency_p95=float(np.percentile(answers, 95)),
        correct=dict(correct),
        **counts,
    )


def facts_of(results: Sequence[Result]) -> list[RoundFacts]:
    return [
        RoundFacts(r.kind, r.drafts, r.accepted, sum(map(len, r.steps)))
        for result in results
        for r in result.rounds
    ]


def estimated_seconds(
    results: Sequence[Result], options: DecodeOptions, cost: CostCurve
) -> list[float]:
    """What each result's rounds take on the machine of the cost curve, one request at a time."""
    return [
        cost.seconds([(r.kind, r.drafts) for r in result.rounds], options) for result in results
    ]


def open_replay_proposer(method: str, config: SweepConfig) -> Proposer:
    """The proposer of a process that replays: the same drafts as beside a target."""
    folder = find_checkpoint(config.target.path)
    if method == "order":
        found = find_order_model(config.drafter.path, folder)
        return RememberingOrderProposer(load_order_model(found, folder))
    return open_proposers(folder, target_spec(config.target), config.drafter, {method})[method]


def _ratio(above: float | None, below: float | None) -> float:
    """1 where there is nothing to compare with, as for the reference's own row."""
    return 1.0 if above is None or not below else above / below
