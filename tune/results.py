"""The result files of a sweep, rewritten whole as rows come in."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from cluster.registered import with_registered_names
from tasks.whole import write_whole
from tune.champion import choose_champion
from tune.config import SweepConfig
from tune.coordinates import save_parallel_html, save_parallel_png
from tune.folder import SweepFolder
from tune.leaderboard import comma_separated, markdown
from tune.report import save_html, save_png
from tune.row import TrialRow
from tune.space import option_values

BEST = "best.yaml"
LEADERBOARD = ("leaderboard.csv", "leaderboard.md")
PLOTS = ("pareto.png", "pareto.html", "parallel.png", "parallel.html")
REPORT = (*LEADERBOARD, *PLOTS)


class Results:
    """Rows by key in the order of arrival, the champion among them, and their files."""

    def __init__(self, folder: SweepFolder, config: SweepConfig, reference_key: str) -> None:
        self.folder = folder
        self.config = config
        self.reference_key = reference_key
        self.rows: dict[str, TrialRow] = {}
        self.facts: Mapping[str, Any] = {}
        """Provenance, for ``sweep.json``."""

    @property
    def champion(self) -> TrialRow | None:
        rows = list(self.rows.values())
        return choose_champion(
            rows, self.reference_key, self.config.champion, self.config.objectives
        )

    def add(self, row: TrialRow) -> None:
        """Take a row in and rewrite the tables."""
        self.rows[row.key] = row
        self.write_tables()

    def write_tables(self) -> None:
        rows, champion = list(self.rows.values()), self.champion
        write_leaderboard(rows, champion, str(self.facts.get("command", "")), self.folder.path)
        content = {
            **self.facts,
            "config": self.config.model_dump(mode="json"),
            "champion": champion.key if champion else None,
            "rows": [row.model_dump(mode="json") for row in rows],
        }
        self.folder.write("sweep.json", json.dumps(content, indent=1) + "\n")

    def write_plots(self) -> None:
        write_plots(list(self.rows.values()), self.champion, self.folder.path)

    def write_best(self, champion: TrialRow, run_id: str) -> Path:
        """``best.yaml``: what ``maskahead serve --config`` takes."""
        self.folder.write(BEST, best_yaml(self.config, champion, run_id, self.facts))
        return self.folder.path / BEST

    def files(self) -> list[Path]:
        return [self.folder.path / name for name in (*REPORT, "sweep.json", BEST, "config.json")]


def write_leaderboard(
    rows: Sequence[TrialRow], champion: TrialRow | None, command: str, folder: Path
) -> None:
    """The leaderboard as a table of everything and for reading."""
    write_whole(folder / "leaderboard.csv", comma_separated(rows, champion))
    write_whole(folder / "leaderboard.md", markdown(rows, champion, command))


def write_plots(rows: Sequence[TrialRow], champion: TrialRow | None, folder: Path) -> None:
    """Pareto plots and parallel coordinates, each for a page and for a browser."""
    save_png(rows, champion, folder / "pareto.png")
    save_html(rows, champion, folder / "pareto.html")
    save_parallel_png(rows, champion, folder / "parallel.png")
    save_parallel_html(rows, folder / "parallel.html")


def best_yaml(
    config: SweepConfig, champion: TrialRow, run_id: str, facts: Mapping[str, Any]
) -> str:
    """The champion as a configuration; where it comes from in comments."""
    digests = facts.get("digests", {})
    head = [
        f"# {facts.get('command', 'maskahead sweep')}",
        f"# commit {facts.get('git_commit', 'unknown')}, target {digests.get('target')}, "
        f"drafter {digests.get('drafter')}, problems {digests.get('problems')}",
        f"# {champion.speed_reference:.2f}x the tokens/s and 1/{champion.nfe_factor_reference:.2f} "
        f"of the forwards of standard decoding; accuracy {sum(champion.correct.values())} of "
        f"{len(champion.correct)}",
    ]
    values = {
        "target": config.target.model_dump(),
        "drafter": with_registered_names(config.drafter).model_dump(),
        "decode": option_values(champion.options),
        "run_id": run_id,
        "certificate": champion.certificate,
    }
    return "\n".join(head) + "\n" + yaml.safe_dump(values, sort_keys=False)
