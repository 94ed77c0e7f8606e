"""What memory is free: of the machine, and of the container around this process."""

from pathlib import Path

import pytest
import torch

from models import devices
from models.devices import all_devices, find_device, host_memory

GB = 10**9


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A made-up Linux with 8 of 16 GB free and no containers."""
    monkeypatch.setattr(devices.os, "sysconf", lambda key: {"SC_PAGE_SIZE": 1}.get(key, 16 * GB))
    monkeypatch.setattr(devices, "MEMINFO", tmp_path / "meminfo")
    monkeypatch.setattr(devices, "CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(devices, "OWN_CGROUPS", tmp_path / "own")
    (tmp_path / "meminfo").write_text(
        f"MemTotal: {16 * GB // 1024} kB\nMemFree: 5 kB\nMemAvailable: {8 * GB // 1024} kB\n"
    )
    return tmp_path


def group(folder: Path, **files: object) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("__", ".")).write_text(f"{content}\n")


def test_this_machine_has_memory() -> None:
    device = find_device("cpu")
    assert 10**8 < device.free <= device.total
    assert all_devices()[0].name == "cpu"


def test_a_machine_without_containers_is_what_meminfo_says(machine: Path) -> None:
    assert host_memory() == (8 * GB // 1024 * 1024, 16 * GB)


def test_a_container_leaves_what_it_has_not_used_of_its_limit(machine: Path) -> None:
    """Pages of files that could be dropped are not used up; the narrowest group around decides."""
    (machine / "own").write_text("0::/user/job\n")
    job = machine / "cgroup" / "user" / "job"
    group(job, memory__max="max", memory__current=1, memory__stat="inactive_file 0")
    stat = f"anon 5\ninactive_file {GB}"
    group(job.parent, memory__max=4 * GB, memory__current=3 * GB, memory__stat=stat)
    assert host_memory() == (2 * GB, 4 * GB)


def test_the_older_control_groups_count_too(machine: Path) -> None:
    (machine / "own").write_text("9:cpu:/\n4:memory:/job\n")
    group(
        machine / "cgroup" / "memory" / "job",
        memory__limit_in_bytes=6 * GB,
        memory__usage_in_bytes=5 * GB,
        memory__stat="total_inactive_file 0",
    )
    assert host_memory() == (GB, 6 * GB)


def test_a_group_that_cannot_be_seen_or_has_no_limit_does_not_count(machine: Path) -> None:
    (machine / "own").write_text("4:memory:/elsewhere\n0::/\n")
    group(
        machine / "cgroup" / "memory",
        memory__limit_in_bytes=2**63 - 4096,
        memory__usage_in_bytes=5 * GB,
        memory__stat="total_inactive_file 0",
    )
    assert host_memory()[1] == 16 * GB


@pytest.mark.parametrize("name", ["tpu:x", "warp", "meta"])
def test_an_unknown_device_is_refused_with_the_valid_ones(name: str) -> None:
    with pytest.raises(ValueError, match=f"{name}': valid are cpu, cuda and cuda:N"):
        find_device(name)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_that_is_not_there_is_refused_with_those_that_are() -> None:
    with pytest.raises(
        ValueError, match=r"'cuda:99': no such CUDA device here; valid: cpu, cuda:0"
    ):
        find_device("cuda:99")
