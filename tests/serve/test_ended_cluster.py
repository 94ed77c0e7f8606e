"""Nobody waits for a cluster that was ended, however its calls behave."""

import subprocess
from collections.abc import Iterator
from threading import Event

import pytest
from ray.exceptions import RayActorError

from cluster.processes import age_mark
from serve.ended_cluster import ClusterEnded, call_in_time

PATIENCE = 600.0
"""Longer than the test may take."""


@pytest.fixture
def never() -> Iterator[Event]:
    """What a call to a lost cluster waits for."""
    event = Event()
    yield event
    event.set()


def test_a_call_without_return_is_given_up_once_a_process_of_the_cluster_has_ended(
    never: Event,
) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        cluster = {process.pid: age_mark(process.pid)}
        for known in (cluster, {}):
            with pytest.raises(ClusterEnded, match=r"has not answered for 0\.3 s"):
                call_in_time(never.wait, 0.3, known)
        process.kill()
        with pytest.raises(ClusterEnded, match="was ended, too"):
            call_in_time(never.wait, PATIENCE, cluster)


def failing(error: Exception) -> None:
    raise error


def test_a_lost_actor_is_the_clusters_end_and_other_errors_stay_what_they_are() -> None:
    with pytest.raises(ClusterEnded, match="RayActorError"):
        call_in_time(lambda: failing(RayActorError()), PATIENCE, {})
    with pytest.raises(ValueError, match="budget"):
        call_in_time(lambda: failing(ValueError("budget")), PATIENCE, {})
    call_in_time(lambda: None, PATIENCE, {})
