"""What a sweep prints: its plan (``--dry-run``), and at the end the leaderboard and what to do
next; on stdout."""

from collections.abc import Sequence
from pathlib import Path

from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

from tune.config import SweepConfig
from tune.folder import REPLAYED
from tune.leaderboard import COLUMNS, cells_of, ranked
from tune.plan import Stage, spell_seconds
from tune.row import TrialRow
from tune.space import spell, spell_space

SHOWN = ("setting", "NFE", "NFE factor", "tokens/s", "speed-up", "certificate", "accuracy")
ROOMY = (*SHOWN[:5], "speed 95 %", *SHOWN[5:], "95 %")
"""Shown where there is room: with intervals."""
WIDE = 100


def print_plan(config: SweepConfig, stages: Sequence[Stage], source: str, console: Console) -> None:
    """The stages and about how long each takes, and what the times are from."""
    table = Table("stage", "how many", "about", title="Would run", title_justify="left", box=SIMPLE)
    for stage in stages:
        table.add_row(stage.name, str(stage.total), spell_seconds(stage.seconds))
    console.print(table)
    for method in config.space.methods:
        console.print(spell_space(config.space, method), soft_wrap=True)
    rules = ", ".join(spell(rule) for rule in config.rules)
    total = spell_seconds(sum(stage.seconds for stage in stages))
    console.print(f"target {config.target.path}; rules: {rules}; about {total} in all")
    console.print(f"Times are estimated from {source}; more groups (pool.groups) shorten live.")


def print_outcome(
    rows: Sequence[TrialRow],
    champion: TrialRow | None,
    folder: Path,
    tracking_uri: str,
    console: Console,
) -> None:
    """Leaderboard, champion, where everything is, and the two next commands."""
    table = Table(title="Leaderboard", title_justify="left", box=SIMPLE, padding=(0, 1, 0, 0))
    shown = ROOMY if console.width >= WIDE else SHOWN
    table.add_column(shown[0], min_width=22, overflow="fold")
    for name in shown[1:]:
        table.add_column(name.replace("E f", "E\nf"), justify="right", max_width=11)
    for row in ranked(rows, "live"):
        cells = dict(zip(COLUMNS, cells_of(row), strict=True))
        mark = "* " if champion and row.key == champion.key else ""
        table.add_row(mark + cells["setting"], *(cells[name] for name in shown[1:]))
    console.print(table)
    for row in rows:
        if not row.done:
            told = f"{row.status.upper()} {row.fidelity}: {spell(row.options)}: {row.error}"
            console.print(told, markup=False, soft_wrap=True)
    failed = [row for row in rows if row.status == "failed"]
    if failed:
        again = str(folder / "trials" / f"{failed[0].key}.json")
        if failed[0].fidelity == "replay":
            again += f" and {folder / REPLAYED}"
        console.print(
            f"To try one again remove its row ({again}) and --resume.", markup=False, soft_wrap=True
        )
    if champion is None:
        console.print(
            "No champion: no live trial is exact, as accurate as standard decoding, and within the "
            "bounds of champion.*",
            soft_wrap=True,
        )
    else:
        console.print(f"Best: {spell(champion.options)} ({champion.certificate})", soft_wrap=True)
        console.print(f"      {folder / 'best.yaml'}", soft_wrap=True)
    console.print(f"Store: {tracking_uri}", soft_wrap=True)
    if champion is not None:
        console.print("Next:")
        console.print(f"  maskahead serve --config {folder / 'best.yaml'}", soft_wrap=True)
        console.print("  maskahead ui", soft_wrap=True)
