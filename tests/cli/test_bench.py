"""``maskahead bench``: methods side by side, each against its own draft-free decoding."""

import json
from pathlib import Path

from tests.cli.conftest import SHORT, Run, read_rows
from tests.text_target import save_tiny_sets_model

BENCH_KEYS = {"command", "versions", "machine", "target", "prompts", "settings", "methods"}
METHOD_KEYS = {
    *("n", "nfe", "forwards", "nfe_ratio", "seconds", "tokens_per_second", "ratio"),
    *("equal", "certificate", "peak_memory_bytes"),
}


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
    Path("folder").mkdir()
    for out in ("folder", "b.json/below"):
        code, said = run(*bench, "--out", out)
        assert (code, said.count("\n")) == (2, 1)
        assert said.startswith(f"error: --out {out}"), "before anything is measured"


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
