"""``maskahead cluster up | status | down``."""

from typing import Annotated

import typer

from cluster.config import HEAD_PORT
from cluster.console import say, show_table

# Ray is imported where it is needed, so that commands start fast.

app = typer.Typer(
    no_args_is_help=True, help="A cluster that runs on: on this machine, or on several hosts."
)


@app.command(
    epilog="Example: maskahead cluster up, then maskahead sweep --set cluster.address=auto"
)
def up(
    address: Annotated[
        str | None,
        typer.Option(metavar="HOST:PORT", help="Join the head there; without it, start one."),
    ] = None,
    host: Annotated[
        str | None,
        typer.Option(
            metavar="IP",
            help="This machine's address for the others; 127.0.0.1 where there are none.",
        ),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port of a head.")] = HEAD_PORT,
    num_cpus: Annotated[
        int | None, typer.Option(min=1, help="Cores to offer; default: all.")
    ] = None,
    num_gpus: Annotated[
        int | None, typer.Option(min=0, help="GPUs to offer; default: all.")
    ] = None,
    dashboard: Annotated[bool, typer.Option("--dashboard", help="Serve Ray's, on a head.")] = False,
) -> None:
    """Start a head, or join one; it runs until maskahead cluster down."""
    from cluster.own_node import reserved

    with reserved():
        from cluster.up import UpOptions, bring_up

        options = UpOptions(
            address=address,
            host=host,
            port=port,
            num_cpus=num_cpus,
            num_gpus=num_gpus,
            dashboard=dashboard,
        )
        for line in bring_up(options):
            say(line)


@app.command(epilog="Example: maskahead cluster status")
def status(
    address: Annotated[
        str, typer.Option(metavar="HOST:PORT", help="Of a head; auto: this folder's.")
    ] = "auto",
) -> None:
    """Show the nodes, alive or lost, with what they offer and run, and where they differ."""
    from cluster.status import cluster_status

    rows, summary = cluster_status(address)
    show_table(summary, rows)


@app.command(epilog="Example: maskahead cluster down")
def down() -> None:
    """End what maskahead cluster up started from this folder, and nothing else."""
    from cluster.own_node import end, own_node

    node = own_node()
    if node is None:
        raise ValueError("nothing was started from this folder; `maskahead cluster up` starts it")
    count = end(node)
    what = "head" if node.is_head else "node"
    say(f"{what} of {node.address} ended ({count} processes)")
