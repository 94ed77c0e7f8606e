"""``maskahead train sets``: a drafter for threshold decoding, from recorded traces with hidden
states, or an existing one made fit for another target; with a card of what it knows."""

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from pydantic import BaseModel, ConfigDict
from torch import Tensor

from decoders.rules import cap_log_odds
from decoders.trace import Trace
from decoders.trace_store import TraceStore
from drafters.features import TOP_K
from drafters.sets_bundle import load_sets_model, save_sets_model
from drafters.sets_data import SetsData, draw_batch
from drafters.sets_model import INPUT_LAYERS, NUM_CANDIDATES, SetsModel, SetsModelConfig
from drafters.sets_training import (
    SetsTrainingConfig,
    accuracy_by_depth,
    fit_temperatures,
    train_sets_model,
)
from drafters.state_data import concatenate
from models.checkpoint import find_checkpoint, target_spec
from models.digests import digest
from models.embeddings import read_embeddings
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

DEPTHS = range(1, 6)
CALIBRATION_STATES = 500


class SetsSizes(BaseModel):
    """Sizes of a new drafter; the target's own come from the target."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int = SetsModelConfig.model_fields["width"].default
    layers: int = SetsModelConfig.model_fields["layers"].default
    heads: int = SetsModelConfig.model_fields["heads"].default
    feed_forward: int = SetsModelConfig.model_fields["feed_forward"].default
    token_width: int = SetsModelConfig.model_fields["token_width"].default


class TrainSetsConfig(TrainDrafterConfig):
    """``configs/train-sets.yaml``: what to record of which target, and how to learn from it.

    Recordings need ``tau``; those of training problems are learnt from, those of held-out problems
    measure.
    """

    model: SetsSizes = SetsSizes()
    training: SetsTrainingConfig = SetsTrainingConfig()
    start_from: str | None = None
    """A drafter's folder whose network is kept: only the input layers are fitted to this target
    (``--from``)."""


def train_sets(config: TrainSetsConfig, report: Callable[[dict], None]) -> Path:
    """Train, or go on training from the last saved step; returns the drafter's folder."""
    out = Path(config.out)
    check_recordings(config)
    folder, spec = find_checkpoint(config.target.path), target_spec(config.target)
    model = start_model(config, spec.hidden_size, digest(folder))
    training = config.training.model_copy(update={"inputs_only": config.start_from is not None})
    stores = record_all(config.recordings, config.target, Path(config.traces), report, hidden=True)
    pairs = list(zip(config.recordings, stores, strict=True))
    laid_out = [
        tuple(sets_data(part) for part in split_traces(store.load()))
        for recording, store in pairs
        if recording.split == "train"
    ]
    learnt, kept_back = zip(*laid_out, strict=True)
    data = concatenate(learnt)
    report({"states": data.num_states, "rows": len(data.entropy_R)})
    if not (data.left_S > 0).any():
        raise ValueError(
            "recordings: the target fills every block in one step, which leaves nothing to draft; "
            "record with a larger tau"
        )
    embeddings = read_embeddings(folder, spec)
    first_step = resume(model, config)

    train_sets_model(model, embeddings, data, training, report, first_step, saving(model, config))
    model.config = calibrated(model, embeddings, concatenate(kept_back), training)
    report(model.config.model_dump(include={"pass_temperature", "token_temperature"}))
    save_sets_model(model, out)
    held_out = {recording.name: s for recording, s in pairs if recording.split == "heldout"}
    # Measured as it will be loaded: the weights are kept in half precision.
    card = make_card(load_sets_model(out), embeddings, data, config, held_out)
    write_whole(out / "card.json", json.dumps(card, indent=2) + "\n")
    (out / PROGRESS).unlink(missing_ok=True)
    return out


def check_recordings(config: TrainSetsConfig) -> None:
    """Raise ``ValueError``, before anything is recorded, for recordings that cannot be learnt
    from."""
    check_learnable(config, "a sets model")
    for recording in config.recordings:
        if recording.tau is None:
            raise ValueError(f"recordings.{recording.name}: tau is missing; sets drafts over it")
    if not any(recording.split == "train" for recording in config.recordings):
        raise ValueError("recordings: one of split train is needed to learn from")


