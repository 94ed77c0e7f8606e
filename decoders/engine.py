"""A loaded target with its tokenizer and drafters: prompt rows in, result rows out."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

from decoders.auto_budget import AutoBudget
from decoders.cache_memory import CacheMemory
from decoders.companion import Companion
from decoders.cost_curve import CostCurve, cached_cost_curve
from decoders.forwarder import Forwarder
from decoders.loop import Decoder, Observer, decode
from decoders.options import ORACLES, DecodeOptions
from decoders.prompts import PromptRow, build_request
from decoders.proposers.base import Proposer
from decoders.proposers.oracle import OracleProposer
from decoders.request import Request, Result
from decoders.trace import Trace, TraceRecorder
from models.digests import cache_folder
from models.text import TextCodec, open_codec


class Engine:
    """What a process that owns a target can do: build requests, decode them, spell results."""

    def __init__(
        self, folder: Path, target: Forwarder, proposers: Mapping[str, Proposer | Companion]
    ) -> None:
        self.folder = folder
        self.target = target
        self.proposers = proposers
        self.codec: TextCodec | None = open_codec(folder)
        self._slots = count()
        self.auto = AutoBudget(self._cost_curve)

    def proposer(self, method: str) -> Proposer | None:
        """What a replay asks of a method: its proposer; ``None`` where there is none to ask, as
        for draft-free methods and those that draft with the target's sequences at hand."""
        found = self.proposers.get(method)
        return None if isinstance(found, Companion) else found

    def forget(self) -> None:
        """Forget what ``budget: auto`` has learnt of this target but the cost of its forwards."""
        curve = self.auto.curve
        self.auto = AutoBudget(lambda anew: self._cost_curve(True) if anew else curve)

    def requests(self, rows: Iterable[PromptRow], options: DecodeOptions) -> list[Request]:
        """Requests of prompt rows, in their order; results are told apart by their ids."""
        rows = list(rows)
        twice = [id for id, times in Counter(row.id for row in rows).items() if times > 1]
        if twice:
            raise ValueError(f"id {twice[0]!r} stands on more than one row")
        return [build_request(row, options, self.codec) for row in rows]

    def decoder(
        self,
        observer: Observer | None = None,
        hidden: bool = False,
        memory: CacheMemory | None = None,
    ) -> Decoder:
        """A fresh, empty batch on this target; with ``hidden``, one that shows hidden states; with
        a ``memory``, one whose prefixes share it."""
        return Decoder(
            self.target, self.proposers, observer, self._slots, self.auto, hidden, memory
        )

    def _cost_curve(self, anew: bool) -> CostCurve:
        """What a forward of this target costs here: measured once on every kind of machine, unless
        it is asked for ``anew``."""
        key = (self.target.spec.model_dump_json(), *self.target.placement)
        slot, folder = next(self._slots), cache_folder()
        return cached_cost_curve(self.target, slot, folder, key, anew=anew)

    def decode(self, requests: Sequence[Request], batch_size: int = 1) -> Iterator[Result]:
        """Results as they finish. Oracles first see the draft-free runs that they do not know."""
        oracles = {r.options.method for r in requests} & set(ORACLES)
        for oracle in (self.proposers.get(method) for method in sorted(oracles)):
            if isinstance(oracle, OracleProposer):
                oracle.futures.learn(self._record(oracle.futures.unknown(requests), batch_size))
        return decode(self.decoder(), requests, batch_size)

    def spell(self, result: Result, trace: bool = False) -> dict[str, Any]:
        """The output row of a result; ``text`` is ``None`` without a tokenizer."""
        text = self.codec.decode(result.token_ids) if self.codec else None
        return result.row(text, trace)

    def generate(
        self, rows: Iterable[PromptRow], options: DecodeOptions, trace: bool = False
    ) -> list[dict[str, Any]]:
        """Output rows in the order of the prompts."""
        requests = self.requests(rows, options)
        found = {
            r.request.id: self.spell(r, trace) for r in self.decode(requests, options.batch_size)
        }
        return [found[request.id] for request in requests]

    def record(
        self, rows: Iterable[PromptRow], options: DecodeOptions, hidden: bool = False
    ) -> list[Trace]:
        """Traces of a draft-free run, in the order of the prompts; with ``hidden``, with the
        target's hidden states."""
        return self._record(self.requests(rows, options), options.batch_size, hidden)

    def _record(
        self, requests: Sequence[Request], batch_size: int, hidden: bool = False
    ) -> list[Trace]:
        free = [replace(r, options=r.options.draft_free()) for r in requests]
        recorder = TraceRecorder()
        results = decode(self.decoder(recorder, hidden), free, batch_size)
        found = {result.request.id: recorder.finish(result) for result in results}
        return [found[request.id] for request in free]
