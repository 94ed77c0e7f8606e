"""Code tasks: small Python functions described in words, in the form of MBPP.

A problem is a pipeline of one to four parts over a list or a text. The prompt describes it in
varied words and shows one assert; the reply is canonical, so that it follows from the prompt, and
opens with a docstring that repeats the plan in canonical words. Form of the prompts: Austin et al.
2021, "Program Synthesis with Large Language Models".
"""

from random import Random

from tasks.code_parts import LISTS, TEXTS, Family, Part, Value, draw_constants
from tasks.problem import Problem, Split, split_of
from tasks.reading import first_block

Step = tuple[Part, tuple[int | str, ...]]

_VERBS, _NOUNS, _WORDS = map(
    str.split,
    (
        "make build find get form give pick solve check trace shape scan pack mix fold map run load"
        " read set plan move work cut join",
        "box row pile pair bag stack chain group code part view item note page path plot ring road"
        " score set sheet step tree unit wave",
        "red blue green cat dog bird fish stone river train table lamp rose lion tiger Moon Sun"
        " Star Rain Snow Lane Tree Note Salt Iron",
    ),
)
_NUMBERS = (*range(10),) * 7 + (*range(-9, 21),)
_OPENINGS = (
    "Write a function {name} that takes a {noun} called {v}. It should {steps}.",
    "Write a python function {name} for a {noun} called {v}. The function should {steps}.",
    "Given a {noun} called {v}, write a function {name} to {steps}.",
    "The function {name} takes a {noun} {v}. Write it to {steps}.",
)
_LINKS = (", then ", " and then ", ", after that ")
_LENGTHS = (1, 2, 2, 3, 3, 3, 4, 4, 4, 4)  # long ones are rejected more often
_NUMBER_SHARE = 0.4
_MAX_NUMBER = 2_000
_MAX_CHARACTERS = 24


def generate(split: Split, seed: int, index: int) -> Problem:
    """The problem at ``index`` of a split: a pure function of its arguments.

    Held-out problems combine at least two kinds, in a combination that no training problem has.
    Leaving out any one step of the reference makes at least one assert fail.
    """
    rng = Random(f"code|{split}|{seed}|{index}")
    while True:
        family = LISTS if rng.random() < 0.6 else TEXTS
        parts = _draw_parts(family, rng)
        kinds = tuple(part.kind for part in parts)
        if len(set(kinds)) < len(kinds) or split_of(kinds) != split:
            continue
        steps = [(part, draw_constants(part.slot, rng)) for part in parts]
        inputs = _draw_inputs(family, steps, rng)
        if inputs:
            return _problem(f"code-{split}-{seed}-{index}", family, steps, inputs, rng)


def extract(reply: str) -> str:
    """The code of a reply: its first fenced block (to the end if unclosed), else all of it."""
    block = first_block(reply)
    return reply if block is None else block


def _draw_parts(family: Family, rng: Random) -> list[Part]:
    """A pipeline of parts, which may repeat; a reduction comes last or not at all."""
    length = rng.choice(_LENGTHS)
    if rng.random() < _NUMBER_SHARE:
        return [*rng.choices(family.steps, k=length - 1), rng.choice(family.reductions)]
    return rng.choices(family.steps, k=length)


def _draw_inputs(family: Family, steps: list[Step], rng: Random) -> list[Value] | None:
    """Three inputs on which every step matters and values stay short, or none in a few tries."""
    draw = _draw_list if family is LISTS else _draw_text
    for _ in range(5):
        inputs = [draw(rng) for _ in range(3)]
        if _run(steps, inputs[0]) in ([], ""):  # would say nothing in the prompt
            continue
        outputs = [_run(steps, value) for value in inputs]
        if all(map(_is_short, outputs)) and _all_matter(steps, inputs, outputs):
            return inputs
    return None


def _draw_list(rng: Random) -> Value:
    """Three to five numbers, mostly of one digit, with some repetition."""
    values = rng.choices(_NUMBERS, k=rng.choice((3, 4, 5)))
    if rng.random() < 0.4:
        values[rng.choice((1, 2))] = values[0]
    return values


