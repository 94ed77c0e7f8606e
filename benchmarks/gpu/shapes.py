"""A target of a shape, with random weights made on the device: times do not depend on them."""

import torch

from benchmarks.gpu.plan import GpuPlan
from models.checkpoint import DTYPES
from models.loading import make_room
from models.ranks import Ranks
from models.target import NO_PARENT, CopyBatch
from models.tensor_parallel import shard_model
from models.transformer import Transformer


def random_model(plan: GpuPlan, ranks: Ranks | None = None) -> Transformer:
    """The shape's network, or the share of one of its ``ranks``."""
    with torch.device("meta"):
        model = Transformer(plan.spec)
    if ranks is not None:
        shard_model(model, ranks)
    make_room(model, DTYPES[plan.dtype], plan.device)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.fill_(1.0)
            else:
                parameter.normal_(0.0, 0.02)
    return model.eval()


def half_filled(plan: GpuPlan, copies: int, slot: int = 0) -> CopyBatch:
    """Copies of a block of which every second position is still masked and asked for."""
    spec = plan.spec
    tokens = torch.zeros((copies, spec.block_size), dtype=torch.int64)
    tokens[:, ::2] = spec.mask_token_id
    rows = (tokens.flatten() == spec.mask_token_id).nonzero().squeeze(1)
    return CopyBatch([slot] * copies, tokens, [NO_PARENT] * copies, [False] * copies, rows)


def aligned(plan: GpuPlan, prefix: int) -> int:
    """The whole blocks of a prefix."""
    return prefix // plan.block_size * plan.block_size
