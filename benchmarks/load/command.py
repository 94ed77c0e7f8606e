"""The command ``maskahead load``."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cluster.configuration import RUNS
from cluster.console import command_line, progress, say, show_table

if TYPE_CHECKING:
    from benchmarks.load.config import Endpoint

EPILOG = (
    "Examples: maskahead load --concurrency 1,4,16 (what more clients do). "
    "maskahead load --rate 2 --first-text-limit 1 (goodput at two requests a second). "
    "maskahead load --against http://127.0.0.1:8001 (two endpoints by turns). "
    "maskahead load --send method=order --against-send method=standard (two methods of one "
    "endpoint). An API key is read from MASKAHEAD_API_KEY."
)
URL = "http://127.0.0.1:8000/v1"
CLIENTS = "4"

# Endpoints.
Url = Annotated[str, typer.Option(help="The endpoint.")]
Against = Annotated[
    str | None, typer.Option(metavar="URL", help="Another one, measured by turns with it.")
]
Send = Annotated[
    list[str] | None,
    typer.Option(metavar="KEY=VALUE", help="In the requests' field maskahead, as in method=order."),
]
Model = Annotated[str | None, typer.Option(help="Default: what the endpoint lists.")]

# Load.
Concurrency = Annotated[
    str | None,
    typer.Option(
        metavar="N[,N...]", help=f"Clients that each wait for their answer. Default: {CLIENTS}."
    ),
]
Rate = Annotated[
    str | None,
    typer.Option(metavar="R[,R...]", help="Open loop instead: requests a second (Poisson)."),
]
Requests = Annotated[int, typer.Option(help="At each level, of each endpoint.")]
Warmup = Annotated[int, typer.Option(help="Requests before that; they count nowhere.")]
Turns = Annotated[int, typer.Option(help="Of two endpoints at each level.")]

# Requests.
Prompts = Annotated[Path | None, typer.Option(metavar="FILE", help="JSON lines as for decode.")]
Tasks = Annotated[
    list[str] | None, typer.Option(help="words or code, without --prompts; repeatable.")
]
MaxTokens = Annotated[int, typer.Option(help="Of an answer, at most.")]
Temperature = Annotated[float, typer.Option(help="0 takes the most likely token.")]
Seed = Annotated[int, typer.Option(help="Of problems, arrivals and draws.")]
Timeout = Annotated[float, typer.Option(help="Seconds until a request is an error.")]

# Goodput.
FirstTextLimit = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Goodput: until the first text.")
]
TokenLimit = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Goodput: a token after the first text.")
]
AnswerLimit = Annotated[
    float | None, typer.Option(metavar="SECONDS", help="Goodput: of the whole answer.")
]

Out = Annotated[Path, typer.Option(metavar="DIR", help="Numbers, samples, plots.")]


def load(
    url: Url = URL,
    against: Against = None,
    send: Send = None,
    against_send: Send = None,
    concurrency: Concurrency = None,
    rate: Rate = None,
    requests: Requests = 64,
    warmup: Warmup = 4,
    turns: Turns = 8,
    prompts: Prompts = None,
    task: Tasks = None,
    model: Model = None,
    max_tokens: MaxTokens = 128,
    temperature: Temperature = 0.0,
    seed: Seed = 0,
    timeout: Timeout = 120.0,
    first_text_limit: FirstTextLimit = None,
    token_limit: TokenLimit = None,
    answer_limit: AnswerLimit = None,
    out: Out = RUNS / "load",
) -> None:
    """Load an endpoint with real prompts: throughput, latencies, goodput; or compare two.

    Every request ends as an answer or as an error that is counted by its kind.
    Times are the client's; a token's is the time after the first text over the
    tokens behind the first.
    """
    from benchmarks.load.config import read_config
    from benchmarks.load.run import run_load

    values = {
        "endpoints": _endpoints(url, send, against, against_send),
        **_levels(concurrency, rate),
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
        "limits": {
            "first_text": first_text_limit,
            "per_token": token_limit,
            "seconds": answer_limit,
        },
    }
    with progress("load") as report:
        found = run_load(read_config(values), out, command_line(), report)
    _show(found)
    say(f"report: {out / 'load.json'}")
    if not any(own["answered"] for level in found["levels"] for own in level["endpoints"].values()):
        raise RuntimeError("no request was answered")


def _endpoints(
    url: str, send: list[str] | None, against: str | None, against_send: list[str] | None
) -> "list[Endpoint]":
    """The endpoint, and the one that it is compared with: the same one where only what is sent
    differs."""
    from benchmarks.load.config import endpoint_of

    endpoints = [endpoint_of("url", url, send or ())]
    if against or against_send:
        endpoints.append(endpoint_of("against", against or url, against_send or ()))
    return endpoints


def _levels(concurrency: str | None, rate: str | None) -> dict[str, Any]:
    """The kind of loop, and its levels."""
    from benchmarks.load.config import read_levels

    if concurrency and rate:
        raise ValueError(f"--concurrency {concurrency} and --rate {rate}: give one of them")
    if rate:
        return {"loop": "open", "levels": read_levels("--rate", rate)}
    return {"loop": "closed", "levels": read_levels("--concurrency", concurrency or CLIENTS)}


def _show(found: dict[str, Any]) -> None:
    """The tables of ``load.json``."""
    from benchmarks.load.tables import errors_said, ratio_rows, same_texts, table_rows

    models = " and ".join(dict.fromkeys(found["models"].values()))
    requests = found["settings"]["requests"]
    show_table(f"{models}, {requests} requests a level; latencies: p50 p95 p99", table_rows(found))
    for line in errors_said(found):
        say(line)
    if ratios := ratio_rows(found):
        show_table("url / against, with its 95 % interval", ratios)
        say(same_texts(found))
