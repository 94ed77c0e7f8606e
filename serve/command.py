"""The command ``maskahead serve``."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from cluster.console import say
from cluster.short_options import Settings

if TYPE_CHECKING:
    from serve.config import ServeConfig

Fetch = Callable[[str, Path], Path]
"""Copies the file of a registered configuration into a folder."""


def serve_command(fetch_registered: Fetch) -> Callable[..., None]:
    """The command, which asks ``fetch_registered`` for what is served without ``--config``."""

    def serve(
        config: Annotated[Path | None, typer.Option(metavar="FILE", help="A best.yaml.")] = None,
        model: Annotated[
            str, typer.Option(help="A registered one, where no --config is given.")
        ] = "models:/maskahead@champion",
        host: Annotated[
            str, typer.Option(help="Address to listen on; one that others reach needs API keys.")
        ] = "127.0.0.1",
        port: Annotated[
            int, typer.Option(min=1, max=65535, metavar="PORT", help="Port to listen on.")
        ] = 8000,
        settings: Settings = None,
        follow: Annotated[
            bool, typer.Option("--follow", help="Take over decoding options that change there.")
        ] = False,
        new_key: Annotated[
            str | None,
            typer.Option(
                metavar="NAME",
                help="Make an API key, show it, add its hash to serve.api_keys_file, and end.",
            ),
        ] = None,
        write_config: Annotated[
            Path | None,
            typer.Option(metavar="FILE", help="Write a file for `serve deploy`, and end."),
        ] = None,
    ) -> None:
        """Serve a target with an OpenAI-compatible interface until interrupted."""
        if new_key is not None:
            make_key(new_key, settings or [])
            return

        def look() -> "ServeConfig":
            from serve.config import load_serve_config

            with TemporaryDirectory() as folder:
                file = config or fetch_registered(model, Path(folder))
                if follow and not file.stat().st_size:
                    # As it is for a moment when it is written anew; elsewhere it means defaults.
                    raise ValueError(f"config {file} is empty")
                return load_serve_config(file, settings or [])

        found = look()
        if write_config is not None:
            from serve.deployment_file import write_deployment

            write_deployment(found, host, port, write_config)
            say(f"for `serve deploy`: {write_config}")
            return
        from serve.running import run_server

        run_server(found, host, port, look if follow else None)

    return serve


def make_key(name: str, settings: list[str]) -> None:
    """Print a new key, and keep its hash in the file that the settings name, or print it too."""
    from serve.config import load_serve_config
    from serve.keys import append_key, fresh_key, key_line

    file = load_serve_config(None, settings).serve.api_keys_file
    key = fresh_key()
    line = key_line(name, key)
    if file is not None:
        append_key(file, line)
    print(key)
    say(f"shown once; its hash: {file or f'{line} (for a file that serve.api_keys_file names)'}")
