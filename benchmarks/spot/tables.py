"""The report's tables of replayed methods, as rows of plain values."""

from benchmarks.spot.cells import (
    gamma_draftings,
    main_draftings,
    oracle_draftings,
    standard_rule,
    sweep_draftings,
    verifications,
)
from benchmarks.spot.found import (
    ACCURACY,
    CEILINGS,
    FORWARDS,
    REPLAYED,
    Found,
    Table,
    counts,
    named,
    what_if,
)
from benchmarks.spot.speed import certificate, speed


def main_table(found: Found) -> Table:
    """NFE of every method, task, budget and temperature, without a cap."""
    rows = [
        named(task, drafting, T=temperature)
        | counts(own, base)
        | {
            "live_speed": speed(found, task, rule, drafting),
            "what_if": what_if(found, own, base, drafting),
            "certificate": certificate(found, task, rule, drafting),
        }
        for task in found.config.tasks
        for temperature in found.config.main.temperatures
        for rule in [standard_rule(found.config, temperature)]
        for drafting in main_draftings(found.config)
        for own, base in [(found.tally(task, rule, drafting), found.tally(task, rule))]
    ]
    note = (
        f"{FORWARDS} live_speed: measured tokens/s over the draft-free run's (median; spread, "
        "number of pairs and load of the machine in table `live`). what_if: "
        f"{found.config.what_if.words}. "
        "certificate: outputs equal to draft-free ones, of those compared in table `live`. "
        f"{CEILINGS}"
    )
    return Table("main", "Main table", ("task", "T", "method", "budget"), rows, note)


def oracle_table(found: Found) -> Table:
    """What a drafter could reach that knew positions, tokens, or both (SPOT, figure 2, left)."""
    rule = standard_rule(found.config)
    rows = [
        named(task, drafting) | counts(found.tally(task, rule, drafting), found.tally(task, rule))
        for task in found.config.tasks
        for drafting in oracle_draftings(found.config)
    ]
    note = f"T=0. {CEILINGS} {FORWARDS} {REPLAYED}"
    return Table("oracle", "Oracles", ("task", "method", "budget"), rows, note)


def gamma_table(found: Found) -> Table:
    """The mass floor: forwards saved and drafts verified (SPOT-gamma)."""
    rule = standard_rule(found.config)
    rows = [
        {"task": task, "budget": drafting.budget, "gamma": drafting.gamma}
        | counts(own, base)
        | {"what_if": what_if(found, own, base, drafting)}
        for task in found.config.tasks
        for drafting in gamma_draftings(found.config)
        for own, base in [(found.tally(task, rule, drafting), found.tally(task, rule))]
    ]
    words = found.config.what_if.words
    note = f"T=0, method order. {FORWARDS} what_if: {words}. {REPLAYED}"
    return Table("gamma", "Mass floor gamma", ("task", "budget", "gamma"), rows, note)


def temperature_table(found: Found) -> Table:
    """Coupled against independent verification."""
    config = found.config
    rows = [
        named(task, drafting, T=temperature)
        | {"verification": "coupled" if coupled else "independent"}
        | counts(found.first(task, rule, drafting), found.first(task, rule))
        | found.accuracy(task, rule, config.sweeps.problems)
        for task in config.tasks
        for temperature in config.sweeps.temperatures
        for coupled in verifications(temperature)
        for rule in [standard_rule(config, temperature, coupled=coupled)]
        for drafting in sweep_draftings(config)
    ]
    note = (
        f"{FORWARDS} Independent verification draws anew in every step (decode.coupled=false) and "
        f"has its own draft-free run. {CEILINGS} {ACCURACY} {REPLAYED}"
    )
    keys = ("task", "T", "verification", "method", "budget")
    return Table("temperature", "Temperature and coupling", keys, rows, note)
