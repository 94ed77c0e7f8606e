"""``maskahead decode``: rows, seeds, options, bad input, interruption."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import maskahead
from tests.cli.conftest import ROOT, SHORT, Run, read_rows, without_seconds, write_rows

ROW_KEYS = (
    *("id", "prompt_ids", "token_ids", "text", "stop_reason", "nfe", "forwards"),
    *("tokens_per_forward", "accepted_per_round", "seconds"),
)


def test_decode_writes_the_contracts_rows_in_the_prompts_order(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    decode = ("decode", "--target", tiny_folder, "--prompts", prompts)
    assert run(*decode, "--out", "one.jsonl", *SHORT)[0] == 0
    assert run(*decode, "--out", "many.jsonl", *SHORT, "--batch-size", 4)[0] == 0
    rows = read_rows(Path("one.jsonl"))
    assert [row["id"] for row in rows] == [f"p{n}" for n in range(10)]
    assert tuple(rows[0]) == ROW_KEYS
    assert rows[0]["prompt_ids"] == []
    assert all(row["text"] is None for row in rows)
    assert without_seconds(rows) == without_seconds(read_rows(Path("many.jsonl")))


def test_rows_can_go_to_standard_output(
    tiny_folder: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["decode", "--target", tiny_folder, "--prompts", prompts, "--out", "-", *SHORT]
    assert maskahead.main([str(word) for word in words]) == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["id"] for row in rows] == [f"p{n}" for n in range(10)]


def test_drafting_equals_standard_and_its_rounds_add_up(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    decode = ("decode", "--target", tiny_folder, "--prompts", prompts, "--trace", *SHORT)
    assert run(*decode, "--out", "standard.jsonl")[0] == 0
    assert run(*decode, "--out", "chain.jsonl", "--method", "chain", "--budget", 4)[0] == 0
    standard, chain = read_rows(Path("standard.jsonl")), read_rows(Path("chain.jsonl"))
    assert [row["token_ids"] for row in chain] == [row["token_ids"] for row in standard]
    assert sum(row["nfe"] for row in chain) < sum(row["nfe"] for row in standard)
    for row in (*standard, *chain):
        kinds = [entry["kind"] for entry in row["rounds"]]
        assert row["forwards"] == len(kinds)
        assert row["nfe"] == sum(kind in ("open", "step", "verify") for kind in kinds)
        assert kinds.count("prefill") == (len(row["prompt_ids"]) >= 4)
        for entry in row["rounds"]:
            assert set(entry) == {"kind", "drafts", "accepted", "steps"}
            assert len(entry["steps"]) == (
                0 if entry["kind"] == "prefill" else entry["accepted"] + 1
            )
        commits = dict(c for entry in row["rounds"] for step in entry["steps"] for c in step)
        start = len(row["prompt_ids"])
        generated = [commits[start + i] for i in range(len(row["token_ids"]))]
        assert generated == row["token_ids"]


def test_rows_have_a_seed_a_limit_and_a_temperature_of_their_own(
    run: Run, tiny_folder: Path, tmp_path: Path
) -> None:
    base = {"prompt_ids": [5, 6, 7]}
    rows = [
        base | {"id": "greedy"},
        base | {"id": "short", "max_new_tokens": 3},
        base | {"id": "warm", "temperature": 1.5, "seed": 1},
        base | {"id": "again", "temperature": 1.5, "seed": 1},
        base | {"id": "other", "temperature": 1.5, "seed": 2},
    ]
    file = write_rows(tmp_path / "p.jsonl", rows)
    assert run("decode", "--target", tiny_folder, "--prompts", file, "--out", "o", *SHORT)[0] == 0
    ids = {row["id"]: row["token_ids"] for row in read_rows(Path("o"))}
    assert ids["short"] == ids["greedy"][:3]
    assert ids["warm"] == ids["again"]
    assert len({tuple(ids[name]) for name in ("greedy", "warm", "other")}) == 3


def test_a_bad_row_stops_before_decoding_with_its_line(
    run: Run, tiny_folder: Path, tmp_path: Path
) -> None:
    file = write_rows(tmp_path / "p.jsonl", [{"id": "a", "prompt_ids": [4]}, {"id": "b"}])
    code, said = run("decode", "--target", tiny_folder, "--prompts", file, "--out", "o")
    assert code == 2
    assert "line 2" in said
    assert said.count("\n") == 1
    assert not Path("o").exists()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "4"), "decode.budget is not an option of method standard; valid:"),
        (
            ("--method", "chain", "--budget", "400"),
            "decode.budget: '400' must be auto, or a number of drafts from 0 to 256",
        ),
        (("--method", "chain", "--gamma", "0.1"), "decode.gamma is not an option of method chain"),
        (("--method", "best"), "decode.method: 'best' must be 'standard', 'threshold', 'chain'"),
        (("--set", "decode.budgets=4"), "decode.budgets: unknown key; valid: batch_size, budget"),
        (("--set", "budget"), "must have the form key=value"),
        (
            ("--tp", "3"),
            "evenly (num_key_value_heads 2, intermediate_size 64); valid: 1, 2",
        ),
        (("--block-size", "8"), "target.block_size 8"),
        (("--device", "tpu"), "target.device 'tpu'"),
        (("--targets", "x"), "No such option: --targets"),
        (("--drafter", "nowhere", "--method", "order"), "drafter.path 'nowhere'"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(
    run: Run, tiny_folder: Path, prompts: Path, words: tuple[str, ...], said: str
) -> None:
    decode = ("decode", "--target", tiny_folder, "--prompts", prompts, "--out", "o")
    code, message = run(*decode, *words)
    assert (code, message.count("\n")) == (2, 1)
    assert said in message
    assert not Path("o").exists()


def test_options_win_over_set_and_set_over_the_file(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    decode = "{method: chain, budget: 2, max_new_tokens: 9}"
    file = f"target: {{path: {tiny_folder}}}\ndecode: {decode}\n"
    Path("config.yaml").write_text(file)
    decode = ("decode", "--config", "config.yaml", "--prompts", prompts, "--out", "o")
    assert (
        run(*decode, "--set", "decode.budget=3", "--budget", 5, "--set", "decode.cap=0.5")[0] == 0
    )
    options = json.loads(Path("o.run.json").read_text())["decode"]
    assert (options["method"], options["budget"], options["cap"]) == ("chain", 5, 0.5)
    assert options["max_new_tokens"] == 9


def start_decode(tiny_folder: Path, prompts: Path, out: Path) -> subprocess.Popen[str]:
    words = ["--target", tiny_folder, "--prompts", prompts, "--out", out, "--ignore-stop"]
    return subprocess.Popen(
        [sys.executable, "-m", "maskahead", "decode", *map(str, words), "--max-new-tokens", "150"],
        cwd=ROOT,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
        stderr=subprocess.PIPE,
        text=True,
        # A suite that a script runs in the background hands down that interrupts are ignored.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


@pytest.mark.slow
def test_an_interrupted_decode_keeps_its_rows_and_goes_on(
    run: Run, tiny_folder: Path, tmp_path: Path
) -> None:
    rows = [{"id": str(n), "prompt_ids": [4 + n % 20]} for n in range(40)]
    file, out = write_rows(tmp_path / "p.jsonl", rows), tmp_path / "o.jsonl"
    process = start_decode(tiny_folder, file, out)
    while process.poll() is None and (not out.exists() or not out.read_bytes()):
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate()
    assert (process.returncode, said.count("\n")) == (130, 1)
    kept = out.read_text()
    assert 0 < kept.count("\n") < len(rows)

    again = start_decode(tiny_folder, file, out)
    _, said = again.communicate()
    assert again.returncode == 0
    assert f"{kept.count(chr(10))} kept" in said
    assert out.read_text().startswith(kept)
    assert [row["id"] for row in read_rows(out)] == [row["id"] for row in rows]
