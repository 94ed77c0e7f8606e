"""What the requests of one round draft: each by its own method, ``auto`` ones from one budget."""

from collections.abc import Iterator, Mapping, Sequence
from time import perf_counter

from decoders.auto_budget import AutoBudget
from decoders.companion import Companion
from decoders.drafting import Proposal, propose, view_of
from decoders.proposers.base import Place, Proposer, View
from decoders.sequence import Sequence as Decoding

Proposers = Mapping[str, Proposer | Companion]
"""By method; those of other methods are not loaded."""


class BatchDrafting:
    """Asks the proposers of a target for the drafts of a batch, and shares the budget out."""

    def __init__(self, proposers: Proposers, auto: AutoBudget) -> None:
        self.proposers = proposers
        self.auto = auto

    @property
    def companions(self) -> Iterator[Companion]:
        """The proposers that follow every request with a text of their own."""
        return (each for each in self.proposers.values() if isinstance(each, Companion))

    def propose(self, sequences: Sequence[Decoding]) -> dict[int, Proposal]:
        """What is proposed for every sequence that drafts in this round, by its number."""
        drafting, proposals = self._drafting(sequences), dict[int, Proposal]()
        for method, proposer in self.proposers.items():
            asking = [index for index in drafting if method_of(sequences[index]) == method]
            if not asking or isinstance(proposer, Companion):
                continue
            started = perf_counter()
            shown = [self._view(sequences[index], sequences) for index in asking]
            found = propose(proposer, [sequences[index] for index in asking], shown)
            seconds = (perf_counter() - started) / len(asking)
            proposals |= zip(asking, found, strict=True)
            asked = {
                sequences[index].kind: sequences[index].request.options
                for index in asking
                if is_auto(sequences[index])
            }
            for options in asked.values():
                self.auto.proposed(options, seconds)
        return proposals

    def follow(self, sequences: Sequence[Decoding]) -> dict[int, list[Place]]:
        """What companions draft, by the sequence's number; they need no stale distribution."""
        found: dict[int, list[Place]] = {}
        for method, companion in self.proposers.items():
            asking = [i for i, s in enumerate(sequences) if method_of(s) == method]
            if asking and isinstance(companion, Companion):
                drafted = companion.states([sequences[index] for index in asking])
                found |= zip(asking, drafted, strict=True)
        return found

    def allot(
        self, sequences: Sequence[Decoding], proposals: dict[int, Proposal], followed: int
    ) -> None:
        """Cut the drafts of ``auto`` requests to what the forward is worth, beside the copies that
        companions have drafted."""
        shared = {i: each for i, each in proposals.items() if is_auto(sequences[i])}
        if not shared:
            return
        fixed = followed
        fixed += sum(len(each.places) for i, each in proposals.items() if i not in shared)
        fixed += sum(len(each.refresh) for each in shared.values())
        stored = sum(sequence.unstored is not None for sequence in sequences)
        chosen = self.auto.choose(
            [each.view for each in shared.values()],
            [each.drafts for each in shared.values()],
            requests=len(sequences),
            copies=len(sequences) + stored + fixed,
            prefix=mean_prefix(sequences),
        )
        for (index, each), found in zip(shared.items(), chosen, strict=True):
            proposals[index] = each._replace(drafts=found)

    def _drafting(self, sequences: Sequence[Decoding]) -> list[int]:
        """The numbers of the sequences that draft in this round."""
        able = [
            index
            for index, sequence in enumerate(sequences)
            if sequence.request.options.drafts
            and sequence.stale is not None
            and not isinstance(self.proposers[method_of(sequence)], Companion)
        ]
        autos = [index for index in able if is_auto(sequences[index])]
        admitted = self.auto.admitted(sequences[index].kind for index in autos)
        return [i for i in able if not is_auto(sequences[i]) or admitted[sequences[i].kind]]

    def _view(self, sequence: Decoding, beside: Sequence[Decoding]) -> View:
        view = view_of(sequence)
        if not is_auto(sequence):
            return view
        return self.auto.limited(view, len(beside), mean_prefix(beside))


def method_of(sequence: Decoding) -> str:
    """How its blocks are filled."""
    return sequence.request.options.method


def is_auto(sequence: Decoding) -> bool:
    """Whether its budget is decided in every round."""
    options = sequence.request.options
    return options.drafts and options.budget == "auto"


def mean_prefix(sequences: Sequence[Decoding]) -> float:
    """Tokens before the active blocks, in the mean."""
    return sum(sequence.block_start for sequence in sequences) / len(sequences)
