"""A tiny target of every family: all that makes them differ, in sizes that decode at once."""

from models.spec import Experts, TargetSpec
from tests.conftest import tiny_spec

GROUPED = Experts(
    count=8,
    per_token=3,
    intermediate_size=12,
    router="grouped_sigmoid",
    groups=4,
    groups_per_token=2,
    scaling=2.5,
    shared=1,
    dense_layers=1,
)
DIFFERENCES = {
    "sdar": {},
    "sdar_moe": {"experts": Experts(count=6, per_token=2, intermediate_size=12)},
    "llada2_moe": {"experts": GROUPED, "rotary_dim": 4},
    "llada": {"topology": "bidirectional", "qk_norm": False, "num_kv_heads": 4},
    "Dream": {
        "topology": "bidirectional",
        "prediction": "shifted",
        "qk_norm": False,
        "qkv_bias": True,
    },
    "Fast_dLLM_Qwen": {"prediction": "shifted", "qk_norm": False, "qkv_bias": True},
}
FAMILIES = tuple(DIFFERENCES)


def family_spec(family: str, block_size: int = 4, vocab_size: int = 24) -> TargetSpec:
    """Its tiny spec, as a checkpoint of that family can hold it."""
    base = tiny_spec(block_size, vocab_size).model_dump()
    return TargetSpec.model_validate(base | {"family": family} | DIFFERENCES[family])
