"""A masked query over the cached prefix equals one plain forward over everything."""

import pytest
import torch
from torch import Tensor

from models.queries import Query, pack_queries, unpack_queries
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model, tiny_spec
from tests.reference.network import block_mask, reference_logits
from tests.reference.running import prompt_of

L = 4
CLOSE = {torch.float64: 1e-12, torch.float32: 1e-5}
DTYPES = [torch.float64, torch.float32]


def query(slot: int, size: int, stored: tuple[int, ...] = ()) -> Query:
    """Rows that look random, positions that repeat, a mask in which everybody sees itself."""
    draw = torch.Generator().manual_seed(slot)
    sees = torch.rand((size, size), generator=draw) < 0.5
    sees |= torch.eye(size, dtype=torch.bool)
    offsets = [index % L for index in range(size)]
    rows = torch.randperm(size, generator=draw)[: size - 1].tolist()
    return Query(slot, prompt_of(size, slot), offsets, sees, rows, stored)


def plain(model: Transformer, prefix: tuple[int, ...], asked: Query) -> Tensor:
    """The requested rows by the definition: no cache, one explicit mask."""
    before = (*prefix, *asked.stored)
    length, size = len(before), len(asked.tokens)
    mask = torch.zeros((length + size, length + size), dtype=torch.bool)
    mask[:length, :length] = block_mask(length, L)
    mask[length:, :length] = True
    mask[length:, length:] = asked.sees_QQ
    positions = [*range(length), *(length + offset for offset in asked.offsets)]
    logits = reference_logits(model, (*before, *asked.tokens), mask_TT=mask, positions=positions)
    return logits[length:][asked.rows].to(model.dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("heads", [1, 2, 4])
def test_several_queries_equal_a_plain_forward_each(dtype: torch.dtype, heads: int) -> None:
    spec = tiny_spec().model_copy(update={"num_kv_heads": heads})
    model = tiny_model(spec, dtype)
    prefixes = [prompt_of(3 * L, 7), (), prompt_of(L, 5)]
    target = Target(model)
    for slot, prefix in enumerate(prefixes):
        target.open_slot(slot)
        target.prefill(slot, prefix)
    queries = [query(0, 7), query(1, 5), query(2, 2 * L, stored=prompt_of(L, 9))]
    found = target.forward_queries(queries)
    expected = [plain(model, prefixes[asked.slot], asked) for asked in queries]
    torch.testing.assert_close(found, torch.cat(expected), rtol=0, atol=CLOSE[dtype])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_a_fused_store_equals_a_prefill_of_that_block(dtype: torch.dtype) -> None:
    model, prefix, full = tiny_model(dtype=dtype), prompt_of(2 * L), prompt_of(L, 9)
    fused, apart = Target(model), Target(model)
    for target in (fused, apart):
        target.open_slot(0)
        target.prefill(0, prefix)
    fused.forward_queries([query(0, 6, stored=full)])
    apart.prefill(0, full)
    assert fused.caches[0].length == apart.caches[0].length == 3 * L
    for layer in range(model.spec.num_layers):
        for own, other in zip(
            fused.caches[0].view(layer), apart.caches[0].view(layer), strict=True
        ):
            torch.testing.assert_close(own, other, rtol=0, atol=CLOSE[dtype])


def test_a_query_without_a_store_leaves_the_prefix_as_it_was() -> None:
    target = Target(tiny_model())
    target.open_slot(0)
    target.prefill(0, prompt_of(L))
    kept = target.caches[0].keys[:, :, :L].clone()
    target.forward_queries([query(0, 7)])
    assert target.caches[0].length == L
    assert torch.equal(target.caches[0].keys[:, :, :L], kept)


def test_a_retracted_prefix_is_the_shorter_one() -> None:
    model, tokens = tiny_model(), prompt_of(3 * L)
    target, short = Target(model), Target(model)
    target.open_slot(0)
    target.prefill(0, tokens)
    target.retract(0, L)
    short.open_slot(0)
    short.prefill(0, tokens[:L])
    found = [each.forward_queries([query(0, 6)]) for each in (target, short)]
    torch.testing.assert_close(*found, rtol=0, atol=CLOSE[torch.float64])


def test_packed_queries_are_the_same_queries() -> None:
    queries = [query(0, 7), query(1, 3, stored=prompt_of(L))]
    for own, other in zip(queries, unpack_queries(pack_queries(queries)), strict=True):
        assert (own.slot, [*own.tokens], [*own.offsets]) == (
            other.slot,
            other.tokens,
            other.offsets,
        )
        assert ([*own.rows], [*own.stored]) == (other.rows, other.stored)
        assert torch.equal(own.sees_QQ, other.sees_QQ)
