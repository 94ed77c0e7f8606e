"""Seeded word problems in the manner of GSM8K: a story of 1 to 5 steps about one running number.

``generate`` draws the kinds, then numbers that fit them, then the words. All values lie in
LEAST..MOST; replies end as GSM8K's do, and are judged by its rules.
"""

import re
from collections.abc import Callable
from random import Random
from typing import NamedTuple

from tasks.problem import Problem, Split, split_of
from tasks.word_steps import (
    LINKS,
    OPENINGS,
    PERSONS,
    QUESTIONS,
    REPLY_CLOSING,
    REPLY_OPENING,
    STEPS,
    THINGS,
    Words,
)

LEAST, MOST = 2, 99  # from 2 up, so that a plural noun is always right
PROMPT_MOST = 110  # tokens, as num_tokens counts
REPLY_LEAST, REPLY_MOST = 40, 160
TRIES = 30  # draws of numbers for one sequence of kinds
LENGTH_WEIGHTS = {1: 10, 2: 25, 3: 30, 4: 25, 5: 10}
LENGTHS: dict[Split, list[int]] = {
    "train": [n for n, weight in LENGTH_WEIGHTS.items() for _ in range(weight)],
    "heldout": [n for n, weight in LENGTH_WEIGHTS.items() for _ in range(weight) if n > 1],
}

Numbers = dict[str, int]


class Story(NamedTuple):
    """Where a story stands: its first value, its value now, and what the last step added."""

    start: int
    value: int
    change: int


Draw = Callable[[Random, Story], Numbers | None]  # None: no such step from this value


def _amount(rng: Random, most: int = MOST) -> int:
    """Mostly 2..12, sometimes up to 20, at most ``most`` (or 2, which the bounds then refuse)."""
    usual = 12 if rng.random() < 0.9 else 20
    return rng.randint(LEAST, max(LEAST, min(usual, most)))


def _amount_within(rng: Random, story: Story, sign: int) -> int:
    """An amount to add, or one that can be taken from the value."""
    return _amount(rng) if sign > 0 else _amount(rng, story.value - LEAST)


def _one(sign: int) -> Draw:
    def draw(rng: Random, story: Story) -> Numbers:
        n = _amount_within(rng, story, sign)
        return {"n": n, "z": story.value + sign * n}

    return draw


def _both(sign: int) -> Draw:
    def draw(rng: Random, story: Story) -> Numbers:
        n, m = rng.randint(2, 12), rng.randint(2, 12)
        return {"n": n, "m": m, "p": n + m, "z": story.value + sign * (n + m)}

    return draw


def _groups(sign: int) -> Draw:
    def draw(rng: Random, story: Story) -> Numbers:
        k, n = rng.randint(2, 5), rng.randint(2, 9)
        return {"k": k, "n": n, "p": k * n, "z": story.value + sign * k * n}

    return draw


def _to(sign: int) -> Draw:
    """The story names where the value goes, not by how much."""

    def draw(rng: Random, story: Story) -> Numbers:
        p = _amount_within(rng, story, sign)
        return {"n": story.value + sign * p, "p": p, "z": story.value + sign * p}

    return draw


def _sibling(sign: int) -> Draw:
    def draw(rng: Random, story: Story) -> Numbers:
        m = _amount_within(rng, story, sign)
        y = story.value + sign * m
        return {"m": m, "y": y, "z": story.value + y}

    return draw


def _divide(choices: tuple[int, ...], result: Callable[[int, int], Numbers]) -> Draw:
    """A division by one of ``choices`` that is exact; ``result`` of value and divisor."""

    def draw(rng: Random, story: Story) -> Numbers | None:
        exact = [k for k in choices if story.value % k == 0]
        return result(story.value, rng.choice(exact)) if exact else None

    return draw


def _swap(rng: Random, story: Story) -> Numbers:
    n, m = _amount(rng, story.value - LEAST), _amount(rng)
    return {"n": n, "m": m, "y": story.value - n, "z": story.value - n + m}


def _half_back(rng: Random, story: Story) -> Numbers | None:
    h = story.change // 2
    return None if story.change % 2 else {"d": story.change, "h": h, "z": story.value - h}


