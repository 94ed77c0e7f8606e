"""``maskahead.load``: the rows of ``maskahead decode``, from Python."""

from pathlib import Path

import pytest

import maskahead
from cluster.loaded import ShortOptions
from cluster.short_options import short_forms
from tests.cli.conftest import SHORT, Run, read_rows, without_seconds


def test_the_python_api_returns_the_rows_of_decode(
    run: Run, tiny_folder: Path, prompts: Path
) -> None:
    words = ("--target", tiny_folder, "--prompts", prompts, "--method", "chain", *SHORT)
    assert run("decode", *words, "--out", "o.jsonl")[0] == 0
    with maskahead.load(str(tiny_folder), method="chain", max_new_tokens=12) as target:
        rows = target.generate(read_rows(prompts))
        with pytest.raises(ValueError, match="no tokenizer"):
            target.generate(["text"])
        with pytest.raises(ValueError, match=r"prompts: one str; give a list, as in \[prompt\]"):
            target.generate("text")
        with pytest.raises(ValueError, match="id 'p1' stands on several prompts"):
            target.generate([*read_rows(prompts), {"id": "p1", "prompt_ids": [4]}])
    assert without_seconds(rows) == without_seconds(read_rows(Path("o.jsonl")))


def test_the_python_api_knows_the_options_of_the_command() -> None:
    assert {"target", *ShortOptions.__annotations__} == set(short_forms())
