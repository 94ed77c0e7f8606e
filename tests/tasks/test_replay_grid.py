"""Grids of settings: what they expand to, what is refused, and the rows that come out."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from decoders.draft_graph import save_graphs
from decoders.options import DecodeOptions
from decoders.proposers.registry import open_proposers
from decoders.replay import replay
from decoders.request import Request
from decoders.trace import Trace, TraceRecorder
from decoders.trace_store import TraceManifest, TraceStore
from drafters.bundle import save_order_model
from drafters.config import DrafterConfig
from models.checkpoint import save_checkpoint
from models.target import Target
from tasks.replay_counts import SLICE, sum_results
from tasks.replay_grid import expand_grid, replay_grid, setting_options
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import prompt_of, run, tiny_graphs, tiny_order_model

RECORDED = DecodeOptions(cap=0.9, temperature=0.7, top_p=0.8, max_new_tokens=40, seed=3)
MANIFEST = TraceManifest(
    target="t",
    target_digest="d",
    prompts_digest="p",
    dtype="float32",
    block_size=4,
    mask_token_id=3,
    rule=RECORDED.commit_rule(),
    seed=3,
)


def test_keys_with_lists_make_every_combination_once() -> None:
    """The draft-free method has no budget: its settings fall into one."""
    grid = {"settings": {"decode.method": ["standard", "chain"], "decode": {"budget": [1, 3]}}}
    assert expand_grid(grid) == [
        {"decode.method": "standard"},
        {"decode.method": "chain", "decode.budget": 1},
        {"decode.method": "chain", "decode.budget": 3},
    ]


def test_listed_settings_stay_as_they_are() -> None:
    settings = [{"decode.method": "chain"}, {"decode": {"method": "order", "gamma": 0.1}}]
    assert expand_grid({"settings": settings}) == [
        {"decode.method": "chain"},
        {"decode.method": "order", "decode.gamma": 0.1},
    ]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({}, "grid: settings must map"),
        ({"settings": {}}, "grid: settings must map"),
        ({"settings": []}, "grid: settings must map"),
        ({"settings": ["chain"]}, "grid: settings must map"),
        ({"methods": ["chain"]}, "grid key 'methods' is unknown; valid: settings"),
        ({"settings": {"decode.bugdet": [1]}}, "'decode.bugdet' is unknown; valid: .*budget"),
        ({"settings": [{"target.dtype": "float64"}]}, "'target.dtype' is unknown"),
    ],
)
def test_a_grid_that_says_nothing_useful_is_refused(grid: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        expand_grid(grid)


def test_what_a_setting_leaves_out_is_as_recorded() -> None:
    options = setting_options({"decode.method": "chain", "decode.budget": 2}, MANIFEST)
    assert options == RECORDED.model_copy(update={"method": "chain", "budget": 2})


@pytest.mark.parametrize(
    ("key", "value", "was"), [("seed", 4, 3), ("temperature", 0.0, 0.7), ("max_new_tokens", 8, 40)]
)
def test_what_rows_decide_is_replayed_only_as_recorded(key: str, value: Any, was: Any) -> None:
    """A row's own value wins over the option, so another option would be ignored in silence."""
    with pytest.raises(ValueError, match=f"decode.{key} {value}: .* recorded with {was}"):
        setting_options({f"decode.{key}": value}, MANIFEST)
    assert setting_options({f"decode.{key}": was}, MANIFEST).method == "standard"


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"decode.method: 'chian' must be one of standard, "):
        setting_options({"decode.method": "chian"}, MANIFEST)


