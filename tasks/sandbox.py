"""Runs untrusted Python source in a process of its own, with limits.

Guaranteed, on Linux: limits on CPU time, memory, file size and open files; a limit on wall time,
generous since a busy machine must not decide, after which the process group is killed; no new
process or thread; an empty temporary working directory, removed afterwards; a minimal
environment; output thrown away; "passed" only if the last statement was reached, shown by a fresh
random token on a pipe of its own, so that no early exit counts. Where the caller is root, the child
gives up root for an otherwise unused user id.

Best effort: the network. Where the kernel permits a new network namespace (root, or user namespaces
allowed) nothing is reachable; elsewhere the child's socket type is replaced, which stops ordinary
code only. Signals to other processes: impossible for the child of a root caller, whose user id is
its own; otherwise only ``os.kill`` and its kin are replaced, so a hostile reply could still end the
caller's processes. Not guaranteed: files that the child's user may read or write stay so, and code
that digs through the interpreter's frames could find the token. Use a container against attackers.
"""

import os
import secrets
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from math import ceil

from tasks.cores import usable_cores

PATIENCE = 4
"""Seconds of wall time for a second of CPU time."""
_MAX_REPORT_BYTES = 1_000
_FIRST_SPARE_USER = 60_001
_NUM_SPARE_USERS = 5_000

# Runs in the child, which must start fast: few imports, no site packages. Its arguments: the
# report's file descriptor, CPU seconds, memory in bytes, the user id for a child of root.
# Root is given up although the standard library may lie where only root can go, so that the
# library's folders are opened before and reached through their descriptors afterwards.
_CHILD = r"""
import ctypes, os, resource, sys

def cut_network():
    new_user, new_network = 0x10000000, 0x40000000
    unshare = getattr(ctypes.CDLL(None), "unshare", None)
    flags = new_network if os.geteuid() == 0 else new_network | new_user
    if unshare is not None and unshare(flags) == 0:
        return
    import _socket, socket
    class Closed:
        def __init__(self, *args, **options):
            raise OSError("the network is switched off")
    _socket.socket = socket.socket = socket.SocketType = Closed

def refuse_signals():
    def refuse(*args):
        raise OSError("signals are switched off")
    import posix
    os.kill = os.killpg = posix.kill = posix.killpg = refuse

def give_up_root(user):
    keep = 4
    folders = [os.open(path, os.O_RDONLY) for path in sys.path if os.path.isdir(path)]
    sys.path[:] = [f"/proc/self/fd/{folder}" for folder in folders]
    sys.path_importer_cache.clear()
    import encodings
    encodings.__path__ = [f"{path}/encodings" for path in sys.path]
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
    ctypes.CDLL(None).prctl(keep, 1, 0, 0, 0)

def limit(cpu_seconds, memory_bytes):
    for name, soft, hard in (
        ("CPU", cpu_seconds, 2 * cpu_seconds), ("AS", memory_bytes, memory_bytes),
        ("FSIZE", 1_000_000, 1_000_000), ("NOFILE", 64, 64), ("CORE", 0, 0), ("NPROC", 0, 0),
    ):
        resource.setrlimit(getattr(resource, "RLIMIT_" + name), (soft, hard))

def reason_of(error):
    if isinstance(error, AssertionError):
        return "assertion failed"
    if isinstance(error, MemoryError):
        return "memory"
    try:
        return f"error: {type(error).__name__} {error}".strip()
    except BaseException:
        return "error: unprintable"

def set_up(cpu_seconds, memory_bytes, user):
    os.dup2(1, 0)
    cut_network()
    refuse_signals()
    if os.getuid() == 0:
        give_up_root(user)
    limit(cpu_seconds, memory_bytes)

def main():
    report, cpu_seconds, memory_bytes, user = map(int, sys.argv[1:])
    token, _, source = sys.stdin.buffer.read().partition(b"\n")
    try:
        set_up(cpu_seconds, memory_bytes, user)
    except BaseException as error:
        os.write(report, token + reason_of(error).encode("utf-8", "replace")[:500])
        os._exit(1)
    try:
        exec(compile(source, "reply", "exec", dont_inherit=True), {"__name__": "__main__"})
        message = token
    except BaseException as error:
        message = reason_of(error).encode("utf-8", "replace")[:500]
    os.write(report, message)
    os._exit(0)

main()
"""


@dataclass(frozen=True)
class SandboxResult:
    """Whether a run reached its end, and if not why.

    ``reason`` is "passed", "assertion failed", "timeout", "memory", or "error: " with the
    exception's type and message, or with how the process ended.
    """

    ok: bool
    reason: str


