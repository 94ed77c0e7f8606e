"""TriviaQA without context: short answers, of which any alias will do (Joshi et al. 2017)."""

from collections.abc import Iterator, Sequence

from tasks.benchmark import Benchmark
from tasks.problem import Problem, Verdict
from tasks.reading import normalised, short_answer
from tasks.sources import Row, Source
from tasks.task import Task

_HUB = "mandarjoshi/trivia_qa"
_INSTRUCTION = "Reply with the answer alone, as short as it can be."


def pose(place: int, row: Row, examples: Sequence[Row]) -> Problem:
    """The question with an instruction, or behind examples; gold are the normalised aliases."""
    shown = [f"Question: {e['question']}\nAnswer: {e['answer']['value']}" for e in examples]
    prompt = "\n\n".join([*shown, f"Question: {row['question']}\nAnswer:"])
    if not examples:
        prompt = f"{row['question']}\n{_INSTRUCTION}"
    answer = row["answer"]
    names = [answer["value"], *(answer.get("aliases") or ())]
    gold = {*map(normalised, names), *(answer.get("normalized_aliases") or ())} - {""}
    id_ = row.get("question_id") or f"triviaqa-{place}"
    return Problem(id_, "triviaqa", prompt, answer["value"], tuple(sorted(gold)))


def score(problems: Sequence[Problem], replies: Sequence[str]) -> Iterator[Verdict]:
    """Whether the normalised answer is one of the aliases."""
    for problem, reply in zip(problems, replies, strict=True):
        read = normalised(short_answer(reply))
        yield Verdict({"exact_match": read in problem.gold}, read or None)


TRIVIAQA = Benchmark(
    name="triviaqa",
    source=Source(_HUB, "rc.nocontext", "validation"),
    examples=Source(_HUB, "rc.nocontext", "train"),
    fields=("question", "answer"),
    pose=pose,
)
TASK = Task(TRIVIAQA.select, score, ("exact_match",), 64)
