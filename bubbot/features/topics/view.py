"""Topics as views of a tape: which one is current, all of them, and the thread of one.

A topic is what its anchors say. `topic/NAME` takes it up and opens a window; `topic-left/NAME` marks where it was left.
Every entry between the two belongs to it, whatever windows other handoffs opened meanwhile.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from bubbot.features.topics.facts import TopicBound
from bubbot.features.topics.names import LEFT, TAKEN_UP, TopicName, parse_topic
from bubbot.features.topics.settings import TopicSettings
from bubbot.runtime.context.selectors import is_in_context
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.anchor import SESSION_NEW, find_sources
from bubbot.tape.entry import EMPTY_OBJECT, JsonObject, Kind, TapeEntry, encode
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.query import IdRanges, NewestAnchors, Span, TapeQuery
from bubbot.tape.view import QueryAnswers

MAX_VISIT_ANCHORS = 200
"""Anchors of one topic that are read: those of its newest hundred visits. Older ones are in the inherited state."""
MAX_STATE_ANCHORS = 1_000
"""Anchors within these visits that are read to find the newest handoff; a memory writes two for each change."""
MAX_BOUND_READ = 100
"""Facts that bind a topic that are read to find that of the current one."""
MAX_COUNTED_MESSAGES = 10_000
"""Messages of one visit that are counted."""
TopicSteps = Generator[tuple[TapeQuery, ...], QueryAnswers, "TopicThread"]


class TopicThread(Struct, frozen=True):
    """The thread of a topic.

    Attributes:
        name: the topic, in its first spelling.
        opened: the anchor that took it up last; None if there is none.
        messages: their number, without those of a main line.
        last_date: of its newest message; empty if there is none.
        state: what the newest handoff in it says: phase, summary, next steps, and the ids of their sources.
        recalls: the ids of the messages that come back, as ranges.
        is_known: it was taken up before.
        is_current: a list of topics says that the chat is on it.
    """

    name: TopicName
    opened: TapeEntry | None = None
    messages: int = 0
    last_date: str = ""
    state: JsonObject = EMPTY_OBJECT
    recalls: tuple[tuple[int, int], ...] = ()
    is_known: bool = False
    is_current: bool = False

    @property
    def date(self) -> str:
        """The date of its newest message, or when it was taken up; empty if it never was."""
        return self.last_date or ("" if self.opened is None else self.opened.date)

    @property
    def open_questions(self) -> tuple[str, ...]:
        """The next steps of its newest handoff."""
        return _next_steps(self.state)


class CurrentTopicView(Struct, frozen=True):
    """The anchor that took up the current topic; None on a tape that is on its main line.

    Its cost follows the number of topics.
    """

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest anchor that takes up a topic."""
        return (TapeQuery(tape, NewestAnchors(TAKEN_UP), newest=True, limit=1),)

    def fold(self, answers: QueryAnswers) -> TapeEntry | None:
        """Return the anchor."""
        anchor = answers[0][0] if answers[0] else None
        return None if anchor is None or topic_of(anchor).is_main_line else anchor


class ThreadView(Struct, frozen=True):
    """The thread of one topic.

    Attributes:
        name: the topic.
        settings: how much of it comes back; None: nothing.
    """

    name: TopicName
    settings: TopicSettings | None = None

    def steps(self, tape: str) -> TopicSteps:
        """Find the visits of the topic, then its newest handoff and messages in them."""
        found, visits = yield from read_visits(tape, self.name)
        is_main_line = self.name.is_main_line
        if not found and not is_main_line:
            return TopicThread(self.name)
        # Of a visit that is over, the anchor at its end has the number; the main line has none.
        counted = MAX_COUNTED_MESSAGES if visits and visits[-1][1] is None and not is_main_line else 0
        inner, messages = yield (
            TapeQuery(tape, IdRanges(visits), kinds=(Kind.ANCHOR,), newest=True, limit=MAX_STATE_ANCHORS),
            TapeQuery(tape, IdRanges(visits[-1:]), kinds=(Kind.MESSAGE,), newest=True, limit=counted),
        )
        start, state = _find_state([*(entry for entry in inner if entry.is_shown_to("")), *found])
        opened = next((entry for entry in found if (entry.name or "").startswith(TAKEN_UP)), None)
        left = next((entry for entry in found if (entry.name or "").startswith(LEFT)), None)
        name = self.name if opened is None or is_main_line else topic_of(opened)
        count, last_date = _count(messages, opened, left)
        recalls: tuple[tuple[int, int], ...] = ()
        if self.settings is not None and (most := self.settings.recall_messages):
            spans = tuple([(max(low, start + 1), high) for low, high in visits if high is None or high > start])
            newest = TapeQuery(tape, IdRanges(spans), kinds=(Kind.MESSAGE,), newest=True, limit=most)
            (recent,) = yield (newest,)
            recalls = tuple(spans_of([entry.id for entry in _fit(recent, self.settings.recall_tokens)]))
        return TopicThread(name, opened, count, last_date, state, recalls, is_known=True)


