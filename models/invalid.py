"""Validation errors told in one line: field, value, and what it must be."""

from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError


def one_line(error: ValidationError, model: type[BaseModel] | None = None, prefix: str = "") -> str:
    """All problems of ``error`` in one line; with ``model`` an unknown key lists the valid ones.

    ``prefix`` ("decode.") stands before every field that the error names.
    """
    problems = error.errors(include_url=False)
    return "; ".join(_tell(problem, model, prefix) for problem in problems)


def _tell(problem: Any, model: type[BaseModel] | None, prefix: str) -> str:
    loc, kind, message = problem["loc"], problem["type"], problem["msg"]
    field = prefix + ".".join(map(str, loc))
    if kind == "value_error":
        told = str(problem["ctx"]["error"])
        # Checks of a whole model name their field themselves; those of one value cannot know it.
        whole = not loc or isinstance(problem["input"], Mapping)
        return told if whole else f"{field}: {problem['input']!r} {told}"
    if kind == "extra_forbidden":
        valid = _valid_keys(model, loc[:-1])
        return f"{field}: unknown key" + (f"; valid: {', '.join(valid)}" if valid else "")
    if kind == "missing":
        return f"{field}: missing"
    return f"{field}: {problem['input']!r} {message.replace('Input should', 'must')}"


def _valid_keys(model: type[BaseModel] | None, loc: Sequence[str | int]) -> list[str]:
    """The keys of the (nested) model at ``loc``."""
    for name in loc:
        field = model.model_fields.get(str(name)) if model else None
        nested = field.annotation if field else None
        model = nested if isinstance(nested, type) and issubclass(nested, BaseModel) else None
    return sorted(model.model_fields) if model else []
