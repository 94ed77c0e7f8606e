"""Every family loads from its own format, strictly, and computes what the public code does."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from models.checkpoint import read_spec, save_checkpoint
from models.config import TargetConfig
from models.families.registry import FAMILIES as KNOWN
from models.layout import parameter_shapes
from models.loading import load_model, load_weights
from models.ranks import Ranks
from models.spec import TargetSpec
from models.tensor_parallel import open_target, shard_model
from models.transformer import Router, Transformer
from tests.conftest import tiny_model
from tests.models.test_target import copies, opened
from tests.reference.families import FAMILIES, family_spec
from tests.reference.network import block_mask, chosen_experts, reference_logits
from tests.reference.running import prompt_of


def saved(family: str, folder: Path, dtype: str = "float64") -> Transformer:
    model = tiny_model(family_spec(family))
    save_checkpoint(model, folder, dtype=dtype)
    return model


def load(folder: Path, **values: Any) -> Transformer:
    config = {"path": str(folder), "dtype": "float64"} | values
    return load_model(TargetConfig.model_validate(config))


def test_every_known_family_is_tested() -> None:
    assert set(FAMILIES) == set(KNOWN)


@pytest.mark.parametrize("family", FAMILIES)
def test_what_was_saved_in_a_familys_format_comes_back(family: str, tmp_path: Path) -> None:
    model = saved(family, tmp_path / "model-b4")
    loaded = load(tmp_path / "model-b4")
    assert loaded.spec == model.spec
    for (name, one), (_, other) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name


@pytest.mark.parametrize("family", FAMILIES)
def test_parameters_are_counted_from_the_sizes_alone(family: str) -> None:
    spec = family_spec(family)
    assert spec.num_parameters == sum(p.numel() for p in Transformer(spec).parameters())


@pytest.mark.parametrize("family", FAMILIES)
def test_one_missing_one_unknown_and_one_misshapen_tensor_are_named(
    family: str, tmp_path: Path
) -> None:
    saved(family, tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    name = sorted(tensors)[len(tensors) // 2]
    save_file({k: v for k, v in tensors.items() if k != name}, path)
    with pytest.raises(ValueError, match=f"1 tensors are missing: {name}"):
        load(tmp_path)
    save_file(tensors | {"model.more.weight": torch.ones(1)}, path)
    with pytest.raises(ValueError, match=r"unknown tensor model\.more\.weight"):
        load(tmp_path)
    save_file(tensors | {name: torch.ones(3)}, path)
    with pytest.raises(ValueError, match=rf"{name} has shape \[3\], not "):
        load(tmp_path)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_reads_only_its_own_slices(family: str, rank: int, tmp_path: Path) -> None:
    whole = saved(family, tmp_path)
    ranks = Ranks(rank, 2, control=None)  # pyright: ignore[reportArgumentType]
    shard_model(whole, ranks)
    config = TargetConfig(path=str(tmp_path), dtype="float64")
    share = load_model(config, ranks)
    for (name, one), (_, other) in zip(
        whole.named_parameters(), share.named_parameters(), strict=True
    ):
        assert torch.equal(one, other), name
    assert sum(p.numel() for p in share.parameters()) < whole.spec.num_parameters * 0.7


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


def test_merged_experts_load_like_single_ones(tmp_path: Path) -> None:
    model = saved("llada2_moe", tmp_path)
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    stem = "model.layers.1.mlp.experts."
    for name in ("gate_proj", "up_proj", "down_proj"):
        parts = [tensors.pop(f"{stem}{e}.{name}.weight") for e in range(8)]
        tensors[stem + name] = torch.stack(parts)
    save_file(tensors, path)
    for one, other in zip(model.parameters(), load(tmp_path).parameters(), strict=True):
        assert torch.equal(one, other)


def test_a_routers_bias_is_kept_in_fp32_beside_bf16_weights(tmp_path: Path) -> None:
    saved("llada2_moe", tmp_path, dtype="bfloat16")
    stored = load_file(tmp_path / "model.safetensors")
    assert stored["model.layers.1.mlp.gate.expert_bias"].dtype == torch.float32
    loaded = dict(load(tmp_path, dtype="bfloat16").named_parameters())
    assert loaded["layers.1.mlp.router.bias"].dtype == torch.float32
    assert loaded["layers.1.mlp.router.weight"].dtype == torch.bfloat16


def test_what_a_token_gets_from_its_experts_does_not_depend_on_its_neighbours() -> None:
    model = tiny_model(family_spec("llada2_moe"))
    layer = model.layers[1].mlp
    x = torch.randn(9, 32, dtype=torch.float64)
    together = layer(x)
    alone = torch.cat([layer(row[None]) for row in x])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-13)


def sized(**values: Any) -> TargetSpec:
    """A published size: everything that the table does not say does not count."""
    base = {"max_positions": 32768, "block_size": 4, "mask_token_id": 1, "rms_norm_eps": 1e-6}
    base |= {"stop_token_ids": (0,), "pad_token_id": 0, "rope_theta": 1e6, "head_dim": 128}
    return TargetSpec.model_validate(base | values)


@pytest.mark.parametrize(
    ("spec", "total_bytes"),
    [
        (
            sized(
                family="sdar_moe",
                hidden_size=2048,
                num_layers=48,
                num_heads=32,
                num_kv_heads=4,
                intermediate_size=6144,
                vocab_size=151_936,
                experts={"count": 128, "per_token": 8, "intermediate_size": 768},
            ),
            61_064_245_248,
        )
    ],
    ids=["SDAR-30B-A3B"],
)
def test_public_checkpoints_have_the_published_total_size(
    spec: TargetSpec, total_bytes: int
) -> None:
    assert spec.num_parameters * 2 == total_bytes
    assert sum(torch.Size(s).numel() for s in parameter_shapes(spec).values()) * 2 == total_bytes


@pytest.mark.parametrize(
    ("family", "key"),
    [
        ("sdar_moe", "norm_topk_prob"),
        ("llada2_moe", "routed_scaling_factor"),
        ("llada", "mlp_hidden_size"),
        ("Dream", "rms_norm_eps"),
    ],
)
def test_a_missing_field_is_never_guessed(family: str, key: str, tmp_path: Path) -> None:
    saved(family, tmp_path)
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    del config[key]
    path.write_text(json.dumps(config))
    with pytest.raises(ValueError, match=f"missing {key}"):
        read_spec(tmp_path)


def test_the_users_block_size_fills_in_but_does_not_overrule(tmp_path: Path) -> None:
    saved("sdar", tmp_path / "plain")
    path = tmp_path / "plain" / "config.json"
    config = json.loads(path.read_text())
    with pytest.raises(ValueError, match=r"target\.block_size 8: plain was made for blocks of 4"):
        load(tmp_path / "plain", block_size=8)
    assert load(tmp_path / "plain", block_size=8, force_block_size=True).spec.block_size == 8
    del config["block_size"]
    path.write_text(json.dumps(config))
    assert read_spec(tmp_path / "plain").block_size == 4
    assert load(tmp_path / "plain", block_size=8).spec.block_size == 8
    (tmp_path / "plain").rename(tmp_path / "plain-b16")
    assert read_spec(tmp_path / "plain-b16").block_size == 16
    with pytest.raises(ValueError, match="made for blocks of 16"):
        load(tmp_path / "plain-b16", block_size=8)


def test_prefill_in_pieces_equals_prefill_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model(family_spec("Fast_dLLM_Qwen"))
    tokens = prompt_of(40)
    asked = copies([0], [list(prompt_of(4))])
    whole = opened(model, tokens).forward(asked)
    monkeypatch.setattr("models.target.PREFILL_TOKENS", 8)
    pieces = opened(model, tokens).forward(asked)
    torch.testing.assert_close(whole, pieces, rtol=0, atol=1e-12)


def test_loading_into_a_whole_network_needs_no_ranks(tmp_path: Path) -> None:
    model = saved("sdar", tmp_path)
    other = Transformer(model.spec).double()
    load_weights(other, tmp_path)
    for one, two in zip(model.parameters(), other.parameters(), strict=True):
        assert torch.equal(one, two)
