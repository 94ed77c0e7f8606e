"""How a command ends: an exit code, and at most one line that says why."""

import signal
import sys
import traceback
from collections.abc import Sequence

import typer

from cluster.console import say
from cluster.passwords import without_passwords

FAILURE, BAD_INPUT, INTERRUPTED = 1, 2, 130
"""Exit codes besides 0; typer returns the last one itself after Ctrl-C."""


def run_app(app: typer.Typer, argv: Sequence[str] | None) -> int:
    """Run the command that ``argv`` (default: the process's own words) asks for; its exit code."""
    if argv is None:  # a process of its own: being told to end is an interrupt too
        signal.signal(signal.SIGTERM, signal.default_int_handler)
    words = [
        "--help" if word == "-h" else word for word in (sys.argv[1:] if argv is None else argv)
    ]
    debug = "--debug" in words
    try:
        code = app([w for w in words if w != "--debug"], "maskahead", standalone_mode=False) or 0
    except KeyboardInterrupt:
        code = INTERRUPTED
    except typer.TyperException as error:
        message = getattr(error, "format_message", error.__str__)()
        if not message:  # a group without a command: it has shown its help
            return BAD_INPUT
        return _fail(BAD_INPUT, error, message, debug)
    except ValueError as error:
        return _fail(BAD_INPUT, error, str(error), debug)
    except Exception as error:  # the process's edge: one line for whoever called
        return _fail(FAILURE, error, f"{type(error).__name__}: {error}", debug)
    if code == INTERRUPTED:
        say("interrupted; what was written stays")
    return code


def _fail(code: int, error: Exception, message: str, debug: bool) -> int:
    if debug:
        traceback.print_exception(error)
    say(f"error: {without_passwords(' '.join(message.split()))}")
    return code
