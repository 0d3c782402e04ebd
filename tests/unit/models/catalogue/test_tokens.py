"""Counting as OpenAI does, with what is installed and nothing else."""

from __future__ import annotations

import base64
import json
import random
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import tiktoken

from bubbot.models.catalogue import tokens
from bubbot.models.catalogue.tokens import TokenizerCache, find_encoding_name
from bubbot.ports.model import TokenCount, ToolSpec
from bubbot.tape.entry import JsonObject

TOKENIZER_CHUNK_CHARS = 16_384


NOISE = base64.b64encode(random.Random(1).randbytes(3_000)).decode()
TEXTS = {
    "english": "The quick brown fox jumps over the lazy dog.\n" * 20,
    "chinese": "我们今天去公园散步，然后一起吃晚饭。" * 20,
    "emoji": "👩‍👩‍👧‍👦🎉🇩🇪" * 20,
    "base64": NOISE,
    "special": "<|endoftext|><|im_start|>",
    "lines": "one\n\n  two, three\n(four)\n" * 2_000,
}
OFFLINE = """
import socket, sys
from pathlib import Path

def refuse(self, address, *rest):
    if self.family != socket.AF_UNIX and not str(address[0]).startswith("127."):
        print("NETWORK", address)
    raise OSError("no network here")

def unresolved(*asked, **rest):
    print("NETWORK", asked)
    raise OSError("no network here")

socket.socket.connect = socket.socket.connect_ex = refuse
socket.getaddrinfo = unresolved
from bubbot.models.catalogue.tokens import TokenizerCache
for name in ("openai/gpt-4o", "openai/gpt-4"):
    print(TokenizerCache().count_text(name, "hello world"))
print(TokenizerCache(Path(sys.argv[1])).count_text("openai/gpt-4o", "hello"))
"""


@pytest.fixture(scope="module")
def tokenizers() -> TokenizerCache:
    return TokenizerCache()


