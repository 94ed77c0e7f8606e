"""A target whose forwards go wrong: fp16 that overflows, weights that are broken."""

import math

import pytest
import torch

from decoders.judge import BrokenLogits
from decoders.options import DecodeOptions
from models.target import CopyBatch, Target
from tests.conftest import tiny_model
from tests.reference.running import prompt_of, run_one, tiny_proposers


class Broken(Target):
    """A real target of whose logits one is no number from the third forward on."""

    forwards = 0

    def forward(self, batch: CopyBatch) -> torch.Tensor:
        logits = super().forward(batch)
        self.forwards += 1
        if self.forwards > 2:
            logits[0, 1] = math.nan
        return logits


@pytest.mark.parametrize("method", ["standard", "chain", "threshold"])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_logits_that_are_no_numbers_are_told_and_nothing_is_committed_from_them(
    method: str, temperature: float
) -> None:
    options = DecodeOptions.lenient(method=method, budget=4, temperature=temperature, tau=0.999)
    with pytest.raises(BrokenLogits, match=r"request 'one': the logits at position \d .* are NaN"):
        run_one(Broken(tiny_model()), prompt_of(5), options, proposers=tiny_proposers())
