"""A tiny random target with text and a tiny order model, in this process and as a configuration."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.loading import open_engine
from decoders.engine import Engine
from decoders.options import DecodeOptions
from decoders.prompts import PromptRow
from decoders.trace import Trace
from drafters.bundle import save_order_model
from drafters.config import DrafterConfig
from drafters.order_model import OrderModelConfig, build_order_model
from models.config import TargetConfig
from tests.text_target import save_text_target
from tune.config import LiveConfig, ReplayConfig, SweepConfig, TasksConfig
from tune.space_config import Range, SpaceConfig


class InProcess:
    """What a target group offers, without Ray; it counts its calls."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.num_calls = 0

    def generate(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, trace: bool = False
    ) -> list[dict[str, Any]]:
        self.num_calls += 1
        return self.engine.generate([PromptRow.model_validate(r) for r in rows], options, trace)

    def record(
        self, rows: Sequence[Mapping[str, Any]], options: DecodeOptions, hidden: bool = False
    ) -> list[Trace]:
        self.num_calls += 1
        return self.engine.record([PromptRow.model_validate(r) for r in rows], options, hidden)


@pytest.fixture(scope="session")
def sweep_target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint with tokenizer and order model."""
    folder = save_text_target(tmp_path_factory.mktemp("sweep-target") / "tiny")
    torch.manual_seed(0)
    sizes = OrderModelConfig(width=16, layers=1, heads=2, feed_forward=16)
    save_order_model(build_order_model(sizes), folder / "order")
    return folder


@pytest.fixture(scope="session")
def group(sweep_target: Path) -> InProcess:
    target = TargetConfig(path=str(sweep_target), dtype="float64")
    return InProcess(open_engine(target, DrafterConfig(), {"chain", "order"}))


@pytest.fixture
def sweep_config(sweep_target: Path) -> SweepConfig:
    """A sweep of seconds."""
    return SweepConfig(
        target=TargetConfig(path=str(sweep_target), dtype="float64"),
        decode={"max_new_tokens": 24},
        tasks=TasksConfig(recorded=2, live=1),
        space=SpaceConfig(budget=Range(least=0, most=6), temperature=(0.0, 0.8)),
        replay=ReplayConfig(trials=5, concurrency=1),
        live=LiveConfig(trials=1, repeats=1),
    )
