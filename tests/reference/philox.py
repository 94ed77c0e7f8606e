"""The noise by its definition in contracts.md, in plain Python integers."""

import math
from functools import cache

MASK = 0xFFFFFFFF


def philox4x32_10(key: tuple[int, int], counter: tuple[int, int, int, int]) -> tuple[int, ...]:
    """Philox4x32-10 of Salmon et al. (2011): four output words of one counter."""
    k0, k1 = key
    c0, c1, c2, c3 = counter
    for _ in range(10):
        first, second = 0xD2511F53 * c0, 0xCD9E8D57 * c2
        c0, c1, c2, c3 = (
            (second >> 32) ^ c1 ^ k0,
            second & MASK,
            (first >> 32) ^ c3 ^ k1,
            first & MASK,
        )
        k0, k1 = (k0 + 0x9E3779B9) & MASK, (k1 + 0xBB67AE85) & MASK
    return c0, c1, c2, c3


@cache
def gumbel(seed: int, position: int, token: int) -> float:
    """``G(seed, position, v)`` in float64, not yet rounded to float32."""
    words = philox4x32_10((seed % 2**32, seed // 2**32), (token // 4, position, 0, 0))
    uniform = (words[token % 4] + 0.5) / 2**32
    return -math.log(-math.log(uniform))
