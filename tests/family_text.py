"""A tiny random checkpoint of every family that reads and writes text, in the family's own files:
its special tokens, its chat template where that family keeps it, its form of tokenizer."""

import json
from pathlib import Path
from typing import NamedTuple

import torch

from models.checkpoint import save_checkpoint
from models.spec import TargetSpec
from tests.conftest import tiny_model
from tests.reference.families import family_spec

VOCAB_SIZE = 300
CHATML = (
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
ROLES = (
    "{% for m in messages %}{{ '<role>' + m.role | upper + '</role>' + m.content }}"
    "{{ '<|role_end|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<role>ASSISTANT</role>' }}{% endif %}"
)
HEADERS = (
    "{{ '<|startoftext|>' }}{% for m in messages %}{{ '<|start_header_id|>' + m.role + "
    "'<|end_header_id|>\n\n' + m.content | trim + '<|eot_id|>' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}"
    "{% endif %}"
)


class Text(NamedTuple):
    """Special tokens in the order of their ids (padding, the turn's two ends, the mask), template,
    and which files hold tokenizer and template."""

    special: tuple[str, ...]
    template: str
    in_parts: bool = False
    """``vocab.json`` and ``merges.txt`` in place of ``tokenizer.json``."""
    in_jinja: bool = False
    """``chat_template.jinja`` in place of the field in ``tokenizer_config.json``."""


_QWEN = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEXTS = {
    "sdar": Text((*_QWEN, "<|MASK|>"), CHATML),
    "sdar_moe": Text((*_QWEN, "<|MASK|>"), CHATML, in_jinja=True),
    "llada2_moe": Text(("<|endoftext|>", "<role>", "<|role_end|>", "<|mask|>", "</role>"), ROLES),
    "llada": Text(
        (
            *("<|endoftext|>", "<|startoftext|>", "<|eot_id|>", "<|mdm_mask|>"),
            *("<|start_header_id|>", "<|end_header_id|>"),
        ),
        HEADERS,
    ),
    "Dream": Text((*_QWEN, "<|mask|>"), CHATML, in_parts=True),
    "Fast_dLLM_Qwen": Text((*_QWEN, "|<MASK>|"), CHATML),
}


def text_spec(family: str) -> TargetSpec:
    """Blocks of 8, room for the tasks of a sweep, and one end of turn, as chat models have."""
    spec = family_spec(family, block_size=8, vocab_size=VOCAB_SIZE)
    others = {"max_positions": 1024, "stop_token_ids": (2, 0)}
    return TargetSpec.model_validate(spec.model_dump() | others)


def save_family_target(folder: Path, family: str) -> Path:
    """Write the whole checkpoint."""
    save_checkpoint(tiny_model(text_spec(family), torch.float32), folder, dtype="float32")
    text = TEXTS[family]
    tokenizer = _train(text.special)
    settings = {
        "added_tokens_decoder": {
            str(number): {"content": token, "special": True, "normalized": False}
            for number, token in enumerate(text.special)
        },
        "eos_token": text.special[0],
        "pad_token": text.special[0],
        "mask_token": text.special[3],
        "clean_up_tokenization_spaces": False,
        "tokenizer_class": "Qwen2Tokenizer" if text.special[:3] == _QWEN else "LlamaTokenizerFast",
    }
    if text.in_jinja:
        (folder / "chat_template.jinja").write_text(text.template)
    else:
        settings["chat_template"] = text.template
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    if not text.in_parts:
        tokenizer.save(str(folder / "tokenizer.json"))
        return folder
    model = json.loads(tokenizer.to_str())["model"]
    (folder / "vocab.json").write_text(json.dumps(model["vocab"]))
    merges = "".join(f"{left} {right}\n" for left, right in model["merges"])
    (folder / "merges.txt").write_text(f"#version: 0.2\n{merges}")
    return folder


def _train(special: tuple[str, ...]):
    """A byte-level BPE tokenizer (``tokenizers.Tokenizer``)."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=list(special),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(["how many apples are left?", "def add(a, b):"] * 10, trainer)
    return tokenizer
