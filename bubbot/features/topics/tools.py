"""The commands and tools about topics. People change the topic; the model may only propose it."""

from collections.abc import Sequence
from typing import Any, ClassVar

from pydantic import Field

from bubbot.errors import AccessError, ConfigError, EntryNotFound, ToolRetry
from bubbot.feature import ReadSession
from bubbot.features.topics.names import BIND_WORD, LEFT, MAIN_LINE, MAX_TITLE_CHARS, TAKEN_UP, TopicName, parse_topic
from bubbot.features.topics.view import (
    BOUND,
    CurrentTopicView,
    RecallLimits,
    ThreadView,
    TopicListView,
    TopicSummary,
    TopicThread,
    read_state,
    topic_of,
)
from bubbot.ports.channel import Button
from bubbot.ports.text import clean_label
from bubbot.ports.tool import INSIDE, READS_PEOPLE, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.tape.anchor import anchor
from bubbot.tape.handle import TapeHandle
from bubbot.tape.provenance import Source, most_foreign, note_source, stamp_of, track_reads
from bubbot.tape.query import format_date, union
from bubbot.texts import Texts

MAX_LISTED_TOPICS = 50
MAX_LISTED_QUESTIONS = 5
"""Open questions of one topic that are listed."""
MAX_QUESTION_CHARS = 200


class TopicArgs(ToolArgs):
    """The arguments of `topic.open`."""

    name: str = Field(default="", description="the topic; - or off for the main line", max_length=1_000)
    source: str = Field(default="", description="another chat in which the topic goes on, if this one may read it")
    positional: ClassVar[tuple[str, ...]] = ("name",)


class ListTopicsArgs(ToolArgs):
    """The arguments of `topic.list`."""

    words: str = Field(default="", description="only topics with these words in their name", max_length=1_000)


class ProposeTopicArgs(ToolArgs):
    """The arguments of `topic.propose`."""

    name: str = Field(description="the topic, new or from topic_list; - for the main line", max_length=1_000)


class BindTopicArgs(ToolArgs):
    """The arguments of `topic.bind`."""

    name: str = Field(description="the topic that this thread is about", max_length=1_000)


@tool(
    "topic.list",
    effect=READS_PEOPLE,
    is_rare=True,
    commands=("topics",),
    help=CommandHelp(HelpTopic.HISTORY, "The topics of this chat", (",topics", ",topics rome")),
)
async def topic_list(turn: Turn, args: ListTopicsArgs) -> str:
    """List the topics of this chat with their last date, number of messages and open questions, newest first."""
    topics, texts = await turn.tape.read(TopicListView()), turn.result_texts
    if words := args.words.casefold().split():
        topics = tuple(topic for topic in topics if all(word in topic.name.key for word in words))
    if not topics:
        return texts.say("topics_none")
    lines = [_format_summary(topic, turn, texts) for topic in topics[:MAX_LISTED_TOPICS]]
    rest = len(topics) - MAX_LISTED_TOPICS
    return "\n".join([*lines, texts.say("topics_more", count=rest)] if rest > 0 else lines)


@tool(
    "topic.propose",
    effect=INSIDE,
    is_rare=True,
    help=CommandHelp(HelpTopic.TALK, "Propose a topic", (",topic.propose Trip to Rome", ",topic.propose -")),
)
async def topic_propose(turn: Turn, args: ProposeTopicArgs) -> str:
    """Propose that the conversation goes on in another topic. The person decides: nothing changes before that."""
    texts, name = turn.result_texts, require_topic(turn, args.name)
    if not turn.is_typed:
        raise ToolRetry(texts.say("topic_not_typed"))
    current = await turn.tape.read(CurrentTopicView())
    if name.key == (MAIN_LINE if current is None else topic_of(current).key):
        raise ToolRetry(texts.say("topic_is_current", title=_title(name, texts)))
    name = (await turn.tape.read(ThreadView(name))).name  # as it was written first
    title, command = _title(name, turn.texts), turn.texts.format_commands(name.command)
    turn.notices.append(turn.texts.say("topic_proposed", title=title, command=command))
    label = turn.texts.say("button_main_line") if name.is_main_line else turn.texts.say("button_topic", title=title)
    turn.buttons.append((Button(label, name.command),))
    return texts.say("topic_proposed_result", title=_title(name, texts))


