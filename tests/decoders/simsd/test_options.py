"""One key, two meanings: gamma is a share to order and a length to simsd, and nobody mixes them."""

from pathlib import Path

import pytest
from pydantic import ValidationError

from benchmarks.paired import BenchPlan
from decoders.options import DecodeOptions, takes
from decoders.refusals import check_request
from decoders.request import Request
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tests.conftest import tiny_spec


@pytest.mark.parametrize(("method", "gamma"), [("order", 8), ("order", 1), ("simsd", 0.03)])
def test_a_gamma_of_the_other_meaning_is_refused_and_explained(method: str, gamma: float) -> None:
    with pytest.raises(ValidationError, match=f"for method {method} it is a"):
        DecodeOptions.model_validate({"method": method, "gamma": gamma})


def test_a_shared_gamma_goes_to_the_method_that_it_means_something_to() -> None:
    assert DecodeOptions.lenient(method="order", gamma=8).gamma == 0
    assert DecodeOptions.lenient(method="simsd", gamma="8").gamma == 8
    assert DecodeOptions.lenient(method="simsd", gamma=0.03).gamma == 0
    assert DecodeOptions.lenient(method="order", gamma=0.03).gamma == 0.03
    assert not takes("chain", "gamma", 0.0)


def test_a_bench_refuses_a_gamma_that_none_of_its_methods_takes() -> None:
    def plan(gamma: float, *methods: str) -> BenchPlan:
        shared = {"gamma": gamma}
        return BenchPlan(TargetConfig(), DrafterConfig(), shared, methods, Path("p"), 1, "bench")

    assert plan(8, "order", "simsd").options()["simsd"].gamma == 8
    with pytest.raises(ValueError, match=r"gamma 8: it fits no method. order: a mass floor"):
        plan(8, "order").options()


def test_a_draft_longer_than_a_block_is_refused_with_the_length() -> None:
    options = DecodeOptions(method="simsd", gamma=5)
    with pytest.raises(ValueError, match="gamma 5: this target's blocks have 4 positions"):
        check_request(Request("a", (5,), options), tiny_spec(4))


@pytest.mark.parametrize("value", [{"order": "positional"}, {"rest": "draft-argmax"}])
def test_exact_verification_has_neither_order_nor_rest(value: dict[str, str]) -> None:
    with pytest.raises(ValidationError, match="are of verify mask"):
        DecodeOptions.model_validate({"method": "simsd", "verify": "exact"} | value)


def test_only_exact_verification_promises_equality() -> None:
    assert not DecodeOptions(method="simsd").promises_equality
    assert DecodeOptions(method="simsd", verify="exact").promises_equality
    assert DecodeOptions(method="simsd", cap=0.9, temperature=1).draft_free() == DecodeOptions(
        cap=0.9, temperature=1
    )
