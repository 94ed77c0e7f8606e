"""What the training of a drafter leaves in the store: a run with its loss curve, what its card
says, the weights, and a version in the registry."""

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from cluster.log_queue import LogQueue
from cluster.tracking import DataSource, Tracking
from cluster.tracking.registry import Registered, Version, register, version_tagged
from models.digests import digest
from tasks.files import flat
from tasks.train_order import TrainOrderConfig
from tasks.train_sets import TrainSetsConfig

Kind = Literal["order", "sets"]
Report = Callable[[dict], None]
Train = Callable[[Report], Path]

DRAFTER_FORMAT = 1
"""Of a registered drafter: a folder with ``config.json``, ``model.safetensors``, ``card.json``."""
FILES = ("config.json", "model.safetensors", "card.json")
LONGEST_PARAM = 500


def registry_name(kind: Kind) -> str:
    return f"maskahead-{kind}"


def train_logged(
    kind: Kind,
    config: TrainOrderConfig | TrainSetsConfig,
    train: Train,
    report: Report,
    tracking: Tracking,
    command: str,
) -> tuple[Path, Registered]:
    """Train, log it as one run (an interrupted training goes on in its own), and register the
    drafter as a version; returns its folder and the version. A store that goes away meanwhile is
    waited for until the end: only then ``RuntimeError``."""
    run_id = begin(kind, config, tracking, command)

    def log(facts: dict) -> None:
        tracking.log(run_id, {}, numbers(facts), {}, step=facts["step"])

    remedy = f"the drafter is in {config.out}: start the store again, and the same command logs it"
    queue = LogQueue(log, lambda text: report({"note": text}), "steps", remedy)

    def report_and_log(facts: dict) -> None:
        report(facts)
        if numbers(facts):
            queue.add(facts)

    with tracking.lasting(run_id):
        out = train(report_and_log)
        queue.flush()
        version = conclude(kind, config, out, tracking, run_id)
    return out, version


def find_registered(kind: Kind, out: Path, tracking: Tracking) -> Registered | None:
    """The version that holds the drafter in ``out``, if one was registered."""
    return version_tagged(tracking, registry_name(kind), "drafter", digest(out))


def begin(
    kind: Kind, config: TrainOrderConfig | TrainSetsConfig, tracking: Tracking, command: str
) -> str:
    """The run: that of the same configuration if it was cut short, else a new one."""
    text = json.dumps([kind, config.model_dump(mode="json")], sort_keys=True)
    training_id = blake2b(text.encode(), digest_size=8).hexdigest()
    target = Path(config.target.path).name
    run_id = tracking.parent(training_id, f"train {kind}: {target}, {config.out}", reopen=False)
    params = flat(config.model_dump(mode="json"))
    told = {name: json.dumps(value)[:LONGEST_PARAM] for name, value in params.items()}
    tracking.log(run_id, told, {}, {"command": command, "kind": f"train {kind}"})
    return run_id


def conclude(
    kind: Kind,
    config: TrainOrderConfig | TrainSetsConfig,
    out: Path,
    tracking: Tracking,
    run_id: str,
) -> Registered:
    """Card, weights and version of a training that ended well."""
    card = json.loads((out / "card.json").read_bytes())
    for step, metrics in by_step(card):
        tracking.log(run_id, {}, metrics, {}, step=step)
    traces = traces_digest(config)
    lineage = {"target": card["target_digest"], "traces": traces, "drafter": digest(out)}
    tags = {f"digests.{name}": text for name, text in lineage.items()}
    tracking.log(run_id, {}, {}, tags, DataSource("traces", traces, config.traces))
    tracking.log_files(run_id, [out / name for name in FILES], kind)
    described = f"{kind} model for {Path(config.target.path).name}, {card['parameters']:,} weights"
    version = Version(registry_name(kind), run_id, kind, described, DRAFTER_FORMAT, lineage)
    return register(tracking, version, [])


def traces_digest(config: TrainOrderConfig | TrainSetsConfig) -> str:
    """A short digest of the manifests of all recordings that it learnt from or was measured on."""
    state = blake2b(digest_size=8)
    for recording in config.recordings:
        state.update((Path(config.traces) / recording.name / "manifest.json").read_bytes())
    return state.hexdigest()


def numbers(facts: Mapping[str, Any]) -> dict[str, float]:
    """What a training step says, without the counts of steps."""
    if "step" not in facts:
        return {}
    return {name: facts[name] for name in facts if name not in ("step", "of")}


def by_step(card: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, float]]]:
    """A card's measurements as metrics; whole numbers among its keys (depths) are the steps."""
    steps: dict[int, dict[str, float]] = {}
    for path, value in leaves({name: card[name] for name in card if name != "config"}):
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            continue
        if math.isfinite(value):
            step = next((int(part) for part in path if part.isdigit()), 0)
            name = "/".join(part for part in path if not part.isdigit())
            steps.setdefault(step, {})[re.sub(r"[^\w\-./ ]", "_", name)] = float(value)
    yield from sorted(steps.items())


def leaves(values: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    """What nested mappings hold in the end, each with the keys that lead there."""
    if not isinstance(values, Mapping):
        yield path, values
        return
    for key, value in values.items():
        yield from leaves(value, (*path, str(key)))
