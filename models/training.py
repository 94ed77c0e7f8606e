"""Training a block-causal diffusion target from scratch: configuration, loop, checkpoints.

Samples come in by number, so that this room needs to know no task. A run stops and goes on at any
time: from its full checkpoint, or, where only weights were kept, from those.
"""

import json
import math
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from pydantic import BaseModel, ConfigDict, Field
from torch import Tensor
from torch.nn import functional as F

from models.descent import descend
from models.doubled import doubled_hidden
from models.noising import NoisedBatch, Sample, noised_batch
from models.spec import TargetSpec
from models.transformer import Transformer

SampleAt = Callable[[int], Sample]
"""Training sample number n: a pure function, defined for every n from 0 on."""

HiddenFn = Callable[[Transformer, Tensor, Tensor, Tensor], Tensor]
"""``doubled_hidden``, or its compiled form."""

CHECKPOINT = "checkpoint.pt"
PROGRESS = "progress.json"

LEFT_OUT_IN_A_ROW = 1000
"""So many samples beyond every length, one after the other, are a mistake."""


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
    """Padded sample lengths; a sample goes to the shortest that holds it, or is left out."""
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
    """Normal initialisation, residual outputs scaled down by depth, norms left at one."""
    generator = torch.Generator().manual_seed(seed)
    depth_scale = 1 / math.sqrt(2 * model.spec.num_layers)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                continue
            if name.endswith(".bias"):
                parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.02)
                continue
            std = 1 / math.sqrt(parameter.shape[-1]) if "embed" not in name else 0.02
            std *= depth_scale if "o_proj" in name or "down_proj" in name else 1.0
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


class BatchSource:
    """Noised batches, each of samples of one padded length.

    ``next_sample`` and ``waiting``, the numbers of samples that were read and are in no batch yet,
    are all that a source must remember to go on elsewhere as if it had never stopped.
    """

    def __init__(self, sample_at: SampleAt, spec: TargetSpec, config: TrainingConfig) -> None:
        self.sample_at = sample_at
        self.spec = spec
        self.config = config
        self.next_sample = 0
        self._queues: dict[int, list[tuple[int, Sample]]] = {n: [] for n in sorted(config.lengths)}

    @property
    def waiting(self) -> list[int]:
        return sorted(number for queue in self._queues.values() for number, _ in queue)

    def restore(self, next_sample: int, waiting: Sequence[int]) -> None:
        """Stand where a source stood that had this ``next_sample`` and ``waiting``."""
        self.next_sample = next_sample
        for queue in self._queues.values():
            queue.clear()
        for number in waiting:
            self._read(number)

    def next(self) -> NoisedBatch:
        """The next batch; its noise is drawn from the number of the sample that fills it."""
        left_out = 0
        while True:
            number = self.next_sample
            self.next_sample += 1
            length = self._read(number)
            left_out = left_out + 1 if length is None else 0
            if left_out == LEFT_OUT_IN_A_ROW:
                longest = max(self.config.lengths)
                raise ValueError(f"lengths: {left_out} samples in a row exceed {longest} tokens")
            size = self.config.batch_size
            if length is None or len(self._queues[length]) < size:
                continue
            full = [sample for _, sample in self._queues[length][:size]]
            del self._queues[length][:size]
            return noised_batch(
                full,
                length,
                self.config.noisy_blocks,
                self.spec.block_size,
                self.spec.mask_token_id,
                self.spec.pad_token_id,
                torch.Generator().manual_seed(self.config.seed * 1_000_003 + number),
                self.config.ordered_share,
            )

    def _read(self, number: int) -> int | None:
        """Queue sample ``number`` under its padded length, which is returned; None: too long."""
        sample = self.sample_at(number)
        need = sample.num_blocks(self.spec.block_size) * self.spec.block_size
        length = next((n for n in self._queues if n >= need), None)
        if length is not None:
            self._queues[length].append((number, sample))
        return length


class Trainer:
    """One training run in a folder: ``checkpoint.pt`` (everything) and ``progress.json``."""

    def __init__(
        self, model: Transformer, sample_at: SampleAt, config: TrainingConfig, folder: Path
    ) -> None:
        self.model = model.to(config.device)
        self.source = BatchSource(sample_at, model.spec, config)
        self.config = config
        self.folder = folder
        self.step = 0
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
            self._restore_progress(state["progress"])
            return f"full checkpoint at step {self.step}"
        if progress.exists():
            self._restore_progress(json.loads(progress.read_text()))
            return f"weights alone, at step {self.step}"
        return "nothing: a fresh run"

    def _progress(self) -> dict[str, Any]:
        source = self.source
        return {"step": self.step, "next_sample": source.next_sample, "waiting": source.waiting}

    def _restore_progress(self, progress: dict[str, Any]) -> None:
        self.step = progress["step"]
        self.source.restore(progress["next_sample"], progress["waiting"])

    def save(self) -> None:
        """Write the full checkpoint; an interrupted write leaves the old one whole."""
        state = {
            "model": self.model.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer in self.optimizers],
            "progress": self._progress(),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self.folder / (CHECKPOINT + ".partial")
        torch.save(state, partial)
        partial.replace(self.folder / CHECKPOINT)
        (self.folder / PROGRESS).write_text(json.dumps(self._progress()) + "\n")

    def train_step(self, batch: NoisedBatch) -> float:
        """One optimizer step; returns the batch's loss in nats a masked position."""
        device = self.config.device
        batch = NoisedBatch(*(tensor.to(device) for tensor in vars(batch).values()))
        bf16 = self.config.matmul_dtype == "bfloat16"
        with torch.autocast(torch.device(device).type, torch.bfloat16, enabled=bf16):
            loss = batch_loss(self.model, batch, self.hidden_fn)
        rate = learning_rate_at(self.step, self.config)
        parameters = list(self.model.parameters())
        descend(loss, parameters, self.optimizers, rate, self.config.clip_norm)
        self.step += 1
        return loss.item()

    def run(self, report: Callable[[dict], None]) -> None:
        """Train until ``steps``, reporting and saving as configured."""
        started, losses = time.perf_counter(), []
        while self.step < self.config.steps:
            losses.append(self.train_step(self.source.next()))
            if self.step % self.config.log_every == 0 or self.step == self.config.steps:
                seconds = (time.perf_counter() - started) / len(losses)
                mean = sum(losses) / len(losses)
                report({"step": self.step, "loss": mean, "seconds_per_step": seconds})
                started, losses = time.perf_counter(), []
            if self.step % self.config.checkpoint_every == 0:
                self.save()
        self.save()
