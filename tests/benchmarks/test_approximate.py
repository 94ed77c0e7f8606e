"""Whatever is computed with kept keys of a bidirectional target says that it is approximate."""

from pathlib import Path

import pytest
import torch

from actors.jobs import decode_file, record_traces
from benchmarks.paired import BenchPlan, run_bench
from decoders.options import DecodeOptions
from decoders.trace_store import TraceStore
from drafters.config import DrafterConfig
from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from serve.config import ServeConfig
from tests.conftest import tiny_model
from tests.reference.families import family_spec
from tune.config import SweepConfig


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> TargetConfig:
    folder = tmp_path_factory.mktemp("targets") / "llada-b4"
    save_checkpoint(tiny_model(family_spec("llada"), torch.float32), folder, "float32")
    return TargetConfig(path=str(folder), block_size=4)


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text('{"id": "a", "prompt_ids": [5, 6, 7]}\n{"id": "b", "prompt_ids": []}\n')
    return path


def options(refresh: int) -> DecodeOptions:
    return DecodeOptions(cache_refresh=refresh, max_new_tokens=6, ignore_stop=True)


@pytest.mark.parametrize(("refresh", "said"), [(0, False), (2, True)])
def test_decode_and_record_say_so_at_their_end(
    target: TargetConfig, prompts: Path, tmp_path: Path, refresh: int, said: bool
) -> None:
    out = tmp_path / "out.jsonl"
    drafter, quiet = DrafterConfig(), lambda *_: None
    totals = decode_file(target, drafter, options(refresh), prompts, out, False, quiet)
    assert str(totals).endswith(", approximate") == said
    totals = record_traces(target, options(refresh), prompts, tmp_path / "traces", quiet)
    assert str(totals).endswith(", approximate") == said
    rule = TraceStore(tmp_path / "traces").manifest().rule
    assert rule.get("cache_refresh", 0) == refresh


@pytest.mark.parametrize(("refresh", "kind"), [(0, "exact"), (2, "approximate")])
def test_every_certificate_of_a_bench_says_so_and_counts_equal_outputs(
    target: TargetConfig, prompts: Path, refresh: int, kind: str
) -> None:
    shared = {"max_new_tokens": 6, "ignore_stop": True, "cache_refresh": refresh, "budget": 3}
    plan = BenchPlan(target, DrafterConfig(), shared, ("chain", "threshold"), prompts, 1, "bench")
    methods = run_bench(plan, lambda *_: None)["methods"]
    assert {facts["certificate"] for facts in methods.values()} == {kind}
    assert {facts["equal"] for facts in methods.values()} == {2}


def test_an_endpoint_says_so_whatever_its_file_claims() -> None:
    kept = ServeConfig(certificate="exact", decode=options(2))
    assert kept.stated_certificate == "approximate"
    assert ServeConfig(certificate="exact", decode=options(0)).stated_certificate == "exact"
    assert ServeConfig(decode=options(0)).stated_certificate is None


def test_a_sweep_refuses_it() -> None:
    with pytest.raises(ValueError, match=r"decode\.cache_refresh is not shared by a sweep"):
        SweepConfig(decode={"cache_refresh": 2})
