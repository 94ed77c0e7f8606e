"""``maskahead train target``: a bundled diffusion model from nothing but the task generators."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, field_validator, model_validator
from tokenizers import Tokenizer

from models.checkpoint import read_spec, save_checkpoint
from models.digests import digest
from models.loading import load_weights
from models.noising import Sample
from models.spec import TargetSpec
from models.text import (
    MASK_ID,
    MESSAGE_END_ID,
    PAD_ID,
    chat_text,
    save_tokenizer,
    train_tokenizer,
)
from models.training import Trainer, TrainingConfig, init_weights
from models.transformer import Transformer
from tasks.corpus import GENERATORS, encode_sample, problem_at


class TokenizerConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    vocab_size: int = 1024
    cut: Literal["digits", "spaces"] = "digits"
    num_texts: int = 6000
    path: str | None = None
    """Take this ``tokenizer.json`` instead of training one."""


class NetworkConfig(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    block_size: int = 32
    rope_theta: float = 10000.0
    max_positions: int = 2048


class TrainTargetConfig(BaseModel):
    """``configs/train-*.yaml``: what to train, on what, and where the checkpoint goes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    out: str
    init: str | None = None
    """Folder of a checkpoint whose weights to start from."""
    transfer_from: str | None = None
    """Folder of a checkpoint of the same width and depth but with another tokenizer: its layers are
    taken, and each token starts as the mean of the tokens that its text has there."""
    data_seed: int = 1
    mix: dict[str, float] = {"words": 0.6, "code": 0.4}
    """Share of each kind of training text."""
    tokenizer: TokenizerConfig = TokenizerConfig()
    network: NetworkConfig
    training: TrainingConfig

    @model_validator(mode="after")
    def _one_start(self) -> "TrainTargetConfig":
        if self.init and self.transfer_from:
            raise ValueError("init and transfer_from: give one of them")
        return self

    @field_validator("mix")
    @classmethod
    def _known_kinds(cls, mix: dict[str, float]) -> dict[str, float]:
        unknown = sorted(mix.keys() - GENERATORS.keys())
        if unknown:
            raise ValueError(f"mix.{unknown[0]}: unknown kind; valid: {', '.join(GENERATORS)}")
        return mix


def build_spec(network: NetworkConfig, vocab_size: int) -> TargetSpec:
    return TargetSpec(
        family="sdar",
        vocab_size=vocab_size,
        rms_norm_eps=1e-6,
        mask_token_id=MASK_ID,
        stop_token_ids=(MESSAGE_END_ID, PAD_ID),
        pad_token_id=PAD_ID,
        **network.model_dump(),
    )


def prepare_tokenizer(config: TrainTargetConfig, folder: Path) -> Tokenizer:
    """The run's tokenizer: the folder's if it has one, else the named one, else a fresh one."""
    for path in (folder / "tokenizer.json", config.tokenizer.path):
        if path and Path(path).exists():
            tokenizer = Tokenizer.from_file(str(path))
            break
    else:
        settings = config.tokenizer
        problems = (problem_at(config.data_seed, i, config.mix) for i in range(settings.num_texts))
        texts = (chat_text(p.prompt) + p.answer for p in problems)
        tokenizer = train_tokenizer(texts, settings.vocab_size, settings.cut)
    folder.mkdir(parents=True, exist_ok=True)
    save_tokenizer(tokenizer, folder)
    return tokenizer


def transfer_weights(model: Transformer, tokenizer: Tokenizer, folder: Path) -> None:
    """Start ``model``, which reads ``tokenizer``'s ids, from a checkpoint with another tokenizer.

    Raises ``ValueError`` when the checkpoint has no tokenizer, or a network of another shape.
    """
    if not (folder / "tokenizer.json").exists():
        raise ValueError(f"transfer_from {str(folder)!r}: it has no tokenizer.json")
    spec = read_spec(folder)
    if spec.rope_theta != model.spec.rope_theta:
        raise ValueError(
            f"transfer_from {str(folder)!r}: its rope_theta is {spec.rope_theta:g}, not "
            f"network.rope_theta {model.spec.rope_theta:g}"
        )
    source = Transformer(spec)
    load_weights(source, folder)
    wanted, found = dict(model.named_parameters()), dict(source.named_parameters())
    ends = ("embed_tokens.weight", "lm_head.weight")
    for name in sorted((wanted.keys() | found.keys()) - set(ends)):
        if name not in found or name not in wanted or found[name].shape != wanted[name].shape:
            raise ValueError(
                f"transfer_from {str(folder)!r}: its network has another shape ({name})"
            )
    origins = token_origins(tokenizer, Tokenizer.from_file(str(folder / "tokenizer.json")))
    with torch.no_grad():
        for name in wanted.keys() - set(ends):
            wanted[name].copy_(found[name])
        for name in ends:
            for token, ids in origins.items():
                wanted[name][token] = found[name][ids].mean(dim=0)


def token_origins(tokenizer: Tokenizer, source: Tokenizer) -> dict[int, list[int]]:
    """The ids that ``source`` gives each token's text, or the text after a space where that takes
    fewer: of a word it may know only the form that stands inside a sentence. Both where they take
    as many. Tokens that are no text (parts of a character) are left out."""
    special = {token.content for token in tokenizer.get_added_tokens_decoder().values()}
    origins = {}
    for token in range(tokenizer.get_vocab_size()):
        text = tokenizer.decode([token], skip_special_tokens=False)
        if "\N{REPLACEMENT CHARACTER}" not in text:
            texts = [text] if text in special else [text, f" {text}"]
            forms = [source.encode(form).ids for form in texts]
            fewest = min(map(len, forms))
            origins[token] = [i for form in forms if len(form) == fewest for i in form]
    return origins


def train_target(config: TrainTargetConfig, report: Callable[[dict], None]) -> Path:
    """Train, or go on training, and export the checkpoint; returns its folder."""
    folder = Path(config.out)
    tokenizer = prepare_tokenizer(config, folder)
    model = Transformer(build_spec(config.network, tokenizer.get_vocab_size()))
    init_weights(model, config.training.seed)
    start = folder if (folder / "model.safetensors").exists() else config.init
    if start:
        load_weights(model, Path(start))
    elif config.transfer_from:
        transfer_weights(model, tokenizer, Path(config.transfer_from))

    def sample_at(number: int) -> Sample:
        return encode_sample(tokenizer, problem_at(config.data_seed, number, config.mix))

    trainer = Trainer(model, sample_at, config.training, folder / "training")
    report({"resumed_from": trainer.resume()})
    trainer.run(report)
    save_checkpoint(model.to(torch.float32), folder)
    # Facts of the model, not of the machine.
    told: dict[str, Any] = config.model_dump(exclude={"out", "init", "transfer_from"})
    if config.transfer_from:
        told["transfer_from"] = digest(Path(config.transfer_from))
    (folder / "training.json").write_text(json.dumps(told, indent=2) + "\n")
    return folder
