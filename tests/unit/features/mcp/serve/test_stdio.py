"""Lines of standard input: a message that is too long costs itself alone."""

from __future__ import annotations

import asyncio
from io import BytesIO

from bubbot.features.mcp.serve.stdio import TOO_LONG, LineReader


async def read(data: bytes, limit: int = 16) -> list[str]:
    source = asyncio.StreamReader(limit)
    source.feed_data(data)
    source.feed_eof()
    return [line async for line in LineReader(source)]


async def test_lines_come_whole_and_the_last_one_needs_no_end() -> None:
    assert await read(b"one\ntwo\nthree") == ["one\n", "two\n", "three"]


async def test_a_line_that_is_too_long_is_named_and_the_next_one_is_read() -> None:
    assert await read(b"x" * 100 + b"\nnext\n") == [TOO_LONG, "next\n"]


async def test_the_end_within_a_long_line_is_the_end() -> None:
    assert await read(b"x" * 100) == [TOO_LONG]


async def test_bytes_that_are_no_text_are_replaced() -> None:
    assert await read(b"\xff\n") == ["\ufffd\n"]


async def test_a_file_is_read_to_its_end() -> None:
    assert [line async for line in LineReader(BytesIO(b"one\ntwo"))] == ["one\n", "two"]
