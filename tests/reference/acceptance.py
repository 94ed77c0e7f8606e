"""Rules of acceptance and the path that commits most, by their definitions: everything tried."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

State = tuple[int, ...]
Step = tuple[tuple[int, int], ...]
Row = Mapping[int, tuple[int, float]]
"""Of one state: every masked position's token and the log-odds of its confidence."""


def threshold_of(row: Row, bound: float) -> Step:
    """Threshold decoding at log-odds ``bound``."""
    passing = [p for p in sorted(row) if row[p][1] > bound]
    chosen = passing or [max(sorted(row), key=lambda p: row[p][1])]
    return tuple((p, row[p][0]) for p in chosen)


def is_acceptable(step: Step, row: Row, tau: float, rule: str) -> bool:
    bound = math.log(tau / (1 - tau)) if tau else -math.inf
    own = threshold_of(row, bound)
    if step == own:
        return True
    if rule == "subset":
        return all(commit in own for commit in step)
    if rule == "cut":
        stricter = [lo for _, lo in row.values() if lo >= bound]
        return any(step == threshold_of(row, each) for each in [bound, *stricter])
    if rule == "product":
        if any(row[p][0] != token for p, token in step):
            return False
        mean = math.fsum(-math.log1p(math.exp(-row[p][1])) for p, _ in step) / len(step)
        return math.exp(mean) >= tau
    return False


def all_paths(
    state: State,
    drafts: Sequence[State],
    row_of: Callable[[State], Row | None],
    tau: float,
    rule: str,
    mask: int,
) -> Iterator[tuple[Step, ...]]:
    """Every path of acceptable steps through drafts, with the free step at its end; a state
    without rows (finished) ends it."""
    row = row_of(state)
    if row is None:
        yield ()
        return
    bound = math.log(tau / (1 - tau)) if tau else -math.inf
    yield (threshold_of(row, bound),)
    for draft in drafts:
        changed = [i for i, (a, b) in enumerate(zip(state, draft, strict=True)) if a != b]
        if not changed or any(state[i] != mask for i in changed):
            continue
        step = tuple((i, draft[i]) for i in changed)
        if is_acceptable(step, row, tau, rule):
            for rest in all_paths(draft, drafts, row_of, tau, rule, mask):
                yield (step, *rest)
