"""The registry: configurations and drafters as numbered versions, with aliases and lineage."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlflow.exceptions import MlflowException

from cluster.passwords import without_passwords
from cluster.tracking.store import Tracking

if TYPE_CHECKING:
    from mlflow.entities.model_registry import ModelVersion

CONFIGURATIONS = "maskahead"
"""Best configurations; drafters are registered as ``maskahead-order`` and ``maskahead-sets``."""
CHAMPION = "champion"
LATEST = "latest"
"""In place of a number: the newest version. MLflow lets no alias have this name."""
FORMAT_TAG = "format"


@dataclass(frozen=True)
class Version:
    """What becomes a version: an artifact (file or folder) of a run."""

    model: str
    run_id: str
    artifact: str
    description: str
    format: int
    """Of the artifact; a reader refuses what it does not know."""
    lineage: Mapping[str, str]
    """Digests of what it was made from, and whatever else tells its origin, as tags."""


@dataclass(frozen=True)
class Registered:
    """A version as it stands in the registry."""

    model: str
    number: str
    run_id: str
    artifact: str
    description: str
    tags: Mapping[str, str]
    aliases: tuple[str, ...]

    @property
    def uri(self) -> str:
        return f"models:/{self.model}/{self.number}"


def register(tracking: Tracking, version: Version, aliases: Iterable[str]) -> Registered:
    """Make ``version`` known, once (a resumed run finds its own again), and point ``aliases`` at
    it."""
    client = tracking.client
    try:
        client.create_registered_model(version.model)
    except MlflowException as error:
        if error.error_code != "RESOURCE_ALREADY_EXISTS":
            raise
    same = [
        found
        for found in versions_of(tracking, version.model, version.run_id)
        if found.artifact == version.artifact and found.description == version.description
    ]
    number = same[0].number if same else _create(tracking, version)
    for alias in aliases:
        client.set_registered_model_alias(version.model, alias, number)
    return _read(client.get_model_version(version.model, number))


def _create(tracking: Tracking, version: Version) -> str:
    made = tracking.client.create_model_version(
        version.model,
        f"runs:/{version.run_id}/{version.artifact}",
        version.run_id,
        tags={FORMAT_TAG: str(version.format), **version.lineage},
        description=version.description,
    )
    return str(made.version)


def versions_of(tracking: Tracking, model: str | None, run_id: str) -> list[Registered]:
    """The versions made from a run, the newest first; of one model, or of all."""
    query = f"run_id = '{run_id}'" + (f" and name = '{model}'" if model else "")
    found = [_read(version) for version in tracking.client.search_model_versions(query)]
    return sorted(found, key=lambda version: -int(version.number))


def version_tagged(tracking: Tracking, model: str, tag: str, value: str) -> Registered | None:
    """The newest version of ``model`` that has the tag."""
    found = map(_read, tracking.client.search_model_versions(f"name = '{model}'"))
    fitting = [version for version in found if version.tags.get(tag) == value]
    return max(fitting, key=lambda version: int(version.number), default=None)


def find_version(tracking: Tracking, name: str) -> Registered:
    """The version behind ``models:/NAME@ALIAS``, ``models:/NAME/VERSION`` or
    ``models:/NAME/latest``.

    Raises ``ValueError`` when the store has no such version, with what it has.
    """
    model, alias, number = parse_model_uri(name)
    client = tracking.client
    try:
        if number == LATEST:
            number = _newest(tracking, model)
        elif alias:
            number = client.get_model_version_by_alias(model, alias).version
        return _read(client.get_model_version(model, number))
    except MlflowException as error:
        known = _known(tracking, model)
        store = without_passwords(tracking.uri)
        raise ValueError(
            f"model {name!r}: {store} holds no such version; it has {known}"
        ) from error


def _known(tracking: Tracking, model: str) -> str:
    """What a name of ``model`` could have meant, in words."""
    found = {known.name: known for known in tracking.client.search_registered_models()}
    if model not in found:
        return f"models {', '.join(sorted(found))}" if found else "no models"
    aliases = ", ".join(f"@{alias}" for alias in sorted(found[model].aliases)) or "no aliases"
    newest = int(_newest(tracking, model))
    versions = f"{model}/1" if newest == 1 else f"{model}/1 to /{newest}"
    return f"{versions} and {aliases}"


def _newest(tracking: Tracking, model: str) -> str:
    found = tracking.client.search_model_versions(f"name = '{model}'")
    return str(max((int(version.version) for version in found), default=0))


def fetch(tracking: Tracking, name: str, folder: Path, known_format: int) -> Path:
    """The file or folder behind a ``models:/`` name, copied into ``folder``.

    Raises ``ValueError`` when the store has no such version, or one of another format.
    """
    found = find_version(tracking, name)
    written = found.tags.get(FORMAT_TAG, str(known_format))  # versions of before formats had one
    if written != str(known_format):
        raise ValueError(
            f"model {name!r} has format {written}; this program reads format {known_format}"
        )
    folder.mkdir(parents=True, exist_ok=True)
    return Path(tracking.client.download_artifacts(found.run_id, found.artifact, str(folder)))


def point(tracking: Tracking, version: Registered, alias: str) -> str | None:
    """Let ``alias`` name ``version``; returns the number that it named before, if another.

    Raises ``ValueError`` for a name that MLflow allows no alias.
    """
    client = tracking.client
    try:
        before = str(client.get_model_version_by_alias(version.model, alias).version)
    except MlflowException:
        before = None
    try:
        client.set_registered_model_alias(version.model, alias, version.number)
    except MlflowException as error:
        raise ValueError(f"alias {alias!r}: {error.message}") from error
    return None if before == version.number else before


def parse_model_uri(name: str) -> tuple[str, str, str]:
    """(model, alias, version) of a ``models:/`` name; one of the last two is empty."""
    path = name.removeprefix("models:/")
    model, at, alias = path.partition("@")
    if at and model and alias and path != name:
        return model, alias, ""
    model, slash, version = path.partition("/")
    if path == name or not (slash and model and (version.isdigit() or version == LATEST)):
        raise ValueError(
            f"model {name!r}: write models:/NAME@ALIAS, models:/NAME/VERSION or models:/NAME/latest"
        )
    return model, "", version


def _read(version: "ModelVersion") -> Registered:
    run_id = str(version.run_id)
    source: Any = version.source or ""
    return Registered(
        model=version.name,
        number=str(version.version),
        run_id=run_id,
        artifact=source.partition(f"{run_id}/")[2] or Path(source).name,
        description=version.description or "",
        tags=dict(version.tags),
        aliases=tuple(version.aliases or ()),
    )
