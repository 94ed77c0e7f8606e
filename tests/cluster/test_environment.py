"""Which nodes may work together: the same versions, the same code; and what is sent to them."""

import errno
import os
import subprocess
import sys
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from cluster.attaching import LEFT_OUT, check_head, find_head, shipped_code
from cluster.environment import ROOMS, code_digest, differences, facts
from cluster.own_node import NODE, OwnNode, end, own_node, reserved, start
from cluster.processes import age_mark, children, members
from cluster.status import cluster_status
from cluster.up import UpOptions, bring_up, shown_token
from tests.cluster.test_tracking_server import free_port

ROOT = Path(__file__).parents[2]


def test_what_differs_on_which_node_is_said() -> None:
    here = facts()
    nodes = {
        "a" * 40: here,
        "b" * 40: here | {"torch": "2.0.0", "code": "x"},
        "c" * 40: {"error": "ModuleNotFoundError: No module named 'cluster'"},
    }
    assert differences(here, nodes, {"b" * 40: "gpu-2 (10.0.0.2)"}) == [
        f"gpu-2 (10.0.0.2) has torch 2.0.0, here it is {here['torch']}",
        f"gpu-2 (10.0.0.2) has code x, here it is {code_digest()}",
        "cccccccc does not answer (ModuleNotFoundError: No module named 'cluster')",
    ]


def test_all_rooms_of_code_are_sent_and_compared_and_nothing_else() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    assert sorted(ROOMS) == sorted(packages)
    sent = [Path(path) for path in shipped_code()["py_modules"]]
    assert sorted(path.name for path in sent) == sorted(packages)
    assert all((path / "__init__.py").exists() for path in sent)
    for left_out in ("serve/__pycache__", "x/.venv", "x/.git", "x/runs", "x/tests"):
        assert any(fnmatch(left_out, pattern) for pattern in LEFT_OUT)


@pytest.mark.parametrize("address", ["nowhere", "host:", ":6379", "host:port"])
def test_what_is_no_address_is_refused_with_what_is(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="valid: local, auto, or HOST:PORT"):
        find_head(address)
    assert find_head("host:6379") == "host:6379"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.2:6379")
    assert find_head("auto") == "10.0.0.2:6379", "nothing was started here: Ray looks"


def test_options_of_the_commands_are_refused_by_their_own_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=r"^--address 'auto': valid: HOST:PORT of a running head$"):
        list(bring_up(UpOptions(address="auto")))
    with pytest.raises(ValueError, match=r"^--address local: valid: auto, or HOST:PORT"):
        cluster_status("local")
    assert not list(tmp_path.iterdir())


def test_a_head_takes_the_token_that_is_shown_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.delenv("RAY_AUTH_TOKEN_PATH", raising=False)
    assert shown_token() != shown_token(), "a new one where none is shown"
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(tmp_path / "token"))
    with pytest.raises(ValueError, match=r"RAY_AUTH_TOKEN_PATH '.*': No such file"):
        shown_token()
    (tmp_path / "token").write_text("abc\n")
    assert shown_token() == "abc"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "def")
    assert shown_token() == "def"


def test_the_processes_of_a_node_are_ended_whoever_else_ends_first(tmp_path: Path) -> None:
    script = "import subprocess, time; subprocess.Popen(['sleep', '99']); time.sleep(99)"
    leader = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
    mark = age_mark(leader.pid)
    ended = time.monotonic() + 30
    while len(ours := members(leader.pid, mark)) < 2:
        assert time.monotonic() < ended
        time.sleep(0.02)
    vanished = subprocess.Popen(["true"])
    vanished.wait()
    node = OwnNode(address="127.0.0.1:1", is_head=True, pid=leader.pid, mark=mark)
    with pytest.MonkeyPatch.context() as patch:  # it ended between the look and the signal
        both = {vanished.pid: "gone", **ours}
        patch.setattr("cluster.own_node.members", lambda *node: both)
        assert end(node, tmp_path) == 3
    leader.wait()
    assert not [pid for pid, own in ours.items() if age_mark(pid) == own]


def test_a_node_that_a_full_disk_cannot_remember_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, started = children(os.getpid()), dict[int, str]()

    def full(path: Path, text: str) -> None:
        started.update(children(os.getpid()).items() - before.items())
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("cluster.own_node.write_whole", full)
    with pytest.raises(OSError, match="No space left"):
        start(["--help"], "127.0.0.1:1", True, tmp_path)
    assert started
    assert not [pid for pid, mark in started.items() if age_mark(pid) == mark]


def test_a_folder_starts_one_node_at_a_time(tmp_path: Path) -> None:
    with (
        reserved(tmp_path),
        pytest.raises(ValueError, match="`maskahead cluster up` is under way in this folder"),
        reserved(tmp_path),
    ):
        pass
    with reserved(tmp_path):
        pass


def test_a_damaged_memory_of_a_node_is_named_with_what_to_do(tmp_path: Path) -> None:
    (tmp_path / NODE).write_text('{"address": "127.')
    with pytest.raises(ValueError, match=rf"{NODE} cannot be read back \(.*by hand and remove it"):
        own_node(tmp_path)


def test_a_head_that_is_not_there_is_named_within_seconds() -> None:
    address, started = f"127.0.0.1:{free_port()}", time.monotonic()
    with pytest.raises(ValueError, match=rf"--address '{address}': no Ray head answers there"):
        check_head(address, "--address")
    assert time.monotonic() - started < 10


def test_processes_are_told_apart_by_their_age() -> None:
    mark = age_mark(1)
    assert mark
    assert age_mark(1) == mark
    assert age_mark(2**22 + 1) == ""
    assert members(1, "another boot:1") == {}
    assert children(os.getppid())[os.getpid()] == age_mark(os.getpid())
