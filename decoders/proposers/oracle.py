"""``oracle-*``: what a drafter could reach that knew the future order, tokens, or both.

They read the draft-free run of the same prompt and seed (SPOT section 3.1), so they measure the
ceiling of a proposer and are nothing to serve with.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from decoders.options import ORACLES
from decoders.proposers.base import Draft, Origin, Proposer, View
from decoders.request import Request
from decoders.rules import Step, commit_rank
from decoders.state import State, fill
from decoders.trace import Trace

Future = tuple[tuple[State, Step], ...]
"""The states of a block's draft-free run, each with the step made from it."""

Key = tuple[int, tuple[int, ...], str, int]


@dataclass
class Futures:
    """The draft-free runs that the oracles of one process know."""

    _blocks: dict[Key, Future] = field(default_factory=dict)
    _known: set[tuple] = field(default_factory=set)

    def learn(self, traces: Iterable[Trace]) -> None:
        """Remember the runs of ``traces``."""
        for trace in traces:
            self._known.add(_key(trace.request, 0)[:3])
            for block in trace.blocks:
                states = tuple((traced.state, traced.step) for traced in block.states)
                self._blocks[_key(trace.request, block.start)] = states

    def unknown(self, requests: Iterable[Request]) -> list[Request]:
        """The requests whose draft-free run is not known."""
        return [r for r in requests if _key(r, 0)[:3] not in self._known]

    def after(self, origin: Origin, root: State) -> list[tuple[int, int]]:
        """The (position, token) commits that follow ``root`` in its block, in order.

        None where a low-precision run has left the recorded one at a near tie: the future is not
        known there. Raises ``ValueError`` for a request whose run was never seen.
        """
        if _key(origin.request, 0)[:3] not in self._known:
            raise ValueError(f"oracle: the draft-free run of {origin.request.id} is not known")
        states = self._blocks.get(_key(origin.request, origin.block_start), ())
        reached = [index for index, (state, _) in enumerate(states) if state == root]
        if not reached:
            return []
        return [commit for _, step in states[reached[0] :] for commit in step]


def _key(request: Request, block_start: int) -> Key:
    rule = repr(sorted(request.options.draft_free().commit_rule().items()))
    return request.noise_seed, request.prompt_ids, rule, block_start


class OracleProposer:
    """A chain along the true positions, the true tokens, or both; the rest is stale."""

    def __init__(self, method: str, futures: Futures) -> None:
        self.fills = {
            "oracle-position": position_fills,
            "oracle-token": token_fills,
            "oracle-joint": joint_fills,
        }[method]
        self.futures = futures

    def propose(self, views: Sequence[View]) -> list[list[Draft]]:
        return [self._propose(view) for view in views]

    def _propose(self, view: View) -> list[Draft]:
        assert view.origin is not None, "oracles stay beside the loop that knows whose block it is"
        return draft_chain(view, self.fills(view, self.futures.after(view.origin, view.root)))


def open_oracles() -> dict[str, Proposer]:
    """All oracles, sharing what they know."""
    futures = Futures()
    return {method: OracleProposer(method, futures) for method in ORACLES}


def position_fills(view: View, future: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """True positions in their true order, with the stale top candidate of each."""
    stale = dict(zip(view.stale.positions.tolist(), view.stale.candidates[:, 0], strict=True))
    return [(position, int(stale[position])) for position, _ in future]


def token_fills(view: View, future: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Positions in the stale order, with the tokens that they get in the end.

    It ends at a position that the run leaves open (the text ended first): no token is true there.
    """
    final = dict(future)
    fills: list[tuple[int, int]] = []
    for index in commit_rank(view.stale.rank_log_odds, view.options.cap):
        position = int(view.stale.positions[index])
        if view.root[position] != view.end.mask_id:
            continue
        if position not in final:
            break
        fills.append((position, final[position]))
    return fills


def joint_fills(view: View, future: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """The run itself."""
    return list(future)


def draft_chain(view: View, fills: Sequence[tuple[int, int]]) -> list[Draft]:
    """At most ``budget`` states, each with one fill more; an oracle is sure of all."""
    state, drafts = view.root, []
    for commit in fills[: view.budget]:
        state = fill(state, (commit,))
        if view.barren(state):
            break
        drafts.append(Draft(state, 1.0))
    return drafts
