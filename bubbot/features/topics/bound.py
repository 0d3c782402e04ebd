"""A topic that goes on in another chat as well: what is said on it there stands beside the messages here, as evidence.

Nothing is copied. A fact names the entries, and each request reads them anew, as long as the grant holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from bubbot.errors import AccessError, ConfigError, EntryNotFound
from bubbot.feature import ReadSession
from bubbot.features.topics.names import TAKEN_UP
from bubbot.features.topics.settings import TopicSettings
from bubbot.features.topics.view import ThreadView, bound_session, topic_of
from bubbot.middleware import CallNext
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.tape.entry import Kind
from bubbot.tape.events import EVIDENCE_EVENT, EvidenceNode, EvidenceQuoted
from bubbot.tape.provenance import PROVENANCE, Source
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, Window, union

SOURCE = "topics"
"""What the facts name as having chosen their entries."""


@dataclass(frozen=True, slots=True)
class ThreadElsewhere:
    """The thread of a topic on the tape of another session.

    Attributes:
        tape: the name of the tape.
        session: the session.
        spans: what comes back of it: its newest handoff and its newest messages, as ascending id ranges.
        count: how many messages these are.
        parent: the anchor that took it up last, as a pair of the tape and its id; None if there is none.
    """

    tape: str
    session: str
    spans: tuple[tuple[int, int], ...]
    count: int
    parent: tuple[str, int] | None

    def after(self, entry_id: int) -> tuple[tuple[int, int], ...]:
        """Return the ranges after an entry."""
        return tuple((max(low, entry_id + 1), high) for low, high in self.spans if high > entry_id)


async def read_elsewhere(
    turn: Turn, session: str, view: ThreadView, read_session: ReadSession
) -> ThreadElsewhere | None:
    """Read a thread on the tape of another session; None if this one may not read it, or if there is none."""
    try:
        source = await read_session(turn, session)
    except (AccessError, ConfigError, EntryNotFound):
        return None
    thread = await source.read(view)
    count = sum(high - low + 1 for low, high in thread.recalls)
    handed = [(thread.handed, thread.handed)] if thread.handed else []
    spans = tuple((low, high) for low, high in union([*handed, *thread.recalls]) if high)
    parent = None if thread.opened is None else (source.name, thread.opened.id)
    return ThreadElsewhere(source.name, source.session, spans, count, parent)


class BoundTopics:
    """Quotes what was said on the current topic in the session that it is bound to."""

    def __init__(self, settings: TopicSettings, read_session: ReadSession) -> None:
        self._settings = settings
        self._read_session = read_session

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Write a fact that names what is new there, if the window of the turn was opened by such a topic."""
        if turn.message_ids and not turn.is_subtask:
            await self._quote(turn)
        return await call_next(turn)

    async def _quote(self, turn: Turn) -> None:
        tape = turn.tape
        opening = (await tape.fetch([TapeQuery(tape.name, OpeningAnchor(), missing="empty")]))[0]
        if not opening or not (opening[0].name or "").startswith(TAKEN_UP):
            return
        if not (session := bound_session(opening[0])):
            return
        name = topic_of(opening[0])
        there = await read_elsewhere(turn, session, ThreadView(name, self._settings), self._read_session)
        if there is None:
            return
        spans = there.after(await self._find_last(turn, there.tape))
        if not spans:
            return
        newest = IdRanges((spans[-1],))
        last = (await tape.fetch([TapeQuery(there.tape, newest, newest=True, limit=1)]))[0]
        node = EvidenceNode(
            title=f"{there.session}, topic {name.title}",
            session=there.session,
            elsewhere=((there.tape, spans),),
            until=last[0].date if last else "",
        )
        # It holds no words of people, whoever speaks here: a fact that is not the bot's own would be void.
        fact = EvidenceQuoted(turn.message_ids[-1], SOURCE, (node,)).to_entry(**{PROVENANCE: str(Source.OWN)})
        await tape.append([fact])

    async def _find_last(self, turn: Turn, there: str) -> int:
        """Return the newest entry of the other tape that this window quotes already; 0 for none."""
        query = TapeQuery(turn.tape.name, Window(), kinds=(Kind.EVENT,), names=(EVIDENCE_EVENT,))
        facts = [EvidenceQuoted.try_of(entry) for entry in (await turn.tape.fetch([query]))[0]]
        nodes = [node for fact in facts if fact is not None and fact.source == SOURCE for node in fact.nodes]
        parts = [spans for node in nodes for tape, spans in node.elsewhere if tape == there]
        return max((high for spans in parts for _, high in spans), default=0)
