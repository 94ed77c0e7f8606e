"""What a sweep costs beside the naive way of finding the same setting, both in one run.

The naive way is Ray Tune as its tutorials have it: every setting is a trial that loads the target
in a process of its own and decodes every problem with it, in interleaved pairs with standard
decoding. ``maskahead sweep`` replays the settings from traces of one recording, and tries the best
few on a target that stays loaded. The naive trials run exactly the settings that the sweep chose.

    python -m benchmarks.sweep_cost --settings 64 --out sweep-cost.json
"""

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")
os.environ.setdefault("RAY_AIR_NEW_OUTPUT", "0")

import typer
from ray import tune

from actors.loading import absolute_paths, open_engine
from benchmarks.interval import median_interval
from benchmarks.machine import git_commit, machine, versions
from benchmarks.paired import quartiles, write_report
from cluster.console import progress, say, show_table
from cluster.session import ClusterConfig, session
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.bundled import problems

NAME = "cost"
Setting = Mapping[str, Any]


def run_sweep(folder: Path, args: Sequence[str]) -> tuple[float, dict[str, Any]]:
    """Seconds of a whole ``maskahead sweep`` process in ``folder``, and its ``sweep.json``."""
    config = Path(__file__).parents[1] / "configs" / "sweep.yaml"
    command = [sys.executable, "-m", "maskahead", "sweep", "--config", str(config), "--name", NAME]
    environment = {k: v for k, v in os.environ.items() if k != "MLFLOW_TRACKING_URI"}
    paths = [str(Path(__file__).parents[1]), environment.get("PYTHONPATH", "")]
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
    started = perf_counter()
    subprocess.run(
        [*command, *args], cwd=folder, env=environment, check=True, stdout=subprocess.DEVNULL
    )
    seconds = perf_counter() - started
    return seconds, json.loads((folder / "runs" / NAME / "sweep.json").read_text())


def settings_of(sweep: Mapping[str, Any]) -> list[Setting]:
    """The drafting settings that the sweep has replayed, each once."""
    rows = [row for row in sweep["rows"] if row["fidelity"] == "replay" and row["status"] == "done"]
    found = [row["options"] for row in rows if row["options"]["method"] != "standard"]
    return [setting for i, setting in enumerate(found) if setting not in found[:i]]


def champion_of(sweep: Mapping[str, Any]) -> dict[str, Any]:
    """The row that won."""
    return next(row for row in sweep["rows"] if row["key"] == sweep["champion"])


def naive_trial(
    config: Setting, target: TargetConfig, rows: Sequence[Mapping[str, Any]], repeats: int
) -> None:
    """One setting the naive way; reports every pair's ratio of tokens/s to standard decoding."""
    options = DecodeOptions.model_validate(config["setting"])
    standard = options.draft_free().model_copy(update={"cap": 1.0})
    engine = open_engine(target, DrafterConfig(), {options.method})
    prompts = [PromptRow.model_validate(row) for row in rows]
    for chosen in (options, standard):
        engine.generate(prompts[:1], chosen)
    tune.report({"ratios": json.dumps(paired_ratios(engine, prompts, options, standard, repeats))})


def paired_ratios(
    engine: Any,
    prompts: Sequence[PromptRow],
    options: DecodeOptions,
    standard: DecodeOptions,
    repeats: int,
) -> list[float]:
    """Tokens/s over standard decoding's, prompt by prompt in every pass, in alternating order."""
    ratios = []
    for turn in range(repeats):
        for index, prompt in enumerate(prompts):
            rates = {}
            order = (options, standard) if (turn + index) % 2 == 0 else (standard, options)
            for chosen in order:
                started = perf_counter()
                found = engine.generate([prompt], chosen)[0]
                rates[chosen] = len(found["token_ids"]) / (perf_counter() - started)
            ratios.append(rates[options] / rates[standard] if rates[standard] else 1.0)
    return ratios


def run_naive(
    settings: Sequence[Setting], rows: Sequence[Mapping[str, Any]], repeats: int, folder: Path
) -> tuple[float, list[list[float]]]:
    """Seconds of all naive trials, Ray's start included, and each setting's ratios."""
    target, _ = absolute_paths(TargetConfig(), DrafterConfig())
    started = perf_counter()
    with session(ClusterConfig()), progress("naive") as report:
        trial = tune.with_parameters(naive_trial, target=target, rows=rows, repeats=repeats)
        tuner = tune.Tuner(
            tune.with_resources(trial, {"cpu": 1}),
            param_space={"setting": tune.grid_search(list(settings))},
            tune_config=tune.TuneConfig(max_concurrent_trials=1),
            run_config=tune.RunConfig(
                name=NAME,
                storage_path=str(folder),
                verbose=0,
                callbacks=[Counted(report, len(settings))],
            ),
        )
        results = tuner.fit()
        failed = [result.error for result in results if result.error]
        if failed:
            raise RuntimeError(f"{len(failed)} naive trials failed: {failed[0]}")
    seconds = perf_counter() - started
    found = {
        json.dumps(result.config["setting"]): json.loads(result.metrics["ratios"])
        for result in results
        if result.config is not None and result.metrics is not None
    }
    return seconds, [found[json.dumps(setting)] for setting in settings]


