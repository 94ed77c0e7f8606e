"""Evaluations on a tiny target that writes nonsense: what is kept, made anew, and counted."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import maskahead
from actors.evaluation import certificate, decode_task, score_folder, shown
from decoders.options import DecodeOptions
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.files import read_prompts
from tasks.intervals import wilson_interval
from tasks.reading import last_number, plain_number, strict_number
from tasks.registry import TASKS, find_task
from tasks.task import Selection
from tests.text_target import save_text_target

ROOT = Path(__file__).parents[2]
SHORT = DecodeOptions(max_new_tokens=8)


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_text_target(tmp_path_factory.mktemp("target") / "text-b8", max_positions=1024)


def decode(
    target: Path, folder: Path, limit: int, options: DecodeOptions = SHORT, stop_at: int = -1
) -> None:
    def report(done: int, total: int) -> None:
        assert total == limit
        if done == stop_at:
            raise KeyboardInterrupt

    config, selection = TargetConfig(path=str(target)), Selection(limit=limit)
    decode_task(config, DrafterConfig(), options, "words", selection, folder, report)


def rows_of(path: Path) -> list[dict[str, Any]]:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [{key: row[key] for key in row if key != "seconds"} for row in rows]


def ignore(done: int, total: int) -> None:
    """A report that nobody reads."""


def test_an_interrupted_evaluation_goes_on_and_a_larger_limit_goes_on_behind_it(
    target: Path, tmp_path: Path
) -> None:
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    decode(target, whole, 5)
    with pytest.raises(KeyboardInterrupt):
        decode(target, parts, 3, stop_at=2)
    kept = (parts / "replies.jsonl").read_text()
    assert kept.count("\n") == 2
    decode(target, parts, 3)
    decode(target, parts, 5)
    assert (parts / "replies.jsonl").read_text().startswith(kept)
    assert rows_of(parts / "replies.jsonl") == rows_of(whole / "replies.jsonl")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_cluster")
def test_an_evaluation_on_a_cluster_that_runs_writes_the_replies_of_one_here(
    target: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    decode(target, here, 3)
    monkeypatch.delattr("actors.runner.open_engine")  # this process cannot open a target any more
    words = ["eval", "--task", "words", "--limit", "3", "--target", str(target)]
    words += ["--max-new-tokens", "8", "--set", "cluster.address=auto", "--out", str(there)]
    assert maskahead.main(words) == 0
    assert rows_of(there / "replies.jsonl") == rows_of(here / "replies.jsonl")


def test_a_folder_of_other_settings_is_refused_and_stays(target: Path, tmp_path: Path) -> None:
    decode(target, tmp_path, 1)
    kept = (tmp_path / "replies.jsonl").read_bytes()
    with pytest.raises(ValueError, match=r"decode\.cap 1\.0, not 0\.9"):
        decode(target, tmp_path, 1, DecodeOptions(max_new_tokens=8, cap=0.9))
    assert (tmp_path / "replies.jsonl").read_bytes() == kept


def test_replies_are_scored_again_without_the_target(target: Path, tmp_path: Path) -> None:
    decode(target, tmp_path, 4)
    first = score_folder(tmp_path, "first", ignore)
    assert [score["correct"] for score in first["scores"].values()] == [0, 0]
    rows = rows_of(tmp_path / "replies.jsonl")
    rows[0]["text"] = rows[0]["answer"]  # right by both rules
    rows[1]["text"] = f"#### 0 or {rows[1]['gold'][0]}"  # right by the flexible one
    rows[2]["text"] = f"#### {rows[2]['gold'][0]}\nor 0"  # right by the strict one
    lines = [json.dumps(row) + "\n" for row in rows]
    (tmp_path / "replies.jsonl").write_text("".join(lines) + lines[0][:20])  # cut off by a kill
    again = score_folder(tmp_path, "again", ignore)
    assert again["n"] == 4
    for name in ("strict", "flexible"):
        low, high = wilson_interval(2, 4)
        assert again["scores"][name] == {"correct": 2, "share": 0.5, "low": low, "high": high}
    samples = rows_of(tmp_path / "samples.jsonl")
    assert [list(s["correct"].values()) for s in samples[:3]] == [
        [True, True],
        [False, True],
        [True, False],
    ]
    assert json.loads((tmp_path / "summary.json").read_text()) == again


def test_a_summary_adds_up_what_its_rows_say(target: Path, tmp_path: Path) -> None:
    decode(target, tmp_path, 3, DecodeOptions(method="chain", budget=4, max_new_tokens=8))
    summary = score_folder(tmp_path, "maskahead eval", ignore)
    rows = rows_of(tmp_path / "replies.jsonl")
    assert summary["nfe"] == sum(row["nfe"] for row in rows)
    assert summary["tokens"] == sum(len(row["token_ids"]) for row in rows)
    assert summary["cut_at_limit"] == sum(row["stop_reason"] == "length" for row in rows)
    committed = sum(row["tokens_per_forward"] * row["nfe"] for row in rows)
    assert summary["tokens_per_forward"] == pytest.approx(committed / summary["nfe"], abs=1e-3)
    title, table = shown(summary)
    assert title == "words, 0 shots, text-b8, method chain"
    assert [row["metric"] for row in table] == ["strict", "flexible"]
    assert {row["certificate"] for row in table} == {"not compared"}


@pytest.mark.parametrize(
    ("options", "label"),
    [
        (DecodeOptions(), "draft-free"),
        (DecodeOptions(method="chain"), "not compared"),
        (DecodeOptions(method="chain", budget=0), "draft-free"),
        (DecodeOptions(method="simsd"), "approximate"),
        (DecodeOptions(method="simsd", verify="exact"), "not compared"),
        (DecodeOptions(method="sets", rule="product"), "approximate"),
        (DecodeOptions(cache_refresh=2), "approximate"),
    ],
)
def test_replies_are_never_called_exact_unless_they_were_compared(
    options: DecodeOptions, label: str
) -> None:
    assert certificate(options) == label


def test_replies_are_a_prompts_file_of_the_same_problems(target: Path, tmp_path: Path) -> None:
    decode(target, tmp_path, 3)
    prompts = read_prompts(tmp_path / "replies.jsonl").rows
    problems = find_task("words").select(Selection(limit=3)).problems
    assert [(row.id, row.prompt) for row in prompts] == [(p.id, p.prompt) for p in problems]


def test_a_problem_that_does_not_fit_is_refused_before_decoding(
    target: Path, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="this target has 1024"):
        decode(target, tmp_path / "out", 1, DecodeOptions(max_new_tokens=1024))
    assert not (tmp_path / "out").exists()


def test_the_command_decodes_scores_and_scores_again(
    target: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("datasets.config.HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.setenv("COLUMNS", "200")
    data, out = tmp_path / "rows.jsonl", tmp_path / "out"
    data.write_text('{"question": "1 + 1?", "answer": "#### 2"}\n')
    words = ["eval", "--task", "gsm8k", "--data", data, "--target", target, "--out", out]
    assert maskahead.main([str(word) for word in [*words, "--max-new-tokens", "8"]]) == 0
    table = capsys.readouterr().out
    assert "0.000  [0.000, 0.793]      0  1" in table
    assert maskahead.main(["eval", "--rescore", str(out)]) == 0
    assert capsys.readouterr().out == table
    (out / "replies.jsonl.run.json").write_text('{"decode": {}}')
    assert maskahead.main(["eval", "--rescore", str(out)]) == 2
    assert "replies.jsonl.run.json cannot be read back ('task')" in capsys.readouterr().err


def test_the_help_names_every_task(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    assert maskahead.main(["eval", "--help"]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in TASKS)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--task", "sums", "--out", "x"], "task 'sums' is not known; choose from code, gsm8k,"),
        (["--task", "words"], "give --task NAME and --out DIR, or --rescore DIR"),
        (["--rescore", "x", "--limit", "2"], "or --rescore DIR alone"),
        (["--rescore", "x", "--method", "order"], "or --rescore DIR alone"),
        (["--task", "words", "--out", "x", "--shots", "2"], "shots 2: task words makes its"),
        (["--rescore", "nowhere"], "'nowhere' is no folder of an evaluation"),
    ],
)
def test_bad_input_ends_with_2_and_one_line(
    words: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert maskahead.main(["eval", *words]) == 2
    message = capsys.readouterr().err
    assert said in message
    assert message.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_task_for_lm_evaluation_harness_reads_replies_by_our_rules(
    target: Path, tmp_path: Path
) -> None:
    decode(target, tmp_path, 1)
    (row,) = rows_of(tmp_path / "replies.jsonl")
    task = yaml.safe_load((ROOT / "configs/lm-eval/maskahead_words.yaml").read_text())
    assert (task["doc_to_text"], task["doc_to_target"]) == ("{{prompt}}", "{{gold[0]}}")
    assert {"prompt", "gold"} <= row.keys()
    strict, flexible = (entry["filter"][0]["regex_pattern"] for entry in task["filter_list"])
    reply = "Then 1,200.\n#### 1,200.50\nor was it $7?"
    assert plain_number(re.search(strict, reply)[1]) == strict_number(reply)  # type: ignore[index]
    assert plain_number(max(re.findall(flexible, reply)[-1])) == last_number(reply)
