"""File jobs, in this process and on a target group: the same rows, whatever was interrupted."""

import json
from pathlib import Path
from typing import Any

import pytest

from actors.jobs import PART_SIZE, PartWriter, decode_file, describe_run, record_traces
from actors.loading import absolute_paths
from actors.runner import open_runner
from decoders.options import DecodeOptions
from decoders.trace_store import TraceManifest, TraceStore
from drafters.bundle import save_order_model
from drafters.config import DrafterConfig
from drafters.order_model import OrderModelConfig, build_order_model
from models.checkpoint import target_spec
from models.config import TargetConfig
from tasks.files import read_prompts

STANDARD = DecodeOptions(max_new_tokens=9, cap=0.5)
BESIDE = DrafterConfig()


def ignore(done: int, total: int) -> None:
    """A report that nobody reads."""


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    file = tmp_path / "prompts.jsonl"
    rows = [{"id": f"p{n}", "prompt_ids": [4 + n + i for i in range(n)]} for n in range(7)]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def decoded(
    target: TargetConfig, drafter: DrafterConfig, options: DecodeOptions, prompts: Path, out: Path
) -> list[dict[str, Any]]:
    decode_file(target, drafter, options, prompts, out, True, ignore)
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    return [{key: row[key] for key in row if key != "seconds"} for row in rows]


@pytest.mark.parametrize("cut", [0, 1, 40, -1])
def test_a_results_file_cut_anywhere_is_completed_to_the_same_rows(
    tiny_folder: Path, prompts: Path, tmp_path: Path, cut: int
) -> None:
    target, out = TargetConfig(path=str(tiny_folder)), tmp_path / "out.jsonl"
    whole = decoded(target, BESIDE, STANDARD, prompts, out)
    out.write_bytes(out.read_bytes()[:cut])
    assert decoded(target, BESIDE, STANDARD, prompts, out) == whole


def test_rows_of_another_block_size_are_refused(
    tiny_folder: Path, prompts: Path, tmp_path: Path
) -> None:
    """The weights are the same, the texts are not."""
    target, out = TargetConfig(path=str(tiny_folder)), tmp_path / "out.jsonl"
    stated = target.model_copy(update={"block_size": target_spec(target).block_size})
    forced = target.model_copy(update={"block_size": 2, "force_block_size": True})
    rows = decoded(target, BESIDE, STANDARD, prompts, out)
    assert decoded(stated, BESIDE, STANDARD, prompts, out) == rows
    with pytest.raises(ValueError, match=r"with target\.block_size None, not 2"):
        decoded(forced, BESIDE, STANDARD, prompts, out)


@pytest.mark.parametrize(("verify", "same"), [("mask", False), ("exact", True)])
def test_a_small_model_in_another_precision_is_another_run_where_the_text_depends_on_it(
    tiny_folder: Path, verify: str, same: bool
) -> None:
    target, small = TargetConfig(path=str(tiny_folder)), DrafterConfig(path=str(tiny_folder))
    options = DecodeOptions.model_validate({"method": "simsd", "verify": verify})
    wide = small.model_copy(update={"dtype": "float64"})
    runs = [describe_run(target, drafter, options) for drafter in (small, wide)]
    assert (runs[0] == runs[1]) is same


def test_finished_traces_are_kept_when_recording_is_interrupted(
    tiny_folder: Path, prompts: Path, tmp_path: Path
) -> None:
    target, folder = TargetConfig(path=str(tiny_folder)), tmp_path / "traces"

    def interrupt(done: int, total: int) -> None:
        if done == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        record_traces(target, STANDARD, prompts, folder, interrupt)
    store = TraceStore(folder)
    assert len(store.recorded_ids()) == 3
    totals = record_traces(target, STANDARD, prompts, folder, ignore)
    assert (totals.kept, totals.rows) == (3, 4)
    assert [trace.request.id for trace in store.load()] == [f"p{n}" for n in range(7)]


def test_parts_are_written_when_they_are_full(
    tiny_folder: Path, prompts: Path, tmp_path: Path
) -> None:
    target, rows = TargetConfig(path=str(tiny_folder)), read_prompts(prompts).rows
    with open_runner(target, BESIDE, {"standard"}) as runner:
        trace = next(runner.record(rows[:1], STANDARD))
    manifest = TraceManifest(
        target="t",
        target_digest="d",
        prompts_digest="p",
        dtype="float32",
        block_size=4,
        mask_token_id=3,
        rule=STANDARD.commit_rule(),
        seed=0,
    )
    store = TraceStore.create(tmp_path / "traces", manifest)
    with PartWriter(store) as writer:
        for _ in range(PART_SIZE - 1):
            writer.add(trace)
        assert not list(store.load())
        writer.add(trace)
        assert len(list(store.load())) == PART_SIZE


def test_recording_refuses_a_method_that_drafts(
    tiny_folder: Path, prompts: Path, tmp_path: Path
) -> None:
    options = DecodeOptions(method="chain")
    with pytest.raises(ValueError, match="'chain' drafts; valid: standard, threshold"):
        record_traces(TargetConfig(path=str(tiny_folder)), options, prompts, tmp_path / "t", ignore)
    assert not (tmp_path / "t").exists()


@pytest.mark.ray
def test_a_group_of_two_ranks_with_a_drafter_actor_gives_the_same_rows(
    tiny_folder: Path, prompts: Path, tmp_path: Path, ray_cluster: object
) -> None:
    save_order_model(build_order_model(OrderModelConfig()), tmp_path / "order")
    drafter = DrafterConfig(path=str(tmp_path / "order"))
    apart = drafter.model_copy(update={"placement": "actor"})
    alone = TargetConfig(path=str(tiny_folder), dtype="float64")
    ranks = alone.model_copy(update={"tp": 2})
    options = DecodeOptions(method="order", budget=4, max_new_tokens=9, cap=0.5, batch_size=2)
    standard = decoded(alone, BESIDE, STANDARD, prompts, tmp_path / "standard.jsonl")
    here = decoded(alone, drafter, options, prompts, tmp_path / "here.jsonl")
    there = decoded(ranks, apart, options, prompts, tmp_path / "there.jsonl")
    assert here == there
    assert [row["token_ids"] for row in here] == [row["token_ids"] for row in standard]


@pytest.mark.ray
def test_a_group_records_the_same_traces(
    tiny_folder: Path, prompts: Path, tmp_path: Path, ray_cluster: object
) -> None:
    alone = TargetConfig(path=str(tiny_folder), dtype="float64")
    record_traces(alone, STANDARD, prompts, tmp_path / "here", ignore)
    ranks = alone.model_copy(update={"tp": 2})
    record_traces(ranks, STANDARD, prompts, tmp_path / "there", ignore)
    pairs = [TraceStore(tmp_path / name) for name in ("here", "there")]
    assert pairs[0].manifest() == pairs[1].manifest()
    for one, other in zip(*(store.load() for store in pairs), strict=True):
        assert (one.request.id, one.token_ids) == (other.request.id, other.token_ids)
        states = [
            [state.state for block in t.blocks for state in block.states] for t in (one, other)
        ]
        assert states[0] == states[1]


def test_names_stay_names_for_other_hosts_and_folders_become_absolute(
    tiny_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny_folder.parent)
    for given, meant in (("sdar-tiny", "sdar-tiny"), (tiny_folder.name, str(tiny_folder))):
        target, _ = absolute_paths(TargetConfig(path=given), DrafterConfig())
        assert target.path == meant