class Counted(tune.Callback):
    """Moves the bar."""

    def __init__(self, report: Any, total: int) -> None:
        self.report, self.done, self.total = report, 0, total

    def __reduce__(self) -> Any:
        return Counted, (_ignore, self.total)  # Tune writes its callbacks down

    def on_trial_complete(self, iteration: int, trials: Any, trial: Any, **info: Any) -> None:
        self.done += 1
        self.report(self.done, self.total)


def _ignore(done: int, total: int) -> None:
    """Where progress goes when nobody looks."""


def verdict(settings: Sequence[Setting], ratios: Sequence[Sequence[float]], own: Setting) -> dict:
    """The naive winner beside the sweep's, both as the naive trials measured them, and whether
    their 95 % intervals meet. Standard decoding wins where nothing is faster (ratio 1)."""
    medians = [quartiles(values)["median"] for values in ratios]
    best = max(range(len(medians)), key=medians.__getitem__)
    drafts = own["method"] != "standard"
    theirs = ratios[list(settings).index(own)] if drafts else [1.0] * len(ratios[best])
    intervals = [median_interval(values) for values in (ratios[best], theirs)]
    known = [interval for interval in intervals if interval is not None]
    meet = len(known) == 2 and known[0][0] <= known[1][1] and known[1][0] <= known[0][1]
    return {
        "naive_winner": settings[best],
        "naive_winner_ratio": medians[best],
        "naive_winner_interval": intervals[0],
        "sweep_winner": own,
        "sweep_winner_ratio": quartiles(theirs)["median"],
        "sweep_winner_interval": intervals[1],
        "same_within_noise": settings[best] == own or meet,
    }


def main(
    out: Annotated[Path, typer.Option(metavar="FILE", help="The report, as JSON.")],
    settings: Annotated[int, typer.Option(min=1, help="That are searched.")] = 64,
    count: Annotated[int, typer.Option("--problems", min=1, help="Of each bundled task.")] = 8,
    repeats: Annotated[int, typer.Option(min=1, help="Passes over the problems.")] = 2,
) -> None:
    """Run both ways, one after the other, and compare their seconds and their winners."""
    tasks = {"recorded": count, "live": count}
    values = {f"tasks.{name}": value for name, value in tasks.items()}
    values |= {"replay.trials": settings, "live.repeats": repeats}
    args = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
    turns = zip(*(problems(name, "heldout", count, 7) for name in ("words", "code")), strict=True)
    rows = [{"id": p.id, "prompt": p.prompt} for turn in turns for p in turn]
    with TemporaryDirectory() as name:
        say(f"maskahead sweep {' '.join(args)}")
        ours, sweep = run_sweep(Path(name), args)
        chosen, winner = settings_of(sweep), champion_of(sweep)["options"]
        say(f"{ours:.0f} s; now {len(chosen)} settings the naive way")
        naive, ratios = run_naive(chosen, rows, repeats, Path(name))
    found = {
        "settings": len(chosen),
        "problems": len(rows),
        "seconds": {"sweep": ours, "naive": naive},
        "cost": ours / naive,
    }
    facts = {"commit": git_commit(), "machine": machine(), "versions": versions()}
    compared = verdict(chosen, ratios, winner)
    write_report(facts | found | compared | {"ratios": ratios}, out)
    shown = [
        {"way": "maskahead sweep", "seconds": round(ours), "winner": _spell(winner)},
        {"way": "naive", "seconds": round(naive), "winner": _spell(compared["naive_winner"])},
    ]
    for row, who in zip(shown, ("sweep", "naive"), strict=True):
        row["winner's speed-up (naive trials)"] = compared[f"{who}_winner_ratio"]
        row["95 %"] = compared[f"{who}_winner_interval"]
    show_table(f"{len(chosen)} settings, {len(rows)} problems: cost {ours / naive:.3f}", shown)
    say(f"same winner within noise: {compared['same_within_noise']}; report: {out}")


def _spell(setting: Setting) -> str:
    knobs = ("method", "budget", "gamma", "hedge", "cap", "cross_block")
    return " ".join(f"{name}={setting[name]}" for name in knobs if name in setting)


if __name__ == "__main__":
    typer.run(main)
