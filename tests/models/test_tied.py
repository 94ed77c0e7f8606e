"""Tied embeddings: the head is the embedding, one matrix, in memory, on disk and on every rank."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from models.checkpoint import read_spec, save_checkpoint
from models.config import TargetConfig
from models.loading import load_model
from models.opening import open_target
from models.ranks import Ranks
from models.spec import TargetSpec
from models.tensor_parallel import shard_model
from models.transformer import Transformer
from tests.conftest import tiny_model
from tests.models.test_target import copies
from tests.reference.families import FAMILIES, family_spec
from tests.reference.network import reference_logits
from tests.reference.running import prompt_of

HEADS = {"llada": "model.transformer.ff_out.weight"}
EMBEDDINGS = {
    "llada": "model.transformer.wte.weight",
    "llada2_moe": "model.word_embeddings.weight",
}


def tied_spec(family: str) -> TargetSpec:
    return family_spec(family).model_copy(update={"tied_embeddings": True})


def load(folder: Path, ranks: Ranks | None = None) -> Transformer:
    return load_model(TargetConfig(path=str(folder), dtype="float64"), ranks)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_tied_target_is_one_matrix_smaller_and_equals_its_naive_twin(
    family: str, tmp_path: Path
) -> None:
    spec, untied = tied_spec(family), family_spec(family)
    save_checkpoint(tiny_model(spec), tmp_path, "float64")
    assert HEADS.get(family, "lm_head.weight") not in load_file(tmp_path / "model.safetensors")
    model = load(tmp_path)
    assert model.spec == read_spec(tmp_path) == spec
    assert spec.num_parameters == sum(p.numel() for p in model.parameters())
    assert spec.num_parameters == untied.num_parameters - spec.vocab_size * spec.hidden_size
    tokens = prompt_of(12)
    target = open_target(model)
    target.open_slot(0, 12)
    target.prefill(0, tokens[:8])
    found = target.forward(copies([0], [list(tokens[8:])]))
    torch.testing.assert_close(found, reference_logits(model, tokens)[8:], rtol=0, atol=1e-10)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_head_that_was_written_all_the_same_must_be_the_embedding(
    family: str, tmp_path: Path
) -> None:
    save_checkpoint(tiny_model(tied_spec(family)), tmp_path, "float64")
    path, head = tmp_path / "model.safetensors", HEADS.get(family, "lm_head.weight")
    tensors = load_file(path)
    embedding = tensors[EMBEDDINGS.get(family, "model.embed_tokens.weight")]
    save_file(tensors | {head: embedding.clone()}, path)
    assert torch.equal(load(tmp_path).embed_tokens.weight, embedding)
    ranks = Ranks(1, 2, control=None)  # pyright: ignore[reportArgumentType]
    assert torch.equal(load(tmp_path, ranks).embed_tokens.weight, embedding.chunk(2)[1])
    save_file(tensors | {head: embedding + 1}, path)
    with pytest.raises(ValueError, match=f"{head} differs from the embedding"):
        load(tmp_path)
    save_file(tensors | {head: embedding[:3].clone()}, path)
    with pytest.raises(ValueError, match=rf"{head} has shape \[3, 32\], not \[24, 32\]"):
        load(tmp_path)


def test_an_untied_checkpoint_without_its_head_is_refused(tmp_path: Path) -> None:
    save_checkpoint(tiny_model(family_spec("sdar")), tmp_path, "float64")
    path = tmp_path / "model.safetensors"
    tensors = load_file(path)
    del tensors["lm_head.weight"]
    save_file(tensors, path)
    with pytest.raises(ValueError, match=r"1 tensors are missing: lm_head\.weight"):
        load(tmp_path)


def test_a_rank_of_a_tied_target_holds_its_part_of_the_vocabulary_once() -> None:
    model = tiny_model(tied_spec("Fast_dLLM_Qwen"))
    shard_model(model, Ranks(0, 2, control=None))  # pyright: ignore[reportArgumentType]
    held = dict(model.named_parameters())
    assert held["embed_tokens.weight"].shape == (12, 32)
    assert "lm_head.weight" not in held
