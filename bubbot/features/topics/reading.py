"""Reading another chat by an explicit query: its own messages, quoted as evidence."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from datetime import tzinfo

from msgspec import Struct

from bubbot.command import Caller
from bubbot.features.topics.names import TopicName
from bubbot.features.topics.view import read_visits
from bubbot.ports.agents import writer_of
from bubbot.runtime.context.quoting import escape_tags, quote_text
from bubbot.runtime.context.selectors import format_agent, format_sender, is_in_context, text_of
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import IdRanges, Slice, TapeQuery, WholeTape, format_date
from bubbot.tape.view import QueryAnswers
from bubbot.texts import Texts

MAX_QUOTED_CHARS = 1_000
"""Characters of one message that are quoted."""


class QuotedMessage(Struct, frozen=True):
    """A message of another chat.

    Attributes:
        entry: the message.
        correction: the newest correction of it; None if there is none.
    """

    entry: TapeEntry
    correction: TapeEntry | None

    def describe(self, zone: tzinfo, texts: Texts) -> str:
        """Write it as a quotation with its id, its date and who said it; nothing in it is a mark of ours."""
        entry = self.entry
        date = format_date(entry.date, zone, undated=texts.say("undated"))
        text = _quote(text_of(entry.payload.get("content")))
        line = texts.say("read_line", entry=entry.id, date=date, author=_author(entry, texts), text=text)
        corrected = None if self.correction is None else self.correction.data.get("content")
        if self.correction is None or not isinstance(corrected, str):
            return line
        return texts.say("read_corrected", line=line, entry=self.correction.id, text=_quote(corrected))


class ChatExcerpt(Struct, frozen=True):
    """Messages of another chat.

    Attributes:
        session: the chat.
        messages: oldest first.
    """

    session: str
    messages: tuple[QuotedMessage, ...]

    @property
    def ids(self) -> list[int]:
        """The entries that it quotes, corrections among them."""
        return [entry.id for each in self.messages for entry in (each.entry, each.correction) if entry is not None]

    def describe(self, caller: Caller) -> str:
        """Quote the messages."""
        texts, zone = caller.result_texts, caller.required_turn.zone
        if not self.messages:
            return texts.say("read_nothing", session=self.session)
        head = texts.say("read_head", session=self.session)
        lines = [message.describe(zone, texts) for message in self.messages]
        return "\n".join([head, *lines, texts.say("read_further", entry=self.messages[0].entry.id)])


class ReadChatView(Struct, frozen=True):
    """The newest messages of a chat, or of one of its topics.

    Only what people and the bot said there: results of tools may hold what that chat read in a third one.

    Attributes:
        topic: None for the whole chat.
        limit: messages at most.
        before: only messages below this id; 0 for all.
    """

    topic: TopicName | None
    limit: int
    before: int = 0

    def steps(self, tape: str) -> Generator[tuple[TapeQuery, ...], QueryAnswers, tuple[QuotedMessage, ...]]:
        """Find the visits of the topic, then messages, then corrections."""
        part: Slice = WholeTape()
        if self.topic is not None:
            _, visits = yield from read_visits(tape, self.topic)
            part = IdRanges(visits)
        before = self.before
        while True:  # until something may be shown: sub-tasks may have written the newest ones
            as_of = before - 1 if before else None
            newest = TapeQuery(tape, part, kinds=(Kind.MESSAGE,), newest=True, limit=self.limit, as_of=as_of)
            (messages,) = yield (newest,)
            if not messages:
                return ()
            before = messages[-1].id
            changes = TapeQuery(tape, IdRanges(((before, None),)), kinds=(Kind.EVENT,), names=(CORRECTION,))
            (events,) = yield (changes,)
            corrections, by_id = Corrections.of(events), {event.id: event for event in events}
            shown = [entry for entry in reversed(messages) if entry.id not in corrections.hidden and _is_shown(entry)]
            if shown or before == 1:
                newest_of = {target: by_id[entry_id] for target, entry_id in corrections.superseded.items()}
                return tuple([QuotedMessage(entry, newest_of.get(entry.id)) for entry in shown])


def _quote(text: str) -> str:
    return escape_tags(quote_text(text if len(text) <= MAX_QUOTED_CHARS else f"{text[: MAX_QUOTED_CHARS - 1]}…"))


def _author(entry: TapeEntry, texts: Texts) -> str:
    if entry.payload.get("role") == "assistant":
        writer = writer_of(entry)
        return format_agent(writer) if writer else texts.say("read_bot")
    sender = entry.meta.get("sender")
    if not isinstance(sender, Mapping):
        return texts.say("read_unknown")
    return format_sender(sender)


def _is_shown(entry: TapeEntry) -> bool:
    return is_in_context(entry) and entry.is_shown_to("") and not entry.erased
