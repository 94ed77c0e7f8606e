"""Training a block-causal diffusion target from scratch: configuration, loop, checkpoints.

Samples come in as an iterator factory, so that this room needs to know no task. A run stops and
goes on at any time: from its full checkpoint, or, where only weights were kept, from those.
"""

import json
import math
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn import functional as F

from models.doubled import doubled_hidden
from models.noising import NoisedBatch, Sample, noised_batch
from models.transformer import Transformer

Samples = Callable[[int], Iterator[Sample]]
"""``samples(first)`` yields training samples number first, first + 1, ... without end."""

HiddenFn = Callable[[Transformer, Tensor, Tensor, Tensor], Tensor]
"""``doubled_hidden``, or its compiled form."""

CHECKPOINT = "checkpoint.pt"
PROGRESS = "progress.json"


class TrainingConfig(BaseModel):
    """How to train; lengths in tokens, the schedule in optimizer steps."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    seed: int = 0
    steps: int = Field(ge=1)
    warmup: int = 100
    cooldown: int = 0
    """The last steps, over which the learning rate falls linearly to zero."""
    batch_size: int = 16
    noisy_blocks: int = 12
    """Noised blocks drawn of each sample, all beside one clean pass."""
    ordered_share: float = Field(default=0.5, ge=0, le=1)
    """Share of the views whose masks lean to the block's end (see ``noised_batch``)."""
    lengths: tuple[int, ...] = (192, 288)
    """Padded sample lengths; each sample goes to the shortest that holds it."""
    learning_rate: float = 2e-3
    weight_decay: float = 0.02
    clip_norm: float = 1.0
    matmul_dtype: Literal["float32", "bfloat16"] = "bfloat16"
    compile: bool = False
    device: str = "cpu"
    threads: int | None = None
    log_every: int = 20
    checkpoint_every: int = 200


def learning_rate_at(step: int, config: TrainingConfig) -> float:
    """Warm-up, plateau, linear cool-down; changing ``steps`` on resume moves the cool-down."""
    warm = min(1.0, (step + 1) / max(1, config.warmup))
    left = config.steps - step
    cool = min(1.0, left / config.cooldown) if config.cooldown else 1.0
    return config.learning_rate * warm * cool


def init_weights(model: Transformer, seed: int) -> None:
    """Normal initialisation, residual outputs scaled down by depth."""
    generator = torch.Generator().manual_seed(seed)
    depth_scale = 1 / math.sqrt(2 * model.spec.num_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() < 2:
                continue
            std = 1 / math.sqrt(parameter.shape[1]) if "embed" not in name else 0.02
            std *= depth_scale if name.endswith(("o_proj.weight", "down_proj.weight")) else 1.0
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * std)


def optimizers(model: Transformer, config: TrainingConfig) -> list[torch.optim.Optimizer]:
    """Muon for the hidden matrices, AdamW for embeddings, head and norms."""
    ends = {"embed_tokens.weight", "lm_head.weight"}
    named = list(model.named_parameters())
    matrices = [p for name, p in named if p.dim() == 2 and name not in ends]
    others = [p for name, p in named if p.dim() != 2 or name in ends]
    muon = torch.optim.Muon(
        matrices,
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        adjust_lr_fn="match_rms_adamw",
    )
    adamw = torch.optim.AdamW(others, lr=config.learning_rate, betas=(0.9, 0.98), weight_decay=0.0)
    return [muon, adamw]


def batch_loss(
    model: Transformer, batch: NoisedBatch, hidden_fn: HiddenFn = doubled_hidden
) -> Tensor:
    """Weighted cross-entropy at the masked positions (the head runs on those rows only)."""
    hidden = hidden_fn(model, batch.clean_BT, batch.noisy_BNL, batch.blocks_BN)
    rows = batch.weights_BNL > 0
    logits = model.logits(hidden[rows])
    losses = F.cross_entropy(logits, batch.targets_BNL[rows], reduction="none")
    return (losses * batch.weights_BNL[rows]).sum()


