"""The order model (SPOT section 4.2): which position does the target commit next?

A 3-layer transformer encoder over the block's positions, 0.62M parameters.
"""

import math

import torch
from pydantic import BaseModel, ConfigDict, model_validator
from torch import Tensor, nn

from drafters.features import MAX_BLOCK, NUM_PATH, NUM_STATIC, path_features


class OrderModelConfig(BaseModel):
    """Sizes of the network, and how its output is used as a probability."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    width: int = 128
    layers: int = 3
    heads: int = 8
    feed_forward: int = 512
    temperature: float = 1.0
    """Divides the position logits; fitted on held-out traces, so that mass is a probability."""
    survival_scale: float = 1.0
    """At T>0 a draw survives with probability sigmoid(scale * perturbed margin)."""

    @model_validator(mode="after")
    def _heads_share_the_width(self) -> "OrderModelConfig":
        if self.width % self.heads:
            raise ValueError(f"heads: {self.heads} must divide width ({self.width})")
        return self


class OrderModel(nn.Module):
    """``log q(s | y)`` over the positions that are masked in a hypothetical state y."""

    def __init__(self, config: OrderModelConfig) -> None:
        super().__init__()
        self.config = config
        self.static_in = nn.Linear(NUM_STATIC, config.width)
        self.path_in = nn.Linear(NUM_PATH, config.width, bias=False)
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
        self.head = nn.Linear(config.width, 1)
        nn.init.normal_(self.position, std=0.02)

    def embed_static(self, static_BLF: Tensor) -> Tensor:
        """The part of the input that all nodes of a stale state share: ``[B, L, width]``."""
        return self.static_in(static_BLF) + self.position[: static_BLF.shape[1]]

    def forward(self, embedded_NLW: Tensor, was_masked_NL: Tensor, masked_now_NL: Tensor) -> Tensor:
        """``log q[N, L]``; -inf where a position is filled."""
        x = embedded_NLW + self.path_in(path_features(was_masked_NL, masked_now_NL))
        logits = self.head(self.encoder(x)).squeeze(-1).float() / self.config.temperature
        return torch.log_softmax(logits.masked_fill(~masked_now_NL, -math.inf), dim=-1)

    @property
    def num_parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.parameters())
