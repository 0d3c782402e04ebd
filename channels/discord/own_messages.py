"""The bot's own messages in a channel, cached for all searches: each page is read once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from bubbot.ports.channel import MessagePart

PAGE_MESSAGES = 100
"""Messages in a page of Discord's list."""


class OwnMessages:
    """Discord's list of a channel from one message on.

    At its end it holds everything that earlier processes sent. Later messages of this process need further reading.

    Attributes:
        begin: the list holds messages after this id.
        end: the last id that was read.
        is_complete: the last page was not full.
        is_empty: Discord listed nothing, not even messages of others.
    """

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.is_complete, self.is_empty = False, True
        self._ids: dict[bytes, set[int]] = {}
        self._sent: set[str] = set()

    def reaches(self, start: int) -> bool:
        """Return true if the list has every message after `start`, or can be read on to have it."""
        return self.begin <= start and (start <= self.end or self.is_complete)

    def note_sent(self, part: MessagePart) -> None:
        """Record that a part is being sent, which the list may lack."""
        self._sent.add(part.key)

    @property
    def sent_count(self) -> int:
        """Parts sent since the list began."""
        return len(self._sent)

    def must_read(self, part: MessagePart) -> bool:
        """Return true if the part may be missing here although it arrived."""
        return self.is_empty or not self.is_complete or not part.key or part.key in self._sent

    def add_page(self, messages: Sequence[Mapping[str, Any]], own_id: str) -> None:
        """Add a page of the list; an unreadable page does not end it."""
        for message in messages:
            self.is_empty, number = False, int(message["id"])
            self.end = max(self.end, number)
            if message["author"]["id"] == own_id:
                names = [str(file.get("filename")) for file in message.get("attachments") or []]
                self._ids.setdefault(_digest(str(message.get("content") or ""), names), set()).add(number)
        self.is_complete = len(messages) < PAGE_MESSAGES

    def find(self, part: MessagePart, start: int) -> list[str]:
        """Return the ids of messages after `start` with the part's text and file name, oldest first."""
        names = [part.file.name] if part.file is not None else []
        return [str(number) for number in sorted(self._ids.get(_digest(part.text, names), ())) if number > start]


def _digest(text: str, names: Sequence[str]) -> bytes:
    """Hash what distinguishes messages; of file names only the characters that Discord preserves."""
    kept = ["".join(char for char in name if char.isascii() and char.isalnum()).lower() for name in names]
    return sha256("\0".join([text.strip(), *kept]).encode(errors="surrogatepass")).digest()
