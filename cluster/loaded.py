"""A target held open: ``maskahead.load`` for Python programs, and the Ray that it may need."""

from collections import Counter
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext
from operator import itemgetter
from typing import Any, Literal, TypedDict, Unpack

from actors.loading import check_target
from actors.runner import Runner, needs_group, open_runner
from cluster.config import ClusterConfig
from cluster.configuration import RunConfig, SharedConfig, load_config, validate
from cluster.session import session
from cluster.short_options import short_forms
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow


class ShortOptions(TypedDict, total=False):
    """The short options of ``maskahead decode`` as keywords; defaults are the configuration's."""

    dtype: str
    quantize: str
    device: str
    tp: int
    block_size: int
    force_block_size: bool
    force_fit: bool
    forwards: str
    compile: bool
    drafter: str
    method: str
    budget: int | Literal["auto"]
    gamma: float
    hedge: float
    width: int
    prune: float
    cap: float
    order: str
    rest: str
    verify: str
    tau: float
    rule: str
    edit_tau: float
    edit_passes: int
    confidence: str
    temperature: float
    coupled: bool
    top_k: int
    top_p: float
    seed: int
    max_new_tokens: int
    ignore_stop: bool
    cache_refresh: int
    cross_block: bool
    draft_refresh: int
    batch_size: int


class LoadedTarget:
    """A target with its drafter and decoding options; :meth:`close` (or ``with``) frees it."""

    def __init__(self, runner: Runner, options: DecodeOptions, resources: ExitStack) -> None:
        self.options = options
        self._runner = runner
        self._resources = resources

    def generate(
        self, prompts: Iterable[str | Mapping[str, Any]], trace: bool = False
    ) -> list[dict[str, Any]]:
        """The output rows of ``maskahead decode``, in the order of the prompts.

        A prompt is a row of a prompts file, or a text (its id is its place). Raises ``ValueError``
        for a prompt that this target cannot take.
        """
        if isinstance(prompts, (str, Mapping)):  # else each character, or key, would be a prompt
            raise ValueError(f"prompts: one {type(prompts).__name__}; give a list, as in [prompt]")
        rows = [_as_row(number, prompt) for number, prompt in enumerate(prompts)]
        ids = [row.id for row in rows]
        row_id, count = max(Counter(ids).items(), key=itemgetter(1), default=("", 1))
        if count > 1:
            raise ValueError(f"id {row_id!r} stands on several prompts")
        found = {row["id"]: row for row in self._runner.decode(rows, self.options, trace)}
        return [found[row_id] for row_id in ids]

    def close(self) -> None:
        """Free the target, and the actors behind it."""
        self._resources.close()

    def __enter__(self) -> "LoadedTarget":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _as_row(number: int, prompt: str | Mapping[str, Any]) -> PromptRow:
    if isinstance(prompt, str):
        return PromptRow(id=str(number), prompt=prompt)
    return validate(PromptRow, prompt, f"prompt {number}: ")


def load_target(target: str, **options: Unpack[ShortOptions]) -> LoadedTarget:
    """Open ``target``, in this process where one rank is enough, else on a Ray of its own."""
    forms = short_forms()
    unknown = sorted(options.keys() - forms.keys())
    if unknown:
        raise ValueError(f"{unknown[0]}: unknown option; valid: {', '.join(forms)}")
    short = {forms[name].key: value for name, value in options.items()}
    config = load_config(RunConfig, short={"target.path": target, **short})
    with ExitStack() as resources:
        resources.enter_context(ray_where_needed(config))
        methods = {config.decode.method}
        runner = open_runner(config.target, config.drafter, methods, config.cluster.is_remote)
        opened = resources.enter_context(runner)
        return LoadedTarget(opened, config.decode, resources.pop_all())


def ray_where_needed(config: RunConfig | SharedConfig) -> AbstractContextManager[object]:
    """Ray for a run that needs several processes, or is to run on a cluster, once its target is
    checked."""
    check_target(config.target)
    cluster = config.cluster if isinstance(config, RunConfig) else ClusterConfig()
    needed = cluster.is_remote or needs_group(config.target, config.drafter)
    return session(cluster) if needed else nullcontext()
