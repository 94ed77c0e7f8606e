"""An application on a real socket."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from fastapi import FastAPI


@contextmanager
def listening(api: FastAPI) -> Iterator[str]:
    """The URL of ``api`` on a free port of this machine."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()  # so that who comes before the server waits for it
        server = uvicorn.Server(uvicorn.Config(api, log_level="error", lifespan="off"))
        options = {"sockets": [listener]}
        thread = threading.Thread(target=server.run, kwargs=options, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join()
