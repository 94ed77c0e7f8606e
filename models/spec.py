"""The shape and the decoding facts of one target, as values that never change."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, model_validator

Topology = Literal["block_causal", "bidirectional"]
Prediction = Literal["same", "shifted"]


class TargetSpec(BaseModel):
    """Everything that the network, the cache and the decoder need to know about a checkpoint.

    Sizes are counts; ``block_size`` is L, in tokens; token ids index the vocabulary.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    family: str
    topology: Topology = "block_causal"
    prediction: Prediction = "same"
    hidden_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    intermediate_size: int
    vocab_size: int
    rope_theta: float
    rms_norm_eps: float
    max_positions: int
    block_size: int
    mask_token_id: int
    stop_token_ids: tuple[int, ...]
    pad_token_id: int

    @model_validator(mode="after")
    def _check(self) -> "TargetSpec":
        if self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_attention_heads {self.num_heads} must be a multiple of "
                f"num_key_value_heads {self.num_kv_heads}"
            )
        if self.block_size < 1:
            raise ValueError(f"block_size {self.block_size} must be at least 1")
        for field in ("mask_token_id", "pad_token_id"):
            if not 0 <= getattr(self, field) < self.vocab_size:
                raise ValueError(
                    f"{field} {getattr(self, field)} lies outside the vocabulary "
                    f"(0..{self.vocab_size - 1})"
                )
        return self

    @property
    def tensor_parallel_sizes(self) -> tuple[int, ...]:
        """Numbers of ranks that split this network evenly."""
        split = (self.num_kv_heads, self.intermediate_size, self.vocab_size)
        return tuple(
            size for size in range(1, self.num_kv_heads + 1) if all(n % size == 0 for n in split)
        )

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole network, counted from the sizes alone."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        mlp = 3 * self.hidden_size * self.intermediate_size
        norms = 2 * self.hidden_size + 2 * self.head_dim
        ends = 2 * self.vocab_size * self.hidden_size + self.hidden_size
        return self.num_layers * (attention + mlp + norms) + ends
