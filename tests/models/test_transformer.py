"""The network equals the public implementation of its architecture, weight for weight."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from models.config import TargetConfig
from models.loading import load_model
from models.target import Target
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.models.test_target import copies, opened
from tests.reference.network import block_mask, reference_logits
from tests.reference.running import prompt_of

CONFIG = {
    "hidden_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "intermediate_size": 80,
    "vocab_size": 40,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
    "rope_theta": 1_000_000.0,
    "eos_token_id": 2,
    "pad_token_id": 0,
}


@pytest.fixture(scope="module", params=[False, True], ids=["untied", "tied"])
def qwen(request: pytest.FixtureRequest):
    """A random Qwen3 of the public library in float64."""
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(0)
    config = Qwen3Config.from_dict(
        CONFIG | {"tie_word_embeddings": request.param, "attn_implementation": "eager"}
    )
    model = Qwen3ForCausalLM(config).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "norm" in name:
                parameter.add_(0.3 * torch.randn_like(parameter))
            else:
                parameter.mul_(5)
    return model


def as_sdar(qwen, folder: Path, block: int) -> Transformer:
    """The same tensors, read as an SDAR checkpoint."""
    folder.mkdir()
    tied = qwen.config.tie_word_embeddings
    tensors = {k: v for k, v in qwen.state_dict().items() if not (tied and k == "lm_head.weight")}
    save_file(tensors, folder / "model.safetensors")
    config = CONFIG | {"model_type": "sdar", "block_size": block, "mask_token_id": 3}
    config["tie_word_embeddings"] = tied
    (folder / "config.json").write_text(json.dumps(config))
    return load_model(TargetConfig(path=str(folder), dtype="float64"))


@pytest.mark.parametrize("block", [1, 4])
@torch.no_grad()
def test_a_random_qwen3_loads_as_sdar_and_gives_its_logits(
    qwen, tmp_path: Path, block: int
) -> None:
    """With L = 1 the causal ones; with L = 4 those under an explicit block mask."""
    model = as_sdar(qwen, tmp_path / "target", block)
    tokens = prompt_of(12, vocab_size=40)
    ids = torch.tensor([tokens])
    if block == 1:
        expected = qwen(ids).logits[0]
    else:
        mask = torch.zeros(12, 12, dtype=torch.float64)
        mask[~block_mask(12, block)] = -torch.inf
        expected = qwen(ids, attention_mask=mask[None, None]).logits[0]
    found = reference_logits(model, tokens)
    torch.testing.assert_close(found, expected.double(), rtol=0, atol=1e-6)
    target = Target(model)
    target.open_slot(0)
    target.prefill(0, tokens[: 12 - block])
    last = target.forward(
        copies([0], [list(tokens[-block:])]) if block == 4 else _one_token(tokens[-1])
    )
    torch.testing.assert_close(last, expected[-block:].double(), rtol=0, atol=1e-6)


def _one_token(token: int):
    from models.target import NO_PARENT, CopyBatch

    return CopyBatch([0], torch.tensor([[token]]), [NO_PARENT], [False], torch.arange(1))


def test_hidden_states_and_logits_have_the_widths_they_promise() -> None:
    for dtype, logits in [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.bfloat16, torch.float32),
    ]:
        model = tiny_model(dtype=dtype)
        found = opened(model, prompt_of(4)).forward(copies([0], [[3, 3, 3, 3]]))
        assert model.dtype == dtype
        assert found.dtype == logits
        assert found.shape == (4, model.spec.vocab_size)


def test_rotary_positions_are_absolute() -> None:
    """The same block behind a longer prefix of the same repeated tokens gives other logits."""
    model = tiny_model()
    state = [[5, 3, 3, 3]]
    near = opened(model, (7,) * 4).forward(copies([0], state))
    far = opened(model, (7,) * 8).forward(copies([0], state))
    assert (near - far).abs().max() > 1e-6