def run_python(source: str, timeout: float, memory_mb: int = 512) -> SandboxResult:
    """Run ``source`` for at most ``timeout`` seconds of CPU time; see the module for the rest.

    Raises ``ValueError`` for a limit that is not positive and ``RuntimeError`` when the limits
    cannot be set up on this machine; never because of ``source``.
    """
    if timeout <= 0 or memory_mb <= 0:
        raise ValueError(f"limits must be positive: timeout={timeout}, memory_mb={memory_mb}")
    token = secrets.token_hex(16).encode()
    place = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
    try:
        report, exit_code = _run_child(token, source, timeout, memory_mb, place.name)
    finally:
        _remove(place)
    return _judge(token, report, exit_code)


def _remove(place: tempfile.TemporaryDirectory[str]) -> None:
    """Remove the folder of a run, however deep what the source made in it."""
    with suppress(RecursionError):  # Python 3.11 goes down by calls, one for each level
        place.cleanup()
    if os.path.exists(place.name):
        subprocess.run(["rm", "-rf", "--", place.name], stderr=subprocess.DEVNULL, check=False)


def run_many(
    sources: Sequence[str], timeout: float, workers: int | None = None
) -> Iterator[SandboxResult]:
    """The result of each source in order, ``workers`` (else one a usable core) at a time."""
    with ThreadPoolExecutor(workers or usable_cores()) as pool:
        yield from pool.map(lambda source: run_python(source, timeout), sources)


def _run_child(
    token: bytes, source: str, timeout: float, memory_mb: int, folder: str
) -> tuple[bytes | None, int]:
    """The child's report (none after a time-out) and its exit code."""
    user = _FIRST_SPARE_USER + secrets.randbelow(_NUM_SPARE_USERS)
    if os.geteuid() == 0:
        os.chown(folder, user, user)
    report_end, child_end = os.pipe()
    limits = (child_end, ceil(timeout), memory_mb * 2**20, user)
    deadline = time.monotonic() + PATIENCE * timeout
    with os.fdopen(report_end, "rb", buffering=0), tempfile.TemporaryFile() as stdin:
        try:
            stdin.write(token + b"\n" + source.encode("utf-8", "replace"))
            stdin.seek(0)
            child = subprocess.Popen(
                [sys.executable, "-I", "-S", "-c", _CHILD, *map(str, limits)],
                stdin=stdin,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=folder,
                env={"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"},
                pass_fds=(child_end,),
                start_new_session=True,
            )
        finally:
            os.close(child_end)
        try:
            report = _read_report(report_end, deadline)
            if report is not None:
                child.wait(max(deadline - time.monotonic(), 0.01))
        except subprocess.TimeoutExpired:
            report = None
        finally:
            _kill_group(child)
    return report, child.returncode


def _read_report(descriptor: int, deadline: float) -> bytes | None:
    """What the child wrote, cut to a bound; none if it had not ended by the deadline."""
    report = b""
    poll = select.poll()  # not select(): descriptors may be above 1024 in a large process
    poll.register(descriptor, select.POLLIN)
    while len(report) < _MAX_REPORT_BYTES:
        if not poll.poll(max(deadline - time.monotonic(), 0) * 1000):
            return None
        chunk = os.read(descriptor, _MAX_REPORT_BYTES)
        if not chunk:
            break
        report += chunk
    return report


def _kill_group(child: subprocess.Popen[bytes]) -> None:
    """End the child and whatever is left of its process group."""
    if child.poll() is None:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _judge(token: bytes, report: bytes | None, exit_code: int) -> SandboxResult:
    """The result that a report and an exit code stand for; the report may be forged."""
    if report == token and exit_code == 0:
        return SandboxResult(True, "passed")
    # Out of CPU time, which the source may have caught once, or still there at the deadline.
    if report is None or exit_code in (-signal.SIGXCPU, -signal.SIGKILL):
        return SandboxResult(False, "timeout")
    if exit_code < 0:
        return SandboxResult(False, f"error: killed by signal {-exit_code}")
    text = report.decode("utf-8", "replace")
    if exit_code == 1 and report.startswith(token):
        raise RuntimeError(f"the sandbox cannot be set up here: {text[len(token) :]}")
    is_reason = text in ("assertion failed", "memory") or text.startswith("error: ")
    return SandboxResult(False, text[:500] if is_reason else "error: ended early")
