"""The port for an index of passages by their meaning. What it holds is derived: it can be deleted and built again."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

PASSAGES_FILE = "passages.db"
"""The file of an index, beside the database; a store deletes it when something is erased."""


class Passage(NamedTuple):
    """The text of an entry."""

    id: int
    text: str


class Coverage(NamedTuple):
    """How far an index goes on a tape: up to which entry, and what marks that entry; 0 for nothing."""

    entry: int = 0
    mark: str = ""


class FoundPassage(NamedTuple):
    """The id of an entry, and its likeness to a text: 1 for the same meaning, about 0 for another."""

    id: int
    likeness: float


class PassageIndex(Protocol):
    """Finds passages of tapes by their meaning. `tape` names one; a tape that began anew has another name.

    All methods raise `ModelUnavailable` if the index cannot answer; it may the next time.
    """

    async def coverage(self, tape: str) -> Coverage:
        """Return how far the index goes."""
        ...

    async def add(self, tape: str, passages: Sequence[Passage], coverage: Coverage) -> None:
        """Add passages, all of them or none; then the index goes as far as `coverage` says."""
        ...

    async def forget(self, tape: str) -> None:
        """Delete what the index has of a tape."""
        ...

    async def find(self, tape: str, text: str, before: int, limit: int) -> Sequence[FoundPassage]:
        """Find the passages before an entry that are most like a text, the most like first."""
        ...

    async def aclose(self) -> None:
        """Free what it holds; the next call starts it again."""
        ...
