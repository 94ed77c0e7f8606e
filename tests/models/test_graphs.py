"""A function that is captured gives what it gave; without captures it is just called."""

import pytest
import torch

from models.graphs import GraphCache


def test_without_captures_functions_are_called_every_time() -> None:
    calls: list[int] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return 2 * x

    cache: GraphCache[torch.Tensor] = GraphCache(torch.device("cpu"), captures=False)
    for value in (1.0, 3.0):
        assert cache.run("key", double, torch.tensor([value])).item() == 2 * value
    assert calls == [1, 1]
    assert not cache.captured


def test_a_cpu_captures_nothing() -> None:
    with pytest.raises(AssertionError, match="captured on CUDA"):
        GraphCache(torch.device("cpu"), captures=True)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_replay_computes_from_the_inputs_that_it_is_given() -> None:
    calls: list[int] = []

    def double(x: torch.Tensor) -> torch.Tensor:
        calls.append(len(x))
        return 2 * x

    cache: GraphCache[torch.Tensor] = GraphCache(torch.device("cuda"), captures=True)
    for value in (1.0, 3.0, 4.0):
        assert cache.run("key", double, torch.tensor([value])).item() == 2 * value
    assert len(calls) == 3, "two warm-ups and the capture; replays call nothing"
    cache.forget()
    assert not cache.captured
