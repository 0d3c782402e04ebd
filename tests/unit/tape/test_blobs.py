"""The blobs that an entry needs."""

from __future__ import annotations

import pytest

from bubbot.tape.blobs import cited_blobs
from bubbot.tape.entry import Kind, TapeEntry, event, message, tool_result

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
        (event("loop.step", {"purpose": "summary", "system": FIRST, "messages": SECOND}), {FIRST, SECOND}),
        (event("something.else", {"system": FIRST}), set()),
    ],
)  # fmt: skip
def test_an_entry_needs_its_attachments_its_prompt_and_its_tools(entry: TapeEntry, digests: set[str]) -> None:
    assert cited_blobs(entry) == digests


def cut(head: str, digest: str, offset: int, tail: str = "") -> str:
    """A result as it is cut: head, pointer, tail."""
    pointer = f'result_read(handle="{digest}", offset={offset})'
    return f"{head}\n… [cut: 90000 characters in all; read on with {pointer}]{tail}"


@pytest.mark.parametrize("tail", ["", "\nthe end of the text", "\ntwo\nlines"])
def test_a_result_that_was_cut_needs_the_blobs_that_its_entry_names(tail: str) -> None:
    text = cut("head", SECOND, 4, tail)
    assert cited_blobs(tool_result([{"tool_call_id": "1", "content": text}], blobs=[FIRST])) == {FIRST}
    assert cited_blobs(tool_result([{"tool_call_id": "1", "content": text}], blobs=[])) == set()
    assert cited_blobs(event("command", {"name": "x", "output": text, "blobs": [FIRST]})) == {FIRST}
    assert cited_blobs(event("command", {"name": "x", "output": text, "blobs": []})) == set()


@pytest.mark.parametrize("blobs", [None, FIRST, {FIRST: 1}, [1, None, "no digest", [FIRST]]])
def test_blobs_that_are_no_list_of_digests_are_no_citation(blobs: object) -> None:
    assert cited_blobs(TapeEntry(Kind.TOOL_RESULT, {"results": [], "blobs": blobs})) == set()
    assert cited_blobs(event("command", {"blobs": blobs})) == set()


class TestEntriesWithoutThatKey:
    """What versions before the key wrote, and what was imported."""

    @pytest.mark.parametrize("size", ["", ", limit=120"])
    def test_a_result_that_ends_with_the_cut_needs_its_full_text(self, size: str) -> None:
        text = cut("head", FIRST, 4).replace("offset=4", f"offset=4{size}")
        assert cited_blobs(tool_result([{"tool_call_id": "1", "content": text}])) == {FIRST}

    @pytest.mark.parametrize(
        "text",
        [
            cut("somebody wrote:", FIRST, 4),
            cut("head", FIRST, 4, "\nthe end of the text"),
            cut("head", FIRST, 4).replace("offset=4", "offset=" + "4" * 4301),
            cut("head", FIRST, 4).replace("offset=4", "offset=٤"),
        ],
        ids=["quoted", "in the middle", "more digits than Python reads", "other digits"],
    )
    def test_a_text_that_only_looks_like_a_cut_needs_nothing(self, text: str) -> None:
        assert cited_blobs(tool_result([{"tool_call_id": "1", "content": text}])) == set()

    def test_the_output_of_a_command_needs_nothing(self) -> None:
        assert cited_blobs(event("command", {"name": "x", "output": cut("head", FIRST, 4)})) == set()
