"""What a load run asks of an endpoint, checked before anything is sent."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from models.invalid import one_line
from tasks.bundled import TASKS

Loop = Literal["closed", "open"]


class Limits(BaseModel):
    """An answer counts for goodput when it keeps all of these; ``None`` asks for nothing."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    first_text: float | None = Field(default=None, gt=0)
    """Seconds until the first text."""
    per_token: float | None = Field(default=None, gt=0)
    """Seconds a token after the first text, in the answer's mean."""
    seconds: float | None = Field(default=None, gt=0)
    """Seconds of the whole answer."""


class Endpoint(BaseModel):
    """Where requests go: ``url`` ends in ``/v1``; ``send`` is their field ``maskahead``."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    name: str
    url: str
    send: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """For people: two methods of one address are told apart by what is sent."""
        return " ".join((self.name, *(f"{key}={value}" for key, value in self.send.items())))


class LoadConfig(BaseModel):
    """One run: every level of load in turn, on one endpoint or on two by turns. Defaults are the
    command's."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    endpoints: tuple[Endpoint, ...] = Field(min_length=1, max_length=2)
    loop: Loop
    """``closed``: so many clients, each asking anew once it is answered. ``open``: so many requests
    a second, at random times (Poisson), whatever was answered."""
    levels: tuple[float, ...] = Field(min_length=1)
    """Clients, or requests a second."""
    requests: int = Field(ge=1)
    """At each level, and of each endpoint."""
    warmup: int = Field(ge=0)
    """Requests before that, which count nowhere."""
    turns: int = Field(ge=1)
    """Parts in which two endpoints are measured by turns."""
    prompts: Path | None
    """A prompts file, as for ``maskahead decode``; else the bundled ``tasks``."""
    tasks: tuple[str, ...] = tuple(sorted(TASKS))
    model: str | None
    """The model's name; by default what the endpoint lists first."""
    max_tokens: int = Field(ge=1)
    temperature: float = Field(ge=0, le=2)
    seed: int
    """Decides the arrivals, the problems of the tasks and every request's own seed."""
    timeout: float = Field(gt=0)
    """Seconds after which a request counts as an error."""
    limits: Limits = Limits()

    @model_validator(mode="after")
    def _sensible(self) -> "LoadConfig":
        lowest = 1 if self.loop == "closed" else 0
        for level in self.levels:
            if level < lowest or level == 0 or (lowest and not level.is_integer()):
                kind = "a whole number of clients" if lowest else "requests a second, above 0"
                raise ValueError(f"level {level:g} must be {kind}")
        num_turns = self.turns if len(self.endpoints) == 2 else 1
        # With fewer requests than clients in a turn it would measure fewer clients than it says.
        least = num_turns * (int(max(self.levels)) if self.loop == "closed" else 1)
        if self.requests < least:
            told = f"level {max(self.levels):g}" + f" in {num_turns} turns" * (num_turns > 1)
            raise ValueError(f"requests {self.requests} must be at least {least} for {told}")
        unknown = sorted(set(self.tasks) - set(TASKS))
        if unknown:
            raise ValueError(f"task {unknown[0]!r} is not known; valid: {', '.join(TASKS)}")
        return self


def read_config(values: Mapping[str, Any]) -> LoadConfig:
    """A configuration from plain values; ``ValueError`` of one line."""
    try:
        return LoadConfig.model_validate(values)
    except ValidationError as error:
        raise ValueError(one_line(error, LoadConfig)) from error


def read_levels(option: str, text: str) -> tuple[float, ...]:
    """Numbers with commas between them."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError as error:
        raise ValueError(f"{option} {text!r} must be numbers with commas between them") from error


def read_send(settings: Sequence[str]) -> dict[str, Any]:
    """``KEY=VALUE`` pairs; values are read as YAML."""
    found: dict[str, Any] = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not key:
            raise ValueError(f"send {setting!r} must be KEY=VALUE, as in method=chain")
        try:
            found[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ValueError(f"send {key}: {value!r} is not a YAML value") from error
    return found


def endpoint_of(name: str, url: str, settings: Sequence[str]) -> Endpoint:
    """An endpoint; ``/v1`` is added to a bare address."""
    if not url.startswith(("http://", "https://")):
        raise ValueError(f"url {url!r} must begin with http:// or https://")
    bare = url.rstrip("/")
    return Endpoint(
        name=name, url=bare if bare.endswith("/v1") else f"{bare}/v1", send=read_send(settings)
    )
