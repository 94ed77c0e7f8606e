"""The shape and the decoding facts of one target, as values that never change."""

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

Topology = Literal["block_causal", "bidirectional"]
Prediction = Literal["same", "shifted"]


Router = Literal["softmax", "grouped_sigmoid"]


class Experts(BaseModel):
    """A mixture of experts in place of the feed-forward of every layer but the first few."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    count: int
    per_token: int
    intermediate_size: int
    """Of one expert."""
    router: Router = "softmax"
    normalized: bool = True
    """Whether the weights of a token's experts are made to sum to one."""
    groups: int = 1
    """The grouped router looks at the best ``groups_per_token`` groups of experts only."""
    groups_per_token: int = 1
    scaling: float = 1.0
    """Of the grouped router's weights."""
    shared: int = Field(default=0, ge=0)
    """Experts that every token passes, as one feed-forward so many times as wide."""
    dense_layers: int = Field(default=0, ge=0)
    """First layers that keep the plain feed-forward."""

    @model_validator(mode="after")
    def _check(self) -> "Experts":
        if not 1 <= self.per_token <= self.count:
            raise ValueError(
                f"num_experts_per_tok {self.per_token} must lie in 1..{self.count} (num_experts)"
            )
        if self.groups < 1 or self.count % self.groups:
            raise ValueError(f"n_group {self.groups} must divide num_experts {self.count}")
        if not 1 <= self.groups_per_token <= self.groups:
            raise ValueError(
                f"topk_group {self.groups_per_token} must lie in 1..{self.groups} (n_group)"
            )
        if self.groups_per_token * (self.count // self.groups) < self.per_token:
            raise ValueError(
                f"num_experts_per_tok {self.per_token} exceeds the experts of topk_group "
                f"{self.groups_per_token} groups"
            )
        return self

    @property
    def shared_size(self) -> int:
        """Of the feed-forward that every token passes."""
        return self.shared * self.intermediate_size


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
    """Of a plain feed-forward."""
    vocab_size: int
    rope_theta: float
    rotary_dim: int | None = None
    """Leading components of a head that turn with the position; ``None``: all."""
    qk_norm: bool = True
    qkv_bias: bool = False
    experts: Experts | None = None
    tied_embeddings: bool = False
    """Whether the head is the embedding: one matrix for both."""
    rms_norm_eps: float
    max_positions: int
    block_size: int
    mask_token_id: int
    stop_token_ids: tuple[int, ...]
    pad_token_id: int

    @model_validator(mode="after")
    def _check(self) -> "TargetSpec":
        if self.num_kv_heads < 1 or self.num_heads % self.num_kv_heads:
            raise ValueError(
                f"num_attention_heads {self.num_heads} must be a multiple of "
                f"num_key_value_heads {self.num_kv_heads}"
            )
        if self.rotary_dim is not None and not 0 < self.rotary_dim <= self.head_dim:
            raise ValueError(f"rotary_dim {self.rotary_dim} must lie in 1..{self.head_dim}")
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
    def num_dense_layers(self) -> int:
        """Layers with a plain feed-forward."""
        if self.experts is None:
            return self.num_layers
        return min(self.experts.dense_layers, self.num_layers)

    @property
    def num_mixed_layers(self) -> int:
        """Layers with experts."""
        return self.num_layers - self.num_dense_layers

    @property
    def splits(self) -> dict[str, int]:
        """What tensor-parallel ranks share out evenly, by the name of its size."""
        sizes = {"num_key_value_heads": self.num_kv_heads, "vocab_size": self.vocab_size}
        if self.num_dense_layers:
            sizes["intermediate_size"] = self.intermediate_size
        if self.experts is not None:
            sizes["num_experts"] = self.experts.count
            if self.experts.shared:
                sizes["shared experts' size"] = self.experts.shared_size
        return sizes

    @property
    def tensor_parallel_sizes(self) -> tuple[int, ...]:
        """Numbers of ranks that split this network evenly."""
        sizes = range(1, self.num_kv_heads + 1)
        return tuple(n for n in sizes if all(size % n == 0 for size in self.splits.values()))

    def first_block(self, prompt_length: int) -> int:
        """Where the first decoded block begins: floor(P / L) * L, since blocks are counted from
        position 0; bidirectional families count them from the prompt's end."""
        if self.topology == "bidirectional":
            return prompt_length
        return prompt_length // self.block_size * self.block_size

    @property
    def num_parameters(self) -> int:
        """Parameters of the whole network, counted from the sizes alone."""
        return self.num_split + self.num_replicated

    @property
    def num_split(self) -> int:
        """Parameters that ranks share out evenly: attention, feed-forwards, experts, vocabulary."""
        attention = self.hidden_size * self.head_dim * 2 * (self.num_heads + self.num_kv_heads)
        if self.qkv_bias:
            attention += self.head_dim * (self.num_heads + 2 * self.num_kv_heads)
        ends = (1 if self.tied_embeddings else 2) * self.vocab_size * self.hidden_size
        dense = self.num_dense_layers * 3 * self.hidden_size * self.intermediate_size
        mixed = 0
        if self.experts is not None:
            width = self.experts.count * self.experts.intermediate_size + self.experts.shared_size
            mixed = self.num_mixed_layers * 3 * self.hidden_size * width
        return self.num_layers * attention + dense + mixed + ends

    @property
    def num_replicated(self) -> int:
        """Parameters that every rank holds whole: norms, routers and their biases."""
        norms = 2 * self.hidden_size + (2 * self.head_dim if self.qk_norm else 0)
        routers = 0
        if self.experts is not None:
            routers = self.num_mixed_layers * self.experts.count * self.hidden_size
        return self.num_layers * norms + self.hidden_size + routers + self.num_router_biases

    @property
    def num_router_biases(self) -> int:
        """Parameters that stay in fp32 at least, whatever the rest is kept in."""
        if self.experts is None or self.experts.router != "grouped_sigmoid":
            return 0
        return self.num_mixed_layers * self.experts.count
