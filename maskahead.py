"""Maskahead: exact speculative decoding of diffusion language models, tuned and served on Ray.

The command line: each command reads its options, calls one function, and prints. From Python,
``maskahead.load(target).generate(prompts)``.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from benchmarks.commands import app as measuring
from benchmarks.commands import report
from cluster.commands import decode, nodes, traces, train, views
from cluster.exits import run_app
from serve.command import serve_command
from tune.commands import app as sweeping
from tune.commands import report_sweep

if TYPE_CHECKING:
    from cluster.loaded import LoadedTarget, ShortOptions

app = typer.Typer(
    help=__doc__.splitlines()[0] if __doc__ else None,
    epilog="Example: maskahead decode --prompts prompts.jsonl --out results.jsonl --method chain",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def load(target: str = "sdar-tiny", **options: "Unpack[ShortOptions]") -> "LoadedTarget":
    """Open a target for :meth:`~cluster.loaded.LoadedTarget.generate`.

    ``options`` are the short options of ``maskahead decode``, as in ``method="order", budget=8``.
    Raises ``ValueError`` naming option, value and valid choices.
    """
    from cluster.loaded import load_target

    return load_target(target, **options)


@app.callback()
def _front_door(
    debug: Annotated[
        bool, typer.Option("--debug", help="Show stack traces; may stand anywhere.")
    ] = False,
) -> None:
    """Exact speculative decoding of diffusion language models, tuned and served on Ray."""


def _fetch_registered(model: str, folder: Path) -> Path:
    from cluster.tracking import open_store
    from cluster.tracking.registry import fetch
    from tune.registered import CONFIGURATION_FORMAT

    return fetch(open_store(), model, folder, CONFIGURATION_FORMAT)


for commands in (sweeping, decode.app, traces.app, measuring, train.app, views.app):
    app.add_typer(commands)
app.add_typer(nodes.app, name="cluster", epilog="Example: maskahead cluster up")
report.command("sweep", epilog="Example: maskahead report sweep runs/1")(report_sweep)
app.command("serve", epilog="Example: maskahead serve --config runs/first/best.yaml --port 8000")(
    serve_command(_fetch_registered)
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 done, 1 failure, 2 bad input, 130 interrupted."""
    return run_app(app, argv)


if __name__ == "__main__":
    sys.exit(main())
