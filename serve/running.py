"""An endpoint for as long as a command runs: up, followed, drained, down."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import ray
from ray import serve
from ray.serve.config import HTTPOptions

from actors.loading import check_ranks_fit
from actors.remote_calls import fetch
from cluster.processes import children
from cluster.session import ClusterConfig, session
from models.checkpoint import target_spec
from models.spec import TargetSpec
from serve.app import (
    DRAIN_LOOK_SECONDS,
    check_config,
    for_other_processes,
    on_gpu,
    serve_application,
)
from serve.config import ServeConfig
from serve.ended_cluster import ClusterEnded, call_in_time
from serve.keys import check_reach
from serve.moves import ServedSettings, check_in_place
from serve.port import check_port, reserved_port

APPLICATION = "maskahead"
SPARE_SECONDS = 30.0
"""Beyond an answer's time, after which the proxy gives up on a replica that says nothing."""

Say = Callable[[str], None]


def run_server(
    config: ServeConfig,
    host: str = "127.0.0.1",
    port: int = 8000,
    follow: Callable[[], ServeConfig] | None = None,
) -> None:
    """Serve ``config`` until interrupted or told to end, on the cluster that it names (by default
    one of its own); then let running answers end. With ``follow``, look there for other options now
    and then.

    Raises ``ValueError`` for what cannot be served.
    """
    check_reach(host, config.serve)
    check_config(config)
    show(f"starting Ray and loading {config.model_name} ...")
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    # Read once: keys that are added to a file later must not look like another application.
    opened = for_other_processes(config)
    up = serving if config.cluster.is_remote else until_the_cluster_ends
    with (
        reserved_port(host, port),
        until_told(config.cluster) as ended,
        up(opened, host, port) as url,
    ):
        show(f"{config.model_name} answers on {url} (Ctrl-C ends it)")
        # Nothing but Ray has been started by this process.
        cluster = {} if config.cluster.is_remote else children(os.getpid())
        try:
            following = Follower(config, target_spec(opened.target), follow, show)
            while not ended.wait(following.seconds):
                wanted = following.next()
                if wanted is not None:
                    reconfigure(opened, ServedSettings.of(wanted))
                    show(f"now serving {wanted.decode.method}, run {wanted.run_id}")
        finally:
            show("ending: running answers are finished, new requests refused")
            drain(opened, cluster)


def show(text: str) -> None:
    """Print at once, also into a pipe."""
    print(text, flush=True)


@contextmanager
def until_told(cluster: ClusterConfig) -> Iterator[threading.Event]:
    """A session with the cluster, and what SIGTERM sets from then on: told once more, a process
    that is ending goes on with that."""
    ended = threading.Event()
    with session(cluster):
        signal.signal(signal.SIGTERM, lambda *_: ended.set())
        yield ended


class Follower:
    """Looks where a configuration comes from, and takes over what can be changed in place."""

    def __init__(
        self,
        opened: ServeConfig,
        spec: TargetSpec,
        look: Callable[[], ServeConfig] | None,
        say: Say,
    ) -> None:
        self._opened = self._served = opened
        self._spec = spec
        self._look = look
        self._say = say
        self._told = ""

    @property
    def seconds(self) -> float | None:
        """Between two looks; ``None`` where there is nowhere to look."""
        return self._opened.serve.follow_seconds if self._look else None

    def next(self) -> ServeConfig | None:
        """What is to be served now, if it is something new that can be."""
        assert self._look is not None
        try:
            wanted = self._look()
            check_in_place(self._opened, wanted, self._spec)
        except Exception as error:  # whatever it is, the endpoint goes on
            self._tell(f"not taken over: {error}")
            return None
        self._told = ""
        if ServedSettings.of(wanted) == ServedSettings.of(self._served):
            return None
        self._served = wanted
        return wanted

    def _tell(self, text: str) -> None:
        """Say it once, until it has passed."""
        if text != self._told:
            self._told = text
            self._say(text)


@contextmanager
def serving(config: ServeConfig, host: str, port: int) -> Iterator[str]:
    """The running endpoint's URL, within an open Ray session, which is left as it was.

    Raises ``ValueError`` for a port that is taken, GPUs that the cluster lacks or that have no
    room, or a cluster that serves already, and ``RuntimeError`` with what the replica said when it
    does not come up.
    """
    check_place(config, host, port)
    check_nothing_served()
    try:
        yield deploy(config, host, port)
    finally:
        serve.shutdown()


