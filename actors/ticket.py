"""One streamed request: what passes between its client's event loop and the engine's thread."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, replace

from actors.text_stream import TextStream
from decoders.request import Request, Result, TokenLogprob
from decoders.sequence import Sequence as Decoding
from decoders.sight import SeenRound
from decoders.watching import new_rounds
from models.text import TextCodec


@dataclass(frozen=True)
class Delta:
    """What one round added to an answer: ids of the contiguous prefix, and settled text.

    The texts joined are the whole text, the ids joined are ``result.token_ids``; the last delta,
    and no other, carries the result. ``logprobs`` go with the ids where the request asks for them.
    A watched request has a delta, with what was seen, for every round, also where nothing is new
    in the prefix.
    """

    token_ids: tuple[int, ...]
    text: str
    result: Result | None = None
    rounds: tuple[SeenRound, ...] = ()
    logprobs: tuple[TokenLogprob, ...] = ()


class Ticket:
    """A request under its ``internal_id``; made on the client's event loop."""

    def __init__(
        self, request: Request, internal_id: str, codec: TextCodec | None, stop: Sequence[str]
    ) -> None:
        self.client_id = request.id
        self.request = replace(request, id=internal_id)
        self.cancelled = False
        self.items: asyncio.Queue[Delta | Exception] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        self._text = TextStream(codec, stop)
        self._num_sent = self._num_seen = 0

    def put(self, item: Delta | Exception) -> None:
        """Hand over from the engine's thread."""
        try:
            self._loop.call_soon_threadsafe(self.items.put_nowait, item)
        except RuntimeError:  # the client's event loop has closed: nobody listens any more
            self.cancelled = True

    def advance(self, decoding: Decoding, result: Result | None) -> Delta | None:
        """What is new, if anything; with the result once the text is complete, also by a stop
        string."""
        ids = result.token_ids if result else decoding.text_so_far()
        seen = new_rounds(decoding, self._num_seen)
        if result is None and len(ids) == self._num_sent and not seen:
            return None
        text = self._text.grow(ids, final=result is not None)
        if self._text.stopped_at is not None:
            ids = ids[: self._text.stopped_at]
            result = replace(decoding.result(), token_ids=ids, stop_reason="stop")
        if result is not None:
            result = replace(result, request=replace(self.request, id=self.client_id))
        begin, self._num_sent = self._num_sent, len(ids)
        self._num_seen += len(seen)
        return Delta(ids[begin:], text, result, seen, decoding.logprobs(begin, len(ids)))
