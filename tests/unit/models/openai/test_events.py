"""Server-sent events out of bytes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bubbot.models.openai.events import EventParser

MAX_EVENT_BYTES = 16_777_216


TEXTS = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


def parsed(*chunks: bytes) -> list[bytes]:
    parser = EventParser()
    return [event for chunk in chunks for event in parser.feed(chunk)] + parser.close()


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: one\n\ndata: two\n\n", [b"one", b"two"]),
        (b"data:one\r\n\r\ndata:  two\r\n\r\n", [b"one", b" two"]),
        (b"data: one\r\rdata: two\r\r", [b"one", b"two"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data: a\r\ndata: b\r\n\r\n", [b"a\nb"]),
        (b": waiting\n\nevent: x\nid: 7\ndata: one\nretry: 5\n\n", [b"one"]),
        (b"data: forgotten", []),
        (b"data: no empty line\n", [b"no empty line"]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_an_event_is_its_data_lines(stream: bytes, events: list[bytes]) -> None:
    assert parsed(stream) == events
    assert parsed(*(stream[place : place + 1] for place in range(len(stream)))) == events


@given(st.lists(TEXTS), st.sampled_from(["\n", "\r\n", "\r"]), st.data())
def test_how_the_bytes_are_cut_changes_nothing(texts: list[str], end: str, data: st.DataObject) -> None:
    stream = "".join(f"data: {text}{end}{end}" for text in texts).encode()
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    pieces = [stream[begin:stop] for begin, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert parsed(*pieces) == [text.encode() for text in texts]


def test_an_event_without_an_end_is_refused() -> None:
    parser = EventParser()
    parser.feed(b"x" * MAX_EVENT_BYTES)
    with pytest.raises(ValueError, match="more than"):
        parser.feed(b"x")
