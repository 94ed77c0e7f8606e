"""Keys are random, known by their hashes alone, and needed wherever others can ask."""

from pathlib import Path

import pytest

from serve.keys import (
    VARIABLE,
    Keyring,
    append_key,
    check_reach,
    fresh_key,
    hash_of,
    key_line,
    known_lines,
)
from serve.operation import OperationConfig


@pytest.fixture(autouse=True)
def _no_keys_around(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_file_of_keys_holds_hashes_that_only_its_owner_reads(tmp_path: Path) -> None:
    keys = [fresh_key(), fresh_key()]
    file = tmp_path / "keys"
    for name, key in zip(("ann", "bob"), keys, strict=True):
        append_key(file, key_line(name, key))
    assert keys[0] != keys[1]
    assert not any(key in file.read_text() for key in keys)
    assert file.stat().st_mode & 0o077 == 0
    keyring = Keyring(known_lines(OperationConfig(api_keys_file=file)))
    assert [keyring.owner(key) for key in keys] == ["ann", "bob"]
    assert keyring.owner(keys[0][:-1]) is None
    assert keyring.owner("") is None


def test_a_key_is_added_to_a_file_whose_last_line_has_no_end(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(key_line("ann", "mh-1"))
    append_key(file, key_line("bob", "mh-2"))
    keyring = Keyring(known_lines(OperationConfig(api_keys_file=file)))
    assert [keyring.owner(key) for key in ("mh-1", "mh-2")] == ["ann", "bob"]


def test_keys_come_from_the_environment_and_the_configuration_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv(VARIABLE, "first, second,")
    lines = known_lines(OperationConfig(api_key_hashes=(f"third:{hash_of('3')}",)))
    keyring = Keyring(lines)
    assert [keyring.owner(key) for key in ("first", "second", "3")] == ["env0", "env1", "third"]
    assert "first" not in str(lines)


def test_without_keys_nobody_has_one() -> None:
    assert not Keyring(known_lines(OperationConfig()))


@pytest.mark.parametrize("text", ["mh-plain-key", "ann:abc", "a b:" + "0" * 64, "# none", ""])
def test_a_file_of_anything_else_is_refused_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "keys"
    file.write_text(text)
    with pytest.raises(ValueError, match=r"serve\.api_keys_file") as caught:
        known_lines(OperationConfig(api_keys_file=file))
    assert "mh-plain-key" not in str(caught.value)


def test_a_file_that_is_not_there_and_a_name_that_cannot_be_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="No such file"):
        known_lines(OperationConfig(api_keys_file=tmp_path / "none"))
    with pytest.raises(ValueError, match="--new-key"):
        key_line("a:b", fresh_key())


def test_other_machines_are_served_with_keys_or_by_explicit_wish_only(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for host in ("127.0.0.1", "localhost", "::1", "127.1.2.3"):
        check_reach(host, OperationConfig())
    for host in ("0.0.0.0", "::", "10.0.0.3", "example.org", "127.example.org"):
        with pytest.raises(ValueError, match="no API key is set"):
            check_reach(host, OperationConfig())
        check_reach(host, OperationConfig(allow_no_keys=True))
    monkeypatch.setenv(VARIABLE, "secret")
    check_reach("0.0.0.0", OperationConfig())
