"""What a word problem says: its people, things, questions, and the phrasings of each step kind.

Letters in templates: ``s`` the story's start, ``x`` and ``z`` the value before and after the step,
``d`` the last step's change, ``n m`` amounts, ``k`` a factor, ``p y h`` results in between. A
prompt picks one of three phrasings; a reply has exactly one, so that it can be learned exactly.
"""

from dataclasses import dataclass

Words = dict[str, str]

GIRLS = [
    "Mia",
    "Anna",
    "Ella",
    "Lily",
    "Emma",
    "Nora",
    "Ruby",
    "Zoe",
    "Lucy",
    "Jane",
    "Rosa",
    "Kate",
    "Amy",
    "Sara",
    "Eva",
    "Maya",
]
BOYS = [
    "Tom",
    "Ben",
    "Sam",
    "Leo",
    "Max",
    "Jack",
    "Adam",
    "Noah",
    "Paul",
    "Eric",
    "Omar",
    "Ivan",
    "Luke",
    "Dan",
    "Jim",
    "Carl",
]
SHE: Words = {"he": "she", "him": "her", "his": "her"}
HE: Words = {"he": "he", "him": "him", "his": "his"}
PERSONS = [{"name": name, **SHE} for name in GIRLS] + [{"name": name, **HE} for name in BOYS]
THINGS = [
    "apples",
    "pears",
    "plums",
    "nuts",
    "eggs",
    "cookies",
    "marbles",
    "stickers",
    "shells",
    "stamps",
    "cards",
    "coins",
    "beads",
    "pins",
    "books",
    "buttons",
    "badges",
    "stones",
    "pencils",
    "toys",
    "balls",
    "cups",
    "balloons",
    "candles",
    "keys",
    "dolls",
    "posters",
    "bottles",
    "ribbons",
    "tickets",
]

OPENINGS = (
    "{name} has {x} {things}.",
    "{name} starts with {x} {things}.",
    "at the start {name} has {x} {things}.",
)
LINKS = ("", "", "then ", "next, ", "after that, ", "later, ")
QUESTIONS = (
    "how many {things} does {name} have now?",
    "how many {things} does {he} have at the end?",
    "what is the number of {things} that {name} has now?",
)
REPLY_OPENING = (
    "we want the number of {things} that {name} has at the end.",
    "{name} starts with {x} {things}.",
)
REPLY_CLOSING = ("{name} has {x} {things} at the end.", "#### {x}")


@dataclass(frozen=True)
class Step:
    """The phrasings of one kind, and where in a story it may stand.

    ``follows`` names the kinds that may come just before it (empty: any), ``opens`` says whether
    it may be a story's first step.
    """

    told: tuple[str, ...]
    reply: str
    follows: frozenset[str] = frozenset()
    opens: bool = True


def _step(reply: str, *told: str) -> Step:
    return Step(told, reply)


def _later(reply: str, *told: str) -> Step:
    """A step that speaks of the start, and so is no first step."""
    return Step(told, reply, opens=False)


def _regain(reply: str, *told: str) -> Step:
    """A step that speaks of what was just got, and so follows a step that brings a known number."""
    gains = frozenset({"get", "packs", "bring", "daily", "both"})
    return Step(told, reply, follows=gains, opens=False)


