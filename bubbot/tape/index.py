"""The search index port: proposes candidate entries. Derived, discardable, and never decides what matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

SYSTEM_TAPE_PREFIX = "bubbot/"
"""The prefix of the system's own tapes; they are never indexed."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """The progress of an index.

    Attributes:
        position: the global position up to which it covers every entry.
        entries: entries up to there.
        behind: entries after that.
        bytes: its size.
        texts: the bytes of the texts that it indexes.
        fresh: it belongs to this database; another one is never used.
    """

    position: int
    entries: int
    behind: int
    bytes: int
    texts: int
    fresh: bool


class TapeIndex(Protocol):
    """Proposes entries, by their global position, that may match; the caller checks them.

    It covers every entry up to `position`; the caller has to scan the later ones.
    """

    @property
    def position(self) -> int:
        """The last entry that is covered."""
        ...

    def find_containing(self, tape: int, text: str, kinds: Sequence[str], *, newest: bool) -> Iterator[int] | None:
        """Yield every covered entry of the tape that holds the folded text, and others; None: better scan."""
        ...

    def find_similar(self, tape: int, text: str, kinds: Sequence[str]) -> Iterator[int]:
        """Yield entries with the folded text's words in other spellings, newest first; some may be missing."""
        ...