def _draw_text(rng: Random) -> Value:
    """One or two words, some with a digit behind."""
    words = rng.sample(_WORDS, 1 + (rng.random() < 0.6))
    return " ".join(w + rng.choice("23456789") if rng.random() < 0.4 else w for w in words)


def _run(steps: list[Step], value: Value) -> Value:
    """What the function made of these steps returns for ``value``."""
    for part, constants in steps:
        value = part.apply(value, *constants)
    return value


def _is_short(value: Value) -> bool:
    """Whether a value takes little room in an assert."""
    if isinstance(value, str):
        return len(value) <= _MAX_CHARACTERS
    values = value if isinstance(value, list) else [value]
    return not values or (min(values) >= -_MAX_NUMBER and max(values) <= _MAX_NUMBER)


def _all_matter(steps: list[Step], inputs: list[Value], outputs: list[Value]) -> bool:
    """Whether the outputs differ and no step can be left out unnoticed."""
    if outputs[0] == outputs[1] == outputs[2]:
        return False
    shorter = (steps[:i] + steps[i + 1 :] for i in range(len(steps)))
    return all([_run(rest, value) for value in inputs] != outputs for rest in shorter)


def _problem(
    id_: str, family: Family, steps: list[Step], inputs: list[Value], rng: Random
) -> Problem:
    """The problem's texts around drawn steps and inputs."""
    name = f"{rng.choice(_VERBS)}_{rng.choice(_NOUNS)}"
    argument = rng.choice(family.arguments)
    gold = tuple(
        f"assert {name}({_literal(value)}) == {_literal(_run(steps, value))}" for value in inputs
    )
    opening = rng.choice(_OPENINGS).format(
        name=name, noun=family.noun, v=argument, steps=_describe(family, steps, rng)
    )
    return Problem(
        id=id_,
        task="code",
        prompt=f"{opening} Your code should pass this test:\n{gold[0]}",
        answer=_reply(family, steps, name, argument),
        gold=gold,
        kinds=tuple(part.kind for part, _ in steps),
    )


def _describe(family: Family, steps: list[Step], rng: Random) -> str:
    """The steps in the prompt's varied words."""
    phrases = [_phrase(family, step, rng.choice(step[0].phrases)) for step in steps]
    text = phrases[0]
    for phrase in phrases[1:]:
        text += rng.choice(_LINKS) + phrase
    return text


def _reply(family: Family, steps: list[Step], name: str, argument: str) -> str:
    """The canonical reply: a docstring with the numbered plan, then one line for each step."""
    ends_in_number = steps[-1][0] in family.reductions
    result = "number" if ends_in_number else family.noun
    plan = [_phrase(family, step, step[0].phrases[0]) for step in steps]
    code = [_fill(part.expression, constants, argument) for part, constants in steps]
    if not ends_in_number:
        plan.append(f"return the {family.noun}")
        code.append(argument)
    lines = [
        f"def {name}({argument}):",
        f'"""Take a {family.noun} called {argument} and return a {result}.',
        *(f"{number}. {phrase}" for number, phrase in enumerate(plan, start=1)),
        '"""',
        *(f"{argument} = {expression}" for expression in code[:-1]),
        f"return {code[-1]}",
    ]
    return "\n".join(["```python", "\n    ".join(lines), "```"])


def _phrase(family: Family, step: Step, phrase: str) -> str:
    """A phrase with its constants; a reduction is what the function returns."""
    text = _fill(phrase, step[1])
    return f"return {text}" if step[0] in family.reductions else text


def _fill(template: str, constants: tuple[int | str, ...], argument: str = "") -> str:
    """A template with the argument's name and the constants in place."""
    return template.format(v=argument, **dict(zip("ab", constants, strict=False)))


def _literal(value: Value) -> str:
    """A value as Python source, texts in double quotes as in the replies."""
    return f'"{value}"' if isinstance(value, str) else str(value)
