"""Log-probabilities as OpenAI writes them, in the form of text completions and in that of chats."""

from collections.abc import Sequence

from pydantic import BaseModel

from decoders.request import TokenLogprob
from models.text import TextCodec


class CompletionLogprobs(BaseModel):
    """Lists of one entry a token; ``text_offset`` counts the characters of the answer before it."""

    tokens: list[str]
    token_logprobs: list[float]
    top_logprobs: list[dict[str, float]] | None
    text_offset: list[int]


class Alternative(BaseModel):
    token: str
    logprob: float
    bytes: list[int]


class SaidToken(Alternative):
    top_logprobs: list[Alternative]


class ChatLogprobs(BaseModel):
    content: list[SaidToken]
    refusal: None = None


class CompletionSpelling:
    """The log-probabilities of one choice of a text completion, in as many pieces as it has."""

    def __init__(self, codec: TextCodec) -> None:
        self._codec = codec
        self._text = codec.growing_text()
        self._num_chars = 0

    def spell(self, entries: Sequence[TokenLogprob], asked: int) -> CompletionLogprobs:
        """The next piece. A committed token stands among the ``asked`` alternatives even where it
        is none of them."""
        offsets = []
        for entry in entries:
            offsets.append(self._num_chars)
            self._num_chars += len(self._text.add(entry.token))
        tops = [(*entry.top, (entry.token, entry.logprob)) for entry in entries]
        return CompletionLogprobs(
            tokens=[self._name(entry.token) for entry in entries],
            token_logprobs=[entry.logprob for entry in entries],
            top_logprobs=[self._by_name(top) for top in tops] if asked else None,
            text_offset=offsets,
        )

    def _by_name(self, top: Sequence[tuple[int, float]]) -> dict[str, float]:
        """Of tokens that are spelt alike the likeliest counts."""
        return {self._name(token): value for token, value in sorted(top, key=lambda each: each[1])}

    def _name(self, token: int) -> str:
        return name_of(self._codec.bytes_of(token))


def chat_logprobs(codec: TextCodec, entries: Sequence[TokenLogprob]) -> ChatLogprobs:
    """The log-probabilities of a piece of a chat's choice."""

    def alternative(token: int, logprob: float) -> Alternative:
        plain = codec.bytes_of(token)
        return Alternative(token=name_of(plain), logprob=logprob, bytes=list(plain))

    content = [
        SaidToken(
            **alternative(entry.token, entry.logprob).model_dump(),
            top_logprobs=[alternative(*pair) for pair in entry.top],
        )
        for entry in entries
    ]
    return ChatLogprobs(content=content)


def name_of(plain: bytes) -> str:
    """A token as text; a part of a character as OpenAI writes it: ``bytes:\\xf0\\x9f``."""
    try:
        return plain.decode()
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{byte:02x}" for byte in plain)
