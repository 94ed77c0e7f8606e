"""A sweep's folder: numbered or named, locked to one configuration, found again to resume."""

import resource
from pathlib import Path

import pytest

from models.checkpoint import target_spec
from tests.tune.rows import chain, row
from tune.config import SweepConfig
from tune.cost import KNOTS, CostCurve
from tune.estimate import estimate_forward
from tune.folder import CONFIG as CONFIG_FILE
from tune.folder import COST, FINISHED, IDENTITY, SweepFolder, held, open_folder
from tune.row import TrialRows

CONFIG = SweepConfig()
CURVE = CostCurve(forward=tuple(0.01 * k for k in KNOTS))


def test_sweeps_without_a_name_are_numbered(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    assert open_folder(tmp_path, None, False, CONFIG).name == "1"
    assert open_folder(tmp_path, "mine", False, CONFIG).name == "mine"
    assert open_folder(tmp_path, None, False, CONFIG).name == "2"


def test_a_taken_name_is_refused_and_says_how_to_resume(tmp_path: Path) -> None:
    open_folder(tmp_path, "mine", False, CONFIG)
    with pytest.raises(ValueError, match=r"'mine'.*--resume"):
        open_folder(tmp_path, "mine", False, CONFIG)


def test_a_sweep_that_a_full_disk_keeps_from_beginning_leaves_its_name_free(tmp_path: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (64, limits[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            open_folder(tmp_path, "mine", False, CONFIG)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert open_folder(tmp_path, "mine", False, CONFIG).name == "mine"


@pytest.mark.parametrize("name", ["", "a/b", "..", ".hidden"])
def test_a_name_is_a_plain_folder_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(ValueError, match="--name"):
        open_folder(tmp_path, name, False, CONFIG)


def test_resume_takes_the_latest_unfinished_sweep(tmp_path: Path) -> None:
    first = open_folder(tmp_path, "first", False, CONFIG)
    second = open_folder(tmp_path, "second", False, CONFIG)
    assert open_folder(tmp_path, None, True, CONFIG).sweep_id == second.sweep_id
    second.mark(FINISHED)
    assert open_folder(tmp_path, None, True, CONFIG).sweep_id == first.sweep_id
    first.mark(FINISHED)
    with pytest.raises(ValueError, match="no unfinished sweep"):
        open_folder(tmp_path, None, True, CONFIG)


def test_resume_of_another_configuration_is_refused_by_field(tmp_path: Path) -> None:
    open_folder(tmp_path, "mine", False, CONFIG)
    other = CONFIG.model_copy(update={"seed": 5})
    with pytest.raises(ValueError, match="seed 0, not 5"):
        open_folder(tmp_path, "mine", True, other)
    space = CONFIG.space.model_copy(update={"cap": (0.9,)})
    other = CONFIG.model_copy(update={"space": space})
    with pytest.raises(ValueError, match=r"a sweep with space\.cap \[1\.0, 0\.9\], not \[0\.9\];"):
        open_folder(tmp_path, "mine", True, other)
    with pytest.raises(ValueError, match="holds no sweep"):
        open_folder(tmp_path, "other", True, CONFIG)


def test_a_sweep_goes_on_with_the_files_that_it_began_with(tmp_path: Path) -> None:
    begun = {"target": "t1", "drafter": None}
    open_folder(tmp_path, "mine", False, CONFIG).claim(begun)
    again = open_folder(tmp_path, "mine", True, CONFIG)
    again.claim(begun)
    with pytest.raises(ValueError, match=r"began with another target \(t1, now t2\)"):
        again.claim(begun | {"target": "t2"})


def test_a_sweep_that_still_runs_is_not_resumed(tmp_path: Path) -> None:
    folder = open_folder(tmp_path, "mine", False, CONFIG)
    with (
        held(folder.path),
        pytest.raises(ValueError, match=r"another process still works in .*mine; wait for it"),
        held(open_folder(tmp_path, "mine", True, CONFIG).path),
    ):
        pass
    with held(folder.path):
        pass


def test_sweeps_that_begin_at_once_have_numbers_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_folder(tmp_path, None, False, CONFIG)
    found = iter(["1", "2"])  # the first look was before the other one's folder was there
    monkeypatch.setattr("tune.folder._next_number", lambda runs: next(found))
    assert open_folder(tmp_path, None, False, CONFIG).name == "2"


def test_rows_are_read_as_they_were_written(tmp_path: Path) -> None:
    rows = TrialRows(tmp_path / "trials")
    assert rows.find("a") is None
    written = [rows.write(row("b", chain(4))), rows.write(row("a", chain(5), fidelity="replay"))]
    assert rows.find("b") == written[0]
    assert rows.all() == written
    assert sorted(path.name for path in rows.folder.iterdir()) == ["a.json", "b.json"]


@pytest.mark.parametrize("text", ["", "[]", '{"key": "half'])
def test_a_damaged_file_is_named_with_its_remedy_and_stays(tmp_path: Path, text: str) -> None:
    folder = open_folder(tmp_path, "mine", False, CONFIG)
    trial = folder.rows.write(row("kept", chain(4))).key + ".json"
    reads = {
        CONFIG_FILE: lambda: folder.sweep_id,
        COST: folder.cost,
        IDENTITY: lambda: folder.claim({}),
        f"trials/{trial}": lambda: SweepFolder(folder.path).rows.all(),
    }
    for name, read in reads.items():
        (folder.path / name).write_text(text)
        with pytest.raises(ValueError, match=rf"mine/{name} cannot be read back .*; (move|put)"):
            read()
        assert (folder.path / name).read_text() == text


def test_a_damaged_file_of_another_sweep_does_not_stop_an_estimate(tmp_path: Path) -> None:
    for name, damaged in (("costs", COST), ("configuration", CONFIG_FILE), ("gone", None)):
        folder = open_folder(tmp_path, name, False, CONFIG)
        folder.keep_cost(CURVE)
        if damaged is None:
            (folder.path / CONFIG_FILE).unlink()
        else:
            (folder.path / damaged).write_text("{")
    spec = target_spec(CONFIG.target)
    assert "a quick timing" in estimate_forward(CONFIG, spec, tmp_path).source
    open_folder(tmp_path, "whole", False, CONFIG).keep_cost(CURVE)
    assert estimate_forward(CONFIG, spec, tmp_path).source.endswith("/whole measured")
