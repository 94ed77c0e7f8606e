"""GSM8K: word problems of school mathematics (Cobbe et al. 2021)."""

from collections.abc import Sequence

from tasks.benchmark import Benchmark
from tasks.judging import judge_numbers
from tasks.problem import Problem
from tasks.reading import strict_number
from tasks.sources import Row, Source
from tasks.task import Task

_HUB = "openai/gsm8k"
_INSTRUCTION = 'Reason step by step. End with a last line "#### " and the number that answers it.'


def pose(place: int, row: Row, examples: Sequence[Row]) -> Problem:
    """The question with an instruction, or behind examples, which show the form by themselves."""
    gold = strict_number(row["answer"])
    if gold is None:
        raise ValueError(f"gsm8k row {place + 1}: its answer has no number behind '#### '")
    shown = [f"Question: {e['question']}\nAnswer: {e['answer']}" for e in examples]
    prompt = "\n\n".join([*shown, f"Question: {row['question']}\nAnswer:"])
    if not examples:
        prompt = f"{row['question']}\n{_INSTRUCTION}"
    return Problem(f"gsm8k-{place}", "gsm8k", prompt, row["answer"], (gold,))


GSM8K = Benchmark(
    name="gsm8k",
    source=Source(_HUB, "main", "test"),
    examples=Source(_HUB, "main", "train"),
    fields=("question", "answer"),
    pose=pose,
)
TASK = Task(GSM8K.select, judge_numbers, ("strict", "flexible"), 512)