class TopicListView(Struct, frozen=True):
    """All topics of a tape, the newest first. Its cost follows their number and the length of the current visit."""

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[TopicThread, ...]]:
        """Read the newest anchors of each topic, then the thread of the current one."""
        opened, left = yield (TapeQuery(tape, NewestAnchors(TAKEN_UP)), TapeQuery(tape, NewestAnchors(LEFT)))
        if not opened:
            return ()
        marks = {topic_of(entry).key: entry for entry in left}
        current = opened[-1]
        threads = [
            _summarize(entry, marks.get(topic_of(entry).key))
            for entry in opened
            if entry is not current and not topic_of(entry).is_main_line
        ]
        if not topic_of(current).is_main_line:
            thread = yield from ThreadView(topic_of(current)).steps(tape)
            threads.append(replace(thread, is_current=True))
        return tuple(sorted(threads, key=lambda one: (one.is_current, one.date), reverse=True))


class TopicVisitsView(Struct, frozen=True):
    """The id ranges of a topic, ascending; None if it was never taken up."""

    name: TopicName

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[Span, ...] | None]:
        """Read the anchors of the topic."""
        found, visits = yield from read_visits(tape, self.name)
        return visits if found or self.name.is_main_line else None


async def find_visits(tape: TapeHandle, name: str) -> tuple[Span, ...] | None:
    """Return the id ranges of a topic, by its name as people write it; None if there is no such topic."""
    topic = parse_topic(name)
    return None if topic is None else await tape.read(TopicVisitsView(topic))


async def find_current_topic(tape: TapeHandle) -> str:
    """Return the name of the topic that a chat is on; empty for its main line."""
    anchor = await tape.read(CurrentTopicView())
    return "" if anchor is None else topic_of(anchor).title


class BoundTopicView(Struct, frozen=True):
    """The session in which the current topic goes on as well, and the topic; None if it is bound to none."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the newest anchor that takes up a topic, and the newest facts that bind topics."""
        bound = TapeQuery(tape, kinds=(Kind.EVENT,), names=TopicBound.EVENTS, newest=True, limit=MAX_BOUND_READ)
        return (*CurrentTopicView().queries(tape), bound)

    def fold(self, answers: QueryAnswers) -> tuple[str, TopicName] | None:
        """Return what the newest fact about the current topic says."""
        current = CurrentTopicView().fold(answers[:1])
        name = None if current is None else topic_of(current)
        for entry in answers[1]:
            if name is not None and entry.data.get("topic") == name.key and (bound := TopicBound.try_of(entry)):
                return bound.session, name
        return None


def topic_of(anchor: TapeEntry) -> TopicName:
    """Return the topic of one of its anchors."""
    key = (anchor.name or "").partition("/")[2]
    title = read_state(anchor).get("title")
    return TopicName(key, title if isinstance(title, str) and title else key)


def read_state(anchor: TapeEntry) -> JsonObject:
    """Return the state of an anchor; empty if it is no object (imports)."""
    state = anchor.payload.get("state")
    return state if isinstance(state, Mapping) else EMPTY_OBJECT


def bound_session(anchor: TapeEntry) -> str:
    """Return the session in which the topic of an anchor goes on as well; empty for none."""
    session = read_state(anchor).get("bound_to")
    return session if isinstance(session, str) else ""


def _next_steps(state: JsonObject) -> tuple[str, ...]:
    steps = state.get("next_steps")
    return tuple(step for step in steps if isinstance(step, str)) if isinstance(steps, (list, tuple)) else ()


