"""The order model (SPOT section 4.2): which position does the target commit next?

A 3-layer transformer encoder over the block's positions, 0.62M parameters, in two forms. The
paper's reads every drafted state with the whole encoder (``StateOrderModel``). Ours reads the stale
state once a round, and a small head reads every drafted state off that (``RootOrderModel``): a
round costs one encoder pass however large its tree, and in training one pass teaches all prefixes
of a trajectory.

The paper's model sees the shape of a distribution only. Ours may also know which tokens it is over
(``token_buckets``): what a fill does to the others depends on what is filled. It then belongs to
one vocabulary, and is trained to do without where it meets another one.

Shapes: B stale states, N drafted states behind each, L positions, W width, H head width.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from pydantic import BaseModel, ConfigDict, Field, model_validator
from torch import Tensor, nn
from torch.nn import functional as F

from drafters.features import (
    FILLED,
    LEFT,
    MAX_BLOCK,
    NUM_PATH,
    NUM_STATIC,
    SHARE,
    StaleTensors,
    capped_log_odds,
    gap_to_best,
    path_features,
    static_features,
    token_probs,
)
from models.transfer import to_device

PAIRS, PAIR_WIDTH = 8, 4
"""Ways in which one fill acts on another position, and the width of the product that rates each."""


class OrderModelConfig(BaseModel):
    """Sizes of the network, and how its output is used as a probability."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    encodes: Literal["root", "states"] = "root"
    """``root``: the encoder reads the stale state once a round; ``states``: it reads every drafted
    state. The paper's model is ``states`` with ``token_buckets`` 0 and ``feed_forward`` 512."""
    width: int = 128
    layers: int = 3
    heads: int = Field(default=8, ge=1)
    feed_forward: int = 464
    """As large as keeps both forms within 3 % of 0.62M parameters; without a table of tokens 512
    does for the paper's."""
    head_width: int = 64
    """Of the head that reads drafted states (``encodes: root`` only)."""
    token_buckets: int = Field(default=1024, ge=0)
    """Rows of the table of token ids (larger ids share rows); 0 reads no ids, as in the paper."""
    token_width: int = Field(default=24, ge=1)
    """Width of that table."""
    vocabulary: str = ""
    """Digest of the vocabulary whose ids it learnt; those of any other one are hidden from it."""
    temperature: float = 1.0
    """Divides the position logits; fitted on held-out traces, so that mass is a probability."""
    blind_temperature: float = 1.0
    """The same where token ids are hidden."""
    survival_scale: float = 1.0
    """At T>0 a draw survives with probability sigmoid(scale * perturbed margin)."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "OrderModelConfig":
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} must divide width ({self.width})")
        return self


class Encoded(NamedTuple):
    """What a model knows of stale states before it is asked about drafted ones; B comes first."""

    capped_BL: Tensor
    was_masked_BL: Tensor
    own: Tensor
    """What is known of each position: ``[B, L, W]``, or ``[B, L, H]`` once the encoder has run."""
    acts_BLLH: Tensor | None = None
    """What a fill (third axis: on whom) does to every other position."""
    spreads_BLH: Tensor | None = None
    """What a fill does to all positions alike."""

    def of(self, rows: Sequence[int]) -> "Encoded":
        """The encoding of some of the stale states."""
        return self._of(to_device(torch.tensor(rows), self.own.device))

    def _of(self, rows: Tensor) -> "Encoded":
        acts, spreads = self.acts_BLLH, self.spreads_BLH
        return Encoded(
            self.capped_BL[rows],
            self.was_masked_BL[rows],
            self.own[rows],
            None if acts is None else acts[rows],
            None if spreads is None else spreads[rows],
        )


class TokenReader(nn.Module):
    """What the tokens of a distribution say, each as loud as it is likely.

    The table starts at zero: a token that training never showed says nothing, as if hidden.
    """

    def __init__(self, config: OrderModelConfig) -> None:
        super().__init__()
        self.table = nn.Embedding(config.token_buckets, config.token_width)
        self.out = nn.Linear(config.token_width, config.width, bias=False)
        nn.init.zeros_(self.table.weight)

    def forward(self, stale: StaleTensors) -> Tensor:
        """``[B, L, W]``; zero where ids are hidden."""
        known_BLCE = self.table(stale.ids_BLC % self.table.num_embeddings)
        return self.out((token_probs(stale)[..., None] * known_BLCE).sum(dim=-2))


class OrderModel(nn.Module, ABC):
    """``log q(s | y)`` over the positions that are masked in a hypothetical state y."""

    path_in: nn.Linear
    reads_tokens = True
    """Off, token ids are hidden from a model that could read them."""

    def __init__(self, config: OrderModelConfig) -> None:
        super().__init__()
        self.config = config
        self.static_in = nn.Linear(NUM_STATIC, config.width)
        self.tokens = TokenReader(config) if config.token_buckets else None
        self.position = nn.Parameter(torch.zeros(MAX_BLOCK, config.width))
        layer = nn.TransformerEncoderLayer(
            config.width,
            config.heads,
            config.feed_forward,
            dropout=0.0,
            activation="gelu",
            batch_first=True,
            norm_first=True,
        )
        self.encoder = nn.TransformerEncoder(
            layer, config.layers, norm=nn.LayerNorm(config.width), enable_nested_tensor=False
        )
        self.closeness = nn.Linear(2, 1)
        nn.init.normal_(self.position, std=0.02)
        nn.init.zeros_(self.closeness.weight)
        nn.init.ones_(self.closeness.bias)

    def _read(self, stale: StaleTensors) -> Tensor:
        """What the encoder starts from: ``[B, L, W]``."""
        features = static_features(stale)
        x_BLW = self.static_in(features) + self.position[: features.shape[1]]
        if self.tokens is None or not self.reads_tokens:
            return x_BLW
        return x_BLW + self.tokens(stale)

    @property
    def temperature(self) -> float:
        """What the logits are divided by."""
        blind = self.tokens is not None and not self.reads_tokens
        return self.config.blind_temperature if blind else self.config.temperature

    @abstractmethod
    def encode(self, stale: StaleTensors) -> Encoded:
        """What does not depend on the drafted state."""

    @abstractmethod
    def _logits(self, encoded: Encoded, features_BNLF: Tensor) -> Tensor:
        """Position logits ``[B, N, L]`` but for the stale order's own."""

    def forward(self, encoded: Encoded, masked_BNL: Tensor) -> Tensor:
        """``log q[B, N, L]`` of states with these masked positions; -inf where one is filled.

        The logits start at the stale order (the gap to the most confident masked position), so the
        network has only the changes to learn. A state without masks gets no distribution (nan).
        """
        features = path_features(encoded.capped_BL, encoded.was_masked_BL, masked_BNL)
        logits = self._logits(encoded, features)
        gap = gap_to_best(encoded.capped_BL[:, None], masked_BNL)
        logits = logits + self.closeness(features[..., [SHARE, LEFT]]).squeeze(-1) * gap
        logits = logits.float() / self.temperature
        return torch.log_softmax(logits.masked_fill(~masked_BNL, -math.inf), dim=-1)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())


