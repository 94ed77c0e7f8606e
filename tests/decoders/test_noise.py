"""The noise is what contracts.md defines, bit by bit."""

import math
from hashlib import blake2b

import pytest
import torch

from decoders.noise import gumbel_table, philox4x32, row_seed
from tests.reference.philox import gumbel, philox4x32_10

SEEDS = [0, 1, 2**32 - 1, 2**32, 2**32 + 7, 2**63 - 1, 2**63, 2**63 + 12345, 2**64 - 1]


def words_of(key: tuple[int, int], counter: tuple[int, int, int, int]) -> list[int]:
    tensors = tuple(torch.tensor(word, dtype=torch.int64) for word in counter)
    c0, c1, c2, c3 = tensors
    return [int(word) for word in philox4x32(key, (c0, c1, c2, c3))]


@pytest.mark.parametrize(
    ("key", "counter", "words"),
    [
        ((0, 0), (0, 0, 0, 0), "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        ((0xFFFFFFFF,) * 2, (0xFFFFFFFF,) * 4, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            (0xA4093822, 0x299F31D0),
            (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
    ids=["zeros", "ones", "pi"],
)
def test_generator_gives_the_published_known_answers(
    key: tuple[int, int], counter: tuple[int, int, int, int], words: str
) -> None:
    expected = [int(word, 16) for word in words.split()]
    assert words_of(key, counter) == expected
    assert list(philox4x32_10(key, counter)) == expected


@pytest.mark.parametrize("seed", SEEDS)
def test_table_equals_the_definition_at_every_entry(seed: int) -> None:
    start, length, vocab = 29, 6, 11
    table = gumbel_table(seed, start, length, vocab)
    expected = [[gumbel(seed, start + p, v) for v in range(vocab)] for p in range(length)]
    assert table.dtype == torch.float32
    assert table.shape == (length, vocab)
    # The two logarithms may differ in the last bit of float64, which rounding to float32 absorbs.
    assert torch.equal(table, torch.tensor(expected, dtype=torch.float64).float())


def test_table_by_hand_at_zero_key_and_counter() -> None:
    words = [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    by_hand = [-math.log(-math.log((word + 0.5) / 2**32)) for word in words]
    assert gumbel_table(0, 0, 1, 4)[0].tolist() == torch.tensor(by_hand).float().tolist()


def test_far_positions_and_large_vocabularies_equal_the_definition() -> None:
    table = gumbel_table(5, 2**31 - 2, 4, 151_936)
    for position in range(4):
        for token in (0, 3, 4, 5, 70_001, 151_935):
            entry = torch.tensor(gumbel(5, 2**31 - 2 + position, token)).float()
            assert table[position, token] == entry


def test_entries_do_not_depend_on_the_tables_cut() -> None:
    whole = gumbel_table(9, 0, 32, 37)
    assert torch.equal(gumbel_table(9, 8, 8, 37), whole[8:16])
    assert torch.equal(gumbel_table(9, 0, 32, 10), whole[:, :10])


def test_both_halves_of_the_seed_count() -> None:
    tables = [gumbel_table(seed, 0, 2, 8) for seed in SEEDS]
    for index, table in enumerate(tables):
        assert all(not torch.equal(table, other) for other in tables[index + 1 :])


def test_every_uniform_is_inside_the_open_interval() -> None:
    extremes = [-math.log(-math.log((word + 0.5) / 2**32)) for word in (0, 2**32 - 1)]
    assert all(math.isfinite(value) for value in extremes)
    table = gumbel_table(3, 0, 64, 1024)
    assert table.min() >= extremes[0]
    assert table.max() <= extremes[1]
    # Mean and variance of the standard Gumbel distribution, five standard errors wide.
    assert abs(float(table.mean()) - 0.5772157) < 5 * 1.2825 / 256
    assert abs(float(table.var()) - math.pi**2 / 6) < 0.06


def test_row_seed_is_the_hash_of_seed_and_id() -> None:
    known = blake2b(b"0:a", digest_size=8).digest()
    assert row_seed(0, "a") == sum(byte << (8 * i) for i, byte in enumerate(known))
    assert row_seed(0, "a") == 16_563_745_722_614_342_077
    assert row_seed(17, "prompt-3/é") == int.from_bytes(
        blake2b("17:prompt-3/é".encode(), digest_size=8).digest(), "little"
    )
    assert row_seed(1, "a") != row_seed(0, "a")