def deploy(config: ServeConfig, host: str, port: int) -> str:
    """Bring the endpoint up; returns its URL."""
    seconds = config.serve.request_seconds + SPARE_SECONDS
    serve.start(http_options=HTTPOptions(host=host, port=port, request_timeout_s=seconds))
    try:
        serve.run(serve_application(config), name=APPLICATION, route_prefix="/")
    except RuntimeError as error:
        raise RuntimeError(why_not_deployed() or str(error)) from error
    return url_of(host, port)


def url_of(host: str, port: int) -> str:
    """Where the endpoint answers; an address of IPv6 stands in brackets."""
    return f"http://[{host}]:{port}/v1" if ":" in host else f"http://{host}:{port}/v1"


@contextmanager
def until_the_cluster_ends(config: ServeConfig, host: str, port: int) -> Iterator[str]:
    """As :func:`serving`, on a cluster that ends with the session: that is Serve's end too. (Ending
    Serve first makes Ray print that a task of its controller failed.)"""
    check_place(config, host, port)
    yield deploy(config, host, port)


def check_place(config: ServeConfig, host: str, port: int) -> None:
    """Raise ``ValueError`` for a port that is taken, or GPUs that are not there."""
    _check_devices(config)
    check_port(host, port)


def check_nothing_served() -> None:
    """Raise ``ValueError`` where Ray Serve runs on the cluster already: it keeps its address, an
    endpoint would take the place of the one there, and its end would be that of everything that is
    served."""
    found = serve.status()
    if found.proxies or found.applications:
        names = ", ".join(found.applications) or "nothing yet"
        raise ValueError(
            f"Ray Serve runs on this cluster already (applications: {names}); valid: another "
            "cluster, `serve deploy` of a file that --write-config writes, or first `serve "
            "shutdown`"
        )


def reconfigure(opened: ServeConfig, settings: ServedSettings) -> None:
    """Give every replica other settings in place."""
    serve.run(serve_application(opened, settings), name=APPLICATION, route_prefix="/")


def drain(config: ServeConfig, cluster: Mapping[int, str]) -> None:
    """Refuse new answers and wait for the running ones, ``serve.drain_seconds`` at most; not for a
    ``cluster`` that has ended (see :func:`call_in_time`)."""
    settings = ServedSettings.of(config, draining=True)
    seconds = config.serve.drain_seconds + SPARE_SECONDS
    # A call that is given up goes on in its thread, and Serve starts a cluster where it finds none.
    os.environ["RAY_ADDRESS"] = ray.get_runtime_context().gcs_address
    try:
        call_in_time(lambda: reconfigure(config, settings), SPARE_SECONDS, cluster)
        call_in_time(lambda: delete_application(seconds), seconds + SPARE_SECONDS, cluster)
    except ClusterEnded as error:
        show(f"{error}: ending without it")


def delete_application(seconds: float) -> None:
    """Let the application end, once it has finished its answers or so much time has passed."""
    deadline = time.monotonic() + seconds
    with suppress(TimeoutError):  # Serve's own patience ends after a minute
        serve.delete(APPLICATION)
    while APPLICATION in serve.status().applications and time.monotonic() < deadline:
        time.sleep(DRAIN_LOOK_SECONDS)


def _check_devices(config: ServeConfig) -> None:
    """A replica that asks for more than there is would stay pending for ever."""
    num_gpus = ray.cluster_resources().get("GPU", 0)
    if on_gpu(config) and num_gpus < config.target.tp:
        raise ValueError(
            f"target.device {config.target.device!r} with target.tp {config.target.tp}: this "
            f"cluster has {num_gpus:g} GPUs"
        )
    if on_gpu(config):
        # In a process of its own: looking at a GPU takes memory there for as long as it lives.
        check = ray.remote(num_cpus=0, num_gpus=1)(check_ranks_fit)
        fetch(check.remote(config.target))


def why_not_deployed() -> str:
    """The last line that a replica which failed to start left behind."""
    application = serve.status().applications.get(APPLICATION)
    deployments = application.deployments.values() if application else ()
    lines = [line for found in deployments for line in found.message.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
