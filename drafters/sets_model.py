"""The sets model (SPOT section 4.4): which positions does threshold decoding commit next, and with
which of their stale candidates?

A 4-layer transformer encoder over the block's positions; it reads every drafted state. Beside the
features of the order model (with tau in the place of the cap) it reads the target's last hidden
states and the embeddings of the stale candidates, so it belongs to one target: 5.1M parameters at
SDAR-8B's width, of which only ``hidden_in`` and ``token_in`` know that width.

Shapes: B stale states, N drafted states behind each, L positions, C candidates, W width, E token
width, H hidden size and V vocabulary of the target.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from drafters.features import (
    MAX_BLOCK,
    NUM_PATH,
    NUM_STATIC,
    StaleTensors,
    capped_log_odds,
    path_features,
    static_features,
)

NUM_CANDIDATES = 16
_NUM_OWN = 3
_FARTHEST = 20.0
_NOT_THERE = -1e4
"""The logit of a candidate that a small vocabulary does not have."""
INPUT_LAYERS = ("hidden_in.", "token_in.")
"""What is refitted for another target."""


class SetsModelConfig(BaseModel):
    """Sizes of the network, and how its output is used as a probability."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    hidden_size: int = Field(ge=1)
    """Of the target: its last hidden states and its token embeddings."""
    width: int = 256
    layers: int = 4
    heads: int = Field(default=8, ge=1)
    feed_forward: int = 1024
    token_width: int = 176
    """Of a candidate token, once its embedding is projected."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    """Of the encoder, in training: recordings are few beside its parameters."""
    target_digest: str = ""
    """Of the target whose hidden states and embeddings it learnt."""
    pass_temperature: float = 1.0
    """Divides the logits of passing tau; fitted on traces that were not learnt from."""
    token_temperature: float = 1.0
    """The same for the candidates."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "SetsModelConfig":
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} must divide width ({self.width})")
        return self


@dataclass(frozen=True)
class SetsInput:
    """What is known of stale states, laid out over the block.

    ``stale`` holds the log-odds of tau as its cap. ``candidates_BLC`` are token ids in drawing
    order, -1 where there is none, ``scores_BLC`` what orders them (-inf where there is none);
    ``hidden_BLH`` are zero where a position was filled.
    """

    stale: StaleTensors
    candidates_BLC: Tensor
    scores_BLC: Tensor
    hidden_BLH: Tensor


class Encoded(NamedTuple):
    """What the model knows of stale states before it is asked about drafted ones; B comes first."""

    capped_BL: Tensor
    was_masked_BL: Tensor
    above_BL: Tensor
    gap_BLC: Tensor
    there_BLC: Tensor
    own_BLW: Tensor
    keys_BLCE: Tensor

    def of(self, rows: Tensor) -> "Encoded":
        """The encoding of some of the stale states."""
        return Encoded(*(part[rows] for part in self))


@dataclass(frozen=True)
class Predicted:
    """Logits of drafted states: of passing tau ``[B, N, L]``, of candidates ``[B, N, L, C]``."""

    passes_BNL: Tensor
    tokens_BNLC: Tensor


