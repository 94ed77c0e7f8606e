"""The registry: versions made once, aliases, lineage, formats."""

from pathlib import Path

import pytest

from cluster.tracking import Tracking
from cluster.tracking.registry import (
    Version,
    fetch,
    find_version,
    parse_model_uri,
    point,
    register,
    versions_of,
)

MODEL = "maskahead"


def made(tracking: Tracking, name: str, artifact: Path, format: int = 1) -> Version:
    run_id = tracking.parent(f"registered {name}", name)
    tracking.log_files(run_id, [artifact], "drafter" if artifact.suffix == ".bin" else None)
    kept = "drafter" if artifact.suffix == ".bin" else artifact.name
    return Version(MODEL, run_id, kept, name, format, {"target": "abc", "traces": "d, e"})


@pytest.fixture
def best(tmp_path: Path) -> Path:
    file = tmp_path / "best.yaml"
    file.write_text("decode: {method: chain}\n")
    return file


def test_a_version_is_fetched_by_alias_and_by_number(
    tracking: Tracking, best: Path, tmp_path: Path
) -> None:
    version = made(tracking, "chain", best)
    first = register(tracking, version, ["champion", "tried"])
    assert register(tracking, version, ["champion"]).number == first.number, "a resumed sweep's"
    assert set(first.aliases) == {"champion", "tried"}
    assert first.tags == {"format": "1", "target": "abc", "traces": "d, e"}
    assert [v.number for v in versions_of(tracking, MODEL, version.run_id)] == [first.number]
    for name in ("models:/maskahead@champion", first.uri):
        found = fetch(tracking, name, tmp_path / name.replace("/", "-"), 1)
        assert found.read_text() == best.read_text()
    with pytest.raises(ValueError, match="holds no such version"):
        find_version(tracking, "models:/maskahead@loser")


def test_a_folder_is_fetched_whole(tracking: Tracking, tmp_path: Path) -> None:
    weights = tmp_path / "weights.bin"
    weights.write_bytes(b"12")
    register(tracking, made(tracking, "folder", weights), ["folder"])
    found = fetch(tracking, "models:/maskahead@folder", tmp_path / "out", 1)
    assert (found / "weights.bin").read_bytes() == b"12"


def test_a_version_of_another_format_is_refused(
    tracking: Tracking, best: Path, tmp_path: Path
) -> None:
    register(tracking, made(tracking, "later", best, format=2), ["later"])
    with pytest.raises(ValueError, match="has format 2; this program reads format 1"):
        fetch(tracking, "models:/maskahead@later", tmp_path / "out", 1)


def test_the_latest_version_needs_no_alias(tracking: Tracking, best: Path) -> None:
    register(tracking, made(tracking, "before", best), [])
    last = register(tracking, made(tracking, "after", best), [])
    assert find_version(tracking, "models:/maskahead/latest").number == last.number
    with pytest.raises(ValueError, match="holds no such version"):
        find_version(tracking, "models:/nothing/latest")
    with pytest.raises(ValueError, match=r"alias 'latest'.*reserved"):
        point(tracking, last, "latest")


def test_an_alias_moves_and_says_what_it_named(tracking: Tracking, best: Path) -> None:
    first = register(tracking, made(tracking, "first", best), [])
    second = register(tracking, made(tracking, "second", best), [])
    assert point(tracking, first, "chosen") is None
    assert point(tracking, first, "chosen") is None
    assert point(tracking, second, "chosen") == first.number
    assert find_version(tracking, "models:/maskahead@chosen").number == second.number


@pytest.mark.parametrize("name", ["maskahead@champion", "models:/maskahead", "models:/a/best"])
def test_model_names_are_checked(name: str) -> None:
    with pytest.raises(ValueError, match="models:/NAME@ALIAS"):
        parse_model_uri(name)
