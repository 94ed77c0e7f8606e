"""Leaving an input out leaves out that input, and nothing else."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.order_ablation import (
    ALL,
    RESEEDED,
    TOKEN_IDS,
    ablate,
    build_without,
    rows_of,
    run_ablation,
    variants,
)
from drafters.features import NUM_PATH, NUM_STATIC, PATH_GROUPS, STATIC_GROUPS
from drafters.order_model import OrderModelConfig
from drafters.order_training import OrderTrainingConfig
from tests.drafters.test_order_model import MASKED, WAS, stale_of
from tests.drafters.test_order_training import trajectories
from tests.tasks.test_train_order import config
from tests.text_target import save_text_target

SIZES = OrderModelConfig(width=16, layers=1, heads=2, feed_forward=16, head_width=8)


@pytest.mark.parametrize(
    ("groups", "width"), [(STATIC_GROUPS, NUM_STATIC), (PATH_GROUPS, NUM_PATH)]
)
def test_groups_hold_every_column_once(groups: dict[str, slice], width: int) -> None:
    columns = [c for part in groups.values() for c in range(*part.indices(width))]
    assert sorted(columns) == list(range(width))


@pytest.mark.parametrize("encodes", ["root", "states"])
@pytest.mark.parametrize("name", [*STATIC_GROUPS, *PATH_GROUPS])
def test_input_layers_read_all_but_the_silenced_input(name: str, encodes: str) -> None:
    config = OrderModelConfig.model_validate(SIZES.model_dump() | {"encodes": encodes})
    for layer_name, groups, width in (
        ("static_in", STATIC_GROUPS, NUM_STATIC),
        ("path_in", PATH_GROUPS, NUM_PATH),
    ):
        layer = getattr(build_without(name, config), layer_name)
        columns = torch.eye(width)
        changes = (layer(columns) - layer(torch.zeros(width))).abs().sum(-1) > 0
        silenced = set(range(*groups[name].indices(width))) if name in groups else set()
        assert {i for i in range(width) if not changes[i]} == silenced


@pytest.mark.parametrize("name", variants(SIZES)[2:])
def test_everything_else_starts_alike(name: str) -> None:
    whole, part = (build_without(n, SIZES).state_dict() for n in (ALL, name))
    assert whole.keys() - part.keys() == (
        {"tokens.table.weight", "tokens.out.weight"} if name == TOKEN_IDS else set()
    )
    assert all(torch.equal(tensor, whole[key]) for key, tensor in part.items())
    other = build_without(RESEEDED, SIZES).state_dict()
    assert not torch.equal(other["static_in.weight"], whole["static_in.weight"])


def test_without_token_ids_no_token_counts() -> None:
    model, stale = build_without(TOKEN_IDS, SIZES), stale_of(WAS)
    others = replace(stale, ids_BLC=stale.ids_BLC + 3)
    one, other = (model(model.encode(of), MASKED) for of in (stale, others))
    assert torch.equal(one, other)


def test_an_input_that_decides_the_order_is_worth_something() -> None:
    """The blocks of these trajectories go by entropy, which only one group holds."""
    training = OrderTrainingConfig(steps=80, batch_size=48, max_depth=4, prefixes=4, warmup=10)
    names = [ALL, "entropy, margin, log-odds", "neighbours"]
    held = {"held": trajectories(30, seed=2)}
    sizes = SIZES.model_copy(update={"width": 32, "heads": 4, "feed_forward": 64})
    found = dict(ablate(sizes, training, trajectories(60, seed=1), held, names, lambda row: None))
    gains = {row["without"]: row["held gain"] for row in rows_of(found)}
    assert gains["-"] == 0
    assert gains["entropy, margin, log-odds"] > 10 > abs(gains["neighbours"])


def test_all_inputs_are_asked_about() -> None:
    assert variants(SIZES) == [ALL, RESEEDED, TOKEN_IDS, *STATIC_GROUPS, *PATH_GROUPS]
    assert TOKEN_IDS not in variants(SIZES.model_copy(update={"token_buckets": 0}))


def test_finished_variants_are_kept_and_only_the_same_trainings_go_on_behind_them(
    tmp_path: Path,
) -> None:
    save_text_target(tmp_path / "target", max_positions=2048)
    settings, names, out = config(tmp_path, steps=2), [ALL, TOKEN_IDS, "neighbours"], tmp_path / "a"
    seen: list[str] = []

    def interrupt(row: dict) -> None:
        seen.append(row["without"])
        if row["without"] == "neighbours":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_ablation(settings, names, out, interrupt)
    before = json.loads(out.read_text())
    assert list(before["variants"]) == names[:2]
    seen.clear()
    rows = run_ablation(settings, names, out, lambda row: seen.append(row["without"]))
    assert seen == ["neighbours"]
    after = json.loads(out.read_text())
    assert after["variants"].items() > before["variants"].items()
    assert after["rows"] == rows == run_ablation(settings, names[:1], out, interrupt)
    assert run_ablation(settings, names, tmp_path / "b", lambda row: None) == rows

    for folder, text in ((out, after), (tmp_path / "c", {"rows": rows})):
        folder.write_text(json.dumps(text))
        with pytest.raises(ValueError, match=r"another training.steps;|no variants to go on from"):
            run_ablation(config(tmp_path, steps=3), names, folder, interrupt)
        assert json.loads(folder.read_text()) == text, "what is refused is left alone"
