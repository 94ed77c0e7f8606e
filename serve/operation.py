"""How an endpoint is run: who may ask, how much, how long, and what is kept of it."""

from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field, model_validator


class OperationConfig(BaseModel):
    """``serve.*`` of an endpoint's configuration."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    api_keys_file: Path | None = None
    """A file with a line ``NAME:SHA256`` for every key (``maskahead serve --new-key NAME`` makes
    one). ``MASKAHEAD_API_KEYS`` may name keys too, separated by commas."""
    api_key_hashes: tuple[str, ...] = ()
    """Such lines in the configuration itself."""
    allow_no_keys: bool = False
    """Serve everybody who reaches the endpoint, also on an address that others can reach."""
    loopback_only: bool = False
    """Serve without keys whoever names this machine as itself: ``maskahead serve --write-config``
    says it of an endpoint on a loopback address."""
    max_body_bytes: int = Field(default=4_194_304, ge=1024)
    """Largest body of a request; a larger one is refused (413)."""
    max_prompt_tokens: int | None = Field(default=None, ge=1)
    """Longest prompt; by default what the target's positions hold."""
    max_answer_tokens: int | None = Field(default=None, ge=1)
    """Most tokens that a request may ask for; by default what the target's positions leave."""
    max_budget: int = Field(default=64, ge=0)
    """Most drafts a round that a request may ask for; a larger ``budget`` is refused, but for the
    one that is served. Drafts of all requests are forwarded together, and take its memory."""
    body_seconds: float = Field(default=30.0, gt=0)
    """In which a body must have arrived (408)."""
    request_seconds: float = Field(default=600.0, gt=0)
    """In which an answer must be complete, waiting included (504)."""
    drain_seconds: float = Field(default=60.0, ge=0)
    """For which running answers may go on when the endpoint ends."""
    follow_seconds: float = Field(default=30.0, ge=1)
    """Between two looks at what is followed (``maskahead serve --follow``)."""
    replicas: int = Field(default=1, ge=1)
    """Copies of the target, each with its own batch; the fewest of them when they scale."""
    max_replicas: int | None = Field(default=None, ge=1)
    """Most copies; Ray Serve then starts and ends them as requests come."""
    requests_per_replica: float | None = Field(default=None, gt=0)
    """Requests under way that a copy should have when they scale; by default what its batch
    holds."""
    log_requests: bool = True
    """One JSON line a request, without prompts and answers."""
    log_file: Path | None = None
    """Where these lines go; by default to the process's standard error, which Ray keeps."""
    log_text: bool = False
    """Prompts and answers stand in the lines too."""

    trace_ratio: float = Field(default=0.0, ge=0, le=1)
    """Share of requests that become MLflow traces."""
    trace_uri: str | None = None
    """The store of these traces; by default that of the sweeps. Every replica writes to it: on
    several nodes it is a server."""

    @model_validator(mode="after")
    def _replicas_in_order(self) -> "OperationConfig":
        if self.max_replicas is not None and self.max_replicas < self.replicas:
            raise ValueError(
                f"serve.max_replicas {self.max_replicas}: serve.replicas says at least "
                f"{self.replicas}"
            )
        if self.requests_per_replica is not None and self.max_replicas is None:
            raise ValueError(
                f"serve.requests_per_replica {self.requests_per_replica:g}: copies scale only with "
                "serve.max_replicas"
            )
        return self
