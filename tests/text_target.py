"""A tiny random target that reads and writes text: byte-level BPE, chat template, block size 8."""

from pathlib import Path

import torch

from drafters.sets_bundle import save_sets_model
from drafters.sets_model import SetsModel, SetsModelConfig
from models.checkpoint import read_spec, save_checkpoint
from models.digests import digest
from models.spec import TargetSpec
from models.text import save_tokenizer, train_tokenizer
from tests.conftest import tiny_model, tiny_spec

VOCAB_SIZE = 300


def text_spec() -> TargetSpec:
    return tiny_spec(block_size=8, vocab_size=VOCAB_SIZE)


def save_text_target(folder: Path, max_positions: int = 512, seed: int = 0) -> Path:
    """Write the whole checkpoint."""
    spec = text_spec().model_copy(update={"max_positions": max_positions})
    save_checkpoint(tiny_model(spec, torch.float32, seed), folder, dtype="float32")
    texts = ["hello world, how are you?", "grüß dich, 你好 🙂"] * 10
    save_tokenizer(train_tokenizer(texts, VOCAB_SIZE), folder)
    return folder


def save_tiny_sets_model(target: Path, folder: Path) -> Path:
    """A random sets model that belongs to the target in ``target``."""
    torch.manual_seed(0)
    sizes = {"width": 16, "layers": 1, "heads": 2, "feed_forward": 16, "token_width": 8}
    own = {"hidden_size": read_spec(target).hidden_size, "target_digest": digest(target)}
    save_sets_model(SetsModel(SetsModelConfig.model_validate(sizes | own)), folder)
    return folder
