"""The published sizes of every family, and what is known of their weights' bytes."""

from typing import Any

from models.spec import TargetSpec

_COMMON: dict[str, Any] = {
    "head_dim": 128,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "max_positions": 32_768,
    "mask_token_id": 1,
    "stop_token_ids": (0,),
    "pad_token_id": 0,
}
_QWEN3 = {"family": "sdar", "vocab_size": 151_936, "num_kv_heads": 8, "block_size": 4}
_QWEN2 = {"prediction": "shifted", "qk_norm": False, "qkv_bias": True, "block_size": 32}
_GROUPED = {
    "count": 256,
    "per_token": 8,
    "router": "grouped_sigmoid",
    "groups": 8,
    "groups_per_token": 4,
    "scaling": 2.5,
    "shared": 1,
    "dense_layers": 1,
}
_LLADA2 = {"family": "llada2_moe", "vocab_size": 157_184, "num_kv_heads": 4, "block_size": 32}


def _sizes(hidden: int, layers: int, heads: int, intermediate: int, **others: Any) -> TargetSpec:
    sizes = {
        "hidden_size": hidden,
        "num_layers": layers,
        "num_heads": heads,
        "intermediate_size": intermediate,
    }
    return TargetSpec.model_validate(_COMMON | sizes | others)


PUBLISHED = {
    "SDAR-1.7B": _sizes(2048, 28, 16, 6144, **_QWEN3),
    "SDAR-4B": _sizes(2560, 36, 32, 9728, **_QWEN3),
    "SDAR-8B": _sizes(4096, 36, 32, 12_288, **_QWEN3),
    "SDAR-30B-A3B": _sizes(
        *(2048, 48, 32, 6144),
        **(_QWEN3 | {"family": "sdar_moe", "num_kv_heads": 4}),
        experts={"count": 128, "per_token": 8, "intermediate_size": 768},
    ),
    "LLaDA2.0-mini": _sizes(
        2048, 20, 16, 5120, **_LLADA2, experts=_GROUPED | {"intermediate_size": 512}
    ),
    "LLaDA2.0-flash": _sizes(
        4096, 32, 32, 9216, **_LLADA2, experts=_GROUPED | {"intermediate_size": 1024}
    ),
    "LLaDA-8B": _sizes(
        *(4096, 32, 32, 12_288),
        family="llada",
        topology="bidirectional",
        qk_norm=False,
        vocab_size=126_464,
        num_kv_heads=32,
        block_size=32,
    ),
    "Dream-7B": _sizes(
        *(3584, 28, 28, 18_944),
        **_QWEN2,
        family="Dream",
        topology="bidirectional",
        vocab_size=152_064,
        num_kv_heads=4,
    ),
    "Fast-dLLM-1.5B": _sizes(
        *(1536, 28, 12, 8960),
        **_QWEN2,
        family="Fast_dLLM_Qwen",
        tied_embeddings=True,
        vocab_size=151_936,
        num_kv_heads=2,
    ),
}

TOTAL_SIZES = {
    "SDAR-4B": 8_822_848_512,
    "SDAR-8B": 16_381_470_720,
    "SDAR-30B-A3B": 61_064_245_248,
    "Dream-7B": 15_231_233_024,
}
"""``total_size`` of the index files, in bfloat16 (Dream's is that of Qwen2.5-7B, whose tensors it
has)."""

PARAMETERS = {
    "LLaDA2.0-mini": (16, 0),
    "LLaDA2.0-flash": (103, 0),
    "LLaDA-8B": (8.02, 2),
    "Fast-dLLM-1.5B": (1.54, 2),
}
"""In billions, as their model cards round them, to so many digits."""
