"""What ``maskahead serve`` does before anything starts."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path

import httpx
import pytest
import yaml

import maskahead
from serve.api import build_api
from serve.keys import VARIABLE, Keyring, read_keys
from serve.port import check_port, reserved_port
from serve.running import url_of
from serve.service import Service

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Run:
    """Run the command in an empty folder; returns its exit code, and what it printed and said."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv(VARIABLE, raising=False)

    def call(*words: object) -> tuple[int, str, str]:
        code = maskahead.main(["serve", *(str(word) for word in words)])
        out, err = capsys.readouterr()
        return code, out, err

    return call


def test_a_new_key_is_shown_once_and_kept_as_a_hash(run: Run) -> None:
    kept = ("--set", "serve.api_keys_file=keys")
    keys = [run("--new-key", name, *kept)[1].strip() for name in ("ann", "bob")]
    keyring = Keyring(read_keys(Path("keys")))
    assert [keyring.owner(key) for key in keys] == ["ann", "bob"]
    assert not any(key in Path("keys").read_text() for key in keys)


def test_without_a_file_the_line_for_one_is_said(run: Run) -> None:
    code, key, said = run("--new-key", "ann")
    assert code == 0
    assert said.split("hash: ")[1].startswith("ann:")
    assert key.strip() not in said


def test_an_address_that_others_reach_needs_keys(run: Run, text_folder: Path) -> None:
    target = ("--config", "none.yaml", "--host", "0.0.0.0")
    Path("none.yaml").write_text(yaml.safe_dump({"target": {"path": str(text_folder)}}))
    code, _, said = run(*target)
    assert (code, said.count("\n")) == (2, 1)
    assert "no API key is set" in said
    code, _, said = run(*target, "--write-config", "deploy.yaml")
    assert (code, Path("deploy.yaml").exists()) == (2, False)


def test_a_deployment_file_is_written_with_settings_of_the_command(
    run: Run, text_folder: Path
) -> None:
    Path("best.yaml").write_text(yaml.safe_dump({"target": {"path": str(text_folder)}}))
    words = ("--config", "best.yaml", "--set", "serve.replicas=2", "--set", "max_batch=3")
    code, _, said = run(*words, "--write-config", "deploy.yaml", "--port", 8123)
    assert (code, "serve deploy" in said) == (0, True)
    values = yaml.safe_load(Path("deploy.yaml").read_text())
    args = values["applications"][0]["args"]
    assert (args["serve"]["replicas"], args["max_batch"]) == (2, 3)
    assert values["http_options"]["port"] == 8123


@pytest.mark.parametrize(
    ("setting", "said"),
    [
        ("serve.max_body_byte=1", "serve.max_body_byte: unknown key"),
        ("serve.trace_ratio=2", "serve.trace_ratio"),
        ("serve.api_keys_file=nowhere", "nowhere"),
    ],
)
def test_settings_that_do_not_fit_are_named(
    run: Run, text_folder: Path, setting: str, said: str
) -> None:
    Path("best.yaml").write_text(yaml.safe_dump({"target": {"path": str(text_folder)}}))
    words = ("--config", "best.yaml", "--set", setting, "--write-config", "deploy.yaml")
    code, _, message = run(*words)
    assert (code, message.count("\n")) == (2, 1)
    assert said in message


@pytest.mark.parametrize("port", [0, 65_536])
def test_a_port_that_is_none_is_refused_before_anything_starts(run: Run, port: int) -> None:
    code, _, message = run("--port", port)
    assert (code, message.count("\n")) == (2, 1)
    assert "--port" in message


def test_the_description_of_the_routes_is_served(service: Service) -> None:
    transport = httpx.ASGITransport(build_api(service))
    http = httpx.AsyncClient(transport=transport, base_url="http://localhost")
    paths = asyncio.run(http.get("/openapi.json")).json()["paths"]
    assert {"/v1/completions", "/v1/chat/completions", "/tokenize", "/metrics"} <= paths.keys()
    responses = paths["/v1/completions"]["post"]["responses"]
    assert responses.keys() == {"200", "4XX", "5XX"}
    assert responses["200"]["content"].keys() == {"application/json", "text/event-stream"}


def test_an_address_of_ipv6_is_one_to_listen_on() -> None:
    assert url_of("::1", 8000) == "http://[::1]:8000/v1"
    assert url_of("127.0.0.1", 8000) == "http://127.0.0.1:8000/v1"
    with socket.socket(socket.AF_INET6) as taken:
        try:
            taken.bind(("::1", 0))
        except OSError as error:
            pytest.skip(f"no IPv6 on this machine: {error.strerror}")
        taken.listen()
        with pytest.raises(ValueError, match="on ::1: Address already in use"):
            check_port("::1", taken.getsockname()[1])
    check_port("::1", 0)


def test_a_port_is_free_once_no_endpoint_listens_though_its_connections_linger() -> None:
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)  # as Ray Serve does
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)) as client:
            taken.accept()[0].close()
            assert client.recv(1) == b""
        with pytest.raises(ValueError, match=r"on 127\.0\.0\.1: Address already in use"):
            check_port("127.0.0.1", port)
    check_port("127.0.0.1", port)


def test_of_two_endpoints_that_start_together_one_has_the_port() -> None:
    with (
        reserved_port("127.0.0.1", 1),
        reserved_port("127.0.0.1", 2),
        pytest.raises(ValueError, match=r"port 1 on .*: another maskahead serve starts or"),
        reserved_port("127.0.0.1", 1),
    ):
        pass
    with reserved_port("127.0.0.1", 1):
        pass
