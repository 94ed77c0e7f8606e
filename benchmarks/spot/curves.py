"""The report's tables of drafts and stale distributions, by look ahead, depth and mass."""

from collections.abc import Iterable, Sequence

from benchmarks.spot.cells import Drafting, cell_name, main_draftings, standard_rule
from benchmarks.spot.found import REPLAYED, Found, Row, Table
from benchmarks.spot.measures import MASS_EDGES, Depth, coverage
from tasks.intervals import wilson_interval

INTERVAL = (
    "low, high: Wilson's 95 % interval, as if all were independent, which those of one problem "
    "are not."
)


def coverage_table(found: Found) -> Table:
    """Do future tokens stand among the stale candidates (SPOT, figure 2, right)?"""
    rows = []
    for task, temperature in _main_cells(found):
        ranks = found.replayed[cell_name(task, standard_rule(found.config, temperature))].ranks
        shares = {t: coverage(ranks, t) for t in found.config.figures.candidates}
        for index, n in enumerate(ranks.sum(axis=1).cumsum().tolist()):
            row = {"task": task, "T": temperature, "K": index + 1, "n": n}
            rows.append(row | {f"top_{t}": share[index] for t, share in shares.items()})
    note = (
        "Share of the next K commits' tokens that are among the t first stale candidates of their "
        "position; stale is the distribution of every state of the draft-free run, before its own "
        "commit (at T>0 with its noise). n: commits counted; the commits of one block only. No "
        "baseline and no certificate: it describes the draft-free run."
    )
    return Table("coverage", "Stale top-t coverage", ("task", "T", "K"), rows, note)


def order_accuracy_table(found: Found) -> Table:
    """Which position comes next: the order model and the stale confidence."""
    rows: list[Row] = []
    for task in found.config.tasks:
        for depth, facts in found.depths.get(task, {}).items():
            n = int(facts["n"])
            row: Row = {"task": task, "depth": int(depth), "n": n}
            for column, name in (("order_model", "model"), ("stale_confidence", "stale_order")):
                row |= _share(column, round(facts[name] * n), n)
            rows.append(row)
    note = (
        "T=0. Share of stale states whose next commit is named right, `depth` commits after the "
        "stale state, all of them given; the baseline is the most confident stale position still "
        f"masked. n states, spread over all problems. {INTERVAL} No certificate: nothing is "
        "decoded."
    )
    return Table("order_accuracy", "Order accuracy by depth", ("task", "depth"), rows, note)


def acceptance_table(found: Found) -> Table:
    """How deep drafts are accepted."""
    deepest = found.config.figures.depths
    rows: list[Row] = []
    for task, temperature, drafting in _watched(found, ("order", "chain")):
        tally = found.tally(task, standard_rule(found.config, temperature), drafting)
        verified = sum(problem.verified for problem in tally.problems)
        for depth in range(1, deepest + 1):
            counts = tally.depths.get(depth, Depth())
            name = {"task": task, "T": temperature, "method": drafting.method}
            name |= {"budget": drafting.budget, "depth": depth, "rounds": verified}
            rows.append(name | counts._asdict() | _share("rate", counts.accepted, counts.offered))
    note = (
        "rounds: forwards with drafts; drafts: with `depth` fills beyond the root; offered: rounds "
        "that had one; accepted: rounds that accepted one; rate: accepted of offered. "
        f"{INTERVAL} {REPLAYED}"
    )
    keys = ("task", "T", "method", "budget", "depth")
    return Table("acceptance", "Acceptance by draft depth", keys, rows, note)


def reliability_table(found: Found) -> Table:
    """Is the order model's mass the probability to be accepted?"""
    rows: list[Row] = []
    for task, temperature, drafting in _watched(found, ("order",)):
        tally = found.tally(task, standard_rule(found.config, temperature), drafting)
        bins = zip(MASS_EDGES[:-1], MASS_EDGES[1:], tally.masses, strict=True)
        for least, most, (drafts, mass, accepted) in bins:
            row = {"task": task, "T": temperature, "budget": drafting.budget}
            row |= {"mass_from": least, "mass_to": most, "drafts": round(drafts)}
            row |= {"predicted": mass / drafts if drafts else None}
            rows.append(row | _share("accepted", round(accepted), round(drafts)))
    note = (
        "Drafts of the order model by predicted mass: mean mass against the share accepted "
        f"(equal when mass is a probability). {INTERVAL} {REPLAYED}"
    )
    keys = ("task", "T", "budget", "mass_from")
    return Table("reliability", "Reliability of the mass", keys, rows, note)


def _main_cells(found: Found) -> Iterable[tuple[str, float]]:
    temperatures = dict.fromkeys((0.0, *found.config.main.temperatures))
    return ((task, t) for task in found.config.tasks for t in temperatures)


def _watched(found: Found, methods: Sequence[str]) -> Iterable[tuple[str, float, Drafting]]:
    """The main table's rows of these methods, without a floor, at the largest budget."""
    most = max(found.config.main.budgets)
    for task in found.config.tasks:
        for temperature in found.config.main.temperatures:
            for drafting in main_draftings(found.config):
                if drafting.row in methods and drafting.budget == most:
                    yield task, temperature, drafting


def _share(name: str, part: int, whole: int) -> Row:
    """A share with its interval, as columns; no share of nothing."""
    low, high = wilson_interval(part, whole)
    share = part / whole if whole else None
    return {name: share, f"{name}_low": low, f"{name}_high": high}
