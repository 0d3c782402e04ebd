"""Whatever came with messages: no request holds a reference, nor more images than the limits allow."""

from __future__ import annotations

import base64
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bubbot.errors import EntryNotFound
from bubbot.ports.model import ModelRequest
from bubbot.runtime.compose import embed_images
from bubbot.runtime.context.selectors import MessageStyle, select_messages
from bubbot.tape.blobs import blob_digest
from bubbot.tape.entry import Kind, TapeEntry

TEXT = st.text(st.sampled_from("ab` \n[]漢"), max_size=12)


def image(data: bytes, name: str, claimed: int | None) -> dict[str, Any]:
    digest = blob_digest(data + str(claimed).encode())  # a blob has one size
    part = {"type": "image", "digest": digest, "media_type": "image/png", "name": name}
    return part | ({"size": len(data) if claimed is None else claimed})


IMAGES = st.builds(image, st.binary(min_size=1, max_size=60), TEXT, st.sampled_from([None, None, None, 3_750_001]))
FILES = st.builds(
    lambda data, name, text: {"type": "file", "digest": blob_digest(data), "name": name, "size": len(data)}
    | ({} if text is None else {"text": text, "characters": len(text) + 5}),
    st.binary(max_size=9), TEXT, st.none() | TEXT,
)  # fmt: skip
TEXTS = st.builds(lambda text: {"type": "text", "text": text}, TEXT)
CONTENT = st.lists(IMAGES | FILES | TEXTS, max_size=5) | TEXT
MESSAGES = st.lists(st.tuples(st.sampled_from(["user", "user", "assistant"]), CONTENT), max_size=12)
STYLES = st.builds(MessageStyle, images=st.integers(0, 4), image_bytes=st.integers(1, 150))


def on_tape(messages: list[tuple[str, Any]]) -> list[TapeEntry]:
    return [
        TapeEntry(Kind.MESSAGE, {"role": role, "content": content}).with_id(place)
        for place, (role, content) in enumerate(messages, 1)
    ]


def parts_of(request: ModelRequest) -> list[Any]:
    return [part for one in request.messages if isinstance(one["content"], list) for part in one["content"]]


async def asked(messages: list[tuple[str, Any]], style: MessageStyle, kept: dict[str, bytes]) -> ModelRequest:
    async def blob(digest: str) -> bytes:
        if digest not in kept:
            raise EntryNotFound(digest)
        return kept[digest]

    shown = select_messages(on_tape(messages), style)
    request = await embed_images(ModelRequest("", tuple(one.message for one in shown)), blob)
    encoded = ModelRequest("", tuple(one.message for one in shown), texts=tuple(one.text for one in shown))
    # Bytes that are there already are the same as those made anew.
    assert (await embed_images(encoded, blob)).as_bytes() == request.as_bytes()
    return request


@given(MESSAGES, STYLES, st.booleans(), st.data())
async def test_no_request_holds_a_reference_or_too_many_images(
    messages: list[tuple[str, Any]], style: MessageStyle, gone: bool, data: st.DataObject
) -> None:
    # Bytes as large as each image says it is; some are gone.
    digests = {
        part["digest"]: b"x" * min(part["size"], 200)
        for _, content in messages
        if isinstance(content, list)
        for part in content
        if part["type"] == "image"
    }
    kept = {digest: found for digest, found in digests.items() if not gone or data.draw(st.booleans())}
    request = await asked(messages, style, kept)
    parts = parts_of(request)
    assert {part["type"] for part in parts} <= {"text", "image_url"}
    sent = [base64.b64decode(one["image_url"]["url"].partition(",")[2]) for one in parts if one["type"] == "image_url"]
    assert len(sent) <= style.images
    # One image is shown however small the limit: a message with it alone would never be seen.
    assert len(sent) <= 1 or sum(map(len, sent)) <= style.image_bytes
    assert all(isinstance(part["text"], str) for part in parts if part["type"] == "text")


@given(MESSAGES, STYLES)
async def test_more_words_change_nothing_of_what_was_shown(
    messages: list[tuple[str, Any]], style: MessageStyle
) -> None:
    ended: list[tuple[str, Any]] = [*messages, ("assistant", "ok")]
    short = select_messages(on_tape(ended), style)
    long = select_messages(on_tape([*ended, ("user", "more"), ("assistant", "ok")]), style)
    assert long[: len(short)] == short
