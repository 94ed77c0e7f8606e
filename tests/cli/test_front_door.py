"""What all commands share: help, a fast start, exit codes, one line that says why."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer

import maskahead
from cluster.console import show_table
from tests.cli.conftest import ROOT, Run


def commands(group: Any, *words: str) -> Iterator[list[str]]:
    """The words of every command, and of every group of them."""
    yield list(words)
    for name, command in getattr(group, "commands", {}).items():
        yield from commands(command, *words, name)


@pytest.mark.parametrize("words", [*commands(typer.main.get_command(maskahead.app))], ids=" ".join)
def test_every_help_teaches_with_an_example(
    run: Run, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert maskahead.main([*words, "--help"]) == 0
    assert re.search(r"Examples?: maskahead", capsys.readouterr().out)


@pytest.mark.parametrize("words", [["sweep", "-h"], ["cluster", "-h"], [], ["cluster"]])
def test_help_is_there_in_short_and_where_no_command_is_named(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert maskahead.main(words) == (0 if words[1:] else 2)
    shown = capsys.readouterr()
    assert "Example: maskahead" in shown.out + shown.err
    assert "error" not in shown.err


def test_a_help_shows_what_is_to_be_typed(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    for command, typed in {
        "replay": "{decode.method: [chain, order], decode.budget: [4, 8]}",
        "decode": "INT|auto",
    }.items():
        assert maskahead.main([command, "--help"]) == 0
        assert typed in capsys.readouterr().out


def test_the_command_line_starts_fast() -> None:
    program = "import sys, maskahead; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"torch", "ray", "mlflow", "transformers", "numpy", "yaml"} & set(
        done.stdout.split()
    )


def test_a_failure_ends_with_1_and_a_stack_trace_only_on_request(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    Path("taken").write_text("a file where a folder is wanted")
    record = ("record", "--target", tiny_folder, "--prompts", prompts, "--out", "taken/traces")
    code, said = run(*record)
    assert (code, said.count("\n")) == (1, 1)
    assert "Traceback" not in said
    code, said = run("--debug", *record)
    assert code == 1
    assert "Traceback" in said


@pytest.mark.parametrize("words", [("serve",), ("ui",)])
def test_without_a_sweep_there_is_nothing_to_serve_or_to_show(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    code, said = run(*words)
    assert (code, said.count("\n")) == (2, 1)
    assert "`maskahead sweep` makes one" in said
    assert not Path("runs").exists()


def test_a_sweep_needs_no_configuration_and_takes_that_of_the_folder(run: Run) -> None:
    assert run("sweep", "--dry-run")[0] == 0
    assert run("sweep", "--dry-run", "--name", "../elsewhere")[0] == 2
    Path("configs").mkdir()
    Path("configs/sweep.yaml").write_text("target: {path: somewhere}")
    code, said = run("sweep", "--dry-run")
    assert (code, "somewhere" in said) == (2, True)


def test_a_table_shows_brackets_as_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    show_table("runs/[mine]", [{"setting [x]": "[bold]", "runs/[/]": 1}])
    shown = capsys.readouterr().out
    assert all(text in shown for text in ("runs/[mine]", "setting [x]", "[bold]", "runs/[/]"))


def test_a_table_that_goes_to_a_file_is_not_folded_to_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    show_table("", [{f"column {number}": number for number in range(10)}])
    assert "column 0  column 1" in capsys.readouterr().out


def test_a_target_that_is_not_there_is_named_with_the_bundled_ones(run: Run) -> None:
    code, said = run("info", "nowhere")
    assert (code, said.count("\n")) == (2, 1)
    assert "'nowhere' is neither a folder with a config.json nor a bundled target" in said