class StateOrderModel(OrderModel):
    """The paper's form: the encoder reads stale features and the path of every drafted state."""

    def __init__(self, config: OrderModelConfig) -> None:
        super().__init__(config)
        self.path_in = nn.Linear(NUM_PATH, config.width, bias=False)
        self.head = nn.Linear(config.width, 1)

    def encode(self, stale: StaleTensors) -> Encoded:
        return Encoded(capped_log_odds(stale), stale.was_masked_BL, self._read(stale))

    def _logits(self, encoded: Encoded, features_BNLF: Tensor) -> Tensor:
        x_BNLW = encoded.own[:, None] + self.path_in(features_BNLF)
        return self.head(self.encoder(x_BNLW.flatten(0, 1))).view(x_BNLW.shape[:3])


class RootOrderModel(OrderModel):
    """Ours: the encoder reads the stale state; each fill then acts on the others by what the
    encoder found at both ends and by their distance, and the acts of a state's fills add up."""

    def __init__(self, config: OrderModelConfig) -> None:
        super().__init__(config)
        hidden = config.head_width
        self.own_out = nn.Linear(config.width, hidden)
        self.spread_out = nn.Linear(config.width, hidden, bias=False)
        self.fill_out = nn.Linear(config.width, PAIRS * PAIR_WIDTH, bias=False)
        self.target_out = nn.Linear(config.width, PAIRS * PAIR_WIDTH, bias=False)
        self.act_in = nn.Linear(PAIRS, hidden, bias=False)
        self.distance = nn.Parameter(torch.zeros(2 * MAX_BLOCK - 1, hidden))
        self.path_in = nn.Linear(NUM_PATH, hidden, bias=False)
        self.middle = nn.Linear(hidden, hidden)
        self.head = nn.Linear(hidden, 1)

    def encode(self, stale: StaleTensors) -> Encoded:
        found_BLW = self.encoder(self._read(stale))
        length = found_BLW.shape[1]
        by_pair = (PAIRS, PAIR_WIDTH)
        pairs_BLLP = torch.einsum(
            "bfpe,bspe->bfsp",
            self.fill_out(found_BLW).unflatten(-1, by_pair),
            self.target_out(found_BLW).unflatten(-1, by_pair),
        ).tanh()
        at = torch.arange(length, device=found_BLW.device)
        by_distance_LLH = self.distance[at[None, :] - at[:, None] + MAX_BLOCK - 1]
        return Encoded(
            capped_log_odds(stale),
            stale.was_masked_BL,
            own=self.own_out(found_BLW),
            acts_BLLH=self.act_in(pairs_BLLP) + by_distance_LLH,
            spreads_BLH=self.spread_out(found_BLW),
        )

    def _logits(self, encoded: Encoded, features_BNLF: Tensor) -> Tensor:
        assert encoded.acts_BLLH is not None
        assert encoded.spreads_BLH is not None
        filled_BNL = features_BNLF[..., FILLED]
        acted_BNLH = (filled_BNL @ encoded.acts_BLLH.flatten(2)).unflatten(
            -1, encoded.acts_BLLH.shape[2:]
        )
        share_BN1 = features_BNLF[:, :, 0, SHARE, None]
        spread_BNH = filled_BNL @ encoded.spreads_BLH * share_BN1
        x = encoded.own[:, None] + spread_BNH[:, :, None] + acted_BNLH + self.path_in(features_BNLF)
        x = F.gelu(x)
        return self.head(x + F.gelu(self.middle(x))).squeeze(-1)


@contextmanager
def hidden_tokens(model: OrderModel) -> Iterator[None]:
    """The model as it drafts for a target of another vocabulary."""
    before, model.reads_tokens = model.reads_tokens, False
    try:
        yield
    finally:
        model.reads_tokens = before


def build_order_model(config: OrderModelConfig) -> OrderModel:
    """A network of the named form, with random weights."""
    return RootOrderModel(config) if config.encodes == "root" else StateOrderModel(config)
