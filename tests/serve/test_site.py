"""The page's files: all there, in the wheel too."""

import asyncio
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx
import pytest

from serve.api import build_api
from serve.keys import VARIABLE, fresh_key
from serve.service import Service
from serve.site import HEADERS, PAGE
from tune.commands import OWN_SWEEP

ROOT = PAGE.parent.parent


def test_every_file_that_the_page_names_is_served(http: httpx.AsyncClient) -> None:
    async def run() -> dict[str, httpx.Response]:
        html = (await http.get("/")).text
        names = set(re.findall(r'(?:href|src)="([^"#]+)"', html))
        for module in PAGE.glob("*.js"):
            names |= {f"page/{name}" for name in re.findall(r'from "\./(.+?)"', module.read_text())}
        return {name: await http.get(f"/{name}") for name in sorted(names)}

    found = asyncio.run(run())
    assert {answer.status_code for answer in found.values()} == {200}
    for header, value in HEADERS.items():
        assert {answer.headers[header] for answer in found.values()} == {value}
    assert {Path(name).name for name in found} == {f.name for f in PAGE.iterdir()} - {"index.html"}


def test_where_keys_are_asked_for_the_page_is_not_locked(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(VARIABLE, fresh_key())
    transport = httpx.ASGITransport(build_api(service))

    async def run() -> list[int]:
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as http:
            paths = ("/", "/page/main.js", "/v1/models")
            return [(await http.get(path)).status_code for path in paths]

    assert asyncio.run(run()) == [200, 200, 401]


def test_the_wheel_holds_the_page_and_the_default_sweep(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"serve/page/{file.name}" for file in PAGE.iterdir()} <= packed
    assert OWN_SWEEP.as_posix() in packed
