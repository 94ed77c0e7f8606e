"""What is read from replies, against answers worked out by hand."""

import pytest

from tasks.reading import (
    choice,
    first_block,
    last_number,
    normalised,
    short_answer,
    strict_number,
    until,
)


@pytest.mark.parametrize(
    ("reply", "strict", "flexible"),
    [
        ("So 18.\n#### 18", "18", "18"),
        ("#### -7", "-7", "-7"),
        ("#### 2.5", "2.5", "2.5"),
        ("#### 1,234,567", "1234567", "1234567"),
        ("#### $1,200.", "1200", "1200"),
        ("#### 18 dollars", "18", "18"),
        ("#### 40%", "40", "40"),
        ("#### 18.00", "18.00", "18.00"),  # compared as text, as the public scorer does
        ("####18", None, "18"),
        ("### 18", None, "18"),
        ("#### about 18", None, "18"),
        ("It is \\boxed{18}.", None, "18"),
        ("It costs $1,234.50.", None, "1234.50"),
        ("from 3 to -5", None, "-5"),
        ("I do not know.", None, None),
        ("", None, None),
        ("#### 18\n\nQuestion: 2 + 3?\nAnswer: ... #### 5", "18", "5"),
        ("Answer: 2 + 3 = 5\n#### 5\n\nNow yours: 4 * 4 = 16, so 16 apples", "5", "16"),
    ],
)
def test_numbers_are_read_by_both_of_gsm8ks_rules(
    reply: str, strict: str | None, flexible: str | None
) -> None:
    assert (strict_number(reply), last_number(reply)) == (strict, flexible)


@pytest.mark.parametrize(
    ("reply", "letter"),
    [
        ("The answer is (B).", "B"),
        ("So the Answer is: C", "C"),
        ("**The answer is (D)**", "D"),
        ("The answer is **(A)**.", "A"),
        ("(A) is wrong, (B) is wrong, so it must be (C)", "C"),
        ("The answer is (B). In the next question the answer is (C).", "B"),
        ("(A) or (B)? The answer is a matter of taste", "B"),
        ("The answer is (E).", None),
        ("B", None),
        ("The answer is Berlin.", None),
        ("", None),
    ],
)
def test_a_letter_is_read_where_the_reply_says_it_or_else_from_the_last_brackets(
    reply: str, letter: str | None
) -> None:
    assert choice(reply, "ABCD") == letter


@pytest.mark.parametrize(
    ("answer", "plain"),
    [
        ("The Beatles!", "beatles"),
        ("  a   Man, a_plan  ", "man plan"),
        ("J. R. R. Tolkien", "j r r tolkien"),
        ("‘Théâtre’", "théâtre"),  # noqa: RUF001  # these quotes are what is tested
        ("Anthem", "anthem"),
        ("the", ""),
    ],
)
def test_answers_are_normalised_as_triviaqa_does(answer: str, plain: str) -> None:
    assert normalised(answer) == plain


def test_a_short_answer_is_the_first_line_that_says_anything() -> None:
    assert short_answer("\n\n Paris \nbecause it is") == "Paris"
    assert short_answer("**Answer:** Paris") == "Paris"
    assert short_answer("Answer: Paris") == "Paris"
    assert short_answer(" \n") == ""


def test_the_first_block_ends_with_its_fence_or_with_the_reply() -> None:
    assert first_block("Sure:\n```python\nx = 1\n```\n```\ny\n```") == "x = 1\n"
    assert first_block("```\nx = 1\n") == "x = 1\n"
    assert first_block("x = 1") is None


def test_text_ends_at_the_first_of_several_stops() -> None:
    assert until("    return 1\nprint(2)\ndef f", ("\ndef", "\nprint")) == "    return 1"
    assert until("    return 1", ("\ndef",)) == "    return 1"
