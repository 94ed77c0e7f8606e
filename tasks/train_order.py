"""``maskahead train order``: an order model from recorded traces, with a card of what it knows."""

import json
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from decoders.rules import cap_log_odds
from decoders.state import State
from decoders.trace import Trace
from decoders.trace_store import TraceStore
from drafters.bundle import save_order_model
from drafters.features import NUM_TOKENS, TOP_K
from drafters.order_data import OrderData, draw_batch
from drafters.order_model import (
    OrderModel,
    OrderModelConfig,
    build_order_model,
    hidden_tokens,
)
from drafters.order_training import (
    OrderTrainingConfig,
    accuracy_by_depth,
    fit_temperature,
    train_order_model,
)
from drafters.state_data import concatenate
from drafters.survival import fit_survival_scale
from models.checkpoint import find_checkpoint
from models.digests import digest
from models.text import vocabulary_digest
from tasks.drafter_training import (
    PROGRESS,
    TrainDrafterConfig,
    check_learnable,
    padded,
    resume,
    saving,
    split_traces,
)
from tasks.recordings import record_all
from tasks.whole import write_whole

DEPTHS = range(1, 9)
CALIBRATION_STATES = 4000
CHANCE = 0.01
"""Differences of accuracy up to this are none."""


class TrainOrderConfig(TrainDrafterConfig):
    """``configs/train-order.yaml``: what to record of which target, and how to learn from it.

    Recordings of training problems are learnt from (those at T>0: how long a draw lasts); those of
    held-out problems measure.
    """

    model: OrderModelConfig = OrderModelConfig()
    training: OrderTrainingConfig = OrderTrainingConfig()


def order_data(traces: Iterable[Trace]) -> OrderData:
    """Lay out the states of standard-decoding traces for training."""
    rows: list[np.ndarray] = []
    ids: list[np.ndarray] = []
    tokens: list[State] = []
    columns: list[np.ndarray] = []
    states: list[tuple[np.ndarray, int, int, int, float]] = []
    next_row = 0
    for trace in traces:
        cap = cap_log_odds(trace.request.options.cap)
        for block in trace.blocks:
            for index, traced in enumerate(block.states):
                stale = traced.stale
                tokens.append(traced.state)
                count = len(stale.positions)
                row = np.full(len(traced.state), -1, dtype=np.int32)
                row[stale.positions] = np.arange(next_row, next_row + count)
                next_row += count
                left = len(block.states) - 1 - index
                states.append((row, traced.step[0][0], left, block.end.prompt_end, cap))
                rows.append(padded(stale.log_probs, TOP_K, -np.inf).astype(np.float16))
                ids.append(padded(stale.ids, NUM_TOKENS, -1))
                columns.append(np.stack((stale.entropy, stale.log_odds, stale.rank_log_odds)))
    entropy, log_odds, rank_log_odds = np.concatenate(columns, axis=1)
    row_SL, committed, left_S, prompt_end, caps = zip(*states, strict=True)
    return OrderData(
        row_SL=np.stack(row_SL),
        state_SL=np.array(tokens, dtype=np.int32),
        log_probs_RK=np.concatenate(rows),
        ids_RC=np.concatenate(ids).astype(np.int32),
        entropy_R=entropy,
        log_odds_R=log_odds,
        rank_log_odds_R=rank_log_odds,
        committed_S=np.array(committed),
        left_S=np.array(left_S),
        prompt_end_S=np.array(prompt_end),
        cap_log_odds_S=np.array(caps, dtype=np.float32),
    )


def draws_of(trace: Trace, max_depth: int) -> tuple[np.ndarray, np.ndarray]:
    """For every state and each of the next ``max_depth`` commits: by how much the state's first
    candidate led at that position, and whether it is what was committed."""
    margins, survived = [], []
    for block in trace.blocks:
        for index, traced in enumerate(block.states):
            stale = traced.stale
            rows = {int(position): row for row, position in enumerate(stale.positions)}
            for later in block.states[index + 1 : index + 1 + max_depth]:
                position, token = later.step[0]
                first, second = stale.scores[rows[position], :2]
                margins.append(first - second)
                survived.append(stale.candidates[rows[position], 0] == token)
    return np.array(margins, dtype=np.float32), np.array(survived, dtype=bool)


