"""``maskahead serve`` as its user runs it: a process that follows its file, and ends in order."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from serve.running import SPARE_SECONDS
from tests.serve.conftest import MODEL

pytestmark = pytest.mark.ray

ROOT = Path(__file__).parents[2]


@dataclass
class Running:
    """The command, its configuration file and what it has said so far."""

    process: subprocess.Popen[str]
    file: Path
    values: dict[str, Any]
    said: Path
    url: str

    def change(self, **values: Any) -> None:
        """Rewrite the configuration that it follows."""
        self.values |= values
        fresh = self.file.with_suffix(".new")
        fresh.write_text(yaml.safe_dump(self.values))
        fresh.rename(self.file)

    def wait_for(self, text: str, seconds: float = 300) -> str:
        """Everything said, once ``text`` is among it."""
        deadline = time.monotonic() + seconds
        while text not in (said := self.said.read_text()):
            assert time.monotonic() < deadline, said
            assert self.process.poll() is None, said
            time.sleep(0.05)
        return said


@pytest.fixture
def running(text_folder: Path, tmp_path: Path) -> Iterator[Running]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    values: dict[str, Any] = {
        "target": {"path": str(text_folder), "dtype": "float64"},
        "decode": {"method": "chain", "budget": 4, "max_new_tokens": 24},
        "serve": {"follow_seconds": 1},
    }
    file, said = tmp_path / "best.yaml", tmp_path / "said"
    file.write_text(yaml.safe_dump(values))
    words = ("serve", "--config", file, "--port", str(port), "--follow")
    with said.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "maskahead", *words],
            cwd=tmp_path,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
    try:
        yield Running(process, file, values, said, f"http://127.0.0.1:{port}")
    finally:
        process.kill()
        process.wait()


def test_it_follows_its_file_in_place_and_ends_with_what_runs(
    running: Running, eventually: Callable[[Callable[[], bool]], None]
) -> None:
    running.wait_for("answers on")
    with httpx.Client(base_url=running.url, timeout=60) as http:
        running.change(decode={"method": "wtree", "budget": 6, "max_new_tokens": 9})
        running.wait_for("now serving wtree")
        card = http.get(f"/v1/models/{MODEL}").json()["maskahead"]
        assert (card["decode"]["method"], card["decode"]["budget"]) == ("wtree", 6)
        answer = http.post("/v1/completions", json={"model": MODEL, "prompt": "hello"}).json()
        assert answer["usage"]["maskahead"]["method"] == "wtree"
        running.change(max_batch=3)
        running.wait_for("not taken over: max_batch 8 is now 3, which needs a redeploy")

        body = {"model": MODEL, "prompt": "hello", "max_tokens": 400, "stream": True}
        body |= {"maskahead": {"ignore_stop": True}}
        short = body | {"stream": False, "max_tokens": 1}
        refused: list[httpx.Response] = []
        with http.stream("POST", "/v1/completions", json=body) as stream:
            chunks = stream.iter_lines()
            first = next(chunks)
            running.process.send_signal(signal.SIGTERM)

            def is_refused() -> bool:
                refused.append(httpx.post(f"{running.url}/v1/completions", json=short))
                return refused[-1].status_code == 503

            with ThreadPoolExecutor() as pool:
                asking = pool.submit(eventually, is_refused)
                lines = [first, *(line for line in chunks if line)]
                asking.result()
    assert lines[-1] == "data: [DONE]"
    assert json.loads(lines[-2].removeprefix("data: "))["choices"][0]["finish_reason"] == "length"
    assert refused[-1].json()["error"]["code"] == "draining"
    assert running.process.wait(60) == 0
    said = running.said.read_text()
    assert said.splitlines()[-1].startswith("ending: ")
    assert "SIGTERM" not in said
    assert "Traceback" not in said


def test_a_signal_to_its_whole_group_ends_it_in_seconds(running: Running) -> None:
    """As ``timeout`` and systemd send it: Ray's processes are gone before the command is told. Who
    sends it once more does not hurry it."""
    running.wait_for("answers on")
    os.killpg(running.process.pid, signal.SIGTERM)
    running.wait_for("ending without it")
    running.process.send_signal(signal.SIGTERM)
    assert running.process.wait(SPARE_SECONDS) == 0
    said = running.said.read_text()
    assert "ending: " in said
    assert re.search(r"the cluster was ended, too.*: ending without it", said)
    assert "Traceback" not in said
