"""Token counts for OpenAI's models, with the encodings that come with litellm. It never uses the network.

tiktoken would download a file that is missing or has unexpected content. So its own definitions of the encodings run
with our reader in place of the one that downloads.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from types import FunctionType
from typing import Any

import tiktoken
from tiktoken.model import encoding_name_for_model
from tiktoken_ext import openai_public

from bubbot.ports.model import TokenCount, ToolSpec

SHIPPED_ENCODINGS = ("cl100k_base", "o200k_base")
"""The encodings of chat models whose files come with litellm."""
TOKENIZER_CHUNK_CHARS = 16_384
"""Characters encoded at once. A million blanks in one piece overflow the stack of tiktoken's regular expressions."""
# A chat message is wrapped in three tokens, a name is one more, and the answer begins with three.
_MESSAGE, _NAME, _ANSWER = 3, 1, 3


def find_encoding_name(name: str) -> str | None:
    """Return the encoding of `openai/model`; None if the model's name leaves it uncertain."""
    provider, _, model = name.partition("/")
    if provider != "openai":
        return None
    try:
        encoding = encoding_name_for_model(model)
    except KeyError:
        return None
    return encoding if encoding in SHIPPED_ENCODINGS else None


class TokenizerCache:
    """Token counts for models by name.

    An encoding is loaded at its first use, which takes some tenths of a second and some 50 MB. Call every method in a
    thread; several threads may call at once.
    """

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._encodings: dict[str, tiktoken.Encoding] = {}

    def count(self, name: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> TokenCount | None:
        """Count the tokens of chat messages as OpenAI frames them.

        Return None if the encoding is uncertain or missing, and for content other than text: a picture, a sound, a file.
        Only OpenAI knows the form in which the model sees tools, so their JSON text is counted and the count is marked
        as approximate.
        """
        encoding = self._encoding(name)
        texts = [_texts(message) for message in messages]
        if encoding is None or None in texts:
            return None
        tokens = _ANSWER + sum(_MESSAGE + (_NAME if "name" in message else 0) for message in messages)
        tokens += sum(_count_text(encoding, text) for group in texts for text in group or ())
        if tools:
            tokens += _count_text(encoding, json.dumps([tool.as_json() for tool in tools], ensure_ascii=False))
        has_calls = any(message.get("tool_calls") for message in messages)
        return TokenCount(tokens, encoding.name, is_approximate=bool(tools) or has_calls)

    def count_text(self, name: str, text: str) -> int | None:
        encoding = self._encoding(name)
        return None if encoding is None else _count_text(encoding, text)

    def _encoding(self, name: str) -> tiktoken.Encoding | None:
        encoding = find_encoding_name(name)
        if encoding is None:
            return None
        with self._lock:
            if encoding not in self._encodings:
                loaded = self._load(encoding)
                if loaded is None:
                    return None
                self._encodings[encoding] = loaded
            return self._encodings[encoding]

    def _load(self, encoding: str) -> tiktoken.Encoding | None:
        folder = self._folder or find_shipped_encodings()
        if folder is None:
            return None

        def read_ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
            return _read_ranks(folder, url, expected_hash)

        try:
            original = openai_public.ENCODING_CONSTRUCTORS[encoding]
            constructor = FunctionType(original.__code__, {**original.__globals__, "load_tiktoken_bpe": read_ranks})
            return tiktoken.Encoding(**constructor())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # another version of tiktoken or litellm: callers fall back to an estimate


def find_shipped_encodings() -> Path | None:
    """Return the folder of encodings that litellm brings; None without litellm."""
    spec = find_spec("litellm")
    folders = [
        Path(root, "litellm_core_utils", "tokenizers") for root in (spec and spec.submodule_search_locations) or ()
    ]
    return next((folder for folder in folders if folder.is_dir()), None)


def _read_ranks(folder: Path, url: str, expected: str | None) -> dict[bytes, int]:
    """Read the token ranks from the file named by the digest of its URL. Raise `ValueError` for other content."""
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    data = (folder / name).read_bytes()
    if expected is not None and hashlib.sha256(data).hexdigest() != expected:
        raise ValueError(f"{name} is not the file that tiktoken expects")
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines()) if token}


def _texts(message: Mapping[str, Any]) -> list[str] | None:
    """Return all texts of a message; None if it holds anything else."""
    texts: list[str] = []
    for key, value in message.items():
        if key == "tool_calls":
            texts += [json.dumps(call["function"], ensure_ascii=False) for call in value]
            continue
        parts = value if isinstance(value, list | tuple) else [{"type": "text", "text": value or ""}]
        part_texts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in parts
        ]
        if not all(isinstance(text, str) for text in part_texts):
            return None
        texts += [text for text in part_texts if isinstance(text, str)]
    return texts


def _count_text(encoding: tiktoken.Encoding, text: str) -> int:
    """Count the tokens of a text; names of special tokens are plain text, as they are for OpenAI."""
    return sum(len(encoding.encode_ordinary(piece)) for piece in cut_pieces(text))


def cut_pieces(text: str) -> list[str]:
    """Split the text into pieces that can be encoded separately.

    No token spans a line's end and a letter after it, so a cut between the two changes no count. A long text without such
    a place is cut anywhere, which can add a token for each cut.
    """
    pieces, start = [], 0
    while len(text) - start > TOKENIZER_CHUNK_CHARS:
        end = start + TOKENIZER_CHUNK_CHARS
        cut = end
        while cut > start and not (text[cut - 1] == "\n" and text[cut].isalpha()):
            cut -= 1
        end = cut if cut > start else end
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
