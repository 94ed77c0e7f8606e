"""Where to run: a cluster of one's own, or one that runs already."""

from pydantic import BaseModel, ConfigDict, Field

LOCAL, AUTO = "local", "auto"
HEAD_PORT = 6379
"""Where ``maskahead cluster up`` starts a head, unless it is told another port."""

RAY_ENVIRONMENT = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # A busy machine takes longer than Serve's 5 seconds to import what its proxy needs.
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "30",
    # Ray's workers would give way to every other process; ranks decode as if in this one.
    "RAY_worker_niceness": "0",
}
"""What Ray is told wherever it is started, unless the environment says otherwise."""


class ClusterConfig(BaseModel):
    """Where to run (``cluster.*`` of a configuration)."""

    model_config = ConfigDict(frozen=True, extra="forbid", use_attribute_docstrings=True)

    address: str = "local"
    """``local``: a cluster of one's own that ends with the session. ``auto``: the one that
    ``maskahead cluster up`` started or joined from this folder, else one that Ray finds on this
    machine. Or ``HOST:PORT`` of a running head."""
    ship_code: bool = True
    """Whether a cluster that runs already is sent this program's code; else every node uses what is
    installed there."""
    num_cpus: int | None = Field(default=None, ge=1)
    """Cores that an own cluster offers; by default those of the machine."""
    num_gpus: int | None = Field(default=None, ge=0)
    """GPUs that an own cluster offers; by default those of the machine."""
    object_store_bytes: int = Field(default=200_000_000, ge=80_000_000)
    """Shared memory of an own cluster; little passes through it."""
    dashboard: bool = False
    """Whether an own cluster serves Ray's dashboard."""

    @property
    def is_remote(self) -> bool:
        """Whether work goes to processes of a cluster that runs already."""
        return self.address != LOCAL
