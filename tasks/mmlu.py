"""MMLU: questions of 57 subjects with four choices, in its generative form (Hendrycks 2021)."""

from collections.abc import Iterator, Sequence

from tasks.benchmark import Benchmark
from tasks.problem import Problem, Verdict
from tasks.reading import choice
from tasks.sources import Row, Source
from tasks.task import Task

LETTERS = "ABCD"
_HUB = "cais/mmlu"
_INSTRUCTION = 'Think first. Then end with "The answer is (X)", where X is the right letter.'


def letter(row: Row) -> str:
    """The right letter; rows give it, or its number from 0."""
    answer = row["answer"]
    if isinstance(answer, int) and 0 <= answer < len(LETTERS):
        return LETTERS[answer]
    if answer not in tuple(LETTERS):
        raise ValueError(f"mmlu answer {answer!r} must be one of {', '.join(LETTERS)}, or 0 to 3")
    return answer


def question(row: Row) -> str:
    """The question with its lettered choices."""
    choices = zip(LETTERS, row["choices"], strict=True)
    lines = [row["question"].strip(), *(f"({name}) {text}" for name, text in choices)]
    return "\n".join(lines)


def pose(place: int, row: Row, examples: Sequence[Row]) -> Problem:
    """The question with an instruction, or behind examples of its subject, which show the form."""
    subject = row["subject"].replace("_", " ")
    shown = [f"{question(e)}\nThe answer is ({letter(e)})." for e in examples]
    asked = [f"Multiple choice questions about {subject}:", *shown, question(row)]
    prompt = "\n\n".join(asked) if examples else f"{question(row)}\n{_INSTRUCTION}"
    gold = letter(row)
    answer = f"The answer is ({gold})."
    return Problem(f"mmlu-{place}", "mmlu", prompt, answer, (gold,), (row["subject"],))


def score(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    """Whether the letter of "answer is (X)", or else the last bracketed one, is right."""
    for problem, reply in zip(problems, replies, strict=True):
        read = choice(reply, LETTERS)
        yield Verdict({"accuracy": read == problem.gold[0]}, read)


MMLU = Benchmark(
    name="mmlu",
    source=Source(_HUB, "all", "test"),
    examples=Source(_HUB, "all", "dev"),
    fields=("subject", "question", "choices", "answer"),
    pose=pose,
    shows=lambda example, row: example["subject"] == row["subject"],
)
TASK = Task(MMLU.select, score, ("accuracy",), 512)
