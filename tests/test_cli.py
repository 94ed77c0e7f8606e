"""The commands of contracts.md, on a tiny target: rows, exit codes, messages, help."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import maskahead
from cluster.loaded import ShortOptions
from cluster.short_options import short_forms
from tests.text_target import save_tiny_sets_model

ROOT = Path(__file__).parent.parent
COMMANDS = (
    "sweep",
    "decode",
    "eval",
    "record",
    "replay",
    "calibrate",
    "bench",
    "serve",
    "ui",
    "info",
    "import-order",
    "compare",
    "promote",
)
TRAIN = [["train"], ["train", "target"], ["train", "order"], ["train", "sets"]]
HELPED = [[], *([c] for c in COMMANDS), *TRAIN, ["report"]]
HELPED += [["report", "spot"], ["report", "simsd"], ["report", "ladder"]]
HELPED += [["report", "sweep"]]
ROW_KEYS = (
    *("id", "prompt_ids", "token_ids", "text", "stop_reason", "nfe", "forwards"),
    *("tokens_per_forward", "accepted_per_round", "seconds"),
)
BENCH_KEYS = {"command", "versions", "machine", "target", "prompts", "settings", "methods"}
METHOD_KEYS = {
    *("n", "nfe", "forwards", "nfe_ratio", "seconds", "tokens_per_second", "ratio"),
    *("equal", "certificate", "peak_memory_bytes"),
}
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


@pytest.mark.parametrize("words", HELPED, ids=" ".join)
def test_every_help_teaches_with_an_example(
    run: Run, words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert maskahead.main([*words, "--help"]) == 0
    assert "Example: maskahead" in capsys.readouterr().out


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


@pytest.mark.parametrize("words", [("serve",), ("ui",)])
def test_without_a_sweep_there_is_nothing_to_serve_or_to_show(
    run: Run, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    code, said = run(*words)
    assert (code, said.count("\n")) == (2, 1)
    assert "`maskahead sweep` makes one" in said
    assert not Path("runs").exists()


def test_a_target_that_is_not_there_is_named_with_the_bundled_ones(run: Run) -> None:
    code, said = run("info", "nowhere")
    assert (code, said.count("\n")) == (2, 1)
    assert "'nowhere' is neither a folder with a config.json nor a bundled target" in said


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


def test_replay_counts_what_live_decoding_costs(run: Run, tiny_folder: Path, prompts: Path) -> None:
    common = ("--target", tiny_folder, "--prompts", prompts, *SHORT, "--cap", "0.5")
    assert run("record", *common, "--out", "traces", "--batch-size", 3)[0] == 0
    grid = "settings:\n  decode.method: [standard, chain]\n  decode.budget: [1, 3]\n"
    Path("grid.yaml").write_text(grid)
    replay = ("replay", "--traces", "traces", "--grid", "grid.yaml", "--out", "replay.jsonl")
    assert run(*replay)[0] == 0
    rows = {json.dumps(row["setting"]): row for row in read_rows(Path("replay.jsonl"))}
    assert len(rows) == 3
    for index, row in enumerate(rows.values()):
        options = [f"--set={key}={value}" for key, value in row["setting"].items()]
        assert run("decode", *common, *options, "--out", f"{index}.jsonl")[0] == 0
        live = read_rows(Path(f"{index}.jsonl"))
        assert row["n"] == len(live)
        assert row["nfe"] == sum(r["nfe"] for r in live)
        assert row["forwards"] == sum(r["forwards"] for r in live)
    assert max(row["nfe_ratio"] for row in rows.values()) > 1


def test_sets_is_measured_against_threshold_decoding_and_replayed(
    run: Run, tiny_folder: Path, prompts: Path, tmp_path: Path
) -> None:
    save_tiny_sets_model(tiny_folder, tmp_path / "sets")
    common = ("--target", tiny_folder, "--prompts", prompts)
    rule = ("--method", "threshold", "--tau", "0.1", *SHORT, "--ignore-stop")
    assert run("record", *common, *rule, "--hidden", "--out", "traces")[0] == 0
    grid = "settings:\n  decode.method: [sets]\n  decode.budget: [2, 6]\n"
    Path("grid.yaml").write_text(grid)
    replay = ("replay", "--traces", "traces", "--grid", "grid.yaml", "--drafter", tmp_path / "sets")
    assert run(*replay, "--out", "replay.jsonl")[0] == 0
    shared = ("decode.tau=0.1", "decode.max_new_tokens=12", "decode.ignore_stop=true")
    words = [f"--set={key}" for key in (*shared, "decode.budget=6", "decode.rule=product")]
    drafter = f"--set=drafter.sets={tmp_path / 'sets'}"
    bench = ("bench", *common, "--methods", "sets", "--repeats", 1, *words, drafter)
    assert run(*bench, "--out", "b.json")[0] == 0
    found = json.loads(Path("b.json").read_text())["methods"]
    assert list(found) == ["standard", "threshold", "sets", "sets-exact"]
    assert found["sets"]["certificate"] == "approximate"
    assert found["sets-exact"]["certificate"] == "exact"
    assert {found[name]["baseline"] for name in ("sets", "sets-exact")} == {"threshold"}
    exact = found["sets-exact"]
    assert exact["nfe_ratio"] == round(found["threshold"]["nfe"] / exact["nfe"], 4)
    assert read_rows(Path("replay.jsonl"))[1]["nfe"] == exact["nfe"]
    code, said = run("decode", *common, "--method", "sets", "--rule", "most", "--out", "d.jsonl")
    assert (code, said.count("\n")) == (2, 1)
    assert "decode.rule" in said
    assert "product" in said


def test_replay_of_another_rule_is_refused(run: Run, tiny_folder: Path, prompts: Path) -> None:
    common = ("--target", tiny_folder, "--prompts", prompts, *SHORT)
    assert run("record", *common, "--out", "traces")[0] == 0
    assert run("record", *common, "--out", "traces", "--cap", "0.9")[0] == 2
    Path("grid.yaml").write_text("settings: [{decode.method: chain, decode.cap: 0.9}]\n")
    code, said = run("replay", "--traces", "traces", "--grid", "grid.yaml", "--out", "r.jsonl")
    assert (code, said.count("\n")) == (2, 1)
    assert "decode.cap 0.9: these traces were recorded with 1.0" in said


def test_a_graph_calibrated_on_traces_drafts_as_it_replays(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    common = ("--target", tiny_folder, "--prompts", prompts, *SHORT, "--ignore-stop")
    for cap in ("1", "0.9"):
        assert run("record", *common, "--out", f"cap{cap}", "--cap", cap)[0] == 0
    folders = ("--traces", "cap1", "--traces", "cap0.9")
    assert run("calibrate", *folders, "--out", "graph.json")[0] == 0
    code, said = run("calibrate", "--traces", "cap1", "--traces", "cap1", "--out", "twice.json")
    assert (code, said.count("\n")) == (2, 1)
    assert "cap 1 stands in an earlier folder too" in said
    assert run("decode", *common, "--method", "standard", "--out", "free.jsonl")[0] == 0
    graph = ("--method", "graph", "--set", "drafter.graph=graph.json", "--budget", 3)
    assert run("decode", *common, *graph, "--out", "graph.jsonl")[0] == 0
    free, drafted = read_rows(Path("free.jsonl")), read_rows(Path("graph.jsonl"))
    assert [row["token_ids"] for row in drafted] == [row["token_ids"] for row in free]
    assert sum(row["nfe"] for row in drafted) < sum(row["nfe"] for row in free)


def test_bench_reports_what_the_contract_names(run: Run, tiny_folder: Path, prompts: Path) -> None:
    words = ("--methods", "chain,threshold", "--set", "decode.max_new_tokens=8", "--repeats", 2)
    bench = ("bench", "--target", tiny_folder, "--prompts", prompts, "--out", "b.json", *words)
    assert run(*bench)[0] == 0
    report = json.loads(Path("b.json").read_text())
    assert set(report) == BENCH_KEYS
    assert list(report["methods"]) == ["standard", "chain", "threshold"]
    for facts in report["methods"].values():
        assert set(facts) >= METHOD_KEYS
        assert set(facts["ratio"]) == set(facts["seconds"]) == {"median", "q25", "q75"}
    chain = report["methods"]["chain"]
    assert (chain["equal"], chain["certificate"]) == (10, "exact")
    assert chain["nfe_ratio"] > 1
    assert report["methods"]["standard"]["ratio"]["median"] == 1
    assert run(*bench, "--set", "decode.gamma=0.1")[0] == 2


TRAINING = """
out: trained
tokenizer: {vocab_size: 300, num_texts: 60}
network: {hidden_size: 32, num_layers: 1, num_heads: 2, num_kv_heads: 1, head_dim: 16,
  intermediate_size: 64, block_size: 8}
