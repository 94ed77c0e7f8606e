"""Keys and values of finished text in a network whose every position sees every other one: kept
from the last forward that saw the text, and so not exact once more has been written behind it.

Shapes: C copies, S positions that a forward computes, P positions kept before them, H heads, K
key/value heads, E head dimension.
"""

from torch import Tensor, cat

from models.attention import attend_behind
from models.transformer import Attend

KeysValues = tuple[Tensor, Tensor]


class KeptPrefix:
    """Of one slot: keys and values ``[K, P, E]`` of its first ``length`` positions, by layer.

    Every ``refresh``-th block begins with a forward that computes all of them anew.
    """

    def __init__(self, refresh: int) -> None:
        assert refresh > 0, "0 keeps nothing"
        self.refresh = refresh
        self.length = 0
        self._age = 0
        self._kept: dict[int, KeysValues] = {}

    def finish_block(self) -> None:
        """A block is full: the forward that comes next opens the one behind it."""
        self._age += 1
        if self._age == self.refresh:
            self._age = self.length = 0

    def attend(self, start: int, keep: int) -> Attend:
        """Attention of copies that compute the positions from ``start`` on: each sees all of its
        own and the ``start`` kept ones. The first copy's first ``keep`` positions are kept."""
        assert start <= self.length

        def attend(layer: int, q_CSHE: Tensor, k_CSKE: Tensor, v_CSKE: Tensor) -> Tensor:
            k, v = k_CSKE.transpose(1, 2), v_CSKE.transpose(1, 2)
            before = self._before(layer, start, k[0], v[0])
            if keep:
                new = k[0, :, :keep], v[0, :, :keep]
                self._kept[layer] = cat((before[0], new[0]), 1), cat((before[1], new[1]), 1)
            return attend_behind(q_CSHE, *before, k, v)

        if keep:
            self.length = start + keep
        return attend

    def _before(self, layer: int, start: int, k_KSE: Tensor, v_KSE: Tensor) -> KeysValues:
        if not start:
            return k_KSE[:, :0], v_KSE[:, :0]
        keys, values = self._kept[layer]
        return keys[:, :start], values[:, :start]
