"""A topic that goes on in another chat as well: what is said on it there stands beside the messages here, as evidence.

Its newest messages come with the first message of a window, what is new since with each later one, and of older ones those
that share words with the message. Nothing is copied. A fact names the entries, and each request reads them anew, as long as
the grant holds.
"""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

from bubbot.errors import AccessError, ConfigError, EntryNotFound
from bubbot.feature import ReadSession
from bubbot.features.topics.names import TAKEN_UP
from bubbot.features.topics.settings import TopicSettings
from bubbot.features.topics.view import ThreadView, TopicVisitsView, bound_session, topic_of
from bubbot.middleware import CallNext
from bubbot.ports.turn import Turn, TurnOutcome
from bubbot.runtime.context.quoted import find_alike, find_quoted, quote_elsewhere
from bubbot.runtime.context.selectors import text_of
from bubbot.tape.handle import TapeHandle
from bubbot.tape.query import OpeningAnchor, Span, TapeQuery, is_inside, union

SOURCE = "topics"
"""What the facts name as having chosen their entries."""
MAX_ALIKE = 4
"""Older messages that are quoted beside one message at most."""


class ThreadElsewhere(Struct, frozen=True):
    """The thread of a topic on the tape of another session.

    Attributes:
        tape: the tape.
        visits: the id ranges of the topic, ascending.
        spans: its newest messages, as ascending id ranges. Its handoffs stay there: they may sum up what else that chat was
            shown, and a grant covers what was said.
        count: how many messages these are.
        parent: the anchor that took it up last, as a pair of the tape and its id; None if there is none.
    """

    tape: TapeHandle
    visits: tuple[Span, ...]
    spans: tuple[tuple[int, int], ...]
    count: int
    parent: tuple[str, int] | None


async def read_elsewhere(
    turn: Turn, session: str, view: ThreadView, read_session: ReadSession
) -> ThreadElsewhere | None:
    """Read a thread on the tape of another session; None if this one may not read it, or if there is none."""
    try:
        source = await read_session(turn, session)
    except (AccessError, ConfigError, EntryNotFound):
        return None
    thread = await source.read(view)
    visits = await source.read(TopicVisitsView(view.name))
    count = sum(high - low + 1 for low, high in thread.recalls)
    spans = tuple((low, high) for low, high in union(thread.recalls) if high)
    parent = None if thread.opened is None else (source.name, thread.opened.id)
    return ThreadElsewhere(source, visits or (), spans, count, parent)


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
        known = (await find_quoted(tape, there.tape.name)).ids(lambda fact: fact.source == SOURCE)
        newest = max(known, default=0)
        fresh = [entry_id for low, high in there.spans for entry_id in range(max(low, newest + 1), high + 1)]
        if chosen := {*fresh, *await _find_alike(turn, there, known)}:
            title = f"{there.tape.session}, topic {name.title}"
            await quote_elsewhere(tape, there.tape, chosen, message=turn.message_ids[-1], source=SOURCE, title=title)


async def _find_alike(turn: Turn, there: ThreadElsewhere, known: Container[int]) -> list[int]:
    """Find older messages of the thread that share words with the newest message of the turn, best first."""
    first = min((low for low, _ in there.spans), default=1)
    if first == 1:
        return []
    asked = await turn.tape.entry(turn.message_ids[-1])
    found = await find_alike(turn.tape, there.tape.name, text_of(asked.payload.get("content")), as_of=first - 1)
    inside = [entry.id for entry in found if is_inside(entry.id, there.visits) and entry.id not in known]
    return inside[:MAX_ALIKE]
