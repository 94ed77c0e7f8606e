"""Replaying a grid of settings over recorded traces: exact counts, no target loaded."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from decoders.boundary import check_boundary
from decoders.options import METHODS, OPTIONS_OF, DecodeOptions
from decoders.proposers.base import Proposer
from decoders.proposers.registry import describe_drafter, find_drafter, open_proposers
from decoders.replay import check_setting, fixed_budget
from decoders.replay_family import widest
from decoders.trace_store import TraceManifest, TraceStore
from drafters.config import DrafterConfig
from models.checkpoint import find_checkpoint, read_spec
from models.invalid import one_line
from tasks.files import ResultsFile
from tasks.replay_counts import count_settings

PREFIX = "decode."
Setting = dict[str, Any]
"""Dotted configuration keys to values."""


def replay_grid(
    traces: Path,
    grid: Mapping[str, Any],
    drafter: DrafterConfig,
    out: Path,
    processes: int,
    report: Callable[[int, int], None],
) -> list[dict[str, Any]]:
    """Replay every setting of ``grid`` and write a row for each; returns the new rows.

    Keys that a setting does not name are those of the traces. Rows that an interrupted run of the
    same grid left in ``out`` stay. Raises ``ValueError`` for an unknown key, another rule, or a
    folder without traces.
    """
    store = TraceStore(traces)
    manifest = store.manifest()
    settings = expand_grid(grid)
    options = [setting_options(setting, manifest) for setting in settings]
    proposers = _open_proposers(manifest, drafter, options)
    num_traces = _check_traces(store, options)
    run: dict[str, Any] = {"traces": manifest.model_dump(), "num_traces": num_traces}
    run |= {"settings": settings, **_describe_drafters(manifest, drafter, options)}
    results = ResultsFile(out, [str(i) for i in range(len(settings))], run)
    left = dict(list(enumerate(options))[results.num_kept :])
    rows = []

    def report_new(new: int) -> None:
        report(results.num_kept + new, len(settings))

    with results:
        for number, counts in count_settings(store, left, proposers, processes, report_new):
            row = {"id": str(number), "setting": settings[number]} | counts.row()
            results.write(row)
            rows.append(row)
    return sorted(rows, key=lambda row: int(row["id"]))


def _describe_drafters(
    manifest: TraceManifest, drafter: DrafterConfig, settings: Sequence[DecodeOptions]
) -> dict[str, Any]:
    """The learned drafters of the settings' methods, by method; nothing where there are none."""
    folder = find_checkpoint(manifest.target)
    methods = sorted({options.method for options in settings})
    paths = {method: find_drafter(method, folder, drafter) for method in methods}
    found = {method: describe_drafter(path) for method, path in paths.items() if path is not None}
    return {"drafters": found} if found else {}


def _check_traces(store: TraceStore, settings: Sequence[DecodeOptions]) -> int:
    """How many traces there are; ``ValueError`` where one cannot tell what a setting would do."""
    requests = [request for part in store.parts() for request in store.requests(part)]
    for options in widest(settings).values():
        for request in requests:
            check_setting(request, options)
    if not requests:
        raise ValueError(f"{store.folder} holds no traces")
    return len(requests)


