"""What ``maskahead decode`` costs before its first token: start-up time and peak memory.

Each run is a fresh process that decodes one token of one prompt; beside it, a process that imports
torch alone.

    python -m benchmarks.startup --target sdar-tiny --out startup.json
"""

import json
import os
import sys
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

import typer

from benchmarks.machine import machine, versions
from benchmarks.paired import quartiles, write_report
from cluster.console import show_table

ROW = {"id": "first", "prompt_ids": [], "max_new_tokens": 1}


def run_once(command: list[str]) -> tuple[float, int]:
    """Seconds and peak resident bytes of one process; raises when it fails."""
    started = perf_counter()
    process = os.posix_spawn(command[0], command, os.environ)
    _, status, usage = os.wait4(process, 0)
    seconds = perf_counter() - started
    if status:
        raise RuntimeError(f"{' '.join(command)} ended with {os.waitstatus_to_exitcode(status)}")
    return seconds, usage.ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def measure(target: str, repeats: int) -> dict[str, Any]:
    """Both processes in turn."""
    seconds: dict[str, list[float]] = {"decode": [], "import_torch": []}
    peak = dict.fromkeys(seconds, 0)
    with TemporaryDirectory() as folder:
        prompts = Path(folder) / "prompts.jsonl"
        prompts.write_text(json.dumps(ROW) + "\n")
        for repeat in range(repeats):
            decode = ["decode", "--target", target, "--prompts", str(prompts)]
            out = str(Path(folder) / f"{repeat}.jsonl")
            commands = {
                "decode": [sys.executable, "-m", "maskahead", *decode, "--out", out],
                "import_torch": [sys.executable, "-c", "import torch"],
            }
            for name, command in commands.items():
                spent, memory = run_once(command)
                seconds[name].append(spent)
                peak[name] = max(peak[name], memory)
    return {
        name: {"seconds": quartiles(seconds[name]), "peak_memory_bytes": peak[name]}
        for name in seconds
    }


def main(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    target: Annotated[str, typer.Option()] = "sdar-tiny",
    repeats: Annotated[int, typer.Option(min=1)] = 5,
) -> None:
    """Time fresh processes that decode one token."""
    measured = measure(target, repeats)
    facts = {"versions": versions(), "machine": machine(), "target": target, "repeats": repeats}
    write_report(facts | measured, out)
    show_table(str(out), [{"process": name, **values} for name, values in measured.items()])


if __name__ == "__main__":
    typer.run(main)
