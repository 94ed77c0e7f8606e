"""``maskahead train target``: what it writes can be read, decoded and loaded."""

from pathlib import Path

import pytest

import maskahead
from tests.cli.conftest import SHORT, Run, read_rows, write_rows

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
