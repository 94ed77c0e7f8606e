"""Digests of large checkpoints are kept, and never outlive a change of the files."""

import os
from pathlib import Path

import pytest

from models import digests
from models.digests import digest


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder like a checkpoint, in a world where it counts as large."""
    monkeypatch.setenv("MASKAHEAD_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(digests, "KEPT_FROM", 1)
    made = tmp_path / "checkpoint"
    made.mkdir()
    (made / "config.json").write_text("{}")
    (made / "model.safetensors").write_bytes(b"weights")
    return made


def test_a_kept_digest_is_the_one_that_the_bytes_have(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = [digest(folder), digest(folder)]
    monkeypatch.setattr(digests, "KEPT_FROM", 1 << 40)
    assert kept == [digest(folder)] * 2


def test_an_unchanged_checkpoint_is_not_read_again(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = digest(folder)
    monkeypatch.setattr(digests, "_read", lambda files: pytest.fail("read again"))
    assert digest(folder) == before


@pytest.mark.parametrize("name", ["config.json", "model.safetensors"])
def test_a_changed_file_has_a_digest_of_its_own(folder: Path, name: str) -> None:
    """Also one of the same size, which only its time tells apart."""
    before = digest(folder)
    file, stat = folder / name, (folder / name).stat()
    file.write_bytes(bytes(reversed(file.read_bytes())))
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1))
    assert digest(folder) != before


def test_another_folder_or_another_shard_is_another_digest(folder: Path) -> None:
    before = digest(folder)
    (folder / "more.safetensors").write_bytes(b"")
    assert digest(folder) != before


def test_a_cache_that_cannot_be_written_costs_only_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    blocked = folder.parent / "file"
    blocked.write_text("not a folder")
    monkeypatch.setenv("MASKAHEAD_CACHE", str(blocked / "cache"))
    assert digest(folder) == digest(folder)
    assert "not kept in" in capsys.readouterr().err
