"""Prompt and result files: checked whole, ordered, resumable."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from decoders.options import DecodeOptions
from tasks.files import ResultsFile, digest_rows, read_prompts
from tasks.whole import write_whole
from tests.conftest import tiny_spec

ROOT = Path(__file__).parents[2]
RUN = {"target": {"digest": "t"}, "decode": {"budget": 4}}


def write(path: Path, *lines: str) -> Path:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("{", "not JSON"),
        ("[1]", "a row must be an object"),
        ('{"prompt_ids": [5]}', "id: missing"),
        ('{"id": "b"}', "exactly one of prompt and prompt_ids"),
        ('{"id": "b", "prompt": "x", "prompt_ids": [5]}', "exactly one of prompt and prompt_ids"),
        ('{"id": "b", "prompt_ids": ["x"]}', "prompt_ids.0: 'x' must be a valid integer"),
        ('{"id": "b", "prompt_ids": [5], "temperature": -1}', "temperature: -1 must be"),
        (r'{"id": "b", "prompt": "cut \ud83d"}', "prompt: 'cut \\ud83d' half"),
        (r'{"id": "\ud83d", "prompt_ids": [5]}', "id: '\\ud83d' must be a valid string"),
        ('{"id": "a", "prompt_ids": [5]}', "id 'a' stands on line 1 already"),
    ],
)
def test_a_bad_row_is_named_with_its_line(tmp_path: Path, line: str, said: str) -> None:
    file = write(tmp_path / "p.jsonl", '{"id": "a", "prompt_ids": [4]}', "", line)
    with pytest.raises(ValueError, match="line 3: ") as error:
        read_prompts(file)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"prompt_ids": [5, 24]}, "24 is not a text token"),
        ({"prompt_ids": [3]}, "3 is not a text token"),
        ({"prompt_ids": [5], "max_new_tokens": 512}, "513 positions"),
        ({"prompt": "x"}, "no tokenizer"),
    ],
)
def test_a_row_that_the_target_cannot_take_is_named_with_its_line(
    tmp_path: Path, row: dict, said: str
) -> None:
    lines = ('{"id": "a", "prompt_ids": []}', json.dumps({"id": "b"} | row))
    file = read_prompts(write(tmp_path / "p.jsonl", *lines))
    with pytest.raises(ValueError, match="line 2: ") as error:
        file.check(DecodeOptions(), tiny_spec(), None)
    assert said in str(error.value)


def test_text_that_is_no_utf8_is_named_with_its_line(tmp_path: Path) -> None:
    file = tmp_path / "p.jsonl"
    file.write_bytes(b'{"id": "a", "prompt": "x"}\n{"id": "\xff", "prompt": "x"}\n')
    with pytest.raises(ValueError, match="line 2: not UTF-8"):
        read_prompts(file)


def test_the_digest_is_of_rows_and_their_order(tmp_path: Path) -> None:
    a, b = '{"id": "a", "prompt_ids": [4]}', '{"id": "b", "prompt_ids": [5], "note": "kept out"}'
    one = read_prompts(write(tmp_path / "1", a, b))
    spaced = read_prompts(write(tmp_path / "2", a, "", b.replace('"note": "kept out"', '"n": 1')))
    other = read_prompts(write(tmp_path / "3", b, a))
    assert one.digest == spaced.digest == digest_rows(one.rows)
    assert one.digest != other.digest


@given(order=st.permutations(range(6)))
def test_rows_stand_in_the_order_of_the_prompts(
    tmp_path_factory: pytest.TempPathFactory, order: list[int]
) -> None:
    path = tmp_path_factory.mktemp("out") / "o.jsonl"
    ids = [str(i) for i in range(6)]
    with ResultsFile(path, ids, RUN) as results:
        for written, index in enumerate(order, start=1):
            results.write({"id": str(index)})
            on_disk = [json.loads(line)["id"] for line in path.read_text().splitlines()]
            assert on_disk == ids[: len(on_disk)]
            arrived = set(order[:written])
            assert len(on_disk) == next((i for i in range(6) if i not in arrived), 6)


def test_the_same_run_goes_on_behind_whole_rows(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "o.jsonl"
    with ResultsFile(path, ["a", "b", "c"], RUN) as results:
        results.write({"id": "a", "text": "1"})
    with path.open("a") as file:
        file.write('{"id": "b", "te')
    with ResultsFile(path, ["a", "b", "c"], RUN) as results:
        assert results.num_kept == 1
        results.write({"id": "b", "text": "2"})
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    assert rows == [{"id": "a", "text": "1"}, {"id": "b", "text": "2"}]


def test_a_file_of_another_run_is_refused_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "o.jsonl"
    with ResultsFile(path, ["a", "b"], RUN) as results:
        results.write({"id": "a"})
    before = path.read_bytes()
    with pytest.raises(ValueError, match=r"decode\.budget 4, not 8"):
        ResultsFile(path, ["a", "b"], RUN | {"decode": {"budget": 8}})
    with pytest.raises(ValueError, match="other prompts"):
        ResultsFile(path, ["b", "a"], RUN)
    results.side.unlink()
    with pytest.raises(ValueError, match="says what wrote it"):
        ResultsFile(path, ["a", "b"], RUN)
    assert path.read_bytes() == before


def test_what_cannot_be_written_whole_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "x").mkdir()  # no file can take its place
    with pytest.raises(OSError, match="directory"):
        write_whole(tmp_path / "x", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_file_is_utf_8_whatever_the_locale_says(tmp_path: Path) -> None:
    plain = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONPATH": str(ROOT)}
    code = "import pathlib, tasks.whole; tasks.whole.write_whole(pathlib.Path('x'), '\\u03c0')"
    command = [sys.executable, "-c", code]
    subprocess.run(command, cwd=tmp_path, env=os.environ | plain, check=True)
    assert (tmp_path / "x").read_text(encoding="utf-8") == "\u03c0"
