"""Grids of settings: what they expand to, and what is refused."""

from typing import Any

import pytest

from decoders.options import DecodeOptions
from decoders.trace_store import TraceManifest
from tasks.replay_grid import expand_grid, setting_options

RECORDED = DecodeOptions(cap=0.9, temperature=0.7, top_p=0.8, max_new_tokens=40, seed=3)
MANIFEST = TraceManifest(
    target="t",
    target_digest="d",
    prompts_digest="p",
    dtype="float32",
    block_size=4,
    mask_token_id=3,
    rule=RECORDED.rule(),
    seed=3,
)


def test_keys_with_lists_make_every_combination_once() -> None:
    """The draft-free method has no budget: its settings fall into one."""
    grid = {"settings": {"decode.method": ["standard", "chain"], "decode": {"budget": [1, 3]}}}
    assert expand_grid(grid) == [
        {"decode.method": "standard"},
        {"decode.method": "chain", "decode.budget": 1},
        {"decode.method": "chain", "decode.budget": 3},
    ]


def test_listed_settings_stay_as_they_are() -> None:
    settings = [{"decode.method": "chain"}, {"decode": {"method": "order", "gamma": 0.1}}]
    assert expand_grid({"settings": settings}) == [
        {"decode.method": "chain"},
        {"decode.method": "order", "decode.gamma": 0.1},
    ]


@pytest.mark.parametrize(
    ("grid", "said"),
    [
        ({}, "grid: settings must map"),
        ({"settings": {}}, "grid: settings must map"),
        ({"settings": []}, "grid: settings must map"),
        ({"settings": ["chain"]}, "grid: settings must map"),
        ({"methods": ["chain"]}, "grid key 'methods' is unknown; valid: settings"),
        ({"settings": {"decode.bugdet": [1]}}, "'decode.bugdet' is unknown; valid: .*budget"),
        ({"settings": [{"target.dtype": "float64"}]}, "'target.dtype' is unknown"),
    ],
)
def test_a_grid_that_says_nothing_useful_is_refused(grid: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        expand_grid(grid)


def test_what_a_setting_leaves_out_is_as_recorded() -> None:
    options = setting_options({"decode.method": "chain", "decode.budget": 2}, MANIFEST)
    assert options == RECORDED.model_copy(update={"method": "chain", "budget": 2})


@pytest.mark.parametrize(
    ("key", "value", "was"), [("seed", 4, 3), ("temperature", 0.0, 0.7), ("max_new_tokens", 8, 40)]
)
def test_what_rows_decide_is_replayed_only_as_recorded(key: str, value: Any, was: Any) -> None:
    """A row's own value wins over the option, so another option would be ignored in silence."""
    with pytest.raises(ValueError, match=f"decode.{key} {value}: .* recorded with {was}"):
        setting_options({f"decode.{key}": value}, MANIFEST)
    assert setting_options({f"decode.{key}": was}, MANIFEST).method == "standard"


def test_an_unknown_method_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"decode.method: 'chian' must be one of standard, "):
        setting_options({"decode.method": "chian"}, MANIFEST)