training: {steps: 2, batch_size: 2, noisy_blocks: 4, matmul_dtype: float32}
"""


def test_a_trained_target_reads_and_writes_text(
    run: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("train.yaml").write_text(TRAINING)
    assert run("train", "target", "--config", "train.yaml")[0] == 0
    assert maskahead.main(["info", "trained"]) == 0
    assert "chat_template" in capsys.readouterr().out
    file = write_rows(tmp_path / "p.jsonl", [{"id": "a", "prompt": "How many?"}])
    decode = ("decode", "--target", "trained", "--prompts", file, "--out", "o", "--ignore-stop")
    assert run(*decode, *SHORT)[0] == 0
    (row,) = read_rows(Path("o"))
    assert row["prompt_ids"]
    assert isinstance(row["text"], str)
    with maskahead.load("trained", max_new_tokens=12, ignore_stop=True) as target:
        assert target.generate(["How many?"])[0]["token_ids"] == row["token_ids"]


def test_the_python_api_returns_the_rows_of_decode(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    words = ("--target", tiny_folder, "--prompts", prompts, "--method", "chain", *SHORT)
    assert run("decode", *words, "--out", "o.jsonl")[0] == 0
    with maskahead.load(str(tiny_folder), method="chain", max_new_tokens=12) as target:
        rows = target.generate(read_rows(prompts))
        with pytest.raises(ValueError, match="no tokenizer"):
            target.generate(["text"])
    assert without_seconds(rows) == without_seconds(read_rows(Path("o.jsonl")))


def test_the_python_api_knows_the_options_of_the_command() -> None:
    assert {"target", *ShortOptions.__annotations__} == set(short_forms())


def test_the_command_line_starts_fast() -> None:
    program = "import sys, maskahead; print(*{m.partition('.')[0] for m in sys.modules})"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert not {"torch", "ray", "mlflow", "transformers", "numpy"} & set(done.stdout.split())
