"""Tiny real targets for the tests: random weights, all code paths."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import cluster  # noqa: F401  # before anything imports Ray: no test may join whatever runs here
from models.checkpoint import save_checkpoint
from models.spec import TargetSpec
from models.target import Target
from models.training import init_weights
from models.transformer import Transformer

if TYPE_CHECKING:
    from cluster.session import Resources
    from cluster.tracking import Tracking


def tiny_spec(block_size: int = 4, vocab_size: int = 24) -> TargetSpec:
    """A two-layer target with grouped heads; id 0 pads, 1 and 2 stop, 3 masks."""
    return TargetSpec(
        family="sdar",
        hidden_size=32,
        num_layers=2,
        num_heads=4,
        num_kv_heads=2,
        head_dim=8,
        intermediate_size=64,
        vocab_size=vocab_size,
        rope_theta=10000.0,
        rms_norm_eps=1e-6,
        max_positions=512,
        block_size=block_size,
        mask_token_id=3,
        stop_token_ids=(2, 1),
        pad_token_id=0,
    )


def tiny_model(
    spec: TargetSpec | None = None, dtype: torch.dtype = torch.float64, seed: int = 0
) -> Transformer:
    """Random weights, in evaluation mode."""
    model = Transformer(spec or tiny_spec())
    init_weights(model, seed)
    return model.to(dtype).requires_grad_(False).eval()


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture
def tiny_target() -> Target:
    return Target(tiny_model())


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved tiny checkpoint in SDAR's layout, fp32, without a tokenizer."""
    folder = tmp_path_factory.mktemp("checkpoints") / "tiny-b4"
    save_checkpoint(tiny_model(dtype=torch.float32), folder, dtype="float32")
    return folder


@pytest.fixture(scope="session")
def ray_cluster() -> Iterator["Resources"]:
    """The one local Ray of the test session; mark its users ``@pytest.mark.ray``."""
    # Imported here: the other tests, and the processes that they start, need no Ray.
    from cluster.session import ClusterConfig, session

    with session(ClusterConfig(num_cpus=4, object_store_bytes=150_000_000)) as resources:
        yield resources


@pytest.fixture(scope="session")
def tracking(tmp_path_factory: pytest.TempPathFactory) -> "Tracking":
    """One store for the tests of tracking: making its tables takes seconds."""
    from cluster.tracking import Tracking

    store = tmp_path_factory.mktemp("store")
    return Tracking(f"sqlite:///{store}/mlflow.db", store / "artifacts")
