"""A message with an image: each provider is sent the same bytes, in its own form."""

from __future__ import annotations

import asyncio
import base64
import struct
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from tests.e2e import anthropic_server, bedrock_server, gemini_server
from tests.e2e.model_paths import model_path  # noqa: F401 - a fixture
from tests.e2e.openai_server import says as openai_says
from tests.e2e.openai_server import serving as serving_openai
from tests.e2e.provider_asking import asked
from tests.e2e.provider_server import Speaks, serving
from tests.fakes.connections import accepting

# Warnings of pydantic about litellm's own code, and of the signer's: not ours to mend.
pytestmark = [
    pytest.mark.usefixtures("loaded_litellm"),
    *(pytest.mark.filterwarnings(f"ignore::{kind}") for kind in ("DeprecationWarning", "UserWarning")),
]


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))


PNG = (
    b"\x89PNG\r\n\x1a\n"
    + _chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 8, 2, 0, 0, 0))
    + _chunk(b"IDAT", zlib.compress(b"\x00\xff\x00\x00\x00\xff\x00"))
    + _chunk(b"IEND", b"")
)
JPEG = bytes.fromhex("ffd8ffe000104a46494600010100000100010000") + bytes(range(256)) + b"\xff\xd9"
KINDS = pytest.mark.parametrize(("media", "data"), [("image/png", PNG), ("image/jpeg", JPEG)], ids=["png", "jpeg"])


def shown(media: str, data: bytes) -> dict[str, Any]:
    """A message of the model port with words and an image."""
    image = {"type": "image_url", "image_url": {"url": f"data:{media};base64,{base64.b64encode(data).decode()}"}}
    return {"role": "user", "content": [{"type": "text", "text": "What is this?"}, image]}


def anthropic_image(body: dict[str, Any]) -> tuple[str, str]:
    words, image = body["messages"][0]["content"]
    assert (words, image["type"], image["source"]["type"]) == (
        {"type": "text", "text": "What is this?"}, "image", "base64",
    )  # fmt: skip
    return image["source"]["media_type"], image["source"]["data"]


def gemini_image(body: dict[str, Any]) -> tuple[str, str]:
    words, image = body["contents"][0]["parts"]
    assert words == {"text": "What is this?"}
    found = image.get("inline_data") or image["inlineData"]
    return found.get("mime_type") or found["mimeType"], found["data"]


def bedrock_image(body: dict[str, Any]) -> tuple[str, str]:
    words, image = body["messages"][0]["content"]
    assert words == {"text": "What is this?"}
    return f"image/{image['image']['format']}", image["image"]["source"]["bytes"]


FORMS: dict[str, Any] = {
    "anthropic": (
        f"anthropic/{anthropic_server.MODEL}",
        lambda: anthropic_server.AnthropicServer([anthropic_server.says(anthropic_server.text("A dot."))]),
        "", anthropic_image,
    ),
    "gemini": (
        f"gemini/{gemini_server.MODEL}", lambda: gemini_server.GeminiServer([gemini_server.says("A dot.")]),
        "/v1beta", gemini_image,
    ),
    "bedrock": (
        f"bedrock/{bedrock_server.MODEL}",
        lambda: bedrock_server.BedrockServer([bedrock_server.Says((bedrock_server.text("A dot."),))]),
        "", bedrock_image,
    ),
}  # fmt: skip


@KINDS
@pytest.mark.parametrize(("name", "made", "path", "image"), FORMS.values(), ids=FORMS)
async def test_a_provider_is_sent_the_same_bytes(
    name: str, made: Any, path: str, image: Any, media: str, data: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(variable, "planted")
    monkeypatch.setenv("AWS_REGION_NAME", "us-east-1")
    speaks: Speaks = made()
    key = None if name.startswith("bedrock") else "sk-x"
    async with serving(speaks) as server:
        outcome = await asked(name, server.address + path, shown(media, data), api_key=key)
    assert outcome.answered.text == "A dot."
    found, coded = image(speaks.requests[0].body)
    assert (found, base64.b64decode(coded, validate=True)) == (media, data)


@KINDS
@pytest.mark.usefixtures("model_path")
async def test_an_openai_address_is_sent_the_message_as_it_is(media: str, data: bytes) -> None:
    async with serving_openai(openai_says("A dot.")) as server:
        outcome = await asked("openai/test", server.address, shown(media, data))
    assert outcome.answered.text == "A dot."
    assert server.requests[0]["messages"][1] == shown(media, data)


async def test_the_address_of_an_image_is_put_in_words_and_fetched_by_nobody() -> None:
    """Imported tapes may hold parts with addresses; litellm would fetch them from this machine, at every turn."""
    spoken = anthropic_server.AnthropicServer([anthropic_server.says(anthropic_server.text("seen"))])
    async with serving(spoken), counting() as (address, fetched):
        part = {"type": "image_url", "image_url": {"url": f"{address}/x.png"}}
        words = {"type": "text", "text": "What is this?"}
        message = {"role": "user", "content": [words, part]}
        outcome = await asked(f"anthropic/{anthropic_server.MODEL}", spoken.address, message)
        assert outcome.answered.text == "seen"
        assert spoken.requests[0].body["messages"][0]["content"] == [
            words,
            {"type": "text", "text": f"[image, not fetched: {address}/x.png]"},
        ]
        assert not fetched


@asynccontextmanager
async def counting() -> AsyncIterator[tuple[str, list[str]]]:
    """An address, and the connections that were made to it."""
    seen: list[str] = []

    async def note(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        seen.append("connected")

    async with accepting(note) as port:
        yield f"http://127.0.0.1:{port}", seen
