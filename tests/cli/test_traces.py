"""``maskahead record``, ``replay`` and ``calibrate``: traces tell what live decoding does."""

import json
from pathlib import Path

from tests.cli.conftest import SHORT, Run, read_rows


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
