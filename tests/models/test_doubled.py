"""The doubled training forward equals inference: clean prefix, then the noisy block."""

import pytest
import torch

from models.doubled import doubled_hidden
from models.target import NO_PARENT, CopyBatch, Target
from tests.conftest import tiny_model, tiny_spec
from tests.reference.network import block_mask, reference_logits
from tests.reference.running import prompt_of

L, T = 4, 16
MASK = 3
CLEAN = torch.tensor([prompt_of(T), prompt_of(T, salt=1)])
BLOCKS = torch.tensor([[0, 1, 3], [2, 2, 1]])
NOISY = torch.tensor(
    [
        [[MASK, 5, MASK, 6], [MASK] * L, [7, MASK, MASK, 4]],
        [[MASK, 9, 8, MASK], [6, MASK, 7, MASK], [MASK] * L],
    ]
)
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5}


def logits(dtype: torch.dtype, clean: torch.Tensor = CLEAN) -> torch.Tensor:
    model = tiny_model(dtype=dtype)
    return model.logits(doubled_hidden(model, clean, NOISY, BLOCKS))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_every_noisy_block_equals_inference_behind_its_clean_prefix(dtype: torch.dtype) -> None:
    model, found = tiny_model(dtype=dtype), logits(dtype)
    for sample in range(2):
        for view in range(3):
            target = Target(model)
            target.open_slot(0)
            prefix = CLEAN[sample, : int(BLOCKS[sample, view]) * L].tolist()
            if prefix:
                target.prefill(0, prefix)
            noisy = NOISY[sample, view][None]
            expected = target.forward(CopyBatch([0], noisy, [NO_PARENT], [False], torch.arange(L)))
            torch.testing.assert_close(found[sample, view], expected, rtol=0, atol=CLOSE[dtype])


def test_it_equals_one_sequence_under_the_published_mask() -> None:
    """[clean | noisy], shared position ids: a noisy block sees itself and earlier clean ones."""
    model, found = tiny_model(), logits(torch.float64)
    for sample in range(2):
        blocks = BLOCKS[sample].tolist()
        tokens = CLEAN[sample].tolist() + NOISY[sample].flatten().tolist()
        positions = [*range(T), *(b * L + i for b in blocks for i in range(L))]
        size = len(tokens)
        mask = torch.zeros(size, size, dtype=torch.bool)
        mask[:T, :T] = block_mask(T, L)
        for row in range(T, size):
            view = (row - T) // L
            mask[row, : blocks[view] * L] = True
            mask[row, T + view * L : T + (view + 1) * L] = True
        expected = reference_logits(model, tokens, mask_TT=mask, positions=positions)[T:]
        torch.testing.assert_close(found[sample].flatten(0, 1), expected, rtol=0, atol=1e-12)


def test_a_noisy_block_sees_neither_its_clean_twin_nor_what_follows() -> None:
    before = logits(torch.float64)
    changed = CLEAN.clone()
    changed[0, L : 2 * L] = torch.tensor([20, 21, 22, 23])
    after = logits(torch.float64, changed)
    assert torch.equal(after[0, :2], before[0, :2]), "views of blocks 0 and 1"
    assert (after[0, 2] - before[0, 2]).abs().max() > 1e-6, "a view of block 3"
    assert torch.equal(after[1], before[1]), "the other sample"


def test_gradients_reach_every_parameter() -> None:
    model = tiny_model(tiny_spec()).requires_grad_(True)
    model.logits(doubled_hidden(model, CLEAN, NOISY, BLOCKS)).logsumexp(-1).sum().backward()
    for name, parameter in model.named_parameters():
        assert parameter.grad is not None, name
        assert parameter.grad.abs().sum() > 0, name
