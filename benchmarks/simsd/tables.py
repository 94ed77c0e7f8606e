"""The report's tables, as rows of plain values."""

from collections.abc import Mapping, Sequence

from benchmarks.simsd.decoding import Row
from benchmarks.simsd.formula import Masked, forwards_per_token
from benchmarks.simsd.settings import EXACT_SLOTS, MAIN, SELF, Setting
from benchmarks.spot.found import Table
from benchmarks.spot.scoring import accuracy

Decoded = Mapping[tuple[str, str], Row]

TITLES = {
    "quality": "Temporal mask against standard decoding",
    "gamma": "Draft length gamma",
    "order": "Order of acceptance and the rest of a draft",
    "ablation": "Rotary copy, and the target as its own drafter",
    "temperature": "Rejection sampling",
    "exact": "The same drafts as exact states, and where quality goes",
    "pairs": "Other pairs",
}
COUNTED = (
    "n problems; accuracy with Wilson's 95 % interval; difference: to the table's standard run of "
    "the same rule on the same problems, paired 95 % interval. nfe: target forwards without "
    "prefill; nfe_factor: standard's over the row's; drafting: forwards of the small model. "
    "acceptance: draft tokens that passed, of those looked at. per_token: target forwards a token "
    "over the rounds that the end of a text did not cut; formula: the same when a forward commits "
    "1 + a + ... + a^(g-1), and a^g where positions stay open, at their acceptance a; by_depth: "
    "with an acceptance for every depth of a draft. tokens_per_second: wall time here, "
    "drafting included, with whatever else ran. certificate: outputs equal to standard's, where "
    "that is promised; the mask promises nothing: approximate. exact slots: the mask's acceptance "
    "in the drafter's order, over exact states in the mask's place; what is lost there is lost to "
    "the order, the rest of the mask's loss to its approximation."
)
FIDELITY = (
    "Drafts of the small model for whole blocks behind the target's own text; every drafted "
    "position under the mask, in one forward, against its exact state, in a batch of copies. "
    "layers: the target's first ones, read out by its own norm and head. divergence: nats, exact "
    "from masked; same_argmax: share of positions where both put the same token first; "
    "accepted_masked, accepted_exact: share where that is the drafted one. Where the first is "
    "larger, slots have seen their own draft tokens through other slots."
)


def decoded_tables(
    settings: Sequence[Setting], found: Decoded, tasks: Sequence[str]
) -> list[Table]:
    """One table a group, every setting beside the standard run of its rule."""
    tables = []
    for group, title in TITLES.items():
        own = [setting for setting in settings if setting.group == group]
        rows = [
            decoded_row(
                setting, found[setting.key, task], found[base_of(setting, own).key, task], task
            )
            for task in tasks
            for setting in own
        ]
        tables.append(Table(group, title, ("task", "setting"), rows, COUNTED))
    return tables


def base_of(setting: Setting, group: Sequence[Setting]) -> Setting:
    """The group's standard run of the same rule, on the same target."""
    draft_free, own = setting.options.draft_free(), {MAIN, SELF, EXACT_SLOTS}
    for other in group:
        same_target = other.pair == setting.pair or {other.pair, setting.pair} <= own
        if other.options.method == "standard" and same_target and other.options == draft_free:
            return other
    raise AssertionError(f"{setting.key} has no standard run beside it")


def decoded_row(setting: Setting, row: Row, base: Row, task: str) -> Row:
    """One setting on one task."""
    judged = accuracy(row["correct"], base["correct"])
    equal = sum(row["token_ids"][id_] == ids for id_, ids in base["token_ids"].items())
    rounds = [Masked(*each) for each in row["rounds"]]
    # Where the rest is filled at once there is nothing to predict: a round fills its draft.
    per_token = forwards_per_token(rounds) if setting.options.rest == "redraft" else {}
    promised = setting.options.promises_equality
    certificate = (
        f"exact {equal}/{row['n']}" if equal == row["n"] else f"differs {equal}/{row['n']}"
    )
    return {
        "task": task,
        "setting": setting.name,
        "n": row["n"],
        "accuracy": judged.share,
        "low": judged.low,
        "high": judged.high,
        "difference": judged.difference,
        "difference_low": judged.difference_low,
        "difference_high": judged.difference_high,
        "nfe": row["nfe"],
        "nfe_factor": base["nfe"] / row["nfe"],
        "drafting": row["drafting_forwards"],
        "acceptance": row["accepted"] / row["tested"] if row["tested"] else None,
        "per_token": per_token.get("measured"),
        "formula": per_token.get("formula"),
        "by_depth": per_token.get("by_depth"),
        "tokens_per_second": row["tokens"] / row["seconds"],
        "certificate": certificate if promised else f"approximate (equal {equal}/{row['n']})",
    }


def fidelity_tables(rows: Sequence[Row]) -> list[Table]:
    """By target and number of layers; and step by step for whole targets."""
    whole = {(row["target"], row["block"]): row for row in rows}  # the last one has all layers
    steps = [
        {"target": target, "block": block, "step": int(step)} | values
        for (target, block), row in whole.items()
        for step, values in row["by_step"].items()
    ]
    plain = [{key: row[key] for key in row if key != "by_step"} for row in rows]
    keys = ("target", "block")
    return [
        Table("fidelity", "The mask against exact states", (*keys, "layers"), plain, FIDELITY),
        Table("fidelity_steps", "Step by step", (*keys, "step"), steps, FIDELITY),
    ]
