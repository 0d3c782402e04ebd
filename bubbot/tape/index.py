"""The state of a search index."""

from __future__ import annotations

from dataclasses import dataclass

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
