"""The command ``maskahead load``."""

from pathlib import Path
from typing import Annotated

import typer

from cluster.configuration import RUNS
from cluster.console import command_line, progress, say, show_table

EPILOG = (
    "Examples: maskahead load --concurrency 1,4,16 (what more clients do). "
    "maskahead load --rate 2 --first-text-limit 1 (goodput at two requests a second). "
    "maskahead load --against http://127.0.0.1:8001 (two endpoints by turns). "
    "maskahead load --send method=order --against-send method=standard (two methods of one "
    "endpoint). An API key is read from MASKAHEAD_API_KEY."
)
CLIENTS = "4"
Level = Annotated[
    str | None,
    typer.Option(
        metavar="N[,N...]", help=f"Clients that each wait for their answer. Default: {CLIENTS}."
    ),
]
Send = typer.Option(metavar="KEY=VALUE", help="The requests' field maskahead; repeatable.")


def load(
    url: Annotated[str, typer.Option(help="The endpoint.")] = "http://127.0.0.1:8000/v1",
    against: Annotated[
        str | None, typer.Option(metavar="URL", help="Another one, measured by turns with it.")
    ] = None,
    send: Annotated[list[str] | None, Send] = None,
    against_send: Annotated[list[str] | None, Send] = None,
    concurrency: Level = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="R[,R...]",
            help="Open loop instead: requests a second (Poisson).",
        ),
    ] = None,
    requests: Annotated[int, typer.Option(help="At each level, of each endpoint.")] = 64,
    warmup: Annotated[int, typer.Option(help="Requests before that; they count nowhere.")] = 4,
    turns: Annotated[int, typer.Option(help="Of two endpoints at each level.")] = 8,
    prompts: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON lines as for decode.")
    ] = None,
    task: Annotated[
        list[str] | None, typer.Option(help="words or code, without --prompts; repeatable.")
    ] = None,
    model: Annotated[str | None, typer.Option(help="Default: what the endpoint lists.")] = None,
    max_tokens: Annotated[int, typer.Option(help="Of an answer, at most.")] = 128,
    temperature: Annotated[float, typer.Option(help="0 takes the most likely token.")] = 0.0,
    seed: Annotated[int, typer.Option(help="Of problems, arrivals and draws.")] = 0,
    timeout: Annotated[float, typer.Option(help="Seconds until a request is an error.")] = 120.0,
    first_text_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Goodput: until the first text.")
    ] = None,
    token_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Goodput: a token after the first text.")
    ] = None,
    answer_limit: Annotated[
        float | None, typer.Option(metavar="SECONDS", help="Goodput: of the whole answer.")
    ] = None,
    out: Annotated[Path, typer.Option(metavar="DIR", help="Numbers, samples, plots.")] = RUNS
    / "load",
) -> None:
    """Load an endpoint with real prompts: throughput, latencies, goodput; or compare two.

    Every request ends as an answer or as an error that is counted by its kind. Times are the
    client's; a token's is the time after the first text over the tokens behind the first.
    """
    from benchmarks.load.config import endpoint_of, read_config, read_levels
    from benchmarks.load.run import run_load
    from benchmarks.load.tables import ratio_rows, same_texts, table_rows

    endpoints = [endpoint_of("url", url, send or ())]
    if against or against_send:
        endpoints.append(endpoint_of("against", against or url, against_send or ()))
    if concurrency and rate:
        raise ValueError(f"--concurrency {concurrency} and --rate {rate}: give one of them")
    option, text = ("--rate", rate) if rate else ("--concurrency", concurrency or CLIENTS)
    limits = {"first_text": first_text_limit, "per_token": token_limit, "seconds": answer_limit}
    config = read_config(
        {
            "endpoints": endpoints,
            "loop": "open" if rate else "closed",
            "levels": read_levels(option, text),
            "requests": requests,
            "warmup": warmup,
            "turns": turns,
            "prompts": prompts,
            **({"tasks": tuple(task)} if task else {}),
            "model": model,
            "max_tokens": max_tokens,
            "temperature": temperature,
            "seed": seed,
            "timeout": timeout,
            "limits": limits,
        }
    )
    with progress("load") as report:
        found = run_load(config, out, command_line(), report)
    models = " and ".join(dict.fromkeys(found["models"].values()))
    show_table(f"{models}, {requests} requests a level; latencies: p50 p95 p99", table_rows(found))
    if ratios := ratio_rows(found):
        show_table("url / against, with its 95 % interval", ratios)
        say(same_texts(found))
    say(f"report: {out / 'load.json'}")