STEPS: dict[str, Step] = {
    "get": _step(
        "{he} gets {n} more, so {x} + {n} = {z}.",
        "{he} buys {n} more {things}.",
        "a friend gives {him} {n} {things}.",
        "{he} finds {n} more {things}.",
    ),
    "give": _step(
        "{he} gives {n} away, so {x} - {n} = {z}.",
        "{he} gives {n} {things} to a friend.",
        "{he} gives away {n} of {his} {things}.",
        "{he} sells {n} {things} to a friend.",
    ),
    "lose": _step(
        "{he} loses {n}, so {x} - {n} = {z}.",
        "{he} loses {n} of {his} {things}.",
        "{his} dog takes {n} of the {things}.",
        "{he} leaves {n} {things} on a bus.",
    ),
    "double": _step(
        "the number doubles, so {x} * 2 = {z}.",
        "{he} doubles {his} number of {things}.",
        "the number of {things} {he} has doubles.",
        "{he} gets as many {things} as {he} already has.",
    ),
    "triple": _step(
        "the number triples, so {x} * 3 = {z}.",
        "{he} triples {his} number of {things}.",
        "the number of {things} {he} has triples.",
        "{he} buys enough {things} to have 3 times as many.",
    ),
    "half": _step(
        "half are left, so {x} / 2 = {z}.",
        "{he} sells half of {his} {things}.",
        "{he} gives half of the {things} to {his} sister.",
        "{he} loses half of {his} {things}.",
    ),
    "third": _step(
        "a third are left, so {x} / 3 = {z}.",
        "{he} keeps only a third of {his} {things}.",
        "{he} sells all but a third of {his} {things}.",
        "{he} keeps a third of the {things} and gives the rest away.",
    ),
    "third_gone": _step(
        "a third is {x} / 3 = {p}, so {x} - {p} = {z}.",
        "{he} gives away a third of {his} {things}.",
        "{he} sells a third of {his} {things}.",
        "{his} brother takes a third of the {things}.",
    ),
    "packs": _step(
        "the packs make {k} * {n} = {p}, so {x} + {p} = {z}.",
        "{he} buys {k} packs of {n} {things}.",
        "{he} gets {k} packs with {n} {things} in each.",
        "{his} sister gives {him} {k} packs of {n} {things}.",
    ),
    "bring": _step(
        "the friends bring {k} * {n} = {p}, so {x} + {p} = {z}.",
        "{his} {k} friends bring {him} {n} {things} each.",
        "each of {his} {k} friends gives {him} {n} {things}.",
        "{he} gets {n} {things} from each of {his} {k} friends.",
    ),
    "friends": _step(
        "{he} gives away {k} * {n} = {p}, so {x} - {p} = {z}.",
        "{he} gives {k} friends {n} {things} each.",
        "{he} gives {n} {things} to each of {his} {k} friends.",
        "each of {his} {k} friends takes {n} of the {things}.",
    ),
    "boxes": _step(
        "{he} keeps 1 of {k} boxes, so {x} / {k} = {z}.",
        "{he} splits the {things} equally into {k} boxes and keeps only 1 box.",
        "{he} puts the {things} into {k} equal boxes and sells all but 1 box.",
        "{he} splits the {things} into {k} equal boxes and gives away all but 1 box.",
    ),
    "share": _step(
        "the number of people is {k} + 1 = {p}, so {x} / {p} = {z}.",
        "{he} shares the {things} equally with {k} friends.",
        "{he} and {k} friends share the {things} equally.",
        "{he} splits the {things} equally with {k} friends.",
    ),
    "sister": _step(
        "{his} sister has {x} + {m} = {y}, so {x} + {y} = {z}.",
        "{his} sister, who has {m} more {things} than {him}, gives {him} all of hers.",
        "{he} gets all the {things} of {his} sister, who has {m} more than {him}.",
        "{his} sister has {m} more {things} than {him} and gives them all to {him}.",
    ),
    "brother": _step(
        "{his} brother has {x} - {m} = {y}, so {x} + {y} = {z}.",
        "{his} brother, who has {m} fewer {things} than {him}, gives {him} all of his.",
        "{he} gets all the {things} of {his} brother, who has {m} fewer than {him}.",
        "{his} brother has {m} fewer {things} than {him} and gives them all to {him}.",
    ),
    "as_start": _later(
        "{he} had {s} at the start, so {x} + {s} = {z}.",
        "{he} finds as many {things} as {he} had at the start.",
        "{he} buys as many {things} as {he} had at the start.",
        "a friend gives {him} as many {things} as {he} had at the start.",
    ),
    "less_start": _later(
        "{he} had {s} at the start, so {x} - {s} = {z}.",
        "{he} gives away as many {things} as {he} had at the start.",
        "{he} sells as many {things} as {he} had at the start.",
        "{he} loses as many {things} as {he} had at the start.",
    ),
    "again": _regain(
        "{he} gets {d} again, so {x} + {d} = {z}.",
        "{he} gets that many {things} again.",
        "{he} gets the same number of {things} again.",
        "{he} gets the same number of {things} once more.",
    ),
    "back": _regain(
        "{he} gives back {d}, so {x} - {d} = {z}.",
        "{he} has to return all the {things} {he} just got.",
        "{he} gives back all the {things} {he} just got.",
        "{he} loses all the {things} {he} just got.",
    ),
    "half_back": _regain(
        "half of {d} is {d} / 2 = {h}, so {x} - {h} = {z}.",
        "{he} has to return half of the {things} {he} just got.",
        "{he} gives back half of the {things} {he} just got.",
        "{he} loses half of the {things} {he} just got.",
    ),
    "all_but": _step(
        "{he} loses {x} - {n} = {p}, so {x} - {p} = {n}.",
        "{he} sells all but {n} of {his} {things}.",
        "{he} sells {things} until {he} has only {n} left.",
        "{he} keeps only {n} {things} and gives the rest away.",
    ),
    "until": _step(
        "{he} needs {n} - {x} = {p}, so {x} + {p} = {n}.",
        "{he} buys more {things} until {he} has {n}.",
        "{he} buys enough {things} to have {n} in all.",
        "{he} finds more {things} and has {n} in all.",
    ),
    "daily": _step(
        "in {k} days {he} gets {k} * {n} = {p}, so {x} + {p} = {z}.",
        "for {k} days {he} finds {n} {things} each day.",
        "{he} buys {n} {things} each day for {k} days.",
        "{he} gets {n} {things} a day for {k} days.",
    ),
    "daily_less": _step(
        "in {k} days {he} loses {k} * {n} = {p}, so {x} - {p} = {z}.",
        "for {k} days {he} loses {n} {things} each day.",
        "{he} sells {n} {things} each day for {k} days.",
        "{he} gives away {n} {things} a day for {k} days.",
    ),
    "swap": _step(
        "{he} gives {n}, so {x} - {n} = {y}, and gets {m}, so {y} + {m} = {z}.",
        "{he} swaps {n} of {his} {things} for {m} new {things}.",
        "{he} gives a friend {n} {things} and gets {m} back.",
        "{he} sells {n} {things} and buys {m} new {things}.",
    ),
    "both": _step(
        "in all {he} gets {n} + {m} = {p}, so {x} + {p} = {z}.",
        "{his} sister gives {him} {n} {things} and {his} brother gives {him} {m}.",
        "{he} gets {n} {things} from {his} sister and {m} from {his} brother.",
        "{he} finds {n} {things} at home and {m} more at school.",
    ),
    "both_less": _step(
        "in all {he} loses {n} + {m} = {p}, so {x} - {p} = {z}.",
        "{his} sister takes {n} {things} and {his} brother takes {m}.",
        "{he} gives {n} {things} to {his} sister and {m} to {his} brother.",
        "{he} loses {n} {things} at home and {m} more at school.",
    ),
}
