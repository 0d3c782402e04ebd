"""Tokens of OpenAI's models, counted with the encodings that come with litellm. No network, whatever is missing.

tiktoken would fetch a file that it does not find, or that is not what it expects. So its own definitions of the
encodings are run with a reader of ours in the place of the one that fetches.
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

SHIPPED = ("cl100k_base", "o200k_base")
"""The encodings of chat models whose files come with litellm."""
TOKENIZER_CHUNK_CHARS = 16_384
"""Characters encoded at once. A million blanks in one piece overflow the stack of tiktoken's regular expressions."""
# A chat message is wrapped in three tokens, a name is one more, and the answer begins with three.
_MESSAGE, _NAME, _ANSWER = 3, 1, 3


def encoding_name(name: str) -> str | None:
    """The encoding of `openai/model`, where the model's name makes it certain; None else."""
    provider, _, model = name.partition("/")
    if provider != "openai":
        return None
    try:
        found = encoding_name_for_model(model)
    except KeyError:
        return None
    return found if found in SHIPPED else None


class TokenizerCache:
    """Counts for models by name. Loads an encoding at its first use, which takes some tenths of a second and some
    50 MB; every method is for a thread and may be called from several."""

    def __init__(self, folder: Path | None = None) -> None:
        self._folder = folder
        self._lock = Lock()
        self._made: dict[str, tiktoken.Encoding] = {}

    def count(self, name: str, messages: Sequence[Mapping[str, Any]], tools: Sequence[ToolSpec]) -> TokenCount | None:
        """The tokens of chat messages as OpenAI frames them.

        None where the encoding is not certain or not here, and for what is no text: a picture, a sound, a file.

        What tools look like to the model is known to OpenAI alone: their JSON text is counted, and the count is
        called approximate.
        """
        encoding = self._encoding(name)
        texts = [_texts(message) for message in messages]
        if encoding is None or None in texts:
            return None
        tokens = _ANSWER + sum(_MESSAGE + (_NAME if "name" in message else 0) for message in messages)
        tokens += sum(_of_text(encoding, text) for some in texts for text in some or ())
        if tools:
            tokens += _of_text(encoding, json.dumps([tool.as_json() for tool in tools], ensure_ascii=False))
        calls = any(message.get("tool_calls") for message in messages)
        return TokenCount(tokens, encoding.name, approximate=bool(tools) or calls)

    def count_text(self, name: str, text: str) -> int | None:
        """The tokens of a text alone."""
        encoding = self._encoding(name)
        return None if encoding is None else _of_text(encoding, text)

    def _encoding(self, name: str) -> tiktoken.Encoding | None:
        wanted = encoding_name(name)
        if wanted is None:
            return None
        with self._lock:
            if wanted not in self._made:
                made = self._load(wanted)
                if made is None:
                    return None
                self._made[wanted] = made
            return self._made[wanted]

    def _load(self, wanted: str) -> tiktoken.Encoding | None:
        folder = self._folder or _shipped()
        if folder is None:
            return None

        def ranks(url: str, expected_hash: str | None = None) -> dict[bytes, int]:
            return _ranks(folder, url, expected_hash)

        try:
            given = openai_public.ENCODING_CONSTRUCTORS[wanted]
            ours = FunctionType(given.__code__, {**given.__globals__, "load_tiktoken_bpe": ranks})
            return tiktoken.Encoding(**ours())
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            return None  # another version of tiktoken or litellm: the estimate holds


def _shipped() -> Path | None:
    spec = find_spec("litellm")
    folders = [
        Path(one, "litellm_core_utils", "tokenizers") for one in (spec and spec.submodule_search_locations) or ()
    ]
    return next((folder for folder in folders if folder.is_dir()), None)


def _ranks(folder: Path, url: str, expected: str | None) -> dict[bytes, int]:
    """The tokens of a file that is named by the digest of its address. Raises `ValueError` for other content."""
    name = hashlib.sha1(url.encode(), usedforsecurity=False).hexdigest()
    data = (folder / name).read_bytes()
    if expected is not None and hashlib.sha256(data).hexdigest() != expected:
        raise ValueError(f"{name} is not the file that tiktoken expects")
    return {base64.b64decode(token): int(rank) for token, rank in map(bytes.split, data.splitlines()) if token}


def _texts(message: Mapping[str, Any]) -> list[str] | None:
    """All texts of a message; None where it holds something else too."""
    texts: list[str] = []
    for key, value in message.items():
        if key == "tool_calls":
            texts += [json.dumps(call["function"], ensure_ascii=False) for call in value]
            continue
        parts = value if isinstance(value, list | tuple) else [{"type": "text", "text": value or ""}]
        found = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in parts
        ]
        if not all(isinstance(text, str) for text in found):
            return None
        texts += [text for text in found if isinstance(text, str)]
    return texts


def _of_text(encoding: tiktoken.Encoding, text: str) -> int:
    """Names of special tokens are plain text here, as they are for OpenAI."""
    return sum(len(encoding.encode_ordinary(piece)) for piece in _pieces(text))


def _pieces(text: str) -> list[str]:
    """The text in pieces. Between a line's end and a letter no token stands, so a cut there changes no count.

    A long text without such a place is cut anywhere, which can add a token for each cut.
    """
    pieces, start = [], 0
    while len(text) - start > TOKENIZER_CHUNK_CHARS:
        end = start + TOKENIZER_CHUNK_CHARS
        place = end
        while place > start and not (text[place - 1] == "\n" and text[place].isalpha()):
            place -= 1
        end = place if place > start else end
        pieces.append(text[start:end])
        start = end
    return [*pieces, text[start:]]
