"""Training text of the bundled tasks: an endless, seeded, resumable mix."""

import random
from collections.abc import Iterator, Mapping

from tokenizers import Tokenizer

from models.noising import Sample
from models.text import MESSAGE_END_ID, chat_text
from tasks import code, drills, words
from tasks.problem import Problem

GENERATORS = {"words": words.generate, "code": code.generate, "drills": drills.generate}

Mix = Mapping[str, float]
"""Kind of training text to its share."""


def problem_at(seed: int, index: int, mix: Mix) -> Problem:
    """Training problem number ``index`` of the mix: of the kind that a seeded draw names."""
    draw = random.Random(f"mix|{seed}|{index}")
    kind = draw.choices(list(mix), weights=list(mix.values()))[0]
    return GENERATORS[kind]("train", seed, index)


def encode_sample(tokenizer: Tokenizer, problem: Problem) -> Sample:
    """Token ids of a problem under the bundled chat template; the answer ends with its stop id."""
    prompt = tokenizer.encode(chat_text(problem.prompt), add_special_tokens=False).ids
    answer = tokenizer.encode(problem.answer, add_special_tokens=False).ids
    return Sample(tuple(prompt), (*answer, MESSAGE_END_ID))


def samples(tokenizer: Tokenizer, seed: int, mix: Mix, first: int, limit: int) -> Iterator[Sample]:
    """Samples number ``first`` onward, leaving out those of more than ``limit`` tokens."""
    index = first
    while True:
        sample = encode_sample(tokenizer, problem_at(seed, index, mix))
        index += 1
        if len(sample.prompt) + len(sample.answer) <= limit:
            yield sample