def train_order(config: TrainOrderConfig, report: Callable[[dict], None]) -> Path:
    """Train, or go on training from the last saved step; returns the drafter's folder."""
    out = Path(config.out)
    check_recordings(config)
    stores = record_all(config.recordings, config.target, Path(config.traces), report)
    pairs = list(zip(config.recordings, stores, strict=True))
    learnt, kept_back, drawn = [], [], []
    for recording, store in pairs:
        if recording.split == "train" and recording.temperature > 0:
            drawn += [draws_of(trace, config.training.max_depth) for trace in store.load()]
        elif recording.split == "train":
            own, back = split_traces(store.load())
            learnt.append(order_data(own))
            kept_back.append(order_data(back))
    data = concatenate(learnt)
    report({"states": data.num_states, "rows": len(data.entropy_R)})
    torch.manual_seed(config.training.seed)
    target = find_checkpoint(config.target.path)
    vocabulary = vocabulary_digest(target) if config.model.token_buckets else ""
    model = build_order_model(config.model.model_copy(update={"vocabulary": vocabulary}))
    first_step = resume(model, config)

    train_order_model(model, data, config.training, report, first_step, saving(model, config))
    model.config = calibrated(model, concatenate(kept_back), config.training)
    if drawn:
        margins, survived = (np.concatenate(part) for part in zip(*drawn, strict=True))
        scale = fit_survival_scale(margins, survived)
        model.config = model.config.model_copy(update={"survival_scale": scale})
    fitted = {"temperature", "blind_temperature", "survival_scale"}
    report(model.config.model_dump(include=fitted))
    save_order_model(model, out)
    held_out = {recording.name: s for recording, s in pairs if recording.split == "heldout"}
    card = make_card(model, data, config, held_out)
    if not card["reads_tokens"]:
        model.config = model.config.model_copy(update={"vocabulary": ""})
        save_order_model(model, out)
    write_whole(out / "card.json", json.dumps(card, indent=2) + "\n")
    (out / PROGRESS).unlink(missing_ok=True)
    return out


def check_recordings(config: TrainOrderConfig) -> None:
    """Raise ``ValueError``, before anything is recorded, for recordings that cannot be learnt from:
    too few, of one name, or of a target without an order to learn."""
    check_learnable(config, "an order model")
    if not any(r.split == "train" and r.temperature == 0 for r in config.recordings):
        raise ValueError("recordings: one of split train at temperature 0 is needed to learn from")


def calibrated(
    model: OrderModel, data: OrderData, training: OrderTrainingConfig
) -> OrderModelConfig:
    """The model's configuration with the temperatures that fit ``data``."""
    generator = np.random.default_rng(training.seed)
    depth = training.max_depth
    batch = draw_batch(data, CALIBRATION_STATES, depth, depth, generator)
    fitted = {"temperature": fit_temperature(model, batch)}
    if model.tokens is not None:
        with hidden_tokens(model):
            fitted["blind_temperature"] = fit_temperature(model, batch)
    return model.config.model_copy(update=fitted)


def ids_help(found: Mapping[str, Any]) -> bool:
    """Whether reading token ids helps on a held-out recording, or costs no more than chance: on
    texts of another kind than it learnt from, what a model knows of tokens misleads it."""
    with_ids, without = (
        np.mean([facts["model"] for facts in found[name].values()])
        for name in ("next_commit_accuracy_by_depth", "with_tokens_hidden")
    )
    return bool(with_ids >= without - CHANCE)


def make_card(
    model: OrderModel, data: OrderData, config: TrainOrderConfig, held_out: dict[str, TraceStore]
) -> dict:
    """What was learnt from what, and held-out next-commit accuracy by depth (commits made since
    the stale state) beside reading the order off the stale confidence."""
    measured = {}
    for name, store in held_out.items():
        states = order_data(store.load())
        found = {"next_commit_accuracy_by_depth": accuracy_by_depth(model, states, DEPTHS)}
        if model.tokens is not None:
            with hidden_tokens(model):
                found["with_tokens_hidden"] = accuracy_by_depth(model, states, DEPTHS)
        measured[name] = {"rule": store.manifest().rule, **found}
    return {
        "parameters": model.num_parameters,
        "training_states": data.num_states,
        "target_digest": digest(find_checkpoint(config.target.path)),
        "config": config.told(),
        "held_out": measured,
        "reads_tokens": model.tokens is not None and all(map(ids_help, measured.values())),
    }
