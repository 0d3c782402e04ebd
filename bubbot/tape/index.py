"""The search index port: what proposes entries to look at. Derived, discardable, and never asked what matches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

SYSTEM_TAPE_PREFIX = "bubbot/"
"""What the names of the system's own tapes begin with; they are never indexed."""


@dataclass(frozen=True, slots=True)
class IndexState:
    """How far an index goes. `position` is a global one, `behind` the number of entries after it; `bytes` is its size
    and `texts` that of what it indexes. `fresh`: it belongs to this database; another one is never asked."""

    position: int
    behind: int
    bytes: int
    texts: int
    fresh: bool


class TapeIndex(Protocol):
    """Proposes entries, by their global position, that may match; whoever asks looks at them.

    It covers every entry up to `position`; what comes after has to be scanned.
    """

    @property
    def position(self) -> int:
        """The last entry that is covered."""
        ...

    def holding(self, tape: int, text: str, kinds: Sequence[str], *, newest: bool) -> Iterator[int] | None:
        """Every covered entry of the tape that holds the folded text, and others; None: better scan."""
        ...

    def alike(self, tape: int, text: str, kinds: Sequence[str]) -> Iterator[int]:
        """Entries that hold the words of the folded text in other spellings, newest first; some may be missing."""
        ...
