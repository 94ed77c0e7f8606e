"""All rows side by side: for reading (live trials, NFE first), and as a table of everything."""

import csv
import io
from collections.abc import Sequence
from typing import Any

from tune.row import TrialRow
from tune.space import KNOBS, flat_knobs, spell

COLUMNS: tuple[str, ...] = (
    "setting",
    "NFE",
    "NFE factor",
    "tokens/s",
    "speed-up",
    "speed 95 %",
    "certificate",
    "accuracy",
    "95 %",
    "p95 s",
    "drafts/round",
    "accepted/round",
    "drafting ends",
)
CSV_FIELDS: tuple[str, ...] = (
    "n",
    "nfe",
    "forwards",
    "nfe_factor",
    "nfe_factor_reference",
    "tokens_per_forward",
    "accepted_per_round",
    "drafts_per_round",
    "drafting_ends",
    "tokens_per_second",
    "speed_reference",
    "latency_p95",
    "passes",
    "certificate",
    "num_different",
    "margin",
    "accuracy",
    "node",
    "started",
    "seconds",
    "error",
)
LEGEND = (
    "NFE: forwards of the target without prefill, summed over the problems. NFE factor and "
    "speed-up: standard decoding without a cap over this setting, on the same problems; the median "
    "over interleaved pairs with the setting's own draft-free run, times that run's speed-up, with "
    "the 95 % interval of both (of six pairs each at least). p95 s: seconds that 95 % of the "
    "answers took at most. Certificate: outputs compared with draft-free ones of the same cap and "
    "temperature. Accuracy: right of n problems, with Wilson's interval. "
    "Drafting ends: at the budget, at gamma (the mass floor, or simsd's length), by pruning, or at "
    "the end of the block."
)


def ranked(rows: Sequence[TrialRow], fidelity: str) -> list[TrialRow]:
    """Finished rows: fewest forwards first, then the fastest."""
    found = [row for row in rows if row.fidelity == fidelity and row.done]
    return sorted(
        found, key=lambda row: (-(row.nfe_factor_reference or 0), -(row.tokens_per_second or 0))
    )


def cells_of(row: TrialRow) -> list[str]:
    """A row as it is shown, one text for each of ``COLUMNS``."""
    low, high = row.accuracy_interval
    certificate = row.certificate or ""
    if row.certificate == "differs":
        certificate = f"differs {row.num_different}/{row.n}"
    return [
        spell(row.options),
        str(row.nfe),
        _number(row.nfe_factor_reference),
        _number(row.tokens_per_second),
        _number(row.speed_reference),
        _interval(row),
        certificate,
        f"{sum(row.correct.values())}/{len(row.correct)}",
        f"{low:.2f}-{high:.2f}",
        _number(row.latency_p95),
        _number(row.drafts_per_round),
        _number(row.accepted_per_round),
        row.drafting_ends or "",
    ]


def _interval(row: TrialRow) -> str:
    """Of the speed-up; nothing for an estimate."""
    if row.speed_interval is None:
        return ""
    low, high = row.speed_interval
    return f"{low:.2f}-{high:.2f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.2f}"


def markdown(rows: Sequence[TrialRow], champion: TrialRow | None, command: str) -> str:
    """``leaderboard.md``: live trials, replayed ones, what was stopped, and what failed."""
    lines = ["# Leaderboard", "", f"`{command}`", "", LEGEND, "", "## On the target", ""]
    lines += _table(ranked(rows, "live"), champion)
    replayed = ranked(rows, "replay")
    lines += ["", f"## Replayed ({len(replayed)}; tokens/s estimated from measured costs)", ""]
    lines += _table(replayed, None)
    for status, title in (
        ("stopped", "## STOPPED: could not win any more"),
        ("failed", "## FAILED"),
    ):
        found = [row for row in rows if row.status == status]
        if found:
            lines += ["", title, ""]
            lines += [f"- {row.fidelity}: {spell(row.options)}: {row.error}" for row in found]
    return "\n".join(lines) + "\n"


def _table(rows: Sequence[TrialRow], champion: TrialRow | None) -> list[str]:
    lines = ["| " + " | ".join(COLUMNS) + " |", "|" + " --- |" * len(COLUMNS)]
    for row in rows:
        cells = cells_of(row)
        if champion is not None and row.key == champion.key:
            cells[0] = f"**{cells[0]}** (champion)"
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def comma_separated(rows: Sequence[TrialRow], champion: TrialRow | None) -> str:
    """``leaderboard.csv``: every trial, unfinished ones too, a column for each knob and number."""
    text = io.StringIO()
    extra: tuple[str, ...] = (
        "speed_median",
        "speed_q25",
        "speed_q75",
        "speed_low",
        "speed_high",
        "accuracy_low",
        "accuracy_high",
    )
    header: tuple[str, ...] = ("key", "fidelity", "status", "champion", *KNOBS, *CSV_FIELDS, *extra)
    writer = csv.DictWriter(text, header)
    writer.writeheader()
    for fidelity in ("live", "replay"):
        for row in ranked(rows, fidelity):
            writer.writerow(_record(row, champion))
    for row in rows:
        if not row.done:
            writer.writerow(_record(row, champion))
    return text.getvalue()


def _record(row: TrialRow, champion: TrialRow | None) -> dict[str, Any]:
    record: dict[str, Any] = {
        "key": row.key,
        "fidelity": row.fidelity,
        "status": row.status,
        "champion": champion is not None and row.key == champion.key,
        **flat_knobs(row.options),
        **{name: getattr(row, name) for name in CSV_FIELDS},
    }
    if row.speed is not None:
        spread = row.speed
        record |= {"speed_median": spread.median, "speed_q25": spread.q25, "speed_q75": spread.q75}
        record |= {"speed_low": spread.low, "speed_high": spread.high}
    if row.correct:
        record["accuracy_low"], record["accuracy_high"] = row.accuracy_interval
    return record