def read_visits(
    tape: str, name: TopicName
) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[Sequence[TapeEntry], tuple[Span, ...]]]:
    """Return the anchors of a topic, newest first, and the id ranges between taking it up and leaving it, ascending."""
    names = (TAKEN_UP + name.key, LEFT + name.key)
    (found,) = yield (TapeQuery(tape, kinds=(Kind.ANCHOR,), names=names, newest=True, limit=MAX_VISIT_ANCHORS),)
    visits: list[Span] = []
    # A tape begins with its main line; `found` goes back to its beginning unless it was cut.
    start = 0 if name.is_main_line and len(found) < MAX_VISIT_ANCHORS else None
    for anchor in reversed(found):
        if (anchor.name or "").startswith(TAKEN_UP):
            start = anchor.id
        elif start is not None:
            visits.append((start + 1, anchor.id - 1))
            start = None
    if start is not None:
        visits.append((start + 1, None))
    return found, tuple([(low, high) for low, high in visits if high is None or low <= high])


def _find_state(anchors: Sequence[TapeEntry]) -> tuple[int, JsonObject]:
    """Return where the thread begins, and the state of the newest handoff in it.

    A `session/new` in a topic begins its thread anew: what was before it neither comes back nor counts as its state.
    """
    ordered = sorted(anchors, key=lambda entry: entry.id, reverse=True)
    start = next((entry.id for entry in ordered if entry.name == SESSION_NEW), 0)
    for entry in ordered:
        inherited = _inherited_state(entry)
        if entry.id > start and inherited.keys() & {"phase", "summary", "next_steps"}:
            return start, inherited
    return start, EMPTY_OBJECT


def _inherited_state(entry: TapeEntry) -> JsonObject:
    """Return what a topic passes on of an anchor's state, as the contract of handoffs has it; imports may not keep it."""
    state = read_state(entry)
    # The view does not know the name of its tape: in a state of bubbot's an id alone is of the same tape.
    cited = find_sources(state, "", entry.id)
    source_ids = [number if not tape else [tape, number] for tape, number in cited]
    texts = {key: state[key] for key in ("phase", "summary") if isinstance(state.get(key), str)}
    inherited = {**texts, "next_steps": list(_next_steps(state)), "source_ids": source_ids}
    return {key: value for key, value in inherited.items() if value}


def _count(messages: Sequence[TapeEntry], opened: TapeEntry | None, left: TapeEntry | None) -> tuple[int, str]:
    """Return the number of messages in all visits, and the date of the newest one."""
    state: JsonObject = EMPTY_OBJECT if left is None else read_state(left)
    total, last = _as_count(state.get("messages")), state.get("last_message")
    if left is not None and (opened is None or left.id > opened.id):  # the newest visit is counted there
        return total, last if isinstance(last, str) else ""
    roles = ("user", "assistant")
    talk = [entry for entry in messages if entry.payload.get("role") in roles and entry.is_shown_to("")]
    newest = talk[0].date if talk else last
    return total + len(talk), newest if isinstance(newest, str) else ""


def _summarize(opened: TapeEntry, left: TapeEntry | None) -> TopicThread:
    """Summarize a topic that is not the current one, by the anchor that marks where it was left."""
    state = read_state(opened if left is None or left.id < opened.id else left)
    last = state.get("last_message")
    return TopicThread(
        topic_of(opened), opened, _as_count(state.get("messages")), last if isinstance(last, str) else "", state
    )


def _as_count(value: Any) -> int:
    return value if type(value) is int and value > 0 else 0


def _fit(newest: Sequence[TapeEntry], tokens: int) -> list[TapeEntry]:
    """Return the newest messages that fit, the oldest of them a person's.

    The opening anchor stands before it as a message of the bot, and some providers refuse two of these in a row. A message
    that is too long by itself is left out.
    """
    chosen = _newest_within(newest, tokens)
    while chosen and chosen[-1].payload.get("role") != "user":
        chosen.pop()
    return chosen


def _newest_within(newest: Sequence[TapeEntry], tokens: int) -> list[TapeEntry]:
    chosen: list[TapeEntry] = []
    for entry in newest:
        size = estimate_tokens(encode(entry.payload))
        if (size > tokens and not chosen) or not is_in_context(entry) or not entry.is_shown_to(""):
            continue
        chosen.append(entry)
        tokens -= size
        if tokens < 0:
            return chosen[:-1]
    return chosen
