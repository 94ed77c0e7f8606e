"""Maskahead: exact speculative decoding of diffusion language models, tuned and served on Ray.

The command line: each command reads its options, calls one function, and prints. From Python,
``maskahead.load(target).generate(prompts)``.
"""

import shlex
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Unpack

import typer

from benchmarks.load.command import EPILOG
from benchmarks.load.command import load as load_command
from cluster.commands import app as cluster_commands
from cluster.configuration import RUNS, RunConfig, SharedConfig, load_config, read_mapping
from cluster.console import log_facts, progress, say, show_table
from cluster.exits import FAILURE, run_app
from cluster.short_options import ConfigFile, Settings, configured
from serve.command import serve_command
from tune.commands import compare, promote, report_sweep

if TYPE_CHECKING:
    from cluster.loaded import LoadedTarget, ShortOptions
    from cluster.training_log import Kind, Train
    from tasks.train_order import TrainOrderConfig
    from tasks.train_sets import TrainSetsConfig

app = typer.Typer(
    help=__doc__.splitlines()[0] if __doc__ else None,
    epilog="Example: maskahead decode --prompts prompts.jsonl --out results.jsonl --method chain",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)
train = typer.Typer(no_args_is_help=True, help="Train a bundled target, or a drafter.")
app.add_typer(train, name="train", epilog="Example: maskahead train order --config FILE")
report = typer.Typer(no_args_is_help=True, help="Repeat a paper's, or a sweep's, tables and plots.")
app.add_typer(report, name="report", epilog="Example: maskahead report spot --out runs/report-spot")
app.add_typer(cluster_commands, name="cluster", epilog="Example: maskahead cluster up")
app.command(epilog="Example: maskahead compare runs/1 runs/2 --out compared.json")(compare)
app.command(epilog="Example: maskahead promote runs/1 --alias champion")(promote)
report.command("sweep", epilog="Example: maskahead report sweep runs/1")(report_sweep)

Prompts = Annotated[
    Path,
    typer.Option(metavar="FILE", help="JSON lines: id, and prompt (text) or prompt_ids."),
]
Target = Annotated[str | None, typer.Option(help="Checkpoint folder, or a bundled target's name.")]
ReportFile = Annotated[Path, typer.Option("--out", metavar="FILE", help="The report, as JSON.")]
RowsFile = Annotated[
    Path,
    typer.Option(
        "--out", metavar="FILE", help="JSON lines, in order; goes on behind them; - prints."
    ),
]
Folder = Annotated[
    Path, typer.Option("--out", metavar="DIR", help="Folder of traces; goes on behind them.")
]
Drafter = Annotated[str | None, typer.Option(help="Drafter folder.")]
Port = Annotated[int, typer.Option(help="Port to listen on.")]
TrainingFile = Annotated[Path, typer.Option("--config", metavar="FILE", help="What to train.")]
Track = Annotated[
    bool, typer.Option("--track/--no-track", help="Log the training, register the drafter.")
]


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


