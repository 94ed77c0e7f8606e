"""A network with fused small operations computes what it computed."""

import pytest
import torch
from torch.nn import functional as F

from models.fusing import fuse
from models.target import NO_PARENT, CopyBatch, Target
from models.transformer import RMSNorm
from tests.conftest import tiny_model, tiny_spec
from tests.reference.families import family_spec


@pytest.mark.parametrize("family", ["sdar", "llada2_moe"])
def test_fused_networks_give_the_same_logits(family: str) -> None:
    """Traced as for a GPU, and run without its compiler."""
    found = []
    for fused in (False, True):
        model = tiny_model(family_spec(family))
        if fused:
            fuse(model, backend="aot_eager")
        target = Target(model)
        target.open_slot(0)
        target.prefill(0, (5,) * 8)
        tokens = torch.tensor([[3, 3, 7, 3], [9, 3, 7, 3]])
        batch = CopyBatch([0, 0], tokens, [NO_PARENT] * 2, [False] * 2, torch.arange(8))
        found.append(target.forward(batch))
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_the_norm_of_one_kernel_is_ours(dtype: torch.dtype) -> None:
    norm = RMSNorm(tiny_spec().hidden_size, 1e-6).to(dtype)
    with torch.no_grad():
        norm.weight.normal_()
    x = torch.randn(5, tiny_spec().hidden_size).to(dtype)
    one = F.rms_norm(x, norm.weight.shape, norm.weight, norm.eps)
    atol = 1e-14 if dtype == torch.float64 else 1e-5
    torch.testing.assert_close(one, norm(x), rtol=0, atol=atol)