def topic_tools(limits: RecallLimits, read_session: ReadSession) -> list[Tool]:
    """Build the tools.

    Args:
        limits: how much of a topic comes back when it is taken up.
        read_session: opens the tape of another chat that this one may read.
    """

    @tool(
        "topic.open",
        effect=INSIDE,
        commands=("topic",),
        for_model=False,
        help=CommandHelp(
            HelpTopic.TALK,
            "Open a topic, or go back to one",
            (",topic Trip to Rome", ",topic", ",topic off", ",topic Trip to Rome source=telegram:42"),
            in_menu=True,
        ),
    )
    async def topic_open(turn: Turn, args: TopicArgs) -> str:
        """Open a topic, or go on with one: its last messages, summary and open questions come back. Without a name, say
        which topic this is."""
        if not args.name.strip():
            return await _describe_current(turn)
        first, _, rest = args.name.strip().partition(" ")
        if first.casefold() == BIND_WORD:
            return await _bind(turn, require_topic(turn, rest), limits)
        name, source = require_topic(turn, args.name), args.source.strip()
        if not source:
            return _format_taken_up(turn, *await take_up(turn, name, limits))
        if name.is_main_line:
            raise ToolRetry(turn.texts.say("topic_bind_main_line"))
        session = (await require_session(turn, source, read_session)).session
        return await _go_on_with(turn, name, session, limits)

    @tool(
        "topic.bind",
        effect=INSIDE,
        for_model=False,
        help=CommandHelp(
            HelpTopic.SETTINGS,
            "Bind this thread to a topic",
            (",topic.bind Trip to Rome", ',topic.bind name="Trip to Rome"'),
        ),
    )
    async def topic_bind(turn: Turn, args: BindTopicArgs) -> str:
        """Bind this thread to a topic of the chat it belongs to, whose messages may then be read here."""
        return await _bind(turn, require_topic(turn, args.name), limits)

    return [topic_open, topic_list, topic_propose, topic_bind]


async def take_up(turn: Turn, name: TopicName, limits: RecallLimits, *, bound_to: str = "") -> tuple[TopicThread, int]:
    """Leave the current topic and take up another one, in the turn's fork.

    Args:
        turn: the turn.
        name: the topic.
        limits: how much of it comes back.
        bound_to: the session in which the topic goes on as well; the model is shown it with the window. Empty: as it
            was.

    Returns:
        Its thread as it was before, and the id of the anchor that opens the window; 0 if the chat is on it already.
    """
    tape = turn.tape
    anchor_of_current = await tape.read(CurrentTopicView())
    is_bound = anchor_of_current is not None and read_state(anchor_of_current).get("bound_to") == bound_to
    current = TopicName(MAIN_LINE, MAIN_LINE) if anchor_of_current is None else topic_of(anchor_of_current)
    if name.key == current.key and (is_bound or not bound_to):
        return await tape.read(ThreadView(current)), 0
    thread, copied = await _read_thread(turn, ThreadView(name, limits))
    await _leave(turn, current)
    corrections = await tape.find_corrections(thread.recalls)
    recalls = union([*thread.recalls, *((entry.id, entry.id) for entry in corrections)])
    state: dict[str, Any] = {**thread.state, "owner": "human", "title": thread.name.title}
    if thread.opened is not None:
        state["parents"] = [thread.opened.id]
        bound_to = bound_to or str(read_state(thread.opened).get("bound_to") or "")
    if bound_to:
        state["bound_to"] = bound_to
    spans = [(low, high) for low, high in recalls if high]
    opened = await tape.handoff(TAKEN_UP + name.key, state, recalls=spans, copied=copied)
    return thread, opened.id


async def _leave(turn: Turn, name: TopicName) -> None:
    """Mark where a topic is left, with what the list of topics says of it."""
    thread, copied = await _read_thread(turn, ThreadView(name))
    state: dict[str, Any] = {**thread.state, "owner": "human", "title": name.title}
    if not name.is_main_line:
        state["messages"] = thread.messages
    if thread.last_date:
        state["last_message"] = thread.last_date
    if thread.opened is not None:
        state["parents"] = [thread.opened.id]
    mark = stamp_of(most_foreign(turn.tape.source, copied))
    await turn.tape.append([anchor(LEFT + name.key, state, window=False, meta=mark)])