def start_model(config: TrainSetsConfig, hidden_size: int, target_digest: str) -> SetsModel:
    """A new network, or that of ``start_from`` with fresh input layers where they do not fit."""
    torch.manual_seed(config.training.seed)
    own = {"hidden_size": hidden_size, "target_digest": target_digest}
    if config.start_from is None:
        return SetsModel(SetsModelConfig.model_validate(config.model.model_dump() | own))
    if not (Path(config.start_from) / "config.json").exists():
        raise ValueError(f"start_from {config.start_from!r} is not a folder with a config.json")
    old = load_sets_model(Path(config.start_from))
    fresh = {"pass_temperature": 1.0, "token_temperature": 1.0}
    model = SetsModel(old.config.model_copy(update=own | fresh))
    kept = {n: t for n, t in old.state_dict().items() if not n.startswith(INPUT_LAYERS)}
    model.load_state_dict(kept, strict=False)
    return model


def sets_data(traces: Iterable[Trace]) -> SetsData:
    """Lay out the states of threshold traces with hidden states for training."""
    blocks = [(trace, block) for trace in traces for block in trace.blocks]
    rows, states, columns = [], [], []
    next_row = 0
    for trace, block in blocks:
        tau = cap_log_odds(trace.request.options.tau)
        for index, traced in enumerate(block.states):
            stale = traced.stale
            assert stale.hidden is not None, "recorded with hidden states"
            row = np.full(len(traced.state), -1, dtype=np.int32)
            row[stale.positions] = np.arange(next_row, next_row + len(stale.positions))
            next_row += len(stale.positions)
            tokens = np.where(row >= 0, -1, np.array(traced.state)).astype(np.int32)
            left = len(block.states) - 1 - index
            states.append((row, tokens, left, block.end.prompt_end, tau))
            rows.append(
                (
                    padded(stale.log_probs, TOP_K, -np.inf).astype(np.float16),
                    padded(stale.candidates, NUM_CANDIDATES, -1).astype(np.int32),
                    padded(stale.scores, NUM_CANDIDATES, -np.inf).astype(np.float32),
                    stale.hidden,
                )
            )
            columns.append(np.stack((stale.entropy, stale.log_odds, stale.rank_log_odds)))
    log_probs, candidates, scores, hidden = (
        np.concatenate(part) for part in zip(*rows, strict=True)
    )
    entropy, log_odds, rank_log_odds = np.concatenate(columns, axis=1)
    row_SL, tokens, left_S, prompt_end, taus = zip(*states, strict=True)
    return SetsData(
        row_SL=np.stack(row_SL),
        state_SL=np.stack(tokens),
        log_probs_RK=log_probs,
        entropy_R=entropy,
        log_odds_R=log_odds,
        rank_log_odds_R=rank_log_odds,
        candidates_RC=candidates,
        scores_RC=scores,
        hidden_RH=hidden,
        left_S=np.array(left_S),
        prompt_end_S=np.array(prompt_end),
        tau_log_odds_S=np.array(taus, dtype=np.float32),
    )


def calibrated(
    model: SetsModel, embeddings_VH: Tensor, data: SetsData, training: SetsTrainingConfig
) -> SetsModelConfig:
    """The model's configuration with the temperatures that fit ``data``."""
    if not (data.left_S > 0).any():
        return model.config  # (a handful of traces of a very sure target: nothing to fit)
    generator = np.random.default_rng(training.seed)
    batch = draw_batch(data, CALIBRATION_STATES, training.max_depth, generator)
    with torch.inference_mode():
        table = model.project(embeddings_VH)
        found = model(model.encode(batch.known, table), batch.states_BNL, table)
    passing, naming = fit_temperatures(found, batch)
    update = {"pass_temperature": passing, "token_temperature": naming}
    return model.config.model_copy(update=update)


def make_card(
    model: SetsModel,
    embeddings_VH: Tensor,
    data: SetsData,
    config: TrainSetsConfig,
    held_out: dict[str, TraceStore],
) -> dict[str, Any]:
    """What was learnt from what, and held-out accuracy by depth (steps made since the stale state)
    beside the stale argmax."""
    measured = {
        name: {
            "rule": store.manifest().rule,
            "accuracy_by_depth": accuracy_by_depth(
                model, embeddings_VH, sets_data(store.load()), DEPTHS
            ),
        }
        for name, store in held_out.items()
    }
    return {
        "parameters": model.num_parameters,
        "input_parameters": sum(
            p.numel() for name, p in model.named_parameters() if name.startswith(INPUT_LAYERS)
        ),
        "training_states": data.num_states,
        "target_digest": model.config.target_digest,
        "loss": "binary cross-entropy of passing tau, cross-entropy of the target's present token "
        "among the stale candidates, and of the top position where none passes",
        "config": config.told(),
        "held_out": measured,
    }
