"""Validation errors in one line: the field, the value, and what it must be."""

from typing import Annotated

import pytest
from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError, model_validator

from models.invalid import one_line


def _even(value: int) -> int:
    if value % 2:
        raise ValueError("must be even")
    return value


class Inner(BaseModel):
    model_config = ConfigDict(extra="forbid")

    pair: Annotated[int, AfterValidator(_even)] = 0
    low: int = 0
    high: int = 9

    @model_validator(mode="after")
    def _ordered(self) -> "Inner":
        if self.low > self.high:
            raise ValueError(f"inner.low: {self.low} must be at most inner.high ({self.high})")
        return self


class Outer(BaseModel):
    inner: Inner = Inner()


@pytest.mark.parametrize(
    ("inner", "said"),
    [
        ({"pair": 3}, "inner.pair: 3 must be even"),
        ({"low": 12}, "inner.low: 12 must be at most inner.high (9)"),
        ({"low": "x"}, "inner.low: 'x' must be a valid integer"),
        ({"lo": 1}, "inner.lo: unknown key; valid: high, low, pair"),
    ],
)
def test_an_error_names_the_field_the_value_and_the_valid_choices(inner: dict, said: str) -> None:
    with pytest.raises(ValidationError) as error:
        Outer.model_validate({"inner": inner})
    assert one_line(error.value, Outer).startswith(said)
