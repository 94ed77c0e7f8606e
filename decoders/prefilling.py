"""How the text before a request's active block gets into its slot: from what is kept of earlier
requests, and by prefill for the rest."""

from collections.abc import Sequence

from decoders.cache_memory import CacheMemory
from decoders.forwarder import Forwarder
from decoders.request import Round
from decoders.sequence import Sequence as Decoding

PIECE_TOKENS, ROUND_TOKENS = 512, 2048
"""Tokens that are prefilled at once, and in all in one round."""


class Prefilling:
    """Fills slots of ``target``; a ``memory``, where there is one, lends and keeps what they
    hold."""

    def __init__(self, target: Forwarder, memory: CacheMemory | None) -> None:
        self.target = target
        self.memory = memory

    def ready(self, sequences: Sequence[Decoding]) -> list[Decoding]:
        """Those whose text is in, after as much as one round goes on filling, first come first
        served: a long prompt must not hold up the others' next blocks."""
        left = ROUND_TOKENS
        for sequence in sequences:
            while left > 0 and not sequence.prefilled:
                left -= self._fill(sequence)
        return [sequence for sequence in sequences if sequence.prefilled]

    def keep(self, sequence: Decoding) -> None:
        """Let later requests begin with the text before the active block."""
        if self.memory is not None and sequence.prefilled:
            self.memory.keep(sequence.slot, sequence.stored_text)

    def _fill(self, sequence: Decoding) -> int:
        """The next piece of a text; returns how many tokens were computed. Where pieces end depends
        on nothing but the request and what it began with."""
        text, slot, block = sequence.stored_text, sequence.slot, sequence.spec.block_size
        if sequence.held == 0 and self.memory is not None:
            sequence.held = self.memory.restore(slot, text)
            if not sequence.rounds:
                sequence.cache_hits = sequence.held
        piece = text[sequence.held :][: max(1, PIECE_TOKENS // block) * block]
        if piece:
            self.target.prefill(slot, piece)
        sequence.held += len(piece)
        sequence.prefilled = sequence.held == len(text)
        # A bidirectional target only notes the prompt down: that is no forward.
        if sequence.prefilled and piece and sequence.spec.topology == "block_causal":
            sequence.rounds.append(Round("prefill"))
        self.keep(sequence)
        return len(piece)
