"""A prefix that begins with kept blocks is the one that they were copied from."""

from collections.abc import Callable

import pytest
import torch

from models.bucketed_target import BucketedTarget
from models.target import NO_PARENT, CopyBatch, Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.running import prompt_of

L = 4
TEXT = prompt_of(5 * L)
KINDS: list[Callable[[Transformer], Target]] = [Target, BucketedTarget]


def asked(target: Target, slot: int) -> torch.Tensor:
    batch = CopyBatch([slot], torch.full((1, L), 3), [NO_PARENT], [False], torch.arange(L))
    return target.forward(batch)


@pytest.mark.parametrize("kind", KINDS)
def test_a_restored_prefix_is_bit_by_bit_the_kept_one(kind: Callable[..., Target]) -> None:
    target = kind(tiny_model())
    target.open_slot(0)
    target.prefill(0, TEXT)
    expected = asked(target, 0)
    target.keep(0, 0, [7, 3])
    target.keep(0, 2, [9, 1, 4])
    target.close_slot(0)
    assert len(target.kept) == 5
    target.open_slot(5)
    target.restore(5, [7, 3, 9, 1, 4])
    assert torch.equal(asked(target, 5), expected)
    target.drop([1, 4, 9, 7, 3])
    assert torch.equal(asked(target, 5), expected), "a prefix holds copies of its own"
    assert len(target.kept) == 0


@pytest.mark.parametrize("prediction", ["same", "shifted"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_follows_kept_blocks_sees_them(kind: Callable[..., Target], prediction: str) -> None:
    target = kind(tiny_model(tiny_spec().model_copy(update={"prediction": prediction})))
    target.open_slot(0)
    target.prefill(0, TEXT)
    target.keep(0, 0, [0, 1, 2])
    target.open_slot(1)
    target.restore(1, [0, 1, 2])
    target.prefill(1, TEXT[3 * L :])
    torch.testing.assert_close(asked(target, 1), asked(target, 0), rtol=0, atol=1e-12)


def test_only_full_blocks_of_the_prefix_are_kept() -> None:
    target = Target(tiny_model())
    target.open_slot(0)
    target.prefill(0, TEXT)
    with pytest.raises(AssertionError, match="only full blocks are kept"):
        target.keep(0, 4, [0, 1])
