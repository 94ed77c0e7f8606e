"""One setting of the report decoded on held-out problems, and what is counted of it."""

from collections.abc import Sequence
from time import perf_counter
from typing import Any

from benchmarks.simsd.formula import whole_rounds
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.simsd.companion import SimSD
from decoders.simsd.small_model import SmallModel
from models.target import Target
from tasks.bundled import score
from tasks.problem import Problem

Row = dict[str, Any]


def with_small_model(engine: Engine, small: Target, copied: bool = True) -> Engine:
    """The same target, drafted for by ``small``."""
    return Engine(engine.folder, engine.target, {"simsd": SimSD(SmallModel(small), copied)})


def decoded(engine: Engine, asked: Sequence[Problem], options: DecodeOptions) -> Row:
    """Counts, texts and seconds of one run. ``tested`` and ``accepted`` are draft tokens under the
    mask, ``rounds`` those that the end of a text did not cut."""
    requests = engine.requests([PromptRow(id=p.id, prompt=p.prompt) for p in asked], options)
    companion = engine.proposers.get("simsd")
    assert companion is None or isinstance(companion, SimSD)
    before = counters(companion)
    started = perf_counter()
    found = {r.request.id: r for r in engine.decode(requests, options.batch_size)}
    seconds = perf_counter() - started
    results = [found[request.id] for request in requests]
    tested, accepted, drafting = (
        now - then for now, then in zip(counters(companion), before, strict=True)
    )
    right = score(asked, [engine.spell(result)["text"] for result in results])
    block = engine.target.spec.block_size
    rounds = [each for result in results for each in whole_rounds(result, block)]
    return {
        "n": len(results),
        "correct": {problem.id: ok for problem, ok in zip(asked, right, strict=True)},
        "token_ids": {result.request.id: list(result.token_ids) for result in results},
        "commits": sum(result.commits for result in results),
        "tokens": sum(len(result.token_ids) for result in results),
        "nfe": sum(result.nfe for result in results),
        "drafting_forwards": drafting,
        "drafted": sum(r.drafts for result in results for r in result.rounds),
        "tested": tested,
        "accepted": accepted,
        "rounds": rounds if options.masked else [],
        "seconds": seconds,
    }


def counters(companion: SimSD | None) -> tuple[int, int, int]:
    """Draft tokens tested and accepted, and forwards of the small model, since the start."""
    if companion is None:
        return 0, 0, 0
    assert isinstance(companion.drafting, SmallModel)
    return companion.num_tested, companion.num_accepted, companion.drafting.num_forwards
