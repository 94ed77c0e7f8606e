"""The report's table of measured tokens/s."""

from collections.abc import Mapping
from typing import Any

from benchmarks.spot.cells import Drafting, cell_name, main_draftings, standard_rule
from benchmarks.spot.found import Found, Row, Table, named
from decoders.options import DecodeOptions


def live_table(found: Found) -> Table:
    """Measured tokens/s, and whether replay foretold the forwards."""
    rows = [
        named(task, drafting, T=temperature) | _live_row(found, task, rule, drafting)
        for task in found.config.tasks
        for temperature in found.config.main.temperatures
        for rule in [standard_rule(found.config, temperature)]
        if found.live.get(cell_name(task, rule))
        for drafting in main_draftings(found.config)
    ]
    note = (
        "Measured on this machine, one request at a time; every prompt with every row in turn, so "
        "that each ratio pairs two runs of one prompt that follow each other closely. speed: "
        "tokens/s over those of draft-free decoding of the same rule, median and quartiles over "
        "the pairs. nfe as in the main table; "
        "as_replayed: problems whose forwards equal the replay's. certificate: outputs equal to "
        "draft-free ones; margin: the smallest log-odds margin at a first divergence, where some "
        "differ. load: the machine's load average behind it; above 1, something else ran."
    )
    keys = ("task", "T", "method", "budget")
    return Table("live", "Live, paired with draft-free decoding", keys, rows, note)


def _live_row(found: Found, task: str, rule: DecodeOptions, drafting: Drafting) -> Row:
    facts = found.live[cell_name(task, rule)][drafting.label]
    replayed = {p.id: p.nfe for p in found.tally(task, rule, drafting).problems}
    same = sum(replayed[id] == nfe for id, nfe in facts["nfe_by_problem"].items())
    return {
        "n": facts["n"],
        "pairs": facts["n"] * found.config.live.repeats,
        "tokens_per_second": facts["tokens_per_second"],
        "speed": facts["ratio"]["median"],
        "speed_q25": facts["ratio"]["q25"],
        "speed_q75": facts["ratio"]["q75"],
        "nfe": facts["nfe"],
        "nfe_factor": facts["nfe_ratio"],
        "as_replayed": f"{same}/{facts['n']}",
        "certificate": _certificate(facts),
        "margin": facts["divergence_margin"],
        "load": facts["load_average"],
    }


def speed(found: Found, task: str, rule: DecodeOptions, drafting: Drafting) -> float | None:
    """The median over the pairs; ``None`` where the live stage was left out."""
    rows = found.live.get(cell_name(task, rule))
    return rows[drafting.label]["ratio"]["median"] if rows else None


def certificate(found: Found, task: str, rule: DecodeOptions, drafting: Drafting) -> str:
    """Kind and count, as in ``exact 4/4``."""
    rows = found.live.get(cell_name(task, rule))
    return _certificate(rows[drafting.label]) if rows else "not compared"


def _certificate(facts: Mapping[str, Any]) -> str:
    return f"{facts['certificate']} {facts['equal']}/{facts['n']}"
