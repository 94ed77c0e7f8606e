"""What a sweep will run, and about how long that takes: for ``--dry-run`` and for the time left."""

from dataclasses import dataclass

from tune.config import SweepConfig
from tune.recording import PART
from tune.space import simsd_settings

START_SECONDS = 25.0
"""Ray, the target's process, the tracking store."""
COST_SECONDS = 25.0
TRIALS_SECONDS = 8.0
"""Starting the processes of one fidelity's trials."""
REPLAY_SECONDS = 0.06
"""One setting on one problem, in one process."""
FORWARDS_A_TOKEN = 0.6
"""Answers mostly end before their limit."""
SPEED_UP = 2.0
"""How much faster than draft-free a setting that is tried live may be."""


@dataclass(frozen=True)
class Stage:
    """One part of a sweep: how many things it does, and their seconds in all."""

    name: str
    total: int
    seconds: float


def plan(config: SweepConfig, forward: float) -> list[Stage]:
    """The stages in their order, with rough seconds, where a ``forward`` takes so many."""
    answer = FORWARDS_A_TOKEN * config.reference.max_new_tokens * forward
    problems = len(config.tasks.names) * config.tasks.recorded
    parts = -(-problems // PART)
    recording = len(config.rules) * parts * answer * PART * 0.6
    replays = config.replay.trials if config.space.replayed else 0
    replay = TRIALS_SECONDS + REPLAY_SECONDS * replays * problems / config.replay.concurrency
    drawn = len(simsd_settings(config.space, config.live.simsd, config.seed))
    replayed, trials = (config.live.trials, config.live.settings) if replays else (0, 0)
    rules, trials = min(len(config.rules), 1 + replayed + drawn), trials + drawn
    return [
        Stage("start", 1, START_SECONDS),
        Stage("record", len(config.rules) * problems, recording),
        Stage("cost", 1, COST_SECONDS),
        Stage("replay", replays, replay if replays else 0.0),
        Stage(
            "live",
            rules + trials,
            live_seconds(config, answer, rules, trials),
        ),
    ]


def live_seconds(config: SweepConfig, answer: float, rules: int, trials: int) -> float:
    """Of the live trials of ``rules`` baselines and ``trials`` settings, when a draft-free answer
    takes ``answer`` seconds."""
    problems = len(config.tasks.names) * config.tasks.live
    runs = 1 + 2 * (rules - 1) + trials * (1 + 1 / SPEED_UP)
    return TRIALS_SECONDS + runs * answer * (problems * config.live.repeats + 1)


def spell_seconds(seconds: float) -> str:
    """As in ``2 min 5 s``."""
    minutes, rest = divmod(max(0, round(seconds)), 60)
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
