"""Where runs are kept: one database or server, and plain words when it cannot be used."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlparse

from cluster.passwords import without_passwords

SERVER_SCHEMES = ("http", "https")
_HOSTED_SCHEMES = ("databricks", "databricks-uc")
_DATABASE_SCHEMES = ("sqlite", "postgresql", "mysql", "mssql")
_SQLITE = "sqlite:///"
ANSWER_SECONDS = 5.0
"""How long a tracking server may take to say that it is there."""


def tracking_uri(runs: Path) -> str:
    """``MLFLOW_TRACKING_URI`` where it is set, else a database in ``runs``; paths made absolute.

    Raises ``ValueError`` for a store of files, which MLflow no longer writes.
    """
    given = os.environ.get("MLFLOW_TRACKING_URI", "")
    if not given:
        return f"{_SQLITE}{(runs / 'mlflow.db').resolve()}"
    scheme = urlparse(given).scheme.partition("+")[0]
    if scheme in (*SERVER_SCHEMES, *_HOSTED_SCHEMES):
        return given
    if scheme not in _DATABASE_SCHEMES:
        raise ValueError(
            f"MLFLOW_TRACKING_URI {without_passwords(given)!r} is a folder; runs are kept in a "
            "database or on a server: sqlite:///PATH/mlflow.db, postgresql://..., "
            "http://HOST:PORT, or unset it for sqlite:///runs/mlflow.db"
        )
    if scheme == "sqlite":
        path = given.partition(":///")[2]
        if not path or path == ":memory:":
            raise ValueError(
                f"MLFLOW_TRACKING_URI {given!r} names no file, and runs must outlive this process; "
                "write sqlite:///PATH/mlflow.db"
            )
        return f"{_SQLITE}{Path(path).resolve()}"
    return given


def keeps_artifacts(uri: str) -> bool:
    """Whether the store says itself where artifacts go, as servers do."""
    return urlparse(uri).scheme in (*SERVER_SCHEMES, *_HOSTED_SCHEMES)


def database_file(uri: str) -> Path | None:
    """The file of a database on this machine."""
    return Path(uri.removeprefix(_SQLITE)) if uri.startswith(_SQLITE) else None


def check_store(uri: str) -> None:
    """Raise ``ValueError`` for a database that nothing has made yet, or a server that is away."""
    file = database_file(uri)
    if file is not None and not file.exists():
        raise ValueError(f"no MLflow store at {uri}; `maskahead sweep` makes one")
    check_server(uri)


def check_server(uri: str) -> None:
    """Raise ``ValueError`` within seconds where ``uri`` names a server and none answers."""
    if urlparse(uri).scheme not in SERVER_SCHEMES:
        return
    import httpx

    try:
        answer = httpx.get(f"{uri.rstrip('/')}/health", timeout=ANSWER_SECONDS)
        problem = f"HTTP {answer.status_code}" if _is_none(answer.status_code) else ""
    except httpx.HTTPError as error:
        problem = without_passwords(str(error)) or type(error).__name__
    if problem:
        raise ValueError(
            f"MLFLOW_TRACKING_URI {without_passwords(uri)!r}: no MLflow server answers there "
            f"({problem}); start one (`mlflow server --host HOST --port PORT`), or unset it for "
            "sqlite:///runs/mlflow.db"
        )


def _is_none(status: int) -> bool:
    """Whether this answer to a health check comes from no MLflow server; who asks to log in may."""
    return status == 404 or status >= 500


@contextmanager
def made_by_one(uri: str) -> Iterator[None]:
    """Processes that first touch one SQLite database together make its tables one by one."""
    file = database_file(uri)
    if file is None:
        yield
        return
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.with_name(f".{file.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