DRAWS: dict[str, Draw] = {
    "get": _one(+1),
    "give": _one(-1),
    "lose": _one(-1),
    "double": lambda rng, story: {"z": story.value * 2},
    "triple": lambda rng, story: {"z": story.value * 3},
    "half": _divide((2,), lambda x, k: {"z": x // k}),
    "third": _divide((3,), lambda x, k: {"z": x // k}),
    "third_gone": _divide((3,), lambda x, k: {"p": x // k, "z": x - x // k}),
    "packs": _groups(+1),
    "bring": _groups(+1),
    "friends": _groups(-1),
    "boxes": _divide((2, 3, 4, 5), lambda x, k: {"k": k, "z": x // k}),
    "share": _divide((3, 4, 5), lambda x, p: {"k": p - 1, "p": p, "z": x // p}),
    "sister": _sibling(+1),
    "brother": _sibling(-1),
    "as_start": lambda rng, story: {"s": story.start, "z": story.value + story.start},
    "less_start": lambda rng, story: {"s": story.start, "z": story.value - story.start},
    "again": lambda rng, story: {"d": story.change, "z": story.value + story.change},
    "back": lambda rng, story: {"d": story.change, "z": story.value - story.change},
    "half_back": _half_back,
    "all_but": _to(-1),
    "until": _to(+1),
    "daily": _groups(+1),
    "daily_less": _groups(-1),
    "swap": _swap,
    "both": _both(+1),
    "both_less": _both(-1),
}
assert DRAWS.keys() == STEPS.keys()

FIRST_KINDS = [kind for kind, step in STEPS.items() if step.opens]
# No kind twice in a row; twice the weight for the few that only follow some kinds.
NEXT_KINDS = {
    last: [kind for kind, step in STEPS.items() if kind != last and not step.follows]
    + 2 * [kind for kind, step in STEPS.items() if last in step.follows]
    for last in STEPS
}


def _draw_kinds(rng: Random, length: int) -> tuple[str, ...]:
    kinds = [rng.choice(FIRST_KINDS)]
    while len(kinds) < length:
        kinds.append(rng.choice(NEXT_KINDS[kinds[-1]]))
    return tuple(kinds)


def _draw_numbers(rng: Random, kinds: tuple[str, ...]) -> list[Numbers] | None:
    """The numbers of each step, from a start of 4..40, or None if one of them does not fit."""
    start = rng.randint(4, 40)
    story, steps = Story(start, start, 0), []
    for kind in kinds:
        drawn = DRAWS[kind](rng, story)
        if drawn is None or min(drawn.values()) < LEAST or max(drawn.values()) > MOST:
            return None
        steps.append({"x": story.value, **drawn})
        story = Story(start, drawn["z"], drawn["z"] - story.value)
    return steps


def _say(template: str, words: Words, numbers: Numbers) -> str:
    """The sentence, with its first letter capital."""
    text = template.format_map({**words, **numbers})
    return text[0].upper() + text[1:]


def _prompt(rng: Random, kinds: tuple[str, ...], steps: list[Numbers], words: Words) -> str:
    said = [_say(rng.choice(OPENINGS), words, steps[0])]
    for kind, numbers in zip(kinds, steps, strict=True):
        said.append(_say(rng.choice(LINKS) + rng.choice(STEPS[kind].told), words, numbers))
    return " ".join([*said, _say(rng.choice(QUESTIONS), words, {})])


def _reply(kinds: tuple[str, ...], steps: list[Numbers], words: Words) -> str:
    told = zip(kinds, steps, strict=True)
    lines = [_say(template, words, steps[0]) for template in REPLY_OPENING]
    lines += [_say(STEPS[kind].reply, words, numbers) for kind, numbers in told]
    lines += [_say(template, words, {"x": steps[-1]["z"]}) for template in REPLY_CLOSING]
    return "\n".join(lines)


def num_tokens(text: str) -> int:
    """The length that bounds hold for: words, digits, marks and newlines count one each."""
    return len(re.findall(r"[A-Za-z]+|\d|[^\w\s]|\n", text))


def generate(split: Split, seed: int, index: int) -> Problem:
    """The problem of that number: a pure function of the arguments."""
    if split not in LENGTHS:
        raise ValueError(f"split is {split!r}; choose from {sorted(LENGTHS)}")
    rng = Random(f"words|{split}|{seed}|{index}")
    length = rng.choice(LENGTHS[split])
    while True:
        kinds = _draw_kinds(rng, length)
        if split_of(kinds) != split:
            continue
        steps = next(filter(None, (_draw_numbers(rng, kinds) for _ in range(TRIES))), None)
        if steps is None:
            continue
        words = {**rng.choice(PERSONS), "things": rng.choice(THINGS)}
        prompt, answer = _prompt(rng, kinds, steps, words), _reply(kinds, steps, words)
        if num_tokens(prompt) > PROMPT_MOST:
            continue
        if REPLY_LEAST <= num_tokens(answer) <= REPLY_MOST:
            id_ = f"words-{split}-{seed}-{index}"
            return Problem(id_, "words", prompt, answer, (str(steps[-1]["z"]),), kinds)
