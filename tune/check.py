"""A sweep's configuration against what is really there, before anything is started."""

from dataclasses import dataclass
from pathlib import Path

from actors.loading import absolute_paths, check_target
from cluster.tracking import tracking_uri
from cluster.tracking.uri import check_server
from decoders.prompts import PromptRow, build_request
from decoders.proposers.registry import check_drafters
from decoders.refusals import check_request
from drafters.bundle import find_order_model
from models.checkpoint import find_checkpoint, target_spec
from models.spec import TargetSpec
from models.text import TextCodec, has_tokenizer
from tune.config import LiveConfig, SweepConfig, TasksConfig
from tune.problems import ProblemSet, heldout
from tune.space_config import SpaceConfig


@dataclass(frozen=True)
class Checked:
    """A configuration that can run; its paths are absolute, for processes elsewhere."""

    config: SweepConfig
    folder: Path
    """Of the target."""
    spec: TargetSpec
    problems: ProblemSet
    uri: str
    """Of the tracking store."""

    def codec(self) -> TextCodec:
        """The target's tokenizer."""
        return TextCodec(self.folder)


def check(config: SweepConfig, runs: Path) -> Checked:
    """Raise ``ValueError`` for a target, drafter or tracking store that cannot be used."""
    uri = tracking_uri(runs)
    check_server(uri)
    check_target(config.target)
    target, drafter = absolute_paths(config.target, config.drafter)
    folder = find_checkpoint(target.path)
    if not has_tokenizer(folder):
        raise ValueError(
            f"target.path {config.target.path!r} has no tokenizer; the tasks of a sweep are texts"
        )
    if "order" in config.space.methods:
        found = find_order_model(drafter.path, folder)
        if not (found / "config.json").exists():
            raise ValueError(
                f"space.methods: order needs an order model, and neither drafter.path nor {folder} "
                f"nor {found} holds one; train one, or leave order out"
            )
    spec = target_spec(target)
    check_drafters(folder, spec, drafter, set(config.space.methods))
    space = fitting_space(config.space, config.live, spec)
    tasks = absolute_data(config.tasks)
    update = {"target": target, "drafter": drafter, "space": space, "tasks": tasks}
    ready = config.model_copy(update=update)
    problems = heldout(tasks, tasks.recorded)
    check_lengths(problems, ready, spec, TextCodec(folder))
    return Checked(ready, folder, spec, problems, uri)


def absolute_data(tasks: TasksConfig) -> TasksConfig:
    """The same files, for trials: Tune gives each of them a working directory of its own."""
    found = {
        key: {name: str(Path(file).resolve()) for name, file in getattr(tasks, key).items()}
        for key in ("data", "shots_data")
    }
    return tasks.model_copy(update=found)


def check_lengths(
    problems: ProblemSet, config: SweepConfig, spec: TargetSpec, codec: TextCodec
) -> None:
    """Raise ``ValueError`` for a problem that, with its answer, is longer than the target takes."""
    for row in problems.rows:
        request = build_request(PromptRow.model_validate(row), config.reference, codec)
        check_request(request, spec)


def fitting_space(space: SpaceConfig, live: LiveConfig, spec: TargetSpec) -> SpaceConfig:
    """The space as this target has it: what crosses blocks is tried where blocks end for good.

    Raises ``ValueError`` where a bidirectional target was asked by name to cross them.
    """
    if spec.topology != "bidirectional":
        return space
    asked = {
        "space.cross_block": "cross_block" in space.model_fields_set and True in space.cross_block,
        "live.draft_refresh": bool(live.draft_refresh),
    }
    for name, given in asked.items():
        if given:
            raise ValueError(
                f"{name}: the blocks of a bidirectional target ({spec.family}) see those that "
                "follow, none is behind another; leave it out"
            )
    return space.model_copy(update={"cross_block": (False,)})
