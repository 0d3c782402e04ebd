"""Server-sent events: the data of each event, from bytes that arrive in any pieces. No I/O."""

from __future__ import annotations

MAX_EVENT_BYTES = 16 * 1024 * 1024
"""Bytes of one event at most; a server that sends more is not answering."""


class EventParser:
    """A parser of one stream."""

    def __init__(self) -> None:
        self._rest = b""
        self._data: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that this piece completes. Raise `ValueError` if one is too large.

        A line ends with CR, LF or both; an empty line ends an event. Comments and other fields than `data` are skipped.
        """
        text = self._rest + chunk
        if b"\r" in text:
            held = b"\r" if text.endswith(b"\r") else b""  # its LF may be the first byte of the next piece
            text = text[: len(text) - len(held)].replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        else:
            held = b""
        *lines, rest = text.split(b"\n")
        self._rest = rest + held
        events: list[bytes] = []
        for line in lines:
            if line.startswith(b"data:"):
                self._data.append(line[6:] if line[5:6] == b" " else line[5:])
                self._size += len(line)
            elif not line:
                events += self.close()
        if self._size + len(self._rest) > MAX_EVENT_BYTES:
            raise ValueError(f"an event has more than {MAX_EVENT_BYTES} bytes")
        return events

    def close(self) -> list[bytes]:
        """Return the data of the event that is still open: some servers forget the last empty line."""
        data, self._data, self._size = self._data, [], 0
        return [b"\n".join(data)] if data else []
