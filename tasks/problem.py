"""One problem of a task: what the model is asked, a reference reply, what scores it, a verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class Problem:
    """A prompt with its reference.

    ``prompt`` is the user's message (no chat template), ``answer`` a full reference reply (the
    training target; of a public task what the data set gives), ``gold`` what the scorer compares
    with. ``kinds`` is the combination of step or function kinds that decides whether a bundled
    problem is a training or a held-out one; of MMLU the subject.
    """

    id: str
    task: str
    prompt: str
    answer: str
    gold: tuple[str, ...]
    kinds: tuple[str, ...] = ()


@dataclass(frozen=True)
class Verdict:
    """What scoring found in one reply.

    ``correct`` maps every metric of the task to whether the reply is right by it, the task's own
    metric first; ``read`` is the answer as it was read from the reply (none: there was no answer);
    ``reason`` says why one could not be judged by its content ("timeout", "error: ...").
    """

    correct: Mapping[str, bool]
    read: str | None = None
    reason: str | None = None

    @property
    def ok(self) -> bool:
        """Whether the reply is right by the task's own metric."""
        return next(iter(self.correct.values()))


def split_of(kinds: tuple[str, ...], heldout_share: int = 8) -> Split:
    """Whether a combination of kinds is trained on: one in ``heldout_share`` is held out.

    Combinations of a single kind are always trained on, so that a held-out problem combines known
    kinds in a way that was never seen.
    """
    if len(kinds) < 2:
        return "train"
    digest = blake2b("|".join(kinds).encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "little") % heldout_share == 0 else "train"
