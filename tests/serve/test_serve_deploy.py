"""``serve deploy`` of the file that ``maskahead serve --write-config`` writes, on two hosts."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from serve.keys import fresh_key, key_line
from tests.cluster.hosts import PATIENCE, Host, two_hosts
from tests.cluster.test_commands import PRINTED, ROOT
from tests.serve.conftest import MODEL

pytestmark = [pytest.mark.ray, pytest.mark.long]

ASK = """\
import json, os, sys, httpx
headers = {"Authorization": "Bearer " + os.environ["KEY"]}
http = httpx.Client(base_url="http://localhost:8000", headers=headers, timeout=60)
body = {"model": sys.argv[1], "prompt": "hello", "max_tokens": 8}
answer = http.post("/v1/completions", json=body)
print(json.dumps([answer.status_code, answer.json(), http.get("/v1/models").json()]))
"""
"""Asks the proxy of the host that it runs on for an answer, and for what is served."""
REPLICAS = """\
import json, os, httpx
token = open(os.environ["RAY_AUTH_TOKEN_PATH"]).read()
headers = {"Authorization": "Bearer " + token}
found = httpx.get("http://127.0.0.1:8265/api/serve/applications/", headers=headers, timeout=60)
endpoint = found.json()["applications"]["maskahead"]["deployments"]["Endpoint"]
running = [each for each in endpoint["replicas"] if each["state"] == "RUNNING"]
print(json.dumps(sorted(f"{each['node_ip']} {each['pid']}" for each in running)))
"""
"""Says host and process of every running replica, as Serve's own status names them."""


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Host, Host]]:
    """A cluster of both, one CPU each."""
    with two_hosts(tmp_path_factory) as (first, second):
        try:
            up = first.run("cluster", "up", "--dashboard", "--num-cpus", 1)
            found = PRINTED.search(up.stderr)
            assert found, up.stderr
            joined = second.run(*found[2].split(), "--num-cpus", 1, token=found[1])
            assert joined.returncode == 0, joined.stderr
            yield first, second
        finally:
            for host in (second, first):
                host.run("cluster", "down")


def inside(host: Host, *words: object, **environment: str) -> "subprocess.CompletedProcess[str]":
    """Any command of this environment in the folder of a host, with its cluster's token."""
    token = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": "runs/cluster/token"}
    return subprocess.run(
        ["ip", "netns", "exec", host.name, sys.executable, *map(str, words)],
        cwd=host.folder,
        env=os.environ | {"PYTHONPATH": str(ROOT)} | token | environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )


def test_both_hosts_answer_and_take_over_user_config_in_the_same_processes(
    hosts: tuple[Host, Host], text_folder: Path
) -> None:
    first, _ = hosts
    key = fresh_key()
    (first.folder / "keys").write_text(key_line("ann", key))
    values: dict[str, Any] = {
        "target": {"path": str(text_folder), "dtype": "float64"},
        "decode": {"method": "chain", "budget": 4, "max_new_tokens": 24},
        "serve": {"api_keys_file": "keys", "replicas": 2},
    }
    (first.folder / "best.yaml").write_text(yaml.safe_dump(values))
    written = first.run(
        *("serve", "--config", "best.yaml", "--host", "0.0.0.0", "--write-config", "deploy.yaml")
    )
    assert written.returncode == 0, written.stderr
    file = first.folder / "deploy.yaml"

    def deploy() -> None:
        done = inside(first, "-m", "ray.serve.scripts", "deploy", file.name)
        assert done.returncode == 0, done.stderr

    def answers(budget: int) -> bool:
        """Whether both hosts serve with it."""
        for host in hosts:
            done = inside(host, "-c", ASK, MODEL, KEY=key)
            if done.returncode:  # not listening yet
                return False
            status, answer, models = json.loads(done.stdout)
            if status != 200 or models["data"][0]["maskahead"]["decode"]["budget"] != budget:
                return False
            assert answer["usage"]["maskahead"]["promise"] == "exact"
        return True

    def replicas() -> list[str]:
        done = inside(first, "-c", REPLICAS)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    deploy()
    wait_for(lambda: answers(4) and len(replicas()) == 2)
    before = replicas()
    assert {place.partition(" ")[0] for place in before} == {host.address for host in hosts}

    served = yaml.safe_load(file.read_text())
    served["applications"][0]["deployments"][0]["user_config"]["decode"]["budget"] = 2
    file.write_text(yaml.safe_dump(served))
    deploy()
    wait_for(lambda: answers(2))
    assert replicas() == before


def wait_for(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(1)
