"""The port for an index of passages by meaning. Its content is derived: it can be deleted and rebuilt."""

from collections.abc import Sequence
from typing import NamedTuple, Protocol

PASSAGES_FILE = "passages.db"
"""The file of an index, next to the database; a store deletes it at every erasure."""


class Passage(NamedTuple):
    """The text of an entry."""

    id: int
    text: str


class Coverage(NamedTuple):
    """The progress of an index on a tape: the last covered entry and its mark; 0 for none."""

    entry: int = 0
    mark: str = ""


class FoundPassage(NamedTuple):
    """The id of an entry and its similarity to a text: 1 for the same meaning, about 0 for another."""

    id: int
    likeness: float


class PassageIndex(Protocol):
    """Finds passages of tapes by meaning. `tape` is its key for a tape; a restarted tape has another one.

    All methods raise `ModelUnavailable` if the index cannot answer now.
    """

    async def coverage(self, tape: str) -> Coverage: ...

    async def add(self, tape: str, passages: Sequence[Passage], coverage: Coverage) -> None:
        """Add all passages or none, and record `coverage`."""
        ...

    async def forget(self, tape: str) -> None:
        """Delete the passages of a tape."""
        ...

    async def find(self, tape: str, text: str, before: int, limit: int) -> Sequence[FoundPassage]:
        """Find the passages before an entry that are most similar to a text, best first."""
        ...

    async def aclose(self) -> None:
        """Free its resources; the next call starts it again."""
        ...
