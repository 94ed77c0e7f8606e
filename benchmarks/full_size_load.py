"""Loading a checkpoint of full size: seconds, and the host memory of every rank.

Weights are random, tensor names, shapes and sharding those of the published checkpoint. Ranks are
processes of this machine that load at the same time, as a target group's do.

    python -m benchmarks.full_size_load --size sdar-8b --tp 2 --folder /tmp/sdar-8b-b4 --out a.json
"""

import json
import multiprocessing
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.queues import Queue
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import torch
import typer
from safetensors.torch import save_file

from benchmarks.machine import git_commit, machine, versions
from cluster.console import progress, say, show_table
from models.checkpoint import read_spec
from models.config import TargetConfig
from models.families.registry import FAMILIES
from models.layout import parameter_shapes, tensor_shapes
from models.loading import load_model
from models.ranks import Ranks
from models.spec import TargetSpec
from tasks.whole import write_whole

SHARD_BYTES = 4 << 30
READ_BYTES = 64 << 20
SAMPLE_SECONDS = 0.02

QWEN3: dict[str, Any] = {
    "family": "sdar",
    "head_dim": 128,
    "num_kv_heads": 8,
    "vocab_size": 151_936,
    "rope_theta": 1e6,
    "rms_norm_eps": 1e-6,
    "max_positions": 32_768,
    "block_size": 4,
    "mask_token_id": 151_669,
    "stop_token_ids": (151_645, 151_643),
    "pad_token_id": 151_643,
}
SIZES: dict[str, dict[str, Any]] = {
    name: dict(
        zip(("hidden_size", "num_layers", "num_heads", "intermediate_size"), sizes, strict=True)
    )
    for name, sizes in {
        "sdar-1.7b": (2048, 28, 16, 6144),
        "sdar-4b": (2560, 36, 32, 9728),
        "sdar-8b": (4096, 36, 32, 12288),
    }.items()
}


def write_random(spec: TargetSpec, folder: Path) -> None:
    """A checkpoint of random bf16 weights, shard by shard: it need not fit in memory."""
    folder.mkdir(parents=True, exist_ok=True)
    family = FAMILIES[spec.family]
    shapes = tensor_shapes(family.pieces(spec), parameter_shapes(spec))
    shards: list[list[str]] = [[]]
    size = 0
    for name, shape in shapes.items():
        count = 2 * torch.Size(shape).numel()
        if size + count > SHARD_BYTES and shards[-1]:
            shards.append([])
            size = 0
        shards[-1].append(name)
        size += count
    noise = 0.02 * torch.randn(1 << 22)
    with progress("write") as show:
        for index, names in enumerate(shards):
            tensors = {name: _filled(noise, shapes[name]) for name in names}
            file = f"model-{index + 1:05}-of-{len(shards):05}.safetensors"
            save_file(tensors, folder / file, metadata={"format": "pt"})
            show(index + 1, len(shards))
    config, generation = family.write_config(spec, "bfloat16")
    (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    (folder / "generation_config.json").write_text(json.dumps(generation, indent=2) + "\n")


def _filled(noise: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    count = torch.Size(shape).numel()
    repeats = -(-count // len(noise))
    return noise.to(torch.bfloat16).repeat(repeats)[:count].view(shape).clone()


def read_plainly(folder: Path) -> float:
    """Seconds to read all weights into one buffer."""
    buffer = bytearray(READ_BYTES)
    started = perf_counter()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb", buffering=0) as file:
            while file.readinto(buffer):
                pass
    return perf_counter() - started


@contextmanager
def peak_memory() -> Iterator[dict[str, int]]:
    """The most memory of its own (``RssAnon``: pages of mapped files belong to the file cache) that
    this process comes to hold beyond what it held before."""
    found = {"bytes": 0}
    before, done = anonymous_bytes(), threading.Event()

    def watch() -> None:
        while not done.wait(SAMPLE_SECONDS):
            found["bytes"] = max(found["bytes"], anonymous_bytes() - before)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        done.set()
        thread.join()
        found["bytes"] = max(found["bytes"], anonymous_bytes() - before)


def anonymous_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise OSError("/proc/self/status has no RssAnon: this measurement needs Linux")


def load_rank(
    config: TargetConfig, rank: int, size: int, found: "Queue[dict[str, Any]]", barrier: Any
) -> None:
    """One rank's share; it stays in memory until all are loaded."""
    torch.set_num_threads(1)
    ranks = Ranks(rank, size, control=None)  # pyright: ignore[reportArgumentType]
    barrier.wait()
    with peak_memory() as peak:
        started = perf_counter()
        model = load_model(config, ranks if size > 1 else None)
        seconds = perf_counter() - started
    share = sum(p.numel() * p.element_size() for p in model.parameters())
    found.put(
        {"rank": rank, "seconds": seconds, "share_bytes": share, "peak_bytes": peak["bytes"]}
        | {"ratio": peak["bytes"] / share}
    )
    barrier.wait()


def main(
    folder: Annotated[Path, typer.Option(help="Where the checkpoint lies, or is written.")],
    size: Annotated[str, typer.Option(help=f"One of {', '.join(SIZES)}.")] = "sdar-1.7b",
    tp: Annotated[int, typer.Option(min=1, help="Ranks.")] = 2,
    out: Annotated[Path | None, typer.Option(help="JSON file for the rows.")] = None,
) -> None:
    """Load a full-size checkpoint of random weights on some ranks at once."""
    if size not in SIZES:
        raise typer.BadParameter(f"size {size!r}: choose from {', '.join(SIZES)}")
    if not (folder / "config.json").exists():
        write_random(TargetSpec.model_validate(QWEN3 | SIZES[size]), folder)
    spec = read_spec(folder)
    plain = min(read_plainly(folder) for _ in range(2))
    config = TargetConfig(path=str(folder), dtype="bfloat16", tp=tp)
    context = multiprocessing.get_context("spawn")
    found, barrier = context.Queue(), context.Barrier(tp)
    processes = [
        context.Process(target=load_rank, args=(config, rank, tp, found, barrier), daemon=True)
        for rank in range(tp)
    ]
    for process in processes:
        process.start()
    rows = sorted((found.get() for _ in processes), key=lambda row: row["rank"])
    for process in processes:
        process.join()
    show_table(f"{size} on {tp} ranks", rows)
    say(f"plain read of all files, warm: {plain:.1f} s")
    if out is not None:
        facts = {"commit": git_commit(), "machine": machine(), "versions": versions(), "size": size}
        facts |= {"parameters": spec.num_parameters, "plain_read_seconds": plain, "rows": rows}
        write_whole(out, json.dumps(facts, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
