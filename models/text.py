"""Tokenizers: making the bundled one, and loading any checkpoint's with its chat template."""

import json
from collections.abc import Iterable, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Literal

from models.token_bytes import ByteText, GrowingText, WholeText, bytes_of_characters, is_byte_level

SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|MASK|>")
PAD_ID, MESSAGE_START_ID, MESSAGE_END_ID, MASK_ID = range(4)

CHAT_TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n"
    "{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

_PATTERNS = {
    # Single digits; a space belongs to what follows it; a line break takes its indentation.
    "digits": r"\n *| ?\p{N}| ?\p{L}+| ?[^\s\p{L}\p{N}]+|\s+",
    # Words and signs apart from their spaces: deliberately another cut of the same text. Digits
    # stay single, or the sums would have to be learnt anew.
    "spaces": r"\p{N}|\p{L}+|[^\s\p{L}\p{N}]|\s+",
}


def whole_text(value: str) -> str:
    """Text, which half of a surrogate pair is not: JSON can spell an emoji that was cut in two, and
    no tokenizer takes it. Raises ``ValueError`` for it."""
    try:
        value.encode()
    except UnicodeEncodeError as error:
        told = f"half of a surrogate pair at character {error.start} is no text"
        raise ValueError(told) from error
    return value


def train_tokenizer(
    texts: Iterable[str], vocab_size: int, cut: Literal["digits", "spaces"] = "digits"
):
    """A byte-level BPE tokenizer (``tokenizers.Tokenizer``) of ``vocab_size`` entries."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PATTERNS[cut]), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        special_tokens=list(SPECIAL_TOKENS),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer, folder: Path) -> None:
    """Write ``tokenizer.json`` and ``tokenizer_config.json`` in the ``transformers`` layout."""
    from transformers import PreTrainedTokenizerFast

    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        eos_token=SPECIAL_TOKENS[PAD_ID],
        pad_token=SPECIAL_TOKENS[PAD_ID],
        mask_token=SPECIAL_TOKENS[MASK_ID],
        additional_special_tokens=list(SPECIAL_TOKENS[1:3]),
        chat_template=CHAT_TEMPLATE,
        clean_up_tokenization_spaces=False,
    )
    wrapped.save_pretrained(folder)


def chat_text(prompt: str) -> str:
    """The bundled chat template applied to one user message, up to the reply."""
    return f"<|im_start|>user\n{prompt}<|im_end|>\n<|im_start|>assistant\n"


WHOLE = ("tokenizer.json",)
PARTS = ("vocab.json", "merges.txt")
"""Qwen's older form, in which Dream comes."""


def has_tokenizer(folder: Path) -> bool:
    """Whether a checkpoint can read and write text."""
    return any(all((folder / name).exists() for name in form) for form in (WHOLE, PARTS))


def load_tokenizer(folder: Path) -> Any:
    """The tokenizer of ``transformers`` for a checkpoint that has one; no code of its is run."""
    # Not AutoTokenizer: it asks the configuration for a model type that it does not know.
    from transformers import PreTrainedTokenizerFast, Qwen2Tokenizer

    if (folder / WHOLE[0]).exists():
        return PreTrainedTokenizerFast.from_pretrained(folder)
    return Qwen2Tokenizer.from_pretrained(folder)


class TextCodec:
    """A checkpoint's tokenizer with its chat template (loaded by ``transformers``)."""

    def __init__(self, folder: Path) -> None:
        self.tokenizer: Any = load_tokenizer(folder)
        self._byte_level = is_byte_level(self.tokenizer)
        added = self.tokenizer.added_tokens_decoder
        self._special = frozenset(token for token, said in added.items() if said.special)
        self._bytes: dict[int, bytes] = {}

    def encode(self, text: str) -> tuple[int, ...]:
        """Token ids of plain text, no template, nothing added."""
        return tuple(self.tokenizer.encode(text, add_special_tokens=False))

    def encode_chat(self, messages: Sequence[dict[str, str]]) -> tuple[int, ...]:
        """Token ids of a conversation under the chat template, up to the reply.

        Raises ``ValueError`` for a target without one.
        """
        if self.tokenizer.chat_template is None:
            raise ValueError("this target has no chat template; give prompt_ids")
        text = self.tokenizer.apply_chat_template(
            list(messages), tokenize=False, add_generation_prompt=True
        )
        return self.encode(text)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens left out."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=True)

    def spell(self, ids: Sequence[int]) -> str:
        """Text of token ids, special tokens by their names."""
        return self.tokenizer.decode(list(ids), skip_special_tokens=False)

    def piece(self, token: int) -> str:
        """One token's own text, a special one's by its name. What is a part of a character only
        reads as a replacement character."""
        return self.spell([token])

    def bytes_of(self, token: int) -> bytes:
        """What a token stands for, a special one its name; of a character in several tokens, this
        one's part. An id of a padded vocabulary is nothing."""
        if token not in self._bytes:
            self._bytes[token] = self._read_bytes(token)
        return self._bytes[token]

    def _read_bytes(self, token: int) -> bytes:
        if self._byte_level:
            return bytes_of_characters(self.tokenizer.convert_ids_to_tokens(token) or "")
        return self.piece(token).encode()

    def growing_text(self) -> GrowingText:
        """:meth:`decode`, token by token."""
        if not self._byte_level:
            return WholeText(self.decode)
        return ByteText(lambda token: b"" if token in self._special else self.bytes_of(token))


def vocabulary_digest(folder: Path) -> str:
    """A short digest of which id stands for which token, equal wherever ids mean the same; of a
    checkpoint without a tokenizer, whose ids mean nothing elsewhere, it is empty."""
    from tokenizers import Tokenizer

    path = folder / WHOLE[0]
    if path.exists():
        ids = Tokenizer.from_file(str(path)).get_vocab(with_added_tokens=True)
    elif has_tokenizer(folder):
        ids = load_tokenizer(folder).get_vocab()
    else:
        return ""
    return blake2b(json.dumps(sorted(ids.items())).encode(), digest_size=8).hexdigest()


def open_codec(folder: Path) -> TextCodec | None:
    """The checkpoint's codec, or ``None`` for one without a tokenizer."""
    return TextCodec(folder) if has_tokenizer(folder) else None