async def _read_thread(turn: Turn, view: ThreadView) -> tuple[TopicThread, Source]:
    """Read a thread, with how foreign the words are that its state may be made of."""
    sources: list[Source] = []
    with track_reads(sources.append):
        thread = await turn.tape.read(view)
    note_source(most_foreign(*sources))
    return thread, most_foreign(*sources) if thread.state else Source.OWN


async def _bind(turn: Turn, name: TopicName, limits: RecallLimits) -> str:
    """Bind the thread of the turn to a topic, and take it up in the thread."""
    place = turn.inbounds[0].inbound if turn.inbounds else None
    if place is None or not place.thread or name.is_main_line:
        raise ToolRetry(turn.texts.say("topic_bind_where"))
    return await _go_on_with(turn, name, f"{place.channel}:{place.chat}", limits)


async def _go_on_with(turn: Turn, name: TopicName, session: str, limits: RecallLimits) -> str:
    """Take up a topic here that goes on in another chat, which can be read from here."""
    await turn.tape.append_event(BOUND, {"topic": name.key, "title": name.title, "session": session})
    answer = _format_taken_up(turn, *await take_up(turn, name, limits, bound_to=session))
    return f"{answer}\n{turn.texts.say('topic_bound', session=session)}"


async def require_session(turn: Turn, source: str, read_session: ReadSession) -> TapeHandle:
    """Open the tape of another chat. Raise `ToolRetry` if this one may not read it, or if there is none."""
    try:
        return await read_session(turn, source)
    except (AccessError, ConfigError, EntryNotFound) as error:
        raise ToolRetry(turn.result_texts.say("read_refused", session=clean_label(source, 200))) from error


def require_topic(turn: Turn, text: str) -> TopicName:
    """Parse the name of a topic. Raise `ToolRetry` if it is empty or too long."""
    name = parse_topic(text)
    if name is None:
        raise ToolRetry(turn.result_texts.say("topic_name_wrong", limit=MAX_TITLE_CHARS))
    return name


def _title(name: TopicName, texts: Texts) -> str:
    return texts.say("main_line") if name.is_main_line else name.title


async def _describe_current(turn: Turn) -> str:
    current, texts = await turn.tape.read(CurrentTopicView()), turn.texts
    if current is None:
        return texts.say("topic_main_line")
    thread = await turn.tape.read(ThreadView(topic_of(current)))
    date = format_date(current.date, turn.zone, undated=texts.say("undated"))
    head = texts.say("topic_current", title=thread.name.title, date=date, number=thread.messages)
    return "\n".join([head, *_format_questions(thread.open_questions, texts)])


def _format_taken_up(turn: Turn, thread: TopicThread, opened: int) -> str:
    texts, title = turn.texts, _title(thread.name, turn.texts)
    if not opened:
        return texts.say("topic_is_current", title=title)
    if not thread.is_known and not thread.name.is_main_line:
        return texts.say("topic_opened", title=title, entry=opened)
    recalled = sum(high - low + 1 for low, high in thread.recalls)
    if thread.name.is_main_line:
        return texts.say("topic_left", number=recalled, entry=opened)
    head = texts.say("topic_taken_up", title=title, number=thread.messages, recalled=recalled, entry=opened)
    return "\n".join([head, *_format_summary_text(thread, texts), *_format_questions(thread.open_questions, texts)])


def _format_summary_text(thread: TopicThread, texts: Texts) -> list[str]:
    summary = thread.state.get("summary")
    return (
        [texts.say("topic_summary", summary=clean_label(summary, 500))] if isinstance(summary, str) and summary else []
    )


def _format_summary(topic: TopicSummary, turn: Turn, texts: Texts) -> str:
    date = format_date(topic.last_date, turn.zone, undated=texts.say("undated"))
    here = texts.say("topic_here") if topic.is_current else ""
    head = texts.say("topic_line", title=topic.name.title, date=date, number=topic.messages, here=here)
    return "\n".join([head, *_format_questions(topic.open_questions, texts)])


def _format_questions(questions: Sequence[str], texts: Texts) -> list[str]:
    return [
        texts.say("topic_question", question=clean_label(question, MAX_QUESTION_CHARS))
        for question in questions[:MAX_LISTED_QUESTIONS]
    ]
