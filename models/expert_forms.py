"""Three ways to pass tokens through the experts that they chose; all give the same.

A CPU goes from expert to expert, with only the tokens that chose it; for that it must know who
chose what, and on a GPU knowing means waiting. There the sorted tokens meet all experts in one
grouped product, where the GPU has that without waiting, and else every token meets every expert:
dear in arithmetic, but few tokens wait for the weights anyway.

Shapes: N tokens, D hidden size, X experts a token passes, A = N * X assignments, G experts held
here, I size of an expert.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

MOST_TOKENS = 512
"""Tokens that meet every expert at once in :func:`batched`; more go in turns."""
GROUPED_CAPABILITIES = (9, 10)
"""Major compute capabilities whose grouped product reads group sizes on the device."""


class Bank(NamedTuple):
    """Weights of consecutive experts: ``gate, up[G, I, D]`` and ``down[G, D, I]``."""

    gate: Tensor
    up: Tensor
    down: Tensor


Form = Callable[[Tensor, Tensor, Bank], Tensor]
"""``form(x_ND, local_NX, bank) -> [N, X, D]``: what each chosen expert makes of a token; zeros for
an expert outside ``0 ... G - 1``, which another rank holds."""


def form_for(x_ND: Tensor, bank: Bank) -> Form:
    """The form that suits the tensors' device."""
    if not x_ND.is_cuda:
        return looped
    major, _ = torch.cuda.get_device_capability(x_ND.device)
    # The kernel moves 16 bytes at a time.
    aligned = all(size * x_ND.element_size() % 16 == 0 for size in bank.gate.shape[1:])
    fast = x_ND.dtype == torch.bfloat16 and major in GROUPED_CAPABILITIES
    return grouped if fast and aligned else batched


def looped(x_ND: Tensor, local_NX: Tensor, bank: Bank) -> Tensor:
    """Expert by expert, with the tokens that chose it; looks at the choices on the host."""
    parts = x_ND.new_zeros((*local_NX.shape, x_ND.shape[1]))
    for expert in local_NX[_held(local_NX, bank)].unique().tolist():
        rows, places = (local_NX == expert).nonzero(as_tuple=True)
        x = x_ND[rows]
        inner = F.silu(F.linear(x, bank.gate[expert])) * F.linear(x, bank.up[expert])
        parts[rows, places] = F.linear(inner, bank.down[expert])
    return parts


def batched(x_ND: Tensor, local_NX: Tensor, bank: Bank) -> Tensor:
    """Every token through every expert, in fixed shapes."""
    turns = zip(x_ND.split(MOST_TOKENS), local_NX.split(MOST_TOKENS), strict=True)
    return torch.cat([_batched(x, local, bank) for x, local in turns])


def _batched(x_ND: Tensor, local_NX: Tensor, bank: Bank) -> Tensor:
    gate_GNI, up_GNI = (x_ND @ weight.transpose(1, 2) for weight in (bank.gate, bank.up))
    out_GND = (F.silu(gate_GNI) * up_GNI) @ bank.down.transpose(1, 2)
    token_N1 = torch.arange(len(x_ND), device=x_ND.device)[:, None]
    held = _held(local_NX, bank)
    return out_GND[local_NX.masked_fill(~held, 0), token_N1].masked_fill(~held[..., None], 0)


def grouped(x_ND: Tensor, local_NX: Tensor, bank: Bank) -> Tensor:
    """Tokens sorted by expert, all experts in one grouped product, in fixed shapes."""
    num_experts, num_choices = len(bank.gate), local_NX.shape[1]
    # What others hold goes behind the last group, and is not computed.
    expert_A = local_NX.masked_fill(~_held(local_NX, bank), num_experts).flatten()
    sorted_A, order_A = expert_A.sort(stable=True)
    experts = torch.arange(num_experts, device=x_ND.device)
    ends = torch.searchsorted(sorted_A, experts, right=True).to(torch.int32)

    def product(rows_AD: Tensor, weight: Tensor) -> Tensor:
        return F.grouped_mm(rows_AD, weight.transpose(1, 2), offs=ends)

    x_AD = x_ND[order_A // num_choices]
    found_AD = product(F.silu(product(x_AD, bank.gate)) * product(x_AD, bank.up), bank.down)
    found_AD = found_AD.masked_fill((sorted_A == num_experts)[:, None], 0)
    parts_AD = torch.empty_like(found_AD).index_copy_(0, order_A, found_AD)
    return parts_AD.unflatten(0, local_NX.shape)


def _held(local: Tensor, bank: Bank) -> Tensor:
    return (local >= 0) & (local < len(bank.gate))
