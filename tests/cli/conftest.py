"""Running the commands of contracts.md on a tiny target, and reading their rows."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maskahead

ROOT = Path(__file__).parents[2]
SHORT = ["--max-new-tokens", "12"]

Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run one command in an empty folder; returns its exit code and what it said on stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")

    def call(*words: object) -> tuple[int, str]:
        code = maskahead.main([str(word) for word in words])
        return code, capsys.readouterr().err

    return call


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    """Prompts of 0 to 9 tokens: block size 4, so with and without tails and prefills."""
    rows = [
        {"id": f"p{n}", "prompt_ids": [4 + (7 * n + i) % 20 for i in range(n)]} for n in range(10)
    ]
    return write_rows(tmp_path / "prompts.jsonl", rows)


def write_rows(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def read_rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def without_seconds(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != "seconds"} for row in rows]
