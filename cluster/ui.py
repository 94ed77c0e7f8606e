"""The MLflow UI on a store, as a process of its own."""

import os
import signal
import socket
import subprocess
import sys
from urllib.parse import urlparse

from cluster.configuration import RUNS
from cluster.passwords import without_passwords
from cluster.tracking import Tracking, check_store
from cluster.tracking.view import runs_page

HOST = "127.0.0.1"


def run_ui(uri: str, port: int) -> int:
    """Show the store at ``uri`` on the loopback interface until interrupted; returns the exit code.

    Raises ``ValueError`` for a store that is not there, or a port that is taken.
    """
    if urlparse(uri).scheme in ("http", "https"):
        print(f"MLFLOW_TRACKING_URI names a server; its UI is {without_passwords(uri)}")
        return 0
    check_store(uri)
    check_port(port)
    # Its front page is about other things.
    runs = runs_page(Tracking(uri, RUNS / "artifacts").experiment_id)
    print(f"MLflow UI of {without_passwords(uri)}: http://{HOST}:{port}/{runs}", flush=True)
    # One worker and no background jobs: the defaults are four and nine processes that do nothing.
    command = ["ui", "--host", HOST, "--port", str(port), "--workers", "1"]
    command = [sys.executable, "-m", "mlflow", *command]
    # Not among its words, which every user of the machine may list: it may hold a password.
    environment = os.environ | {"MLFLOW_BACKEND_STORE_URI": uri}
    environment |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"}
    # In a session of its own, so that an interrupt reaches it as a request to end.
    process = subprocess.Popen(command, env=environment, start_new_session=True)
    try:
        return process.wait()
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGTERM)
            process.wait()


def check_port(port: int) -> None:
    """Raise ``ValueError`` when nothing can listen on ``port``."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except (OSError, OverflowError) as error:
            raise ValueError(f"--port {port} on {HOST}: {error}; choose another") from error