@app.command(epilog="Example: maskahead sweep --config configs/sweep.yaml --name first")
def sweep(
    config: Annotated[Path, typer.Option(metavar="FILE")] = Path("configs/sweep.yaml"),
    name: Annotated[str | None, typer.Option(help="Results go to runs/NAME.")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on with a killed sweep.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the plan, run nothing.")] = False,
    settings: Settings = None,
) -> None:
    """Find a target's best decoding setting: record, replay, live trials, leaderboard."""
    from tune.config import SweepConfig
    from tune.sweep import run_sweep

    plan = load_config(SweepConfig, config, settings or ())
    outcome = run_sweep(plan, name, resume, dry_run, _command())
    if outcome.folder and outcome.champion is None:
        raise typer.Exit(FAILURE)


@app.command(epilog="Example: maskahead adopt checkpoints/my-sdar --set train_problems=200")
def adopt(
    target: Annotated[str, typer.Argument(metavar="TARGET", help="Checkpoint folder.")],
    name: Annotated[
        str | None,
        typer.Option(
            help="Results: runs/adopt-NAME, sweep: runs/NAME. Default: the folder's name."
        ),
    ] = None,
    config_file: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Make a new target fast: record, train its order model, calibrate, sweep, register."""
    from tune.adopt import AdoptConfig
    from tune.adopt import adopt as adopt_target

    plan = load_config(AdoptConfig, config_file, settings or (), {"target.path": target})
    name = name or Path(target).resolve().name
    if adopt_target(plan, name, _command(), log_facts).champion is None:
        raise typer.Exit(FAILURE)


@app.command(
    epilog="Example: maskahead decode --target sdar-tiny --prompts prompts.jsonl "
    "--out results.jsonl --method order --budget 8"
)
@configured
def decode(
    config: RunConfig,
    prompts: Prompts,
    out: RowsFile,
    trace: Annotated[bool, typer.Option("--trace", help="Add every forward's rounds.")] = False,
) -> None:
    """Decode a file of prompts; the same command again goes on after an interruption."""
    from actors.jobs import decode_file
    from cluster.loaded import ray_where_needed

    remote = config.cluster.is_remote
    with ray_where_needed(config), progress("decode") as report:
        totals = decode_file(
            config.target, config.drafter, config.decode, prompts, out, trace, report, remote
        )
    say(f"{out}: {totals}")


@app.command(
    "eval",
    epilog="Example: maskahead eval --task gsm8k --limit 200 --method order --budget 8 "
    "--out runs/gsm8k",
)
@configured
def evaluate(
    config: RunConfig,
    task: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="words, code (both bundled), gsm8k, math500, mbpp, mbpp-sanitized, humaneval, "
            "mmlu or triviaqa.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Replies and scores; goes on behind the replies there."),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(
            metavar="FILE",
            help="Rows of the task as .json, .jsonl or .parquet (or .gz), "
            "or a copy of the hub's folder. Default: the hub.",
        ),
    ] = None,
    shots: Annotated[
        int | None, typer.Option(min=0, help="Solved examples before the question; none: 0.")
    ] = None,
    shots_data: Annotated[
        str | None, typer.Option(metavar="FILE", help="Rows of these examples, where not the hub.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most problems, the first of a seeded shuffle.")
    ] = None,
    shuffle_seed: Annotated[int | None, typer.Option(help="Of that shuffle.")] = None,
    rescore: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Score its replies again, decode nothing.")
    ] = None,
) -> None:
    """Evaluate a target on a task: replies, scores with intervals, forwards, certificate."""
    from actors.evaluation import decode_task, score_folder, shown
    from cluster.loaded import ray_where_needed
    from tasks.task import Selection

    if rescore is None:
        if task is None or out is None:
            raise ValueError("give --task NAME and --out DIR, or --rescore DIR")
        given = {"limit": limit, "shuffle_seed": shuffle_seed, "shots": shots}
        given |= {"data": data, "shots_data": shots_data}
        selected = {name: value for name, value in given.items() if value is not None}
        selection = load_config(Selection, short=selected)
        with ray_where_needed(config), progress("decode") as report:
            target, drafter, options = config.target, config.drafter, config.decode
            decode_task(target, drafter, options, task, selection, out, report)
    folder = rescore or out
    assert folder is not None
    with progress("score") as report:
        summary = score_folder(folder, _command(), report)
    show_table(*shown(summary))
    say(f"samples and scores: {folder}")


@app.command(epilog="Example: maskahead record --prompts prompts.jsonl --out runs/traces --cap 0.9")
@configured
def record(
    config: RunConfig,
    prompts: Prompts,
    out: Folder,
    hidden: Annotated[
        bool, typer.Option("--hidden", help="Keep the target's hidden states, for method sets.")
    ] = False,
) -> None:
    """Record draft-free traces (method standard or threshold) to replay and to learn from."""
    from actors.jobs import record_traces
    from cluster.loaded import ray_where_needed

    remote = config.cluster.is_remote
    with ray_where_needed(config), progress("record") as report:
        totals = record_traces(config.target, config.decode, prompts, out, report, hidden, remote)
    say(f"{out}: {totals}")


@app.command(epilog="Example: maskahead replay --traces runs/traces --grid grid.yaml --out r.jsonl")
def replay(
    traces: Annotated[Path, typer.Option(metavar="DIR", help="What maskahead record wrote.")],
    grid: Annotated[
        Path,
        typer.Option(
            metavar="FILE",
            help="YAML, as in settings: {decode.method: [chain, order], decode.budget: [4, 8]}.",
        ),
    ],
    out: RowsFile,
    drafter: Drafter = None,
    processes: Annotated[int, typer.Option(min=1, help="That share the work.")] = 2,
) -> None:
    """Count exactly what each setting of a grid would have cost; no target is loaded."""
    from drafters.config import DrafterConfig
    from tasks.replay_grid import replay_grid, table_rows

    with progress("replay") as report:
        config = DrafterConfig(path=drafter)
        rows = replay_grid(traces, read_mapping(grid), config, out, processes, report)
    show_table(f"replay of {traces}", table_rows(rows))


@app.command(
    epilog="Example: maskahead bench --prompts prompts.jsonl --methods standard,chain,order "
    "--set decode.budget=8 --out bench.json"
)
def bench(
    prompts: Prompts,
    methods: Annotated[str, typer.Option(help="Names with commas; standard always runs too.")],
    out: ReportFile,
    target: Target = None,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the prompts.")] = 3,
    config_file: ConfigFile = None,
    settings: Settings = None,
) -> None:
    """Measure methods side by side: forwards, seconds, equality with draft-free decoding."""
    from benchmarks.paired import BenchPlan, run_bench, table_rows, write_report
    from cluster.loaded import ray_where_needed

    short = {"target.path": target} if target else {}
    config = load_config(SharedConfig, config_file, settings or (), short)
    names = tuple(name.strip() for name in methods.split(","))
    plan = BenchPlan(
        config.target, config.drafter, config.decode, names, prompts, repeats, _command()
    )
    with ray_where_needed(config), progress("bench") as report:
        measured = run_bench(plan, report)
    write_report(measured, out)
    show_table(f"{config.target.path}, {measured['prompts']['n']} prompts", table_rows(measured))
    say(f"report: {out}")


@app.command(
    epilog="Example: maskahead calibrate --traces runs/cap1 --traces runs/cap09 --out graph.json"
)
def calibrate(
    traces: Annotated[
        list[Path], typer.Option(metavar="DIR", help="Draft-free traces; one folder for each cap.")
    ],
    out: Annotated[Path, typer.Option(metavar="FILE", help="The graphs, as JSON.")],
    count: Annotated[int, typer.Option(min=1, help="Traces of each folder to look at.")] = 200,
) -> None:
    """Calibrate the draft graphs of method graph from traces (about 50 problems are enough)."""
    from decoders.draft_graph import save_graphs
    from decoders.graph_calibration import calibrate_folders

    graphs = calibrate_folders(traces, count)
    save_graphs(graphs, out)
    say(f"{out}: graphs of cap {', '.join(f'{graph.cap:g}' for graph in graphs.graphs)}")


@train.command(
    "target", epilog="Example: maskahead train target --config configs/train-sdar-tiny.yaml"
)
def train_target_command(config_file: TrainingFile) -> None:
    """Train a bundled diffusion target from scratch, or go on training it."""
    from tasks.train_target import TrainTargetConfig, train_target

    say(f"target: {train_target(load_config(TrainTargetConfig, config_file), log_facts)}")


@train.command("order", epilog="Example: maskahead train order --config configs/train-order.yaml")
def train_order_command(config_file: TrainingFile, track: Track = True) -> None:
    """Train an order model on recorded traces, or go on training it."""
    from tasks.train_order import TrainOrderConfig, train_order

    config = load_config(TrainOrderConfig, config_file)
    _train_drafter("order", config, partial(train_order, config), track)


@train.command("sets", epilog="Example: maskahead train sets --config configs/train-sets.yaml")
def train_sets_command(
    config_file: TrainingFile,
    start_from: Annotated[
        str | None,
        typer.Option(
            "--from", metavar="DIR", help="A drafter whose input layers are refitted, no others."
        ),
    ] = None,
    track: Track = True,
) -> None:
    """Train a drafter for threshold decoding, or calibrate one for another target."""
    from tasks.train_sets import TrainSetsConfig, train_sets

    short = {"start_from": start_from} if start_from else {}
    config = load_config(TrainSetsConfig, config_file, (), short)
    _train_drafter("sets", config, partial(train_sets, config), track)


@app.command(
    "import-order", epilog="Example: maskahead import-order order_model.pt --out runs/order"
)
def import_order(
    file: Annotated[Path, typer.Argument(metavar="FILE.pt", help="A PyTorch state dict.")],
    out: Annotated[Path, typer.Option(metavar="DIR", help="The drafter folder.")],
) -> None:
    """Convert a published order model where its shapes fit; tensors only, no code is run."""
    from drafters.importing import import_order_model

    model = import_order_model(file, out)
    say(f"drafter: {out} ({model.num_parameters:,} parameters)")
    if model.tokens is not None:
        say("its token ids stay hidden: a state dict does not tell whose they are")


@report.command(
    "spot", epilog="Example: maskahead report spot --target sdar-tiny --out runs/report-spot"
)
def report_spot(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the report; goes on behind what is there."),
    ] = RUNS / "report-spot",
    target: Target = None,
    config_file: ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in main.problems=20; repeatable."),
    ] = None,
) -> None:
    """Repeat the tables and figures of SPOT on a target; the same command again goes on."""
    from benchmarks.spot.check import check
    from benchmarks.spot.config import SpotConfig
    from benchmarks.spot.run import run_spot
    from benchmarks.spot.writing import shown
    from cluster.loaded import ray_where_needed
    from cluster.tracking import Tracking, tracking_uri

    short = {"target.path": target} if target else {}
    config = load_config(SpotConfig, config_file, settings or (), short)
    checked, uri = check(config), tracking_uri(RUNS)
    with ray_where_needed(SharedConfig(target=config.target, drafter=config.drafter)):
        tables = run_spot(checked, out, _command(), Tracking(uri, RUNS / "artifacts"))
    show_table(*shown(tables[0]))


@report.command(
    "simsd",
    epilog="Example: maskahead report simsd --target sdar-tiny --drafter sdar-nano "
    "--set problems=100 --out runs/report-simsd",
)
def report_simsd(
    out: Annotated[
        Path,
        typer.Option(metavar="DIR", help="Folder of the report; goes on behind what is there."),
    ] = RUNS / "report-simsd",
    target: Target = None,
    drafter: Annotated[str | None, typer.Option(help="The small model's checkpoint.")] = None,
    config_file: ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in sweep_problems=20; repeatable."),
    ] = None,
) -> None:
    """Measure SimSD on a pair: the mask against exact states, quality, forwards, placements."""
    from contextlib import nullcontext

    from benchmarks.simsd.config import SimsdConfig
    from benchmarks.simsd.run import check, run_simsd
    from cluster.session import ClusterConfig, session

    given = {"target.path": target, "drafter.path": drafter}
    short = {key: value for key, value in given.items() if value}
    config = load_config(SimsdConfig, config_file, settings or (), short)
    check(config)
    with session(ClusterConfig()) if config.placement.problems else nullcontext():
        tables = run_simsd(config, out, _command())
    kept = ("task", "setting", "n", "accuracy", "difference", "nfe_factor", "acceptance")
    shown = [{name.replace("_", " "): row[name] for name in kept} for row in tables[0].rows]
    show_table(tables[0].title, shown)


@report.command(
    "ladder", epilog="Example: maskahead report ladder --target sdar-tiny --set problems=20"
)
def report_ladder(
    out: Annotated[Path, typer.Option(metavar="DIR", help="Folder of the report.")] = RUNS
    / "report-ladder",
    target: Target = None,
    config_file: ConfigFile = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="As in decode.tau=0.95; repeatable."),
    ] = None,
) -> None:
    """Say what each part of SPOT-Sets adds over threshold decoding: forwards, speed, accuracy."""
    from benchmarks.ladder import LadderConfig, run_ladder
    from benchmarks.spot.writing import columns_of
    from cluster.loaded import ray_where_needed

    short = {"target.path": target} if target else {}
    config = load_config(LadderConfig, config_file, settings or (), short)
    with ray_where_needed(SharedConfig(target=config.target, drafter=config.drafter)):
        table = run_ladder(config, out, _command())
    hidden = ("speed_q25", "speed_q75", "accuracy_low", "accuracy_high", "accepted_per_round")
    columns = [c for c in columns_of(table.rows) if c not in hidden and "difference" not in c]
    show_table(table.title, [{c.replace("_", " "): r.get(c) for c in columns} for r in table.rows])
    say(f"report: {out / 'report.md'}")


app.command("load", epilog=EPILOG)(load_command)


@app.command(epilog="Example: maskahead ui --port 5000")
def ui(port: Port = 5000) -> None:
    """Open the MLflow UI on the store of the sweeps (MLFLOW_TRACKING_URI, else runs/mlflow.db)."""
    from cluster.tracking import tracking_uri
    from cluster.ui import run_ui

    raise typer.Exit(run_ui(tracking_uri(RUNS), port))


@app.command(epilog="Example: maskahead info sdar-tiny")
def info(
    target: Annotated[str, typer.Argument(metavar="TARGET")],
    with_digest: Annotated[
        bool, typer.Option("--digest", help="Also digest the weights, which reads all of them.")
    ] = False,
) -> None:
    """Say what a checkpoint is, and on which device, in which dtype and on how many ranks it fits;
    nothing is loaded, and of a hub id only the small files are fetched."""
    from decoders.options import LARGEST_BUDGET, DecodeOptions
    from models.describe import describe_target
    from models.devices import all_devices
    from models.fitting import fit_rows

    spec, facts = describe_target(target, with_digest)
    show_table(target, [{"fact": key, "value": value} for key, value in facts.items()])
    budgets = (0, DecodeOptions.model_fields["budget"].default, LARGEST_BUDGET)
    fits = fit_rows(spec, all_devices(), budgets)
    title = "Each rank's memory: weights, prefix cache, a forward with D drafts; and where it fits"
    show_table(f"{title}, with how many tokens of prefix", fits)


def _train_drafter(
    kind: "Kind", config: "TrainOrderConfig | TrainSetsConfig", train: "Train", track: bool
) -> None:
    if not track:
        say(f"drafter: {train(log_facts)}")
        return
    from cluster.tracking import Tracking, tracking_uri
    from cluster.training_log import train_logged

    tracking = Tracking(tracking_uri(RUNS), RUNS / "artifacts")
    out, version = train_logged(kind, config, train, log_facts, tracking, _command())
    say(f"drafter: {out}, registered as {version.uri}")


def _command() -> str:
    """The exact command, to stand beside its results."""
    return shlex.join(["maskahead", *sys.argv[1:]])


def _fetch_registered(model: str, folder: Path) -> Path:
    from cluster.tracking import open_store
    from cluster.tracking.registry import fetch
    from tune.registered import CONFIGURATION_FORMAT

    return fetch(open_store(), model, folder, CONFIGURATION_FORMAT)


app.command("serve", epilog="Example: maskahead serve --config runs/first/best.yaml --port 8000")(
    serve_command(_fetch_registered)
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; returns 0 done, 1 failure, 2 bad input, 130 interrupted."""
    return run_app(app, argv)


if __name__ == "__main__":
    sys.exit(main())
