"""Training a target: what it may start from."""

from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file
from tokenizers import Tokenizer

from models.text import train_tokenizer
from tasks.train_target import TrainTargetConfig, token_origins, train_target

NETWORK = {
    "hidden_size": 32,
    "num_layers": 1,
    "num_heads": 2,
    "num_kv_heads": 1,
    "head_dim": 16,
    "intermediate_size": 64,
    "block_size": 8,
}


def config(out: Path, **values: Any) -> TrainTargetConfig:
    """One step at a learning rate that changes next to nothing."""
    training = {
        "steps": 1,
        "batch_size": 2,
        "noisy_blocks": 2,
        "matmul_dtype": "float32",
        "learning_rate": 1e-9,
    }
    base = {"tokenizer": {"vocab_size": 300, "num_texts": 40}, "network": NETWORK}
    return TrainTargetConfig.model_validate({"out": str(out), "training": training} | base | values)


def trained(out: Path, **values: Any) -> dict[str, Any]:
    return load_file(train_target(config(out, **values), lambda row: None) / "model.safetensors")


def test_another_tokenizers_target_starts_from_the_layers_and_the_texts_of_its_tokens(
    tmp_path: Path,
) -> None:
    source = trained(tmp_path / "source")
    other = {"tokenizer": {"vocab_size": 300, "num_texts": 40, "cut": "spaces"}}
    seeded = {"training": config(tmp_path).training.model_dump() | {"seed": 5}}
    found = trained(tmp_path / "found", transfer_from=str(tmp_path / "source"), **(other | seeded))
    own, foreign = (
        Tokenizer.from_file(str(tmp_path / name / "tokenizer.json")) for name in ("found", "source")
    )
    for name, tensor in found.items():
        if "embed" not in name and "lm_head" not in name:
            assert (tensor.float() - source[name].float()).abs().max() < 1e-4, name
            continue
        for text in ("<|MASK|>", "<|im_end|>"):
            near = source[name][foreign.token_to_id(text)].float()
            assert (tensor[own.token_to_id(text)].float() - near).abs().max() < 1e-4
        forms = [foreign.encode(form).ids for form in ("7", " 7")]
        fewest = [i for ids in forms if len(ids) == min(map(len, forms)) for i in ids]
        expected = source[name][fewest].float().mean(dim=0)
        assert (tensor[own.token_to_id("7")].float() - expected).abs().max() < 1e-3


def test_a_word_that_is_known_inside_a_sentence_only_starts_as_that() -> None:
    texts = ["the apples\nthe pears\n"] * 20
    source, own = train_tokenizer(texts, 300, "digits"), train_tokenizer(texts, 300, "spaces")
    origins = token_origins(own, source)
    [apples] = source.encode(" apples").ids
    assert len(source.encode("apples").ids) > 1
    assert origins[own.token_to_id("apples")] == [apples]
    line = next(i for i in range(own.get_vocab_size()) if own.decode([i]) == "\n")
    assert origins[line] == source.encode("\n").ids


def test_a_character_in_parts_has_no_origin() -> None:
    tokenizer = train_tokenizer(["one two 3 four"] * 5, 290)
    origins = token_origins(tokenizer, tokenizer)
    everything = range(tokenizer.get_vocab_size())
    lone = [i for i in everything if "\N{REPLACEMENT CHARACTER}" in tokenizer.decode([i])]
    assert lone
    assert origins.keys() == set(everything) - set(lone)
    assert all(token in ids for token, ids in origins.items())


def test_a_transfer_from_another_shape_is_refused(tmp_path: Path) -> None:
    trained(tmp_path / "source")
    deeper = {"network": NETWORK | {"num_layers": 2}}
    with pytest.raises(ValueError, match=r"transfer_from .*another shape \(layers\.1\."):
        trained(tmp_path / "found", transfer_from=str(tmp_path / "source"), **deeper)
    turned = {"network": NETWORK | {"rope_theta": 500.0}}
    with pytest.raises(ValueError, match=r"rope_theta is 10000, not network\.rope_theta 500"):
        trained(tmp_path / "found", transfer_from=str(tmp_path / "source"), **turned)
    (tmp_path / "source" / "tokenizer.json").unlink()
    with pytest.raises(ValueError, match=r"transfer_from .*no tokenizer\.json"):
        trained(tmp_path / "found", transfer_from=str(tmp_path / "source"))


def test_all_weights_start_a_target_of_other_blocks(tmp_path: Path) -> None:
    source = trained(tmp_path / "source")
    own = {"tokenizer": {"path": str(tmp_path / "source" / "tokenizer.json")}}
    network = {"network": NETWORK | {"block_size": 4}}
    found = trained(tmp_path / "found", init=str(tmp_path / "source"), **(own | network))
    for name, tensor in found.items():
        assert (tensor.float() - source[name].float()).abs().max() < 1e-4, name
