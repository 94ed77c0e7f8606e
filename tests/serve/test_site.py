"""The page's files: all there, in the wheel too."""

import asyncio
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import httpx

from serve.site import HEADERS, PAGE

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


def test_the_wheel_holds_the_page(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    (wheel,) = tmp_path.glob("*.whl")
    packed = set(zipfile.ZipFile(wheel).namelist())
    assert {f"serve/page/{file.name}" for file in PAGE.iterdir()} <= packed
