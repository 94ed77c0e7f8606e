"""simsd on the command line: a pair by --target and --drafter, and what it calls itself."""

import json
from pathlib import Path

import pytest
import torch

import maskahead
from models.checkpoint import save_checkpoint
from tests.conftest import tiny_model, tiny_spec

LIMITS = ["--max-new-tokens", "8", "--ignore-stop"]


@pytest.fixture
def prompts(tmp_path: Path) -> Path:
    path = tmp_path / "prompts.jsonl"
    path.write_text(
        "".join(json.dumps({"id": str(n), "prompt_ids": [5] * n}) + "\n" for n in (3, 8))
    )
    return path


def saved(folder: Path, block: int = 4) -> Path:
    model = tiny_model(tiny_spec(block), torch.float32, seed=1)
    save_checkpoint(model, folder, dtype="float32")
    return folder


def test_a_pair_decodes_in_rows_with_its_rounds(
    tiny_folder: Path, tmp_path: Path, prompts: Path
) -> None:
    out, small = tmp_path / "rows.jsonl", saved(tmp_path / "small-b4")
    words = ["decode", "--target", tiny_folder, "--drafter", small, "--prompts", prompts]
    words += ["--out", out, "--trace", "--method", "simsd", "--gamma", "3", *LIMITS]
    assert maskahead.main([str(word) for word in words]) == 0
    rows = [json.loads(line) for line in out.read_text().splitlines()]
    assert [len(row["token_ids"]) for row in rows] == [8, 8]
    drafted = [r["drafts"] for row in rows for r in row["rounds"] if r["kind"] == "verify"]
    assert drafted
    assert max(drafted) == 3


def test_a_bench_calls_the_mask_approximate_and_exact_states_exact(
    tiny_folder: Path, tmp_path: Path, prompts: Path
) -> None:
    small = saved(tmp_path / "small-b4")
    for verify, certificate in (("mask", "approximate"), ("exact", "exact")):
        out = tmp_path / f"{verify}.json"
        words = ["bench", "--target", tiny_folder, "--prompts", prompts, "--methods", "simsd"]
        words += ["--set", f"drafter.path={small}", "--set", f"decode.verify={verify}"]
        words += ["--set", "decode.max_new_tokens=8", "--repeats", "1", "--out", out]
        assert maskahead.main([str(word) for word in words]) == 0
        assert json.loads(out.read_text())["methods"]["simsd"]["certificate"] == certificate


def test_a_pair_of_two_block_sizes_is_bad_input(
    tiny_folder: Path, tmp_path: Path, prompts: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = saved(tmp_path / "small-b8", 8)
    words = ["decode", "--target", tiny_folder, "--drafter", small, "--prompts", prompts]
    words += ["--out", tmp_path / "rows.jsonl", "--method", "simsd"]
    assert maskahead.main([str(word) for word in words]) == 2
    assert "blocks of 8, the target of 4" in capsys.readouterr().err
