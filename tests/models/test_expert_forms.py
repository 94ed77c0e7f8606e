"""However tokens reach their experts, they get the same from them."""

import pytest
import torch

from models.expert_forms import Bank, Form, batched, form_for, grouped, looped

CLOSE = {torch.float64: 1e-13, torch.float32: 1e-5, torch.bfloat16: 2e-2}
HIDDEN, INNER = 16, 8


def a_bank(experts: int, dtype: torch.dtype) -> Bank:
    make = torch.Generator().manual_seed(experts)
    shapes = (experts, INNER, HIDDEN), (experts, INNER, HIDDEN), (experts, HIDDEN, INNER)
    return Bank(*(0.5 * torch.randn(shape, generator=make).to(dtype) for shape in shapes))


@pytest.mark.parametrize("tokens", [1, 7, 20])
@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        (batched, torch.float64),
        (batched, torch.float32),
        (grouped, torch.float32),
        (grouped, torch.bfloat16),
    ],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_forms_of_fixed_shape_equal_the_loop(
    form: Form, dtype: torch.dtype, tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With experts that nobody chose, and choices that another rank holds, before and behind."""
    monkeypatch.setattr("models.expert_forms.MOST_TOKENS", 6)
    bank, make = a_bank(5, dtype), torch.Generator().manual_seed(tokens)
    x = torch.randn(tokens, HIDDEN, generator=make).to(dtype)
    chosen = torch.stack([torch.randperm(9, generator=make)[:3] for _ in range(tokens)])
    local = torch.where(chosen == 2, 3, chosen - 2)
    expected = looped(x, local, bank)
    torch.testing.assert_close(form(x, local, bank), expected, rtol=0, atol=CLOSE[dtype])
    outside = (local < 0) | (local >= 5)
    assert (form(x, local, bank)[outside] == 0).all()


def test_a_cpu_goes_from_expert_to_expert() -> None:
    assert form_for(torch.zeros(2, HIDDEN), a_bank(3, torch.float32)) is looped
