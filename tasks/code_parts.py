"""The kinds of steps that small functions are made of, and the words around them.

A function is a pipeline of parts over one argument: a list of whole numbers or a text. Every part
has one canonical line of code, one canonical phrase (the first; it goes into the docstring) and
further phrases that only prompts use. ``apply`` computes what the line of code computes, so that
expected values need no ``exec``; the tests compare the two.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import accumulate
from random import Random
from typing import Any, Literal

Value = int | str | list[int]
Slot = Literal["", "digit", "size", "letter", "letters"]


@dataclass(frozen=True)
class Part:
    """One kind of step.

    ``expression`` and the phrases are format strings: ``v`` is the argument's name, ``a`` and ``b``
    the constants that ``slot`` asks for.
    """

    kind: str
    phrases: tuple[str, ...]
    expression: str
    apply: Callable[..., Any]
    slot: Slot = ""


@dataclass(frozen=True)
class Family:
    """The parts over one type of argument; ``reductions`` yield a number and can only come last."""

    noun: str
    arguments: tuple[str, ...]
    steps: tuple[Part, ...]
    reductions: tuple[Part, ...]


def _part(words: str, expression: str, apply: Callable[..., Any], slot: Slot = "") -> Part:
    """A part whose kind and phrases are given as one text, separated by slashes."""
    kind, *phrases = words.split(" / ")
    return Part(kind, tuple(phrases), expression, apply, slot)


def draw_constants(slot: Slot, rng: Random) -> tuple[int | str, ...]:
    """The constants of one step, in the order ``a``, ``b``."""
    if slot == "digit":
        return (rng.randint(2, 9),)
    if slot == "size":
        return (rng.randint(2, 4),)
    if slot == "":
        return ()
    return tuple(rng.sample("aeiorstnl", 1 if slot == "letter" else 2))


_LIST_STEPS = (
    _part(
        "keep_even / keep the even numbers / remove the odd numbers / keep numbers that are even",
        "[x for x in {v} if x % 2 == 0]",
        lambda v: [x for x in v if x % 2 == 0],
    ),
    _part(
        "keep_odd / keep the odd numbers / remove the even numbers / keep numbers that are odd",
        "[x for x in {v} if x % 2 == 1]",
        lambda v: [x for x in v if x % 2 == 1],
    ),
    _part(
        "keep_above / keep numbers greater than {a} / keep only numbers above {a}",
        "[x for x in {v} if x > {a}]",
        lambda v, a: [x for x in v if x > a],
        "digit",
    ),
    _part(
        "keep_below / keep numbers less than {a} / keep only numbers below {a}",
        "[x for x in {v} if x < {a}]",
        lambda v, a: [x for x in v if x < a],
        "digit",
    ),
    _part(
        "add / add {a} to each number / increase every number by {a}",
        "[x + {a} for x in {v}]",
        lambda v, a: [x + a for x in v],
        "digit",
    ),
    _part(
        "subtract / subtract {a} from each number / decrease every number by {a}",
        "[x - {a} for x in {v}]",
        lambda v, a: [x - a for x in v],
        "digit",
    ),
    _part(
        "multiply / multiply each number by {a} / make every number {a} times as large",
        "[x * {a} for x in {v}]",
        lambda v, a: [x * a for x in v],
        "digit",
    ),
    _part(
        "square / square each number / multiply every number by itself",
        "[x * x for x in {v}]",
        lambda v: [x * x for x in v],
    ),
    _part(
        "absolute / make each number positive / take the absolute value of every number",
        "[abs(x) for x in {v}]",
        lambda v: [abs(x) for x in v],
    ),
    _part(
        "clip / limit each number to at most {a} / lower every number above {a} to {a}",
        "[min(x, {a}) for x in {v}]",
        lambda v, a: [min(x, a) for x in v],
        "digit",
    ),
    _part(
        "sort / sort the numbers / put the numbers in order / sort from small to large",
        "sorted({v})",
        sorted,
    ),
    _part(
        "sort_down / sort from large to small / put the numbers in falling order",
        "sorted({v}, reverse=True)",
        lambda v: sorted(v, reverse=True),
    ),
    _part("reverse_list / reverse the list / turn the list around", "{v}[::-1]", lambda v: v[::-1]),
    _part(
        "unique / remove duplicates / keep each number only once",
        "list(dict.fromkeys({v}))",
        lambda v: list(dict.fromkeys(v)),
    ),
    _part(
        "take / keep the first {a} numbers / take {a} numbers from the start",
        "{v}[:{a}]",
        lambda v, a: v[:a],
        "size",
    ),
    _part(
        "drop / drop the first {a} numbers / remove {a} numbers from the start",
        "{v}[{a}:]",
        lambda v, a: v[a:],
        "size",
    ),
    _part(
        "running_sums / compute the running sums / replace each number by the sum up to it",
        "[sum({v}[: i + 1]) for i in range(len({v}))]",
        lambda v: list(accumulate(v)),
    ),
)

_LIST_REDUCTIONS = (
    _part("sum / the sum of the numbers / the sum / the total", "sum({v})", sum),
    _part(
        "max / the largest number or 0 / the maximum or 0 if the list is empty",
        "max({v}, default=0)",
        lambda v: max(v, default=0),
    ),
    _part(
        "min / the smallest number or 0 / the minimum or 0 if the list is empty",
        "min({v}, default=0)",
        lambda v: min(v, default=0),
    ),
    _part("count / the count of numbers / how many numbers there are", "len({v})", len),
    _part(
        "count_of / the count of {a} / how many numbers equal {a}",
        "{v}.count({a})",
        lambda v, a: v.count(a),
        "digit",
    ),
    _part(
        "mean / the mean rounded down / the average rounded down",
        "sum({v}) // max(len({v}), 1)",
        lambda v: sum(v) // max(len(v), 1),
    ),
)

_TEXT_STEPS = (
    _part(
        "upper / make it upper case / change all letters to upper case", "{v}.upper()", str.upper
    ),
    _part(
        "lower / make it lower case / change all letters to lower case", "{v}.lower()", str.lower
    ),
    _part("swap_case / swap the case / swap upper and lower case", "{v}.swapcase()", str.swapcase),
    _part("reverse_text / reverse it / turn it around", "{v}[::-1]", lambda v: v[::-1]),
    _part(
        "remove_vowels / remove the vowels / drop all vowels",
        '"".join(c for c in {v} if c not in "aeiouAEIOU")',
        lambda v: "".join([c for c in v if c not in "aeiouAEIOU"]),
    ),
    _part(
        "keep_digits / keep the digits / remove all but the digits",
        '"".join(c for c in {v} if c.isdigit())',
        lambda v: "".join([c for c in v if c.isdigit()]),
    ),
    _part(
        "replace / replace {a} by {b} / change every {a} to {b}",
        '{v}.replace("{a}", "{b}")',
        lambda v, a, b: v.replace(a, b),
        "letters",
    ),
    _part(
        "remove_letter / remove the letter {a} / drop every {a}",
        '{v}.replace("{a}", "")',
        lambda v, a: v.replace(a, ""),
        "letter",
    ),
    _part(
        "remove_spaces / remove the spaces / drop all spaces",
        '{v}.replace(" ", "")',
        lambda v: v.replace(" ", ""),
    ),
    _part(
        "repeat / repeat it {a} times / write it {a} times",
        "{v} * {a}",
        lambda v, a: v * a,
        "size",
    ),
    _part(
        "first_letters / keep the first {a} characters / take {a} characters from the start",
        "{v}[:{a}]",
        lambda v, a: v[:a],
        "size",
    ),
)

_TEXT_REDUCTIONS = (
    _part(
        "count_letter / the count of {a} / how many times {a} occurs",
        '{v}.count("{a}")',
        lambda v, a: v.count(a),
        "letter",
    ),
    _part("length / the number of characters / the length", "len({v})", len),
    _part(
        "words / the number of words / how many words there are",
        "len({v}.split())",
        lambda v: len(v.split()),
    ),
)

LISTS = Family("list", ("values", "numbers", "items"), _LIST_STEPS, _LIST_REDUCTIONS)
TEXTS = Family("text", ("text", "line", "phrase"), _TEXT_STEPS, _TEXT_REDUCTIONS)
