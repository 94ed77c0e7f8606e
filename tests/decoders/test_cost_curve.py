"""The cost of a forward: measured on the target itself, interpolated, kept."""

from pathlib import Path

import numpy as np
import pytest

from decoders.cost_curve import CostCurve, cached_cost_curve, measure_cost_curve
from models.target import Target
from tests.conftest import tiny_model, tiny_spec

CURVE = CostCurve(knots=(1, 3, 5), prefixes=(8, 16), seconds=((1.0, 2.0, 4.0), (2.0, 4.0, 8.0)))


def test_between_the_knots_it_is_linear_and_beyond_it_goes_on() -> None:
    assert [CURVE.at(n, 8) for n in range(8)] == pytest.approx([0, 1, 1.5, 2, 3, 4, 5, 6])


def test_a_longer_prefix_costs_more_and_one_shorter_than_measured_no_less() -> None:
    assert CURVE.at(3, 12) == pytest.approx(3.0)
    assert CURVE.at(3, 24) == pytest.approx(6.0)
    assert CURVE.at(3, 0) == pytest.approx(2.0)


def test_all_counts_at_once_are_what_they_are_one_by_one() -> None:
    np.testing.assert_allclose(CURVE.upto(9, 11), [CURVE.at(n, 11) for n in range(10)])


def test_a_measurement_never_falls_and_frees_its_slot() -> None:
    target = Target(tiny_model(tiny_spec(4)))
    curve = measure_cost_curve(target, slot=7, most=9)
    assert curve.knots == (1, 2, 3, 5, 9)
    seconds = np.array(curve.seconds)
    assert (seconds > 0).all()
    assert (np.diff(seconds, axis=0) >= 0).all()
    assert (np.diff(seconds, axis=1) >= 0).all()
    assert not target.caches


def test_a_target_of_few_positions_is_measured_behind_what_fits() -> None:
    spec = tiny_spec(8).model_copy(update={"max_positions": 40})
    curve = measure_cost_curve(Target(tiny_model(spec)), slot=0, most=2)
    assert curve.prefixes == (16, 24)


def test_a_curve_is_measured_once_for_a_key_and_again_when_its_file_is_broken(
    tmp_path: Path,
) -> None:
    target = Target(tiny_model(tiny_spec(4)))
    first = cached_cost_curve(target, 0, tmp_path, ("a", 1))
    assert cached_cost_curve(target, 0, tmp_path, ("a", 1)) == first
    anew = cached_cost_curve(target, 0, tmp_path, ("a", 1), anew=True)
    assert cached_cost_curve(target, 0, tmp_path, ("a", 1)) == anew
    assert len(list(tmp_path.glob("cost-*.json"))) == 1
    cached_cost_curve(target, 0, tmp_path, ("a", 2))
    files = sorted(tmp_path.glob("cost-*.json"))
    assert len(files) == 2
    for file in files:
        file.write_text("{")
    assert cached_cost_curve(target, 0, tmp_path, ("a", 1)).knots == first.knots


def test_a_folder_that_cannot_be_written_costs_a_message_and_no_more(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = Target(tiny_model(tiny_spec(4)))
    (tmp_path / "file").write_text("")
    curve = cached_cost_curve(target, 0, tmp_path / "file" / "below", ("a",))
    assert curve.at(1) > 0
    assert "cost curve not kept" in capsys.readouterr().err