def table_rows(rows: Iterable[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """The rows as a table shows them: the setting's keys first, without their prefix."""
    rows = list(rows)
    keys = list(dict.fromkeys(key for row in rows for key in row["setting"]))
    counts = ("n", "nfe", "forwards", "nfe_ratio", "tokens_per_forward", "accepted_per_round")
    return [
        {key.removeprefix(PREFIX): row["setting"].get(key) for key in keys}
        | {name.replace("_", " "): row[name] for name in counts}
        for row in rows
    ]


def expand_grid(grid: Mapping[str, Any]) -> list[Setting]:
    """All settings: ``settings`` maps keys to lists (their product) or lists whole settings."""
    unknown = sorted(grid.keys() - {"settings"})
    if unknown:
        raise ValueError(f"grid key {unknown[0]!r} is unknown; valid: settings")
    settings = grid.get("settings")
    if isinstance(settings, list) and all(isinstance(s, Mapping) for s in settings) and settings:
        return [_checked(_dotted(setting)) for setting in settings]
    if isinstance(settings, Mapping) and settings:
        keys = _checked(_dotted(settings))
        choices = [value if isinstance(value, list) else [value] for value in keys.values()]
        return _distinct(dict(zip(keys, values, strict=True)) for values in product(*choices))
    raise ValueError(
        "grid: settings must map configuration keys to lists, or be a list of settings, as in "
        "settings: {decode.method: [chain, order], decode.budget: [4, 8]}"
    )


def _dotted(values: Mapping[str, Any], prefix: str = "") -> Setting:
    flat: Setting = {}
    for key, value in values.items():
        nested = isinstance(value, Mapping)
        flat |= _dotted(value, f"{prefix}{key}.") if nested else {f"{prefix}{key}": value}
    return flat


def _checked(setting: Setting) -> Setting:
    """Keys that do not decide how drafts are made have no place in a grid."""
    valid = {f"{PREFIX}{name}" for names in OPTIONS_OF.values() for name in names}
    unknown = sorted(setting.keys() - valid)
    if unknown:
        raise ValueError(f"grid key {unknown[0]!r} is unknown; valid: {', '.join(sorted(valid))}")
    return setting


def _distinct(settings: Iterable[Setting]) -> list[Setting]:
    """Of a product, each setting once, without the keys that its method does not know."""
    found: list[Setting] = []
    for setting in settings:
        method = setting.get(f"{PREFIX}method")
        known = OPTIONS_OF.get(str(method)) if method is not None else None
        kept = {
            key: value
            for key, value in setting.items()
            if known is None or key.removeprefix(PREFIX) in known
        }
        if kept not in found:
            found.append(kept)
    return found


def setting_options(setting: Setting, manifest: TraceManifest) -> DecodeOptions:
    """The options of one setting: what it does not name follows the traces."""
    rule = dict(manifest.rule)
    draft_free = rule.pop("rule")
    own = {key.removeprefix(PREFIX): value for key, value in setting.items()}
    method = own.setdefault("method", draft_free)
    if method not in METHODS:
        raise ValueError(f"decode.method: {method!r} must be one of {', '.join(METHODS)}")
    if method == "simsd":
        raise ValueError(
            "decode.method simsd: its small model reads the text, and under its mask it leaves the "
            "recorded run; replay counts the other methods, decode and bench this one"
        )
    base = {key: value for key, value in rule.items() if key in OPTIONS_OF[method]}
    try:
        options = DecodeOptions.model_validate({"seed": manifest.seed} | base | own)
    except ValidationError as error:
        raise ValueError(one_line(error, DecodeOptions, PREFIX)) from error
    fixed_budget(options)
    _check_rows(options, {"seed": manifest.seed} | rule)
    return options


def _check_rows(options: DecodeOptions, recorded: Mapping[str, Any]) -> None:
    """What rows may decide for themselves is replayed as recorded, so another value is refused."""
    for name in ("seed", "temperature", "max_new_tokens"):
        asked = getattr(options, name)
        if asked != recorded[name]:
            raise ValueError(
                f"{PREFIX}{name} {asked!r}: these traces were recorded with {recorded[name]!r}; "
                "record them again with the rule to be replayed"
            )


def _open_proposers(
    manifest: TraceManifest, drafter: DrafterConfig, settings: Sequence[DecodeOptions]
) -> dict[str, Proposer]:
    """Drafters as in decoding; of the target only its folder and spec are read, which a setting
    must fit."""
    folder = find_checkpoint(manifest.target)
    spec = read_spec(folder, manifest.block_size, force=True)
    for options in settings:
        check_boundary(options, spec)
    return open_proposers(folder, spec, drafter, {options.method for options in settings})
