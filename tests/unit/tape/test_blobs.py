"""The blobs that an entry needs."""

from __future__ import annotations

import pytest

from bubbot.tape.blobs import cited_blobs
from bubbot.tape.entry import Kind, TapeEntry, event, message

FIRST, SECOND = "1" * 64, "2" * 64


@pytest.mark.parametrize(
    ("entry", "digests"),
    [
        (message("user", f"a text about {FIRST}"), set()),
        (message("user", [{"type": "text", "text": "look"}, {"type": "image", "digest": FIRST}]), {FIRST}),
        (message("user", [{"type": "file", "digest": FIRST}, {"type": "image", "digest": SECOND}]), {FIRST, SECOND}),
        (message("user", [{"type": "sound", "digest": FIRST}, {"type": "image", "digest": "no digest"}]), set()),
        (TapeEntry(Kind.SYSTEM, {"digest": FIRST}), {FIRST}),
        (event("loop.step", {"system": FIRST, "tools": SECOND}), {FIRST, SECOND}),
        (event("something.else", {"system": FIRST}), set()),
    ],
)  # fmt: skip
def test_an_entry_needs_its_attachments_its_prompt_and_its_tools(entry: TapeEntry, digests: set[str]) -> None:
    assert cited_blobs(entry) == digests
