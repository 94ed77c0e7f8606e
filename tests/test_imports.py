"""Imports point one way, and the lower rooms run on a machine with torch alone."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
ROOMS = (
    *("models", "drafters", "decoders", "tasks", "actors", "cluster"),
    *("benchmarks", "tune", "serve", "maskahead"),
)
BESIDE = {("tune", "serve"), ("serve", "tune")}
LIGHT = ("models", "drafters", "decoders", "tasks")
TRACKING = Path("cluster/tracking")


def files_of(*rooms: str) -> list[Path]:
    return [
        file.relative_to(ROOT)
        for room in rooms
        for file in sorted([*(ROOT / room).rglob("*.py"), *ROOT.glob(f"{room}.py")])
    ]


def imported(file: Path) -> Iterator[str]:
    """The first names of everything that a file imports, wherever in it."""
    for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield (node.module or "").partition(".")[0]


def allowed(room: str) -> set[str]:
    below = ROOMS[: ROOMS.index(room) + 1]
    return {other for other in below if (room, other) not in BESIDE}


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_below_it(room: str) -> None:
    files = files_of(room)
    assert files
    wrong = {str(f): sorted((set(imported(f)) & {*ROOMS}) - allowed(room)) for f in files}
    assert not {file: names for file, names in wrong.items() if names}


@pytest.mark.parametrize("room", LIGHT)
def test_the_lower_rooms_import_neither_ray_nor_mlflow(room: str) -> None:
    wrong = {str(f) for f in files_of(room) if set(imported(f)) & {"ray", "mlflow"}}
    assert not wrong


def test_mlflow_is_imported_in_one_package() -> None:
    users = {f for f in files_of(*ROOMS) if "mlflow" in set(imported(f))}
    assert users
    assert {file.parent for file in users} == {TRACKING}


def test_ray_serve_and_tune_are_never_imported_by_their_bare_names() -> None:
    for file in files_of(*ROOMS):
        for node in ast.walk(ast.parse((ROOT / file).read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                bare = {alias.name for alias in node.names} & {"serve", "tune"}
                assert not bare, f"{file} line {node.lineno}: import {bare}"
