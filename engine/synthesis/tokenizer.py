"""The tokenizer: BPE trained on the environment's text, and the layout of a trajectory in tokens.

`<|user|>question<|agent|>turn<|end|><|tool|>result<|agent|>turn<|end|>`: the policy samples what
follows `<|agent|>` up to and including `<|end|>`, the environment writes the rest. Each part is
encoded once, on its own; nothing is ever decoded and encoded again.
"""

import re
from collections.abc import Iterable, Sequence
from functools import cached_property
from pathlib import Path

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, trainers

from engine.environments.protocol import Task

PAD, END, USER, AGENT, TOOL = "<|pad|>", "<|end|>", "<|user|>", "<|agent|>", "<|tool|>"
SPECIAL_TOKENS = (PAD, END, USER, AGENT, TOOL)

# Frequent text as single tokens. They begin or end at a quote, so that a name is cut into the same
# tokens in a question, a call, a result and an answer: copying is copying token by token.
PIECES = (
    '{"tool":"lookup","entity":"',
    '","relation":"',
    '"}',
    '{"answer":"',
    '{"value":"',
    'What is "',
    "\"'s ",
    "'s ",
)

_NAME_PIECE = re.compile(r"[ \w.,'’/()-]+")


def _byte_table() -> dict[str, int]:
    """GPT-2's spelling of bytes in vocabularies: printable ones as themselves, others shifted."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    shifted = {chr(256 + place): byte for place, byte in enumerate(others)}
    return {chr(byte): byte for byte in printable} | shifted


_BYTE_OF = _byte_table()


class Tokenizer:
    """Encodes the parts of a trajectory. Text that spells a special token stays ordinary text."""

    def __init__(self, backend: tokenizers.Tokenizer) -> None:
        self.backend = backend
        self.backend.encode_special_tokens = True  # in text their spelling is text
        self.pad_id, self.end_id, self.user_id, self.agent_id, self.tool_id = (
            self._special_id(token) for token in SPECIAL_TOKENS
        )

    @property
    def vocab_size(self) -> int:
        """Number of token ids, special ones included; ids run from 0 without gaps."""
        return int(self.backend.get_vocab_size(with_added_tokens=True))

    def encode_prompt(self, task: Task) -> list[int]:
        return [self.user_id, *self.encode_text(task.prompt), self.agent_id]

    def encode_turn(self, text: str) -> list[int]:
        """The tokens that a policy would have sampled for this turn."""
        return [*self.encode_text(text), self.end_id]

    def encode_observation(self, text: str) -> list[int]:
        return [self.tool_id, *self.encode_text(text), self.agent_id]

    def decode_turn(self, ids: Sequence[int]) -> str:
        """The text of sampled tokens, up to the first `<|end|>`.

        Other special tokens are spelt out: the environment then sees what was sampled. Bytes that
        are no UTF-8 become U+FFFD.
        """
        ids = list(ids)
        if self.end_id in ids:
            ids = ids[: ids.index(self.end_id)]
        return str(self.backend.decode(ids, skip_special_tokens=False))

    def encode_text(self, text: str) -> list[int]:
        return list(self.backend.encode(text, add_special_tokens=False).ids)

    def encode_texts(self, texts: Sequence[str]) -> list[list[int]]:
        batch = self.backend.encode_batch_fast(list(texts), add_special_tokens=False)
        return [list(item.ids) for item in batch]

    def token_bytes(self, ids: Sequence[int]) -> list[bytes]:
        """The bytes that each token stands for; special tokens are spelt out."""
        return [self._bytes[index] for index in ids]

    @cached_property
    def _bytes(self) -> list[bytes]:
        whole = {*SPECIAL_TOKENS, *PIECES}
        vocabulary = sorted(self.backend.get_vocab().items(), key=lambda item: item[1])
        return [
            token.encode() if token in whole else bytes(_BYTE_OF[char] for char in token)
            for token, _ in vocabulary
        ]

    @cached_property
    def name_pieces(self) -> tuple[str, ...]:
        """The texts of vocabulary entries that a made-up name can be put together from."""
        reserved = len(SPECIAL_TOKENS)
        texts = [piece.decode(errors="replace") for piece in self._bytes[reserved:]]
        return tuple(text for text in texts if _NAME_PIECE.fullmatch(text))

    def save(self, folder: Path) -> None:
        """Writes a folder that `AutoTokenizer.from_pretrained` reads."""
        from transformers import PreTrainedTokenizerFast  # slow to import, needed here alone

        fast = PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]
            tokenizer_object=self.backend,
            pad_token=PAD,
            eos_token=END,
            additional_special_tokens=[USER, AGENT, TOOL],
            clean_up_tokenization_spaces=False,
        )
        fast.save_pretrained(folder)

    @staticmethod
    def load(folder: Path) -> "Tokenizer":
        """The inverse of `save`. Raises FileNotFoundError where there is no tokenizer."""
        path = folder / "tokenizer.json"
        if not path.is_file():
            raise FileNotFoundError(f"There is no tokenizer in {folder}.")
        return Tokenizer(tokenizers.Tokenizer.from_file(str(path)))

    @staticmethod
    def train(texts: Iterable[str], vocab_size: int) -> "Tokenizer":
        """BPE over bytes: at most `vocab_size` ids, fewer where the text has no more to merge."""
        backend = tokenizers.Tokenizer(models.BPE())
        backend.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split('"', "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True),
            ]
        )
        backend.decoder = decoders.ByteLevel()
        pieces = re.compile("|".join(re.escape(piece) for piece in PIECES))
        backend.train_from_iterator(
            (part for text in texts for part in pieces.split(text) if part),
            trainers.BpeTrainer(
                vocab_size=vocab_size - len(PIECES),
                special_tokens=list(SPECIAL_TOKENS),
                initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
                show_progress=False,
            ),
        )
        backend.add_tokens([AddedToken(piece, normalized=False) for piece in PIECES])
        return Tokenizer(backend)

    def _special_id(self, token: str) -> int:
        index = self.backend.token_to_id(token)
        if index is None:
            raise ValueError(f"This tokenizer has no {token}: it was not made by this program.")
        return int(index)
