"""Threshold and capped decoding beside standard decoding: settings, verdicts, and a small run."""

from pathlib import Path

from actors.loading import open_engine
from actors.runner import engine_runner
from benchmarks.equal_accuracy import STANDARD, best_of, measure_task, serves, settings_of
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import problems
from tests.text_target import save_text_target


def test_every_drafting_setting_has_its_draft_free_run_beside_it() -> None:
    settings = settings_of([1.0, 0.9], [0.9, 0.99], 4, True, 1)
    assert next(iter(settings)) == STANDARD
    for options in settings.values():
        assert options.draft_free() in settings.values()


def test_a_loss_that_chance_explains_serves_and_a_plain_one_does_not() -> None:
    standard = {str(i): True for i in range(40)}
    one_lost = standard | {"0": False}
    many_lost = standard | {str(i): False for i in range(12)}
    assert serves(standard, standard)
    assert serves(one_lost, standard)
    assert not serves(many_lost, standard)


def test_only_what_serves_can_be_best() -> None:
    rows = [
        {"setting": "a", "serves": True, "nfe": 9, "ratio": {"median": 1.5}},
        {"setting": "b", "serves": True, "nfe": 8, "ratio": {"median": 1.2}},
        {"setting": "c", "serves": False, "nfe": 1, "ratio": {"median": 9.0}},
    ]
    assert best_of(rows) == {"fewest_forwards": "b", "fastest": "a"}


def test_outputs_are_certified_over_their_own_rule(tmp_path: Path) -> None:
    folder = save_text_target(tmp_path / "target")
    config = TargetConfig.model_validate({"path": str(folder), "dtype": "float64"})
    settings = settings_of([0.9], [], 3, False, 1)
    settings = {name: o.model_copy(update={"max_new_tokens": 12}) for name, o in settings.items()}
    engine = open_engine(config, DrafterConfig(), {o.method for o in settings.values()})
    asked = problems("words", "heldout", 2, 7)
    rows = measure_task(engine_runner(engine, "cpu"), asked, settings, 1, lambda done, of: None)
    assert [row["setting"] for row in rows] == list(settings)
    assert {row["certificate"] for row in rows} == {"exact"}
    assert {row["draft_free"] for row in rows} == {STANDARD, "standard cap 0.9"}
    assert all(row["factor_own"] >= 1 for row in rows)
