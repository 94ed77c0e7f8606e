"""What a CUDA graph captures looks at nothing on the host.

Run on tensors without memory (the meta device), which have shapes and dtypes only, so that any
look at a number, and any tensor of the CPU, is an error; with the choices that a GPU would make.

It is not a run on a GPU: no kernel is started, no number is computed.
"""

from collections.abc import Iterator
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from drafters.features import StaleTensors
from drafters.order_model import OrderModelConfig, build_order_model
from models.bucketed_target import BucketedTarget
from models.buckets import PIECE, Bucket, layout
from models.expert_forms import batched, grouped
from models.transformer import Transformer
from tests.reference.families import family_spec

Network = TypeVar("Network", bound=nn.Module)
BUCKETS = [
    Bucket("alone", 3, 3, 0),
    Bucket("alone", 1, 1, 128),
    Bucket("drafts", 5, 1, 0),
    Bucket("drafts", 5, 2, 2 * PIECE),
    Bucket("family", 7, 2, 128),
]
KERNELS = {torch.bfloat16: "_varlen_attn", torch.float32: "searchsorted"}


class OnDeviceOnly(TorchDispatchMode):
    """Fails when an operation is given a tensor with memory; keeps the operations' names."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        for leaf in tree_leaves((args, kwargs)):
            assert not isinstance(leaf, Tensor) or leaf.is_meta, f"{func} is given a CPU tensor"
        self.names.add(func.name().partition("::")[2].partition(".")[0])
        return func(*args, **(kwargs or {}))


def small(model: Network, dtype: torch.dtype) -> Network:
    """The network in a precision, for inference."""
    return model.to(dtype).requires_grad_(False).eval()


@pytest.fixture(autouse=True)
def as_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Half precision takes the flash kernel and the grouped product, all else the plain ways."""

    def half(tensor: Tensor, *_: object) -> bool:
        return tensor.dtype == torch.bfloat16

    monkeypatch.setattr("models.ragged.takes_flash", half)
    monkeypatch.setattr(
        "models.transformer.form_for", lambda x, bank: grouped if half(x) else batched
    )
    with torch.device("meta"), torch.inference_mode():
        yield


@pytest.mark.parametrize("bucket", BUCKETS, ids=str)
@pytest.mark.parametrize("dtype", KERNELS, ids=str)
@pytest.mark.parametrize("family", ["sdar", "sdar_moe", "llada2_moe", "Fast_dLLM_Qwen"])
def test_a_bucket_never_looks_at_the_host(family: str, dtype: torch.dtype, bucket: Bucket) -> None:
    spec = family_spec(family)
    if spec.experts is not None:
        # The grouped product moves 16 bytes at a time.
        wide = spec.experts.model_copy(update={"intermediate_size": 16})
        spec = spec.model_copy(update={"experts": wide})
    target = BucketedTarget(small(Transformer(spec), dtype))
    target.open_slot(0, 8 * PIECE)
    block, size = target.spec.block_size, target.spec.hidden_size
    packed = torch.zeros(sum(layout(bucket, block).values()), dtype=torch.int32)
    with OnDeviceOnly() as seen:
        hidden = target._padded(bucket, packed)
    assert hidden.shape == (bucket.copies, block, size)
    assert hidden.dtype == dtype
    assert KERNELS[dtype] in seen.names
    if spec.experts is not None:
        assert ("_grouped_mm" in seen.names) == (dtype == torch.bfloat16)


def test_a_look_at_the_host_is_noticed() -> None:
    with pytest.raises(RuntimeError, match="meta tensors"):
        torch.ones(3).sum().item()
    with OnDeviceOnly(), pytest.raises(AssertionError, match="given a CPU tensor"):
        torch.ones(3) + torch.ones(3, device="cpu")


@pytest.mark.parametrize("encodes", ["root", "states"])
def test_the_order_model_never_looks_at_the_host(encodes: str) -> None:
    form = "root" if encodes == "root" else "states"
    config = OrderModelConfig(encodes=form)
    model = small(build_order_model(config), torch.float32)
    states, length, drafted = 2, 4, 8
    stale = StaleTensors(
        log_probs_BLK=torch.zeros((states, length, 32)),
        ids_BLC=torch.zeros((states, length, 8), dtype=torch.int64),
        entropy_BL=torch.zeros((states, length)),
        log_odds_BL=torch.zeros((states, length)),
        rank_log_odds_BL=torch.zeros((states, length)),
        was_masked_BL=torch.ones((states, length), dtype=torch.bool),
        prompt_tail_BL=torch.zeros((states, length), dtype=torch.bool),
        cap_log_odds_B=torch.zeros(states),
    )
    with OnDeviceOnly():
        encoded = model.encode(stale)
        log_q = model(encoded, torch.ones((states, drafted, length), dtype=torch.bool))
    assert log_q.shape == (states, drafted, length)