GRID = {
    "settings": {
        "decode.method": ["standard", "order", "chain", "wtree", "graph", "oracle-joint"],
        "decode.budget": [2, 5],
        "decode.gamma": [0.0, 0.05],
        "decode.hedge": [0.3, 1.0],
    }
}
SPEC = tiny_spec(4)
RULE = DecodeOptions(max_new_tokens=11)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target with drafters, and more traces of it than are replayed together, in two parts."""
    folder = tmp_path_factory.mktemp("recorded")
    model = tiny_model(SPEC)
    save_checkpoint(model, folder / "target", dtype="float32")
    save_order_model(tiny_order_model(), folder / "order")
    save_graphs(tiny_graphs(), folder / "graph.json")
    requests = [Request(str(n), prompt_of(n), RULE, n) for n in range(SLICE + 4)]
    recorder = TraceRecorder()
    results = run(Target(model), requests, batch_size=4, observer=recorder)
    traces = [recorder.finish(results[request.id]) for request in requests]
    manifest = MANIFEST.model_copy(
        update={"target": str(folder / "target"), "rule": RULE.commit_rule(), "seed": 0}
    )
    store = TraceStore.create(folder / "traces", manifest)
    store.append(traces[: SLICE + 1])
    store.append(traces[SLICE + 1 :])
    return folder


def drafter(folder: Path) -> DrafterConfig:
    return DrafterConfig(path=str(folder / "order"), graph=str(folder / "graph.json"))


def replayed(folder: Path, out: Path, grid: dict[str, Any], processes: int = 1) -> list[Any]:
    rows = replay_grid(
        folder / "traces", grid, drafter(folder), out, processes, lambda done, of: None
    )
    assert rows == [json.loads(line) for line in out.read_text().splitlines()][-len(rows) :]
    return rows


def slow_row(folder: Path, traces: list[Trace], setting: dict[str, Any]) -> dict[str, Any]:
    options = setting_options(setting, TraceStore(folder / "traces").manifest())
    proposers = open_proposers(folder / "target", SPEC, drafter(folder), {options.method})
    results = replay(traces, options, proposers.get(options.method))
    return sum_results(results, sum(trace.nfe for trace in traces)).row()


def test_rows_are_those_of_replaying_each_setting_by_itself(folder: Path, tmp_path: Path) -> None:
    settings = expand_grid(GRID)
    rows = replayed(folder, tmp_path / "rows.jsonl", GRID)
    traces = list(TraceStore(folder / "traces").load())
    assert [row["setting"] for row in rows] == settings
    for number, (row, setting) in enumerate(zip(rows, settings, strict=True)):
        expected = {"id": str(number), "setting": setting} | slow_row(folder, traces, setting)
        assert row == expected
    assert len({row["nfe"] for row in rows}) > 4
    assert rows[0]["n"] == SLICE + 4


@pytest.mark.slow
def test_two_processes_write_what_one_writes(folder: Path, tmp_path: Path) -> None:
    one, two = tmp_path / "one.jsonl", tmp_path / "two.jsonl"
    replayed(folder, one, GRID, processes=1)
    replayed(folder, two, GRID, processes=2)
    assert one.read_text() == two.read_text()


def test_an_interrupted_grid_goes_on_behind_its_rows(folder: Path, tmp_path: Path) -> None:
    whole, out = tmp_path / "whole.jsonl", tmp_path / "rows.jsonl"
    shown: list[tuple[int, int]] = []
    settings = len(replayed(folder, whole, GRID))

    def stop(done: int, of: int) -> None:
        shown.append((done, of))
        if done > 10:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        replay_grid(folder / "traces", GRID, drafter(folder), out, 1, stop)
    kept = out.read_text()
    assert 0 < kept.count("\n") < settings
    assert {of for _, of in shown} == {settings}
    new = replayed(folder, out, GRID)
    assert len(new) == settings - kept.count("\n")
    assert out.read_text() == whole.read_text()


def test_rows_of_another_drafter_are_refused(folder: Path, tmp_path: Path) -> None:
    """Else a model that was trained again would be told with the old one's forwards."""
    out = tmp_path / "rows.jsonl"
    grid = {"settings": [{"decode.method": "order", "decode.budget": 2}]}
    assert replayed(folder, out, grid)
    model = tiny_order_model()
    model.config = model.config.model_copy(update={"temperature": 2.0})
    save_order_model(model, tmp_path / "order")
    other = DrafterConfig(path=str(tmp_path / "order"))
    with pytest.raises(ValueError, match=r"holds results with drafters\.order\.digest"):
        replay_grid(folder / "traces", grid, other, out, 1, lambda done, of: None)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ({"decode.method": "chain", "decode.cap": 0.5}, "decode.cap 0.5: .*recorded with 1.0"),
        ({"decode.method": "chain", "decode.budget": "auto"}, "decode.budget auto: .*a number"),
        ({"decode.method": "chain", "decode.budget": -1}, "decode.budget"),
        ({"decode.method": "chain", "decode.draft_refresh": 3}, "decode.draft_refresh 3: .*trace"),
    ],
)
def test_a_bad_setting_is_refused_before_any_is_replayed(
    folder: Path, tmp_path: Path, setting: dict[str, Any], said: str
) -> None:
    out = tmp_path / "rows.jsonl"
    with pytest.raises(ValueError, match=said):
        replayed(folder, out, {"settings": [{"decode.method": "chain"}, setting]})
    assert not out.exists()


def test_a_row_recorded_by_another_rule_is_refused(folder: Path, tmp_path: Path) -> None:
    """The manifest says one rule; a row may have been recorded by its own."""
    recorded = TraceStore(folder / "traces")
    store = TraceStore.create(tmp_path / "traces", recorded.manifest())
    traces = list(recorded.load(2))
    own = replace(traces[1].request, options=DecodeOptions(cap=0.5, max_new_tokens=11))
    store.append([traces[0], replace(traces[1], request=own)])
    with pytest.raises(ValueError, match=r"decode.cap 1.0: .*recorded with 0.5"):
        replay_grid(
            tmp_path / "traces", GRID, drafter(folder), tmp_path / "out", 1, lambda done, of: None
        )


def test_a_folder_without_traces_is_refused(folder: Path, tmp_path: Path) -> None:
    TraceStore.create(tmp_path / "traces", TraceStore(folder / "traces").manifest())
    with pytest.raises(ValueError, match="traces holds no traces"):
        replay_grid(
            tmp_path / "traces", GRID, drafter(folder), tmp_path / "out", 1, lambda done, of: None
        )
