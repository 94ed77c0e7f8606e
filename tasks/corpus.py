"""Training text of the bundled tasks: an endless, seeded mix, each sample by its number."""

import random
from collections.abc import Mapping

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
