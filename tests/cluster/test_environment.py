"""Which nodes may work together: the same versions, the same code; and what is sent to them."""

import os
import time
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest

from cluster.attaching import LEFT_OUT, check_head, find_head, shipped_code
from cluster.environment import ROOMS, code_digest, differences, facts
from cluster.processes import age_mark, children, members
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
    assert find_head("auto") == "auto", "nothing was started here: Ray may look"


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
