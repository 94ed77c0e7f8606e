"""Weight-only int8: the arithmetic of the dequantised weights, about half the bytes of bf16, and
the same text from every lossless method."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from actors.jobs import decode_file
from benchmarks.full_size_load import QWEN3, SIZES
from decoders.options import LOSSLESS, DecodeOptions
from decoders.request import Request
from drafters.config import DrafterConfig
from models.checkpoint import save_checkpoint
from models.config import TargetConfig
from models.describe import describe_target
from models.int8 import check_int8, holds_int8, int8_bytes, parameter_bytes, to_int8
from models.layout import parameter_shapes
from models.loading import load_model
from models.opening import open_target
from models.spec import TargetSpec
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.models.test_target import copies
from tests.reference.families import family_spec
from tests.reference.grid import draft
from tests.reference.network import reference_logits
from tests.reference.running import outcome, prompt_of, run, tiny_proposers

FAMILIES = ["sdar", "Dream"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny fp32 checkpoint of each family."""
    found = tmp_path_factory.mktemp("int8")
    for family in FAMILIES:
        model = tiny_model(family_spec(family), torch.float32)
        save_checkpoint(model, found / f"{family}-b4", "float32")
    return found


def config_of(folder: Path, family: str = "sdar", **values: Any) -> TargetConfig:
    base = {"path": str(folder / f"{family}-b4"), "quantize": "int8"}
    return TargetConfig.model_validate(base | values)


def in_int8(weight: torch.Tensor, **shared: Any) -> Any:
    return to_int8(weight, **shared)


def dequantised(model: Transformer) -> Transformer:
    """A plain network of the numbers that the int8 weights stand for, in fp64."""
    plain = Transformer(model.spec).double().requires_grad_(False)
    values = {
        name: (p.dequantize() if hasattr(p, "qdata") else p).double()
        for name, p in model.named_parameters()
    }
    plain.load_state_dict(values)
    return plain


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_dequantised_weights(folder: Path, family: str) -> None:
    model = load_model(config_of(folder, family))
    assert holds_int8(model)
    tokens = prompt_of(12)
    target = open_target(model)
    target.open_slot(0, 12)
    target.prefill(0, tokens[:8])
    found = target.forward(copies([0], [list(tokens[8:])]))
    expected = reference_logits(dequantised(model), tokens)[8:]
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=2e-5)
    plain = reference_logits(load_model(config_of(folder, family, quantize="none")), tokens)[8:]
    assert 1e-4 < (found - plain).abs().max() < 0.1, "another model, and near the first one"


def test_every_row_is_rounded_to_its_own_scale() -> None:
    weight = torch.randn(6, 40, generator=torch.Generator().manual_seed(0)) * torch.logspace(
        -3, 3, 6
    ).unsqueeze(1)
    error = (in_int8(weight).dequantize() - weight).abs().amax(dim=1)
    step = 2 * weight.abs().amax(dim=1) / 255
    assert (error <= 0.51 * step + 1e-9).all()
    assert (error > 0.2 * step).all()


def test_parts_of_the_inputs_share_the_scales_of_the_whole() -> None:
    weight = torch.randn(6, 40, generator=torch.Generator().manual_seed(0))
    whole, halves = in_int8(weight), weight.split(20, dim=1)
    scales = [in_int8(half).scale for half in halves]
    largest = torch.maximum(*scales)
    parts = [in_int8(half, shared=lambda _: largest) for half in halves]
    joined = torch.cat([part.qdata for part in parts], dim=1)
    assert torch.equal(joined, whole.qdata)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_it_holds_is_what_info_says(folder: Path, dtype: str) -> None:
    config = config_of(folder, dtype=dtype)
    model = load_model(config)
    held = sum(parameter_bytes(parameter) for parameter in model.parameters())
    assert held == describe_target(config.path)[1]["int8_memory_bytes"][dtype]
    for name, parameter in model.named_parameters():
        assert hasattr(parameter, "qdata") == name.endswith(("_proj.weight", "lm_head.weight"))


def test_a_full_size_target_comes_to_about_half_of_bf16() -> None:
    """Its embedding stays as it is."""
    shapes = parameter_shapes(TargetSpec.model_validate(QWEN3 | SIZES["sdar-8b"]))
    plain = 2 * sum(torch.Size(shape).numel() for shape in shapes.values())
    assert plain == 16_381_470_720
    assert 0.5 < int8_bytes(shapes, torch.bfloat16) / plain < 0.55


@pytest.mark.parametrize("batch_size", [1, 4])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_lossless_method_equals_draft_free(
    folder: Path, family: str, batch_size: int
) -> None:
    target = open_target(load_model(config_of(folder, family)))
    requests = [
        Request(
            f"{method}-{length}",
            prompt_of(length),
            draft(method, 5, length % 2, (1.0, 0.9)[length % 3 > 0], "top1"),
            length,
        )
        for method in LOSSLESS
        for length in (0, 5)
    ]
    free = [Request(r.id, r.prompt_ids, r.options.draft_free(), r.noise_seed) for r in requests]
    expected = run(target, free, batch_size=4)
    found = run(target, requests, tiny_proposers(), batch_size)
    assert {i: outcome(r) for i, r in found.items()} == {i: outcome(r) for i, r in expected.items()}
    assert sum(r.nfe for r in found.values()) < sum(r.nfe for r in expected.values())


def test_results_say_so_and_are_not_mixed_with_those_of_plain_weights(
    folder: Path, tmp_path: Path
) -> None:
    prompts, out = tmp_path / "prompts.jsonl", tmp_path / "out.jsonl"
    prompts.write_text('{"id": "a", "prompt_ids": [5, 6, 7]}\n')

    def write(**values: Any) -> None:
        config, options = config_of(folder, **values), DecodeOptions(max_new_tokens=6)
        decode_file(config, DrafterConfig(), options, prompts, out, False, lambda *_: None)

    write()
    side = json.loads((tmp_path / "out.jsonl.run.json").read_text())
    assert side["target"]["dtype"] == "float32, int8 weights"
    assert len(json.loads(out.read_text())["token_ids"]) == 6
    with pytest.raises(ValueError, match=r"target\.dtype 'float32, int8 weights', not 'float32'"):
        write(quantize="none")


def test_what_cannot_be_quantised_is_refused_by_name(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(ValueError, match=r"target\.quantize 'int8': .*float64"):
        load_model(config_of(folder, dtype="float64"))
    for family in ("sdar_moe", "llada2_moe"):
        with pytest.raises(ValueError, match=r"target\.quantize 'int8': .* experts; valid: none"):
            check_int8(family_spec(family), config_of(folder))
    with pytest.raises(ValueError, match="none"):
        config_of(folder, quantize="int4")
    monkeypatch.setitem(sys.modules, "torchao", None)
    with pytest.raises(ValueError, match=r"needs torchao: pip install 'maskahead\[int8\]'"):
        load_model(config_of(folder))
