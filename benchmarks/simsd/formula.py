"""What a masked round is expected to commit, by the acceptance that was measured."""

from collections.abc import Sequence
from typing import NamedTuple

from decoders.request import Result


class Masked(NamedTuple):
    """One round: open positions before it, tokens drafted for them, those of them that were
    accepted, and positions filled."""

    open_before: int
    drafts: int
    accepted: int
    commits: int


def expected_commits(acceptances: Sequence[float], more: bool) -> float:
    """Tokens of a draft whose i-th one passes with ``acceptances[i]`` once those before it did: the
    accepted ones, the target's own for the first that is not, and one ``more`` where positions
    stay open behind a draft that passed whole."""
    reached, expected = 1.0, 0.0
    for acceptance in acceptances:
        expected += reached
        reached *= acceptance
    return expected + (reached if more else 0.0)


def acceptance_by_depth(rounds: Sequence[Masked]) -> list[float]:
    """Share of the i-th tokens that passed, of those that were looked at; where none was, 1."""
    deepest = max((each.drafts for each in rounds), default=0)
    found = []
    for depth in range(deepest):
        tested = sum(each.accepted >= depth and each.drafts > depth for each in rounds)
        passed = sum(each.accepted > depth for each in rounds)
        found.append(passed / tested if tested else 1.0)
    return found


def mean_acceptance(rounds: Sequence[Masked]) -> float:
    """Share of all tokens looked at that passed."""
    tested = sum(min(each.accepted + 1, each.drafts) for each in rounds)
    return sum(each.accepted for each in rounds) / tested if tested else 0.0


def forwards_per_token(rounds: Sequence[Masked]) -> dict[str, float]:
    """As measured; by the closed formula for one acceptance ``a`` of every token, under which a
    forward commits ``1 + a + ... + a^(g-1)``, and ``a^g`` for one more; and with an acceptance for
    every depth, since later tokens of a draft are harder."""
    depths, mean = acceptance_by_depth(rounds), mean_acceptance(rounds)

    def predicted(acceptances: Sequence[float]) -> float:
        return sum(
            expected_commits(acceptances[: each.drafts], each.open_before > each.drafts)
            for each in rounds
        )

    commits = sum(each.commits for each in rounds)
    if not commits:
        return {}
    return {
        "measured": len(rounds) / commits,
        "formula": len(rounds) / predicted([mean] * len(depths)),
        "by_depth": len(rounds) / predicted(depths),
    }


def whole_rounds(result: Result, block: int) -> list[Masked]:
    """The rounds of one request that the end of its text did not cut short."""
    left = block - len(result.request.prompt_ids) % block
    found: list[Masked] = []
    for entry in result.rounds:
        if entry.kind != "verify":
            continue
        commits = sum(len(step) for step in entry.steps)
        found.append(Masked(left, entry.drafts, entry.accepted, commits))
        left = left - commits or block
    # The last round ends the text: it counts only if it filled its block, and so was not cut.
    return found if left == block else found[:-1]
