"""What is read from a reply: numbers, code, a letter, a short answer. Pure functions of text.

The rules are those of the public scorers, so that scores compare: GSM8K's two as in
lm-evaluation-harness (task gsm8k), MMLU's as in MMLU-Pro's scorer, TriviaQA's as in its release.
"""

import re
import string

_STRICT = re.compile(r"#### (-?\$?[0-9.,]+)")  # the harness knows no $ here
_NUMBER_LIKE = re.compile(r"-?[$0-9.,]{2,}|-?[0-9]+")
_FENCE = re.compile(r"```[^\n`]*\n(.*?)(?:```|\Z)", re.DOTALL)
_SAID = re.compile(r"(?i:answer\s+is):?\s*\**\s*\(?([A-Z])\b")
_BRACKETED = re.compile(r"\(([A-Z])\)")
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_MARKS = str.maketrans(dict.fromkeys(string.punctuation + "‘’´`", " "))  # noqa: RUF001


def plain_number(text: str) -> str:
    """A number as GSM8K compares it: as text, without ``,``, ``$`` and a final ``.``."""
    return text.replace(",", "").replace("$", "").removesuffix(".")


def strict_number(reply: str) -> str | None:
    """The number behind the first ``#### `` that a number follows."""
    found = _STRICT.search(reply)
    return plain_number(found[1]) if found else None


def last_number(reply: str) -> str | None:
    """The last thing in a reply that looks like a number."""
    found = _NUMBER_LIKE.findall(reply)
    return plain_number(found[-1]) if found else None


def first_block(reply: str) -> str | None:
    """The code of the first fenced block, to the end if it is never closed."""
    found = _FENCE.search(reply)
    return found[1] if found else None


def until(text: str, stops: tuple[str, ...]) -> str:
    """``text`` up to the first of the ``stops`` that is in it."""
    ends = [place for stop in stops if (place := text.find(stop)) >= 0]
    return text[: min(ends, default=len(text))]


def choice(reply: str, letters: str) -> str | None:
    """The letter of the first "answer is (X)", else of the last bracketed one, of ``letters``."""
    said = [letter for letter in _SAID.findall(reply) if letter in letters]
    bracketed = [letter for letter in _BRACKETED.findall(reply) if letter in letters]
    return said[0] if said else bracketed[-1] if bracketed else None


def short_answer(reply: str) -> str:
    """The first line that says anything, without a leading "Answer:"."""
    lines = [line.strip() for line in reply.splitlines() if line.strip()]
    return re.sub(r"^\**answer:?\**:?\s*", "", lines[0], flags=re.IGNORECASE) if lines else ""


def normalised(answer: str) -> str:
    """An answer as TriviaQA compares it: small letters; no articles, marks or doubled spaces."""
    bare = answer.replace("_", " ").lower().translate(_MARKS)
    return " ".join(_ARTICLES.sub(" ", bare).split())
