"""Every family from its own files to text: decoded by the command, replayed, served."""

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

import maskahead
from models.describe import describe_target
from models.text import TextCodec
from serve.api import build_api
from serve.app import check_config, open_service
from serve.config import ServeConfig
from tests.family_text import TEXTS, VOCAB_SIZE, save_family_target

MESSAGES: Any = [{"role": "user", "content": "how many?"}]
METHODS = ("standard", "threshold", "chain", "order")


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    place = tmp_path_factory.mktemp("families")
    return {family: save_family_target(place / family, family) for family in TEXTS}


@pytest.mark.parametrize("family", TEXTS)
def test_text_goes_in_by_the_familys_template_and_comes_out_without_special_tokens(
    family: str, folders: dict[str, Path]
) -> None:
    codec, special = TextCodec(folders[family]), TEXTS[family].special
    assert describe_target(str(folders[family]))[1]["chat_template"]
    ids = codec.encode_chat(MESSAGES)
    assert max(ids) < VOCAB_SIZE
    assert ids[0] == 1, "the template begins with its first special token"
    assert codec.decode(range(len(special))) == ""
    assert "how many?" in codec.decode(ids)
    assert len(codec.encode(special[3])) == 1, "also the mask is one token"


@pytest.mark.parametrize("family", TEXTS)
def test_the_command_decodes_every_family_to_text(
    family: str, folders: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [{"id": "text", "prompt": "how many?"}, {"id": "ids", "prompt_ids": []}]
    Path("prompts").write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ["--target", str(folders[family]), "--prompts", "prompts", "--max-new-tokens", "20"]
    found = {}
    for method in METHODS:
        asked = ["--method", method, "--dtype", "float64", "--out", method]
        assert maskahead.main(["decode", *words, *asked]) == 0
        found[method] = [json.loads(line) for line in Path(method).read_text().splitlines()]
    outputs = {method: [row["token_ids"] for row in rows] for method, rows in found.items()}
    assert outputs["standard"] == outputs["chain"] == outputs["order"]
    codec = TextCodec(folders[family])
    for method, rows in found.items():
        assert [row["text"] for row in rows] == [codec.decode(ids) for ids in outputs[method]]
        assert all(3 not in ids and 1 <= len(ids) <= 20 for ids in outputs[method]), method
    saved = sum(row["nfe"] for row in found["standard"]) - sum(row["nfe"] for row in found["order"])
    assert saved > 0


@pytest.mark.parametrize("family", TEXTS)
def test_every_family_is_served_with_every_method_as_it_decodes_offline(
    family: str, folders: dict[str, Path]
) -> None:
    config = ServeConfig.model_validate(
        {
            "target": {"path": str(folders[family]), "dtype": "float64"},
            "decode": {"method": "order", "budget": 4, "max_new_tokens": 20},
        }
    )
    check_config(config)
    service = open_service(config)
    client = openai.AsyncOpenAI(
        base_url="http://localhost/v1",
        api_key="none",
        http_client=httpx.AsyncClient(  # pyright: ignore[reportArgumentType]
            transport=httpx.ASGITransport(build_api(service)), base_url="http://localhost"
        ),
    )

    async def ask(method: str, **fields: Any) -> Any:
        extra = {"maskahead": {"method": method, "ignore_stop": True}}
        given = {"model": config.model_name, "messages": MESSAGES, "extra_body": extra}
        return await client.chat.completions.create(**given, **fields)

    async def stream(method: str) -> str:
        parts = [part async for part in await ask(method, stream=True)]
        return "".join(part.choices[0].delta.content or "" for part in parts)

    async def run() -> dict[str, tuple[str, str]]:
        asked = ("standard", "threshold", "order")
        whole = await asyncio.gather(*(ask(method) for method in asked))
        streamed = [await stream(method) for method in asked]
        texts = [answer.choices[0].message.content for answer in whole]
        return dict(zip(asked, zip(texts, streamed, strict=True), strict=True))

    try:
        answers = asyncio.run(run())
    finally:
        service.backend.close()
    assert all(text == streamed for text, streamed in answers.values())
    assert answers["standard"] == answers["order"]


def test_a_target_without_a_chat_template_takes_ids_and_plain_text_only(
    folders: dict[str, Path], tmp_path: Path
) -> None:
    folder = save_family_target(tmp_path / "base", "sdar_moe")
    (folder / "chat_template.jinja").unlink()
    with maskahead.load(str(folder), max_new_tokens=4) as target:
        assert target.generate([{"id": "a", "prompt_ids": [10, 11]}])
        with pytest.raises(ValueError, match="prompt of 0: this target has no chat template; give"):
            target.generate(["how many?"])
