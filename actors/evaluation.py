"""Evaluations: a task's problems are decoded into a folder, then scored, and scored again at will.

``replies.jsonl`` holds problems and replies, each written as it is decoded: an interrupted run goes
on behind them, and so does one with a larger limit. It is a prompts file, too. ``samples.jsonl``
holds them with what scoring found, ``summary.json`` the scores; both are made anew from the
replies, without decoding.
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from actors.jobs import describe_run
from actors.runner import Runner, open_runner
from decoders.loop import check_request
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow, build_request
from drafters.config import DrafterConfig
from models.config import TargetConfig
from tasks.files import ResultsFile
from tasks.intervals import wilson_interval
from tasks.problem import Problem, Verdict
from tasks.registry import find_task
from tasks.task import Selection
from tasks.whole import read_back, write_whole

REPLIES, SAMPLES, SUMMARY = "replies.jsonl", "samples.jsonl", "summary.json"

Report = Callable[[int, int], None]
"""``report(done, total)`` after every row."""


def decode_task(
    target: TargetConfig,
    drafter: DrafterConfig,
    options: DecodeOptions,
    task: str,
    selection: Selection,
    folder: Path,
    report: Report,
    on_cluster: bool = False,
) -> None:
    """Decode the selected problems of a task into ``folder``, behind the replies that are there.

    A limit of new tokens that nobody set is the task's. Raises ``ValueError`` for bad input and for
    a folder of another run, before anything is decoded.
    """
    asked = find_task(task).select(selection)
    options = _limited(options, task)
    with open_runner(target, drafter, {options.method}, on_cluster) as runner:
        rows = [PromptRow(id=problem.id, prompt=problem.prompt) for problem in asked.problems]
        _check(rows, options, runner)
        chosen = selection.model_dump(include={"shots", "shuffle_seed"})
        run = {"task": task, **chosen, "source": dict(asked.source)}
        run |= describe_run(target, drafter, options) | {"certificate": certificate(options)}
        problem_of = {problem.id: problem for problem in asked.problems}
        with ResultsFile(folder / REPLIES, list(problem_of), run) as results:
            todo = rows[results.num_kept :]
            for done, row in enumerate(runner.decode(todo, options, False), 1):
                del row["prompt_ids"]  # the prompt says it, and a prompts file says it once
                results.write(asdict(problem_of[row["id"]]) | row)
                report(results.num_kept + done, len(rows))


def certificate(options: DecodeOptions) -> str:
    """What is known of the replies against draft-free decoding, which is not run here."""
    if not options.promises_equality:
        return "approximate"
    return "not compared" if options.drafts else "draft-free"


def _limited(options: DecodeOptions, task: str) -> DecodeOptions:
    if "max_new_tokens" in options.model_fields_set:
        return options
    return options.model_copy(update={"max_new_tokens": find_task(task).max_new_tokens})


def _check(rows: Sequence[PromptRow], options: DecodeOptions, runner: Runner) -> None:
    for row in rows:
        check_request(build_request(row, options, runner.codec), runner.spec)


def score_folder(folder: Path, command: str, report: Report) -> dict[str, Any]:
    """Score the replies in ``folder``; writes samples and summary, and returns the summary."""
    side = folder / f"{REPLIES}.run.json"
    if not side.exists():
        raise ValueError(f"{str(folder)!r} is no folder of an evaluation: it has no {side.name}")
    run = read_back(side, _evaluation, "evaluate into another folder, or move both away")
    rows = [json.loads(line) for line in _whole_lines(folder / REPLIES)]
    verdicts: list[Verdict] = []
    for verdict in _verdicts(run["task"], rows):
        verdicts.append(verdict)
        report(len(verdicts), len(rows))
    samples = [row | asdict(verdict) for row, verdict in zip(rows, verdicts, strict=True)]
    lines = [json.dumps(sample, ensure_ascii=False) + "\n" for sample in samples]
    write_whole(folder / SAMPLES, "".join(lines))
    summary = {"command": command, **summarise(samples, find_task(run["task"]).metrics), "run": run}
    write_whole(folder / SUMMARY, json.dumps(summary, indent=2) + "\n")
    return summary


def _evaluation(data: bytes) -> dict[str, Any]:
    """What made the replies; ``KeyError`` where that was no evaluation."""
    run = {**json.loads(data)}
    find_task(run["task"])
    return run


def _whole_lines(path: Path) -> list[bytes]:
    """The lines of a file; not a last one that was not written whole."""
    data = path.read_bytes() if path.exists() else b""
    return data[: data.rfind(b"\n") + 1].splitlines()


def _verdicts(task: str, rows: Sequence[dict[str, Any]]) -> Iterator[Verdict]:
    problems = [
        Problem(
            id=row["id"],
            task=row["task"],
            prompt=row["prompt"],
            answer=row["answer"],
            gold=tuple(row["gold"]),
            kinds=tuple(row["kinds"]),
        )
        for row in rows
    ]
    return find_task(task).score(problems, [row["text"] for row in rows])


def summarise(samples: Sequence[dict[str, Any]], metrics: Sequence[str]) -> dict[str, Any]:
    """Scores with their Wilson intervals, and what the replies cost; NFE as in their rows."""
    n, nfe = len(samples), sum(sample["nfe"] for sample in samples)
    commits = sum(sample["tokens_per_forward"] * sample["nfe"] for sample in samples)
    reasons = Counter(s["reason"].partition(":")[0] for s in samples if s["reason"])
    return {
        "n": n,
        "scores": {name: _score(sum(s["correct"][name] for s in samples), n) for name in metrics},
        "nfe": nfe,
        "forwards": sum(sample["forwards"] for sample in samples),
        "tokens": sum(len(sample["token_ids"]) for sample in samples),
        "tokens_per_forward": round(commits / max(nfe, 1), 4),
        "without_answer": sum(sample["read"] is None for sample in samples),
        "cut_at_limit": sum(sample["stop_reason"] == "length" for sample in samples),
        "failures": dict(reasons.most_common()),
    }


def _score(correct: int, n: int) -> dict[str, Any]:
    low, high = wilson_interval(correct, n)
    return {"correct": correct, "share": correct / max(n, 1), "low": low, "high": high}


def shown(summary: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """The summary as a table's title and rows, a row for every metric."""
    run = summary["run"]
    title = f"{run['task']}, {run['shots']} shots, {run['target']['name']}"
    rows = [
        {
            "metric": name,
            "score": f"{score['share']:.3f}",
            "95 % interval": f"[{score['low']:.3f}, {score['high']:.3f}]",
            "right": score["correct"],
            "n": summary["n"],
            "NFE": summary["nfe"],
            "tokens/forward": summary["tokens_per_forward"],
            "certificate": run["certificate"],
        }
        for name, score in summary["scores"].items()
    ]
    return f"{title}, method {run['decode']['method']}", rows
