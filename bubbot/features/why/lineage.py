"""The lineage of a window: the anchors that it continues, and the entries that their summaries rest on."""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence

from msgspec import Struct, field

from bubbot.ports.session_names import read_session
from bubbot.runtime.compose import find_recorded_part
from bubbot.runtime.context.copies import FindTapeHeads, is_there, read_dates
from bubbot.runtime.turns import TurnRecord
from bubbot.tape.anchor import find_parents, find_sources, recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import TapeHandle, ids_of, spans_of
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, union
from bubbot.tape.references import RecordedState
from bubbot.tape.view import QueryAnswers

MAX_LINEAGE_DEPTH = 20
MAX_LINEAGE_ANCHORS = 100


class CitedEntries(Struct, frozen=True):
    """Entries of another tape that a summary rests on. A range is its first and last id.

    Attributes:
        tape: the name of the tape.
        entries: their ranges.
    """

    tape: str
    entries: tuple[tuple[int, ...], ...]


class LineageAnchor(Struct, frozen=True):
    """An anchor in the lineage of a window. A range is its first and last id.

    Attributes:
        id: its entry.
        name: its name; empty if it was erased.
        date: its time, ISO 8601; empty if it came from a file without one.
        parents: the anchors of the same tape that it names as its parents.
        elsewhere: how many parents it names on other tapes.
        sources: the ranges of entries that its summary rests on (`source_ids`), anchors among them.
        recalls: the ranges of earlier entries that its window shows.
        cited: the entries of other tapes that its summary rests on.
    """

    id: int
    name: str
    date: str
    parents: tuple[int, ...] = ()
    elsewhere: int = 0
    sources: tuple[tuple[int, ...], ...] = ()
    recalls: tuple[tuple[int, ...], ...] = ()
    cited: tuple[CitedEntries, ...] = ()


class Lineage(Struct, frozen=True):
    """The anchors that a window comes from. A range is its first and last id.

    Attributes:
        anchors: the one that opens the window first, then its parents and the anchors among its sources, then theirs.
        entries: the ranges of all entries that these anchors rest on or recall.
        is_cut: there are more anchors, further back.
    """

    anchors: tuple[LineageAnchor, ...]
    entries: tuple[tuple[int, ...], ...] = ()
    is_cut: bool = False


class LineageView(Struct, frozen=True):
    """The lineage of the window that the anchor `opening` opens; None if it is no anchor.

    Each round reads the anchors that the last one named; they are older, so the rounds end.
    """

    opening: int

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, Lineage | None]:
        """Read the anchors, nearest first."""
        anchors: dict[int, LineageAnchor] = {}
        names = [self.opening]
        for _ in range(MAX_LINEAGE_DEPTH):
            room = MAX_LINEAGE_ANCHORS - len(anchors)
            part = IdRanges(tuple(spans_of(names)))
            (found,) = yield (TapeQuery(tape, part, kinds=(Kind.ANCHOR,), newest=True, limit=room + 1),)
            anchors |= {entry.id: _describe(entry, tape) for entry in found[:room]}
            named = {name for entry in found[:room] for name in _named_ids(anchors[entry.id])}
            names = sorted(named - anchors.keys())
            if not names or len(found) > room:
                break
        if not anchors:
            return None
        spans = [span for anchor in anchors.values() for span in (*anchor.sources, *anchor.recalls)]
        merged = union((low, high) for low, high in spans)
        entries = tuple((low, low if high is None else high) for low, high in merged)
        is_cut = bool({parent for anchor in anchors.values() for parent in anchor.parents} - anchors.keys())
        return Lineage(tuple(anchors.values()), entries, is_cut)


def _describe(entry: TapeEntry, tape: str) -> LineageAnchor:
    parents = find_parents(entry, tape)
    own = tuple(parent for name, parent in parents if name == tape)
    sources: dict[str, list[int]] = {}
    for name, number in find_sources(entry.payload.get("state"), tape, entry.id):
        sources.setdefault(name, []).append(number)
    ids = sources.pop(tape, [])
    recalls = tuple((max(low, 1), high) for low, high in recalled_ranges(entry) if high >= max(low, 1))
    elsewhere = len(parents) - len(own)
    cited = tuple([CitedEntries(name, tuple(spans_of(numbers))) for name, numbers in sorted(sources.items())])
    return LineageAnchor(entry.id, entry.name or "", entry.date, own, elsewhere, tuple(spans_of(ids)), recalls, cited)


def _named_ids(anchor: LineageAnchor) -> Sequence[int]:
    """Return the older entries that an anchor names, which may be anchors."""
    return (*anchor.parents, *(each for low, high in anchor.sources for each in range(low, high + 1)))


class Citations(Struct, frozen=True):
    """What became of the entries of other tapes that a lineage cites.

    Attributes:
        names: the sessions of these tapes.
        refused: the tapes that may not be read here any more.
        gone: the entries that are not there any more.
    """

    names: Mapping[str, str] = field(default_factory=dict)
    refused: frozenset[str] = frozenset()
    gone: frozenset[tuple[str, int]] = frozenset()


async def check_citations(
    tape: TapeHandle, lineage: Lineage | None, find_heads: FindTapeHeads | None = None
) -> Citations:
    """Find out what became of the entries of other tapes that a lineage cites.

    Args:
        find_heads: returns how far the chat that asks may read other tapes; None: it may read them all.
    """
    cited = [(anchor, each) for anchor in (lineage.anchors if lineage else ()) for each in anchor.cited]
    tapes = dict.fromkeys([each.tape for _, each in cited])
    if not tapes:
        return Citations()
    names = {name: await read_session(tape, name) for name in tapes}
    heads = await find_heads(names) if find_heads else dict.fromkeys(tapes)
    gone = set[tuple[str, int]]()
    for anchor, each in cited:
        ranges = [(low, high) for low, high in each.entries]
        dates = await read_dates(tape, each.tape, ranges, heads.get(each.tape))
        gone |= {(each.tape, number) for number in ids_of(ranges, 0) if not is_there(dates, number, anchor.date)}
    return Citations(names, frozenset([name for name in tapes if heads.get(name) == 0]), frozenset(gone))


async def read_step_lineage(tape: TapeHandle, turn: TurnRecord) -> Lineage | None:
    """Read the lineage of the window that the turn's last step was built from; None if there was none."""
    if not turn.steps:
        return None
    spans = find_recorded_part(turn.steps[-1].data)
    recorded = await tape.as_of(spans)
    opening = (await recorded.fetch([TapeQuery(tape.name, OpeningAnchor(), missing="empty")]))[0]
    return await tape.read(LineageView(RecordedState.parse(spans).current_id(opening[0].id))) if opening else None
