"""A tiny random target that reads and writes text: byte-level BPE, chat template, block size 8."""

from pathlib import Path

import torch

from models.checkpoint import save_checkpoint
from models.spec import TargetSpec
from models.text import save_tokenizer, train_tokenizer
from tests.conftest import tiny_model, tiny_spec

VOCAB_SIZE = 300


def text_spec() -> TargetSpec:
    return tiny_spec(block_size=8, vocab_size=VOCAB_SIZE)


def save_text_target(folder: Path, max_positions: int = 512) -> Path:
    """Write the whole checkpoint."""
    spec = text_spec().model_copy(update={"max_positions": max_positions})
    save_checkpoint(tiny_model(spec, torch.float32), folder, dtype="float32")
    texts = ["hello world, how are you?", "grüß dich, 你好 🙂"] * 10
    save_tokenizer(train_tokenizer(texts, VOCAB_SIZE), folder)
    return folder
