"""``maskahead cluster``: a head, a node that joins it, work on both, an end that is theirs alone.

The two nodes are two folders of one machine: each command is a process of its own there.
"""

import json
import os
import re
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import maskahead
from cluster.own_node import OwnNode
from cluster.processes import age_mark, members
from tests.cluster.test_tracking_server import free_port

pytestmark = [pytest.mark.ray, pytest.mark.slow]

ROOT = Path(__file__).parents[2]
PRINTED = re.compile(r"RAY_AUTH_TOKEN=(\S+) maskahead (cluster up --address \S+)")

Run = Callable[..., subprocess.CompletedProcess[str]]


def run(
    folder: Path,
    *words: object,
    token: str | None = None,
    inside: Sequence[str] = (),
    path: Sequence[Path] = (ROOT,),
    seconds: float = 200.0,
) -> subprocess.CompletedProcess[str]:
    """One command in ``folder``, which finds the program in ``path``, started by ``inside``; what
    it shows is not folded."""
    ours = {key: value for key, value in os.environ.items() if not key.startswith("RAY_")}
    ours |= {"PYTHONPATH": os.pathsep.join(map(str, path)), "COLUMNS": "300"}
    ours |= {"RAY_AUTH_TOKEN": token} if token else {}
    command = [*inside, sys.executable, "-m", "maskahead", *map(str, words)]
    return subprocess.run(
        command, cwd=folder, env=ours, capture_output=True, text=True, timeout=seconds
    )


def node_of(folder: Path) -> OwnNode:
    return OwnNode.model_validate_json((folder / "runs" / "cluster" / "node.json").read_text())


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return tmp_path_factory.mktemp("head"), tmp_path_factory.mktemp("node")


@pytest.fixture(scope="module")
def printed(places: tuple[Path, Path]) -> Iterator[str]:
    """A head; what ``up`` said."""
    head, node = places
    words = ("cluster", "up", "--host", "127.0.0.1", "--port", free_port(), "--num-cpus", 2)
    done = run(head, *words, "--num-gpus", 1)
    try:
        assert done.returncode == 0, done.stderr
        yield done.stderr
    finally:
        for folder in (node, head):
            run(folder, "cluster", "down")


def test_a_head_keeps_its_token_to_its_user_and_runs_once(
    places: tuple[Path, Path], printed: str
) -> None:
    found = PRINTED.search(printed)
    assert found, printed
    token = places[0] / "runs" / "cluster" / "token"
    assert token.read_text() == found[1]
    assert stat.S_IMODE(token.stat().st_mode) == 0o600
    again = run(places[0], "cluster", "up", "--host", "127.0.0.1")
    assert again.returncode == 2
    assert "runs already" in again.stderr


@pytest.mark.parametrize(("token", "said"), [("0" * 64, "another token"), (None, "a token")])
def test_who_shows_no_token_or_another_one_is_told_so(
    tmp_path: Path, printed: str, token: str | None, said: str
) -> None:
    found = PRINTED.search(printed)
    assert found
    done = run(tmp_path, *found[2].split(), token=token)
    assert done.returncode == 2
    assert f"asks for {said}" in done.stderr.splitlines()[-1], done.stderr


def test_the_printed_command_joins_and_all_nodes_are_shown_as_the_same(
    places: tuple[Path, Path], printed: str
) -> None:
    found = PRINTED.search(printed)
    assert found
    joined = run(places[1], *found[2].split(), "--num-cpus", 1, "--num-gpus", 0, token=found[1])
    assert joined.returncode == 0, joined.stderr
    shown = run(places[1], "cluster", "status")
    assert shown.returncode == 0, shown.stderr
    assert "2 of 2 nodes alive; 0 of 3 CPUs in use, 0 of 1 GPUs in use" in shown.stdout
    assert len(re.findall(r" alive .* same", shown.stdout)) == 2, shown.stdout


def test_decoding_on_the_cluster_writes_the_rows_of_decoding_here(
    places: tuple[Path, Path],
    printed: str,
    tiny_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = places[0]
    monkeypatch.chdir(folder)
    rows = [{"id": str(n), "prompt_ids": [4 + n]} for n in range(3)]
    (folder / "prompts.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["decode", "--target", tiny_folder, "--prompts", "prompts.jsonl", "--method", "chain"]
    words += ["--max-new-tokens", "12", "--out"]
    done = run(folder, *words, "there", "--set", "cluster.address=auto")
    assert done.returncode == 0, done.stderr
    assert maskahead.main([*map(str, words), "here"]) == 0
    there, here = (
        [json.loads(line) for line in (folder / out).read_text().splitlines()]
        for out in ("there", "here")
    )
    assert [row | {"seconds": 0} for row in there] == [row | {"seconds": 0} for row in here]


def test_down_ends_what_up_started_and_nothing_else(
    places: tuple[Path, Path], printed: str
) -> None:
    head, node = places
    bystander = subprocess.Popen(["sleep", "600"])
    try:
        for folder in (node, head):
            own = node_of(folder)
            assert own.alive
            ours = members(own.pid, own.mark)
            assert len(ours) > 2
            done = run(folder, "cluster", "down")
            assert done.returncode == 0, done.stderr
            assert not [pid for pid, mark in ours.items() if age_mark(pid) == mark]
            if folder == node:
                shown = run(head, "cluster", "status").stdout
                assert "1 of 2 nodes alive" in shown
                assert " lost " in shown
        assert bystander.poll() is None
    finally:
        bystander.kill()
        bystander.wait()
    again = run(head, "cluster", "down")
    assert again.returncode == 2
    assert "nothing was started from this folder" in again.stderr
