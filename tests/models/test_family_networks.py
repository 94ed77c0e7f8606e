"""Every family's network computes what the public code does, or what its naive twin does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from models.config import TargetConfig
from models.loading import load_model
from models.opening import open_target
from models.transformer import Router, Transformer
from tests.conftest import tiny_model
from tests.models.test_target import copies, opened
from tests.reference.families import FAMILIES, family_spec
from tests.reference.network import block_mask, chosen_experts, reference_logits
from tests.reference.running import prompt_of


def load(folder: Path, **values: Any) -> Transformer:
    config = {"path": str(folder), "dtype": "float64"} | values
    return load_model(TargetConfig.model_validate(config))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_network_equals_its_naive_twin(family: str) -> None:
    model = tiny_model(family_spec(family))
    tokens = prompt_of(12)
    target = open_target(model)
    target.open_slot(0, 12)
    target.prefill(0, tokens[:8])
    found = target.forward(copies([0], [list(tokens[8:])]))
    expected = reference_logits(model, tokens)[8:]
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-10)


def hf_tensors(model: Any) -> dict[str, Tensor]:
    """As a checkpoint holds them: newer library versions stack experts in memory."""
    found: dict[str, Tensor] = {}
    for name, tensor in model.state_dict().items():
        if name.endswith("mlp.experts.gate_up_proj"):
            gate, up = tensor.chunk(2, dim=1)
            stem = name.removesuffix("gate_up_proj")
            for expert in range(len(tensor)):
                found[f"{stem}{expert}.gate_proj.weight"] = gate[expert].contiguous()
                found[f"{stem}{expert}.up_proj.weight"] = up[expert].contiguous()
        elif name.endswith("mlp.experts.down_proj"):
            stem = name.removesuffix("down_proj")
            for expert in range(len(tensor)):
                found[f"{stem}{expert}.down_proj.weight"] = tensor[expert].contiguous()
        else:
            found[name] = tensor
    return found


SIZES = {
    "hidden_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 80,
    "vocab_size": 40,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 128,
    "rope_theta": 1_000_000.0,
    "eos_token_id": 2,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
MIXED = {
    "head_dim": 16,
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 20,
    "norm_topk_prob": True,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
}


def random_hf(model_class: Any, config_class: Any, values: dict[str, Any]) -> Any:
    """A random model of the public library in float64, with spread-out weights."""
    torch.manual_seed(0)
    config = config_class.from_dict(
        values | {"attn_implementation": "eager", "experts_implementation": "eager"}
    )
    model = model_class(config).double().eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            spread = 0.3 if "norm" in name or "bias" in name else 0.15
            parameter.add_(spread * torch.randn_like(parameter))
    return model


def hf_logits(model: Any, tokens: tuple[int, ...], mask_TT: Tensor) -> Tensor:
    """Under an explicit boolean mask."""
    added = torch.zeros(mask_TT.shape, dtype=torch.float64).masked_fill(~mask_TT, -torch.inf)
    with torch.no_grad():
        return model(torch.tensor([tokens]), attention_mask=added[None, None]).logits[0].double()


def checkpoint(folder: Path, tensors: dict[str, Tensor], config: dict[str, Any]) -> Transformer:
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    (folder / "config.json").write_text(json.dumps(config))
    return load(folder)


@pytest.mark.parametrize("block", [1, 4])
def test_a_random_qwen3_moe_loads_as_sdar_and_gives_its_logits(tmp_path: Path, block: int) -> None:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    theirs = random_hf(Qwen3MoeForCausalLM, Qwen3MoeConfig, SIZES | MIXED)
    config = SIZES | MIXED | {"model_type": "sdar_moe", "block_size": block, "mask_token_id": 3}
    ours = checkpoint(tmp_path / "moe", hf_tensors(theirs), config)
    tokens = prompt_of(12, vocab_size=40)
    expected = hf_logits(theirs, tokens, block_mask(12, block))
    torch.testing.assert_close(reference_logits(ours, tokens), expected, rtol=0, atol=1e-6)
    if block == 4:
        assert_target_gives(ours, tokens, expected)


@pytest.mark.parametrize("family", ["Dream", "Fast_dLLM_Qwen"])
def test_a_random_qwen2_loads_as_dream_and_gives_its_logits_one_row_on(
    tmp_path: Path, family: str
) -> None:
    from transformers import Qwen2Config, Qwen2ForCausalLM

    theirs = random_hf(Qwen2ForCausalLM, Qwen2Config, SIZES)
    config = SIZES | {"model_type": family, "block_size": 4, "mask_token_id": 3}
    ours = checkpoint(tmp_path / "qwen2", theirs.state_dict(), config)
    tokens = prompt_of(12, vocab_size=40)
    causal = family == "Fast_dLLM_Qwen"
    mask = block_mask(12, 4) if causal else torch.ones(12, 12, dtype=torch.bool)
    logits = hf_logits(theirs, tokens, mask)
    expected = torch.cat((logits[:1], logits[:-1]))
    torch.testing.assert_close(reference_logits(ours, tokens), expected, rtol=0, atol=1e-6)
    assert_target_gives(ours, tokens, expected)


def test_a_random_llama_loads_as_llada_after_renaming_and_gives_its_logits(tmp_path: Path) -> None:
    from transformers import LlamaConfig, LlamaForCausalLM

    theirs = random_hf(LlamaForCausalLM, LlamaConfig, SIZES | {"num_key_value_heads": 4})
    renamed = {
        "model.embed_tokens": "model.transformer.wte",
        "model.norm": "model.transformer.ln_f",
        "lm_head": "model.transformer.ff_out",
        "model.layers": "model.transformer.blocks",
        "input_layernorm": "attn_norm",
        "post_attention_layernorm": "ff_norm",
        "self_attn.o_proj": "attn_out",
        "self_attn.": "",
        "mlp.gate_proj": "ff_proj",
        "mlp.up_proj": "up_proj",
        "mlp.down_proj": "ff_out",
    }
    tensors = {}
    for name, tensor in theirs.state_dict().items():
        for theirs_part, ours_part in renamed.items():
            name = name.replace(theirs_part, ours_part)
        tensors[name] = tensor
    config = {
        "model_type": "llada",
        "d_model": 48,
        "n_layers": 2,
        "n_heads": 4,
        "n_kv_heads": 4,
        "mlp_ratio": 4,
        "mlp_hidden_size": 80,
        "vocab_size": 40,
        "rope_theta": 1_000_000.0,
        "rms_norm_eps": 1e-6,
        "max_sequence_length": 128,
        "mask_token_id": 3,
        "eos_token_id": 2,
        "pad_token_id": 2,
        "block_size": 4,
    }
    ours = checkpoint(tmp_path / "llama", tensors, config)
    tokens = prompt_of(12, vocab_size=40)
    expected = hf_logits(theirs, tokens, torch.ones(12, 12, dtype=torch.bool))
    torch.testing.assert_close(reference_logits(ours, tokens), expected, rtol=0, atol=1e-6)
    assert_target_gives(ours, tokens, expected)


def assert_target_gives(model: Transformer, tokens: tuple[int, ...], expected: Tensor) -> None:
    """Block by block behind the stored ones, as decoding asks."""
    block = model.spec.block_size
    target = open_target(model)
    target.open_slot(0, len(tokens))
    for start in range(0, len(tokens), block):
        if model.spec.topology == "bidirectional" and start + block < len(tokens):
            target.prefill(0, tokens[start : start + block])
            continue
        found = target.forward(copies([0], [list(tokens[start : start + block])]))
        torch.testing.assert_close(
            found, expected[start : start + block], rtol=0, atol=1e-6, check_dtype=False
        )
        target.prefill(0, tokens[start : start + block])


def test_the_grouped_router_equals_its_naive_twin() -> None:
    spec = family_spec("llada2_moe")
    assert spec.experts is not None
    torch.manual_seed(3)
    router = Router(spec.hidden_size, spec.experts).double()
    with torch.no_grad():
        router.weight.normal_()
        router.bias.normal_()
        x = torch.randn(50, spec.hidden_size, dtype=torch.float64)
        chosen, weights = router(x)
    own = {"mlp.router.weight": router.weight, "mlp.router.bias": router.bias}
    for row, ids, shares in zip(x, chosen.tolist(), weights.tolist(), strict=True):
        expected = chosen_experts(row, own, spec.experts)
        assert dict(zip(ids, shares, strict=True)) == pytest.approx(expected)


def test_what_a_token_gets_from_its_experts_does_not_depend_on_its_neighbours() -> None:
    model = tiny_model(family_spec("llada2_moe"))
    layer = model.layers[1].mlp
    x = torch.randn(9, 32, dtype=torch.float64)
    together = layer(x)
    alone = torch.cat([layer(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-13)


def test_prefill_in_pieces_equals_prefill_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(family_spec("Fast_dLLM_Qwen"))
    tokens = prompt_of(40)
    asked = copies([0], [list(prompt_of(4))])
    whole = opened(model, tokens).forward(asked)
    monkeypatch.setattr("models.target.PREFILL_TOKENS", 8)
    pieces = opened(model, tokens).forward(asked)
    torch.testing.assert_close(whole, pieces, rtol=0, atol=1e-12)