@pytest.fixture
def shipped(monkeypatch: pytest.MonkeyPatch) -> None:
    """tiktoken itself finds the files there, too."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tokens.find_shipped_encodings()))


def user(content: Any) -> dict[str, Any]:
    return {"role": "user", "content": content}


@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("openai/gpt-4o", "o200k_base"),
        ("openai/gpt-4o-2024-05-13", "o200k_base"),
        ("openai/gpt-5.1-mini", "o200k_base"),
        ("openai/o3", "o200k_base"),
        ("openai/gpt-4", "cl100k_base"),
        ("openai/gpt-3.5-turbo-0125", "cl100k_base"),
        ("openai/ft:gpt-4o:acme", "o200k_base"),
        ("openai/gpt-oss-20b", None),
        ("openai/text-davinci-003", None),
        ("openai/mine", None),
        ("anthropic/claude-sonnet-4-5", None),
        ("azure/gpt-4o", None),
        ("gpt-4o", None),
    ],
)
def test_only_a_name_that_makes_the_encoding_certain_has_one(name: str, encoding: str | None) -> None:
    assert find_encoding_name(name) == encoding


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize(("name", "encoding"), [("openai/gpt-4o", "o200k_base"), ("openai/gpt-4", "cl100k_base")])
def test_texts_have_the_tokens_tiktoken_counts(
    tokenizers: TokenizerCache, shipped: None, name: str, encoding: str, text: str
) -> None:
    wanted = len(tiktoken.get_encoding(encoding).encode_ordinary(text))
    assert tokenizers.count_text(name, text) == wanted
    assert tokenizers.count(name, [user(text)], ()) == TokenCount(3 + 3 + 1 + wanted, encoding)


def test_a_conversation_is_framed_as_openai_does(tokenizers: TokenizerCache, shipped: None) -> None:
    """Three tokens a message, one for a name, three for the answer to begin."""
    told = [("system", None, "Be brief."), ("user", "ann", "Hello, who are you?"), ("assistant", None, "A bot. 🎉")]
    messages = [{"role": role, "content": text} | ({"name": name} if name else {}) for role, name, text in told]
    direct = tiktoken.get_encoding("o200k_base")
    texts = [text for one in told for text in one if text]
    wanted = sum(len(direct.encode_ordinary(text)) for text in texts) + 3 * len(told) + 1 + 3
    assert tokenizers.count("openai/gpt-4o", messages, ()) == TokenCount(wanted, "o200k_base")


def test_tools_and_calls_are_counted_and_called_approximate(tokenizers: TokenizerCache) -> None:
    plain = tokenizers.count("openai/gpt-4o", [user("hi")], ())
    tooled = tokenizers.count("openai/gpt-4o", [user("hi")], [ToolSpec("f", "does", {"type": "object"})])
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
    called = tokenizers.count(
        "openai/gpt-4o", [user("hi"), {"role": "assistant", "content": "", "tool_calls": [call]}], ()
    )
    assert plain
    assert tooled
    assert called
    assert (plain.is_approximate, tooled.is_approximate, called.is_approximate) == (False, True, True)
    assert tooled.tokens > plain.tokens + 10
    assert called.tokens > plain.tokens + 10
    assert tooled.as_json() == {"tokens": tooled.tokens, "by": "o200k_base", "approximate": True}
    assert plain.as_json() == {"tokens": plain.tokens, "by": "o200k_base"}


@pytest.mark.parametrize("part", [{"type": "image_url", "image_url": {"url": "data:,"}}, {"type": "text"}, 7])
def test_what_is_no_text_is_not_counted(tokenizers: TokenizerCache, part: Any) -> None:
    text: JsonObject = {"type": "text", "text": "hi"}
    assert tokenizers.count("openai/gpt-4o", [user([text])], ()) == tokenizers.count("openai/gpt-4o", [user("hi")], ())
    assert tokenizers.count("openai/gpt-4o", [user([text, part])], ()) is None


@pytest.mark.sampled(3)
@pytest.mark.parametrize("char", [" ", "a", "\n", "^", "漢"])
def test_a_long_run_of_one_character_is_counted_too(tokenizers: TokenizerCache, char: str) -> None:
    """In one piece, a million blanks overflow a stack inside tiktoken, which ends in a panic."""
    found = tokenizers.count_text("openai/gpt-4o", char * 1_000_000)
    assert found is not None
    assert 1_000_000 // 128 <= found <= 2_000_000


def test_pieces_add_up_to_the_text() -> None:
    for text in (
        "",
        "x" * (3 * TOKENIZER_CHUNK_CHARS + 1),
        TEXTS["lines"],
        "\n" * TOKENIZER_CHUNK_CHARS + "a" * TOKENIZER_CHUNK_CHARS,
    ):
        pieces = tokens.cut_pieces(text)
        assert "".join(pieces) == text
        assert all(0 < len(piece) <= TOKENIZER_CHUNK_CHARS for piece in pieces) or text == ""


@pytest.mark.parametrize("damage", ["missing", "altered"])
def test_a_file_that_is_not_there_or_another_one_leaves_it_to_the_estimate(tmp_path: Path, damage: str) -> None:
    shipped = tokens.find_shipped_encodings()
    assert shipped is not None
    for file in shipped.iterdir() if damage == "altered" else ():
        if file.is_file() and file.stat().st_size:
            shutil.copy(file, tmp_path)
            (tmp_path / file.name).write_bytes(file.read_bytes()[:-10])
    found = TokenizerCache(tmp_path)
    assert found.count("openai/gpt-4o", [user("hi")], ()) is None
    assert found.count_text("openai/gpt-4", "hi") is None


@pytest.mark.proof
def test_nothing_is_ever_fetched(tmp_path: Path) -> None:
    """A process of its own, in which a connection to anywhere is refused and told, with an empty cache folder."""
    env = {"TIKTOKEN_CACHE_DIR": str(tmp_path), "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", OFFLINE, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, env=env, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["2", "2", "None"]
    assert list(tmp_path.iterdir()) == []


def test_the_estimate_is_below_the_count_where_texts_are_dense(tokenizers: TokenizerCache) -> None:
    """Why a count is worth it: base64 has 1.4 bytes a token, where the estimate takes 3 for one."""
    found = tokenizers.count_text("openai/gpt-4o", json.dumps(NOISE))
    assert found is not None
    assert found > len(NOISE) // 2
