"""The bot's own messages in a channel, as a search has read them: each page once, whatever is searched for."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from bubbot.ports.channel import MessagePart

PAGE_MESSAGES = 100
"""Messages in a page of Discord's list."""


class OwnMessages:
    """What Discord has listed of a channel from one message on.

    It knows all that earlier processes sent once the list has come to its end. What this process sends after that it
    knows only if the list is read on.

    Attributes:
        begin: the id after which it begins.
        end: the id up to which it was read.
        is_complete: the last page was not full.
        is_empty: nothing was listed, not even messages of others.
    """

    def __init__(self, begin: int) -> None:
        self.begin = self.end = begin
        self.is_complete, self.is_empty = False, True
        self._ids: dict[bytes, set[int]] = {}
        self._sent: set[str] = set()

    def reaches(self, start: int) -> bool:
        """Return true if what it lists, or will list next, has every message after `start`."""
        return self.begin <= start and (start <= self.end or self.is_complete)

    def note_sent(self, part: MessagePart) -> None:
        """Note that a part is being sent: it may come after what was listed."""
        self._sent.add(part.key)

    @property
    def sent_count(self) -> int:
        """How many parts were sent since the list began."""
        return len(self._sent)

    def must_read(self, part: MessagePart) -> bool:
        """Return true if the part may be missing here although it arrived."""
        return self.is_empty or not self.is_complete or not part.key or part.key in self._sent

    def add_page(self, messages: Sequence[Mapping[str, Any]], own_id: str) -> None:
        """Add a page of the list; one that cannot be read ends nothing."""
        for message in messages:
            self.is_empty, number = False, int(message["id"])
            self.end = max(self.end, number)
            if message["author"]["id"] == own_id:
                names = [str(file.get("filename")) for file in message.get("attachments") or []]
                self._ids.setdefault(_digest(str(message.get("content") or ""), names), set()).add(number)
        self.is_complete = len(messages) < PAGE_MESSAGES

    def find(self, part: MessagePart, start: int) -> list[str]:
        """Return the ids after `start` of the messages with the part's text and file name, oldest first."""
        names = [part.file.name] if part.file is not None else []
        return [str(number) for number in sorted(self._ids.get(_digest(part.text, names), ())) if number > start]


def _digest(text: str, names: Sequence[str]) -> bytes:
    """Make the digest of what tells messages apart; of file names the characters that Discord preserves."""
    kept = ["".join(char for char in name if char.isascii() and char.isalnum()).lower() for name in names]
    return sha256("\0".join([text.strip(), *kept]).encode(errors="surrogatepass")).digest()
