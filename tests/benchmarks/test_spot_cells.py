"""The report's configuration, and the cells that it asks for."""

import pytest

from benchmarks.spot.cells import (
    Drafting,
    cell_name,
    gamma_draftings,
    main_draftings,
    oracle_draftings,
    plan_cells,
    standard_rule,
    threshold_rule,
)
from benchmarks.spot.config import SpotConfig
from cluster.configuration import load_config
from decoders.options import DecodeOptions


def configured(*settings: str) -> SpotConfig:
    return load_config(SpotConfig, settings=settings)


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("main.methods=[chian]", "main.methods 'chian': choose from chain, .*oracle-joint"),
        ("sweeps.methods=[threshold]", "sweeps.methods 'threshold': .*choose from chain"),
        ("main.budgets=[4, 4]", r"main.budgets \[4, 4\] must list each value once"),
        ("main.budgets=[0]", "main.budgets.0: 0 must be greater"),
        ("figures.candidates=[17]", "figures.candidates.0: 17 must be less"),
        ("sweeps.caps=[1.5]", "sweeps.caps.0: 1.5 must be less"),
        ("sweeps.problems=101", r"sweeps.problems 101: at most main.problems \(100\)"),
        ("live.problems=101", r"live.problems 101: at most main.problems \(100\)"),
        ("tasks=[sums]", "task 'sums' is not known; choose from code, words"),
        ("what_if.drafter=0.3", "what_if.words: missing; say in words what what_if.drafter"),
        ("live.problem=3", "live.problem: unknown key; valid: problems, repeats"),
    ],
)
def test_an_error_names_field_value_and_choices(setting: str, said: str) -> None:
    with pytest.raises(ValueError, match=said) as error:
        configured(setting)
    assert "\n" not in str(error.value)


def test_every_cell_is_planned_once_with_all_that_any_table_needs() -> None:
    config = configured()
    cells = {cell.name: cell for cell in plan_cells(config)}
    assert len(cells) == len(plan_cells(config))
    for task in config.tasks:
        warm = cells[cell_name(task, standard_rule(config, 1.0))]
        assert warm.count == config.main.problems
        assert set(main_draftings(config)) <= set(warm.draftings)
        figures = cells[cell_name(task, standard_rule(config))]
        wanted = {*main_draftings(config), *oracle_draftings(config), *gamma_draftings(config)}
        assert wanted <= set(figures.draftings)
        assert cells[cell_name(task, threshold_rule(config, 0.9))].draftings == ()
        assert cells[cell_name(task, standard_rule(config, cap=0.9))].count == 30
        assert cell_name(task, standard_rule(config, 2.0, coupled=False)) in cells
        # Verification is coupled or not only where something is drawn; tau = 1 is no threshold.
        assert f"{task}-T0-cap1-independent" not in cells
        assert f"{task}-tau1" not in cells


def test_a_drafting_keeps_the_rule_it_stands_over() -> None:
    rule = standard_rule(configured(), temperature=1.5, cap=0.5, coupled=False)
    for drafting in (Drafting("order", 8, 0.1), Drafting("chain", 4), Drafting("oracle-token", 2)):
        options = drafting.over(rule)
        assert (options.method, options.budget) == (drafting.method, drafting.budget)
        assert options.commit_rule() == rule.commit_rule()
    assert Drafting("order", 8, 0.1).over(DecodeOptions()).gamma == 0.1


def test_gamma_has_a_row_of_its_own_in_the_main_table() -> None:
    rows = [(d.row, d.gamma) for d in main_draftings(configured("main.budgets=[8]"))]
    gamma = configured().main.gamma
    assert rows.index(("order-gamma", gamma)) == rows.index(("order", 0.0)) + 1
    assert ("order-gamma", 0.0) not in {
        (d.row, d.gamma) for d in main_draftings(configured("main.gamma=0"))
    }