class SetsModel(nn.Module):
    """The network. Token embeddings are handed to it, projected once for all tokens by who drafts,
    once a step by who trains."""

    def __init__(self, config: SetsModelConfig) -> None:
        super().__init__()
        self.config = config
        width, tokens = config.width, config.token_width
        self.hidden_in = nn.Linear(config.hidden_size, width, bias=False)
        self.token_in = nn.Linear(config.hidden_size, tokens, bias=False)
        self.static_in = nn.Linear(NUM_STATIC + _NUM_OWN, width)
        self.path_in = nn.Linear(NUM_PATH, width, bias=False)
        self.pooled_in = nn.Linear(tokens, width, bias=False)
        self.filled_in = nn.Linear(tokens, width, bias=False)
        self.position = nn.Parameter(torch.zeros(MAX_BLOCK, width))
        layer = nn.TransformerEncoderLayer(
            width,
            config.heads,
            config.feed_forward,
            dropout=config.dropout,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.layers, norm=nn.LayerNorm(width), enable_nested_tensor=False
        )
        self.pass_out = nn.Linear(width, 1)
        self.query_out = nn.Linear(width, tokens)
        self.score_in = nn.Linear(3, tokens, bias=False)
        self.closeness = nn.Parameter(torch.tensor([0.5, 1.0]))
        """How much of the stale distance to tau, and of the stale scores, is kept as they are."""
        nn.init.normal_(self.position, std=0.02)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())

    def project(self, embeddings_VH: Tensor) -> Tensor:
        """Token embeddings as the network reads them, ``[V, E]``; every embedding counts as much,
        whatever its length."""
        return self.token_in(F.layer_norm(embeddings_VH, embeddings_VH.shape[-1:]))

    def encode(self, known: SetsInput, table_VE: Tensor) -> Encoded:
        """What does not depend on the drafted state; ``table_VE`` is what :meth:`project` made of
        the embeddings."""
        candidates_BLCE = table_VE[known.candidates_BLC.clamp(min=0)]
        gap_BLC = score_gaps(known)
        return Encoded(
            capped_log_odds(known.stale),
            known.stale.was_masked_BL,
            above_tau(known.stale),
            gap_BLC,
            known.candidates_BLC >= 0,
            own_BLW=self._stale(known, candidates_BLCE),
            keys_BLCE=candidates_BLCE + self.score_in(_score_columns(gap_BLC)),
        )

    def forward(self, encoded: Encoded, states_BNL: Tensor, table_VE: Tensor) -> Predicted:
        """Logits of states behind the encoded ones; ``states_BNL`` are token ids, -1 where masked.
        Logits of filled positions mean nothing."""
        x_BNLW = encoded.own_BLW[:, None] + self._path(encoded, states_BNL, table_VE)
        found = self.encoder(x_BNLW.flatten(0, 1)).view(x_BNLW.shape)
        tokens = torch.einsum("bnle,blce->bnlc", self.query_out(found), encoded.keys_BLCE)
        tokens = tokens / math.sqrt(self.config.token_width)
        tokens = tokens + self.closeness[1] * encoded.gap_BLC[:, None]
        tokens = tokens.masked_fill(~encoded.there_BLC[:, None], _NOT_THERE)
        passes = self.pass_out(found).squeeze(-1) + self.closeness[0] * encoded.above_BL[:, None]
        return Predicted(
            passes / self.config.pass_temperature, tokens / self.config.token_temperature
        )

    def _stale(self, known: SetsInput, candidates_BLCE: Tensor) -> Tensor:
        """What every state behind a stale one shares, ``[B, L, W]``."""
        stale = known.stale
        above = above_tau(stale)
        tau = stale.cap_log_odds_B.clamp(-_FARTHEST, _FARTHEST)[:, None].expand_as(above)
        own = torch.stack((above / 10, (above > 0).float(), tau / 10), dim=-1)
        features = torch.cat((static_features(stale), own), dim=-1)
        weights = torch.softmax(score_gaps(known), dim=-1)
        pooled = (weights[..., None] * candidates_BLCE).sum(dim=-2)
        was_masked = stale.was_masked_BL[..., None]
        hidden = F.layer_norm(known.hidden_BLH, known.hidden_BLH.shape[-1:])
        read = self.pooled_in(pooled) + self.hidden_in(hidden)
        x_BLW = self.static_in(features) + self.position[: features.shape[1]]
        return x_BLW + read.masked_fill(~was_masked, 0.0)

    def _path(self, encoded: Encoded, states_BNL: Tensor, table_VE: Tensor) -> Tensor:
        """What a state adds: where it is filled, and with what, ``[B, N, L, W]``."""
        masked_BNL = states_BNL < 0
        features = path_features(encoded.capped_BL, encoded.was_masked_BL, masked_BNL)
        filled = self.filled_in(table_VE[states_BNL.clamp(min=0)])
        return self.path_in(features) + filled.masked_fill(masked_BNL[..., None], 0.0)


def above_tau(stale: StaleTensors) -> Tensor:
    """How far the stale confidence lies above tau, in log-odds, ``[B, L]``; 0 where filled."""
    gap = stale.rank_log_odds_BL - stale.cap_log_odds_B[:, None]
    return gap.clamp(-_FARTHEST, _FARTHEST).masked_fill(~stale.was_masked_BL, 0.0)


def score_gaps(known: SetsInput) -> Tensor:
    """How far each candidate's score is below the first one's, bounded: ``[B, L, C]``."""
    gap = known.scores_BLC - known.scores_BLC[..., :1]
    return gap.nan_to_num(nan=-_FARTHEST, neginf=-_FARTHEST).clamp(min=-_FARTHEST)


def _score_columns(gap_BLC: Tensor) -> Tensor:
    ranks = torch.arange(gap_BLC.shape[-1], device=gap_BLC.device)
    return torch.stack((gap_BLC / 10, gap_BLC.exp(), (1 / (1 + ranks)).expand_as(gap_BLC)), dim=-1)
