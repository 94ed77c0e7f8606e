"""One problem of a task: what the model is asked, a reference reply, and what scores it."""

from dataclasses import dataclass
from hashlib import blake2b
from typing import Literal

Split = Literal["train", "heldout"]


@dataclass(frozen=True)
class Problem:
    """A prompt with its reference.

    ``prompt`` is the user's message (no chat template), ``answer`` a full reference reply (the
    training target), ``gold`` what the scorer compares with, ``kinds`` the combination of step or
    function kinds that decides whether the problem is a training or a held-out one.
    """

    id: str
    task: str
    prompt: str
    answer: str
    gold: tuple[str, ...]
    kinds: tuple[str, ...]


def split_of(kinds: tuple[str, ...], heldout_share: int = 8) -> Split:
    """Whether a combination of kinds is trained on: one in ``heldout_share`` is held out.

    Combinations of a single kind are always trained on, so that a held-out problem combines known
    kinds in a way that was never seen.
    """
    if len(kinds) < 2:
        return "train"
    digest = blake2b("|".join(kinds).encode(), digest_size=8).digest()
    return "heldout" if int.from_bytes(digest, "little") % heldout_share == 0 else "train"