def batches(
    samples: Samples, model: Transformer, config: TrainingConfig, first: int
) -> Iterator[tuple[int, NoisedBatch]]:
    """Batches of one padded length each, with the number of the next unread sample."""
    spec = model.spec
    waiting: dict[int, list[Sample]] = {length: [] for length in config.lengths}
    for index, sample in enumerate(samples(first), start=first):
        need = sample.num_blocks(spec.block_size) * spec.block_size
        length = min((n for n in config.lengths if n >= need), default=None)
        if length is None:
            raise ValueError(
                f"lengths: sample {index} needs {need} tokens, more than {max(config.lengths)}"
            )
        waiting[length].append(sample)
        if len(waiting[length]) == config.batch_size:
            generator = torch.Generator().manual_seed(config.seed * 1_000_003 + index)
            full, waiting[length] = waiting[length], []
            yield (
                index + 1,
                noised_batch(
                    full,
                    length,
                    config.noisy_blocks,
                    spec.block_size,
                    spec.mask_token_id,
                    spec.pad_token_id,
                    generator,
                    config.ordered_share,
                ),
            )


class Trainer:
    """One training run in a folder: ``checkpoint.pt`` (everything) and ``progress.json``."""

    def __init__(self, model: Transformer, config: TrainingConfig, folder: Path) -> None:
        self.model = model.to(config.device)
        self.config = config
        self.folder = folder
        self.step = 0
        self.next_sample = 0
        self.optimizers = optimizers(model, config)
        self.hidden_fn: HiddenFn = doubled_hidden
        if config.compile:
            self.hidden_fn = torch.compile(doubled_hidden, dynamic=False)
        if config.threads:
            torch.set_num_threads(config.threads)

    def resume(self) -> str:
        """Take up the run that lies in the folder; says what was found."""
        checkpoint, progress = self.folder / CHECKPOINT, self.folder / PROGRESS
        if checkpoint.exists():
            state = torch.load(checkpoint, map_location=self.config.device, weights_only=True)
            self.model.load_state_dict(state["model"])
            for optimizer, saved in zip(self.optimizers, state["optimizers"], strict=True):
                optimizer.load_state_dict(saved)
            self.step, self.next_sample = state["step"], state["next_sample"]
            return f"full checkpoint at step {self.step}"
        if progress.exists():
            state = json.loads(progress.read_text())
            self.step, self.next_sample = state["step"], state["next_sample"]
            return f"weights alone, at step {self.step}"
        return "nothing: a fresh run"

    def save(self) -> None:
        """Write the full checkpoint; an interrupted write leaves the old one whole."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "step": self.step,
            "next_sample": self.next_sample,
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / (CHECKPOINT + ".partial")
        torch.save(state, partial)
        partial.replace(self.folder / CHECKPOINT)
        progress = {"step": self.step, "next_sample": self.next_sample}
        (self.folder / PROGRESS).write_text(json.dumps(progress) + "\n")

    def train_step(self, batch: NoisedBatch) -> float:
        """One optimizer step; returns the batch's loss in nats a masked position."""
        device = self.config.device
        batch = NoisedBatch(*(tensor.to(device) for tensor in vars(batch).values()))
        bf16 = self.config.matmul_dtype == "bfloat16"
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16):
            loss = batch_loss(self.model, batch, self.hidden_fn)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.config.clip_norm)
        rate = learning_rate_at(self.step, self.config)
        for optimizer in self.optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate
            optimizer.step()
            optimizer.zero_grad(set_to_none=True)
        self.step += 1
        return loss.item()

    def run(self, samples: Samples, report: Callable[[dict], None]) -> None:
        """Train until ``steps``, reporting and saving as configured."""
        source = batches(samples, self.model, self.config, self.next_sample)
        started, losses = time.perf_counter(), []
        while self.step < self.config.steps:
            self.next_sample, batch = next(source)
            losses.append(self.train_step(batch))
            if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                seconds = (time.perf_counter() - started) / len(losses)
                mean = sum(losses) / len(losses)
                report({"step": self.step, "loss": mean, "seconds_per_step": seconds})
                started, losses = time.perf_counter(), []
            if self.step % self.config.checkpoint_every == 0:
                self.save()
        self.save()
