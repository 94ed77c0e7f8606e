"""Which target a configuration opens."""

import pytest

from models.bucketed_target import BucketedTarget
from models.config import Forwards
from models.full_target import FullTarget
from models.opening import open_target
from models.target import Target
from tests.conftest import tiny_model
from tests.reference.families import family_spec


@pytest.mark.parametrize(
    ("forwards", "kind"), [("auto", Target), ("plain", Target), ("buckets", BucketedTarget)]
)
def test_forwards_decide_the_target_on_a_cpu(forwards: Forwards, kind: type) -> None:
    target = open_target(tiny_model(), forwards=forwards)
    assert type(target) is kind
    assert ("buckets" in target.placement) == (forwards == "buckets"), "costs are kept apart"


def test_a_bidirectional_target_has_no_buckets() -> None:
    model = tiny_model(family_spec("llada"))
    assert isinstance(open_target(model), FullTarget)
    with pytest.raises(ValueError, match=r"target.forwards 'buckets': .* valid: auto, plain"):
        open_target(model, forwards="buckets")


def test_graphs_need_a_cuda_device() -> None:
    with pytest.raises(ValueError, match=r"target.forwards 'graphs': device cpu .* buckets"):
        open_target(tiny_model(), forwards="graphs")
