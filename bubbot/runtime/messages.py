"""The entries of platform messages: the start of a turn, the answered messages, and later changes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from msgspec import UNSET, Struct, field, structs

from bubbot.formatting import clean
from bubbot.ports.agents import speaker_name
from bubbot.ports.channel import AGENT_ORIGIN, Deletion, Edit, Inbound, Reaction, Role, Sender
from bubbot.ports.outbox import RECEIPT
from bubbot.ports.turn import AcceptedInbound, TapeChange, Turn
from bubbot.runtime.attachments import AttachmentResult, list_attachments, unfetched_part
from bubbot.tape import entry as make
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.events import Correction, MessageReaction, ModelChosen, TurnJoined, TurnStart
from bubbot.tape.handle import TapeHandle, spans_of
from bubbot.tape.provenance import PROVENANCE, Source, most_foreign, parse_source, source_of_role
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.texts import Texts

MAX_QUOTE_CHARS = 2_000
"""Characters of a quote that are stored with a message."""
SENT_SEARCH_LIMITS = (200, 5_000)
"""Newest receipts to search for a quoted message, first few, then more: most quotes are recent."""
CHANGE_SEARCH_LIMIT = 2_000
"""Newest messages of a tape to search for the changed one."""


class Authors(Struct, frozen=True):
    """Determines the provenance of a channel's messages.

    Attributes:
        role_of: returns the role of the sender of a message.
        quoted: the provenance of the bot's own messages that people quote, by the platform's id.
        writers: the agents that wrote these messages; empty for the bot itself.
        withheld: quoted messages, by the platform's id, that no model is shown: their quotes are left out.
    """

    role_of: Callable[[Inbound], Role]
    quoted: Mapping[str, Source] = field(default_factory=lambda: MappingProxyType({}))
    writers: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    withheld: frozenset[str] = frozenset()

    def judge(self, inbound: Inbound, edits: Sequence[Edit] = ()) -> Source:
        """Return the provenance of a message with its quote, files and edits."""
        if not inbound.is_typed:
            return parse_source(inbound.provenance)
        if inbound.attachments or (inbound.quote and inbound.quote.attachments):
            return Source.WORLD
        words = self.judge_sender(inbound)
        if inbound.quote is None and not edits:  # most messages
            return words
        return most_foreign(words, self._judge_quote(inbound), *(self.judge_edit(edit) for edit in edits))

    def judge_sender(self, inbound: Inbound) -> Source:
        """Return the provenance of a message's text, without its quote and files."""
        stated = parse_source(inbound.provenance)
        return most_foreign(source_of_role(self.role_of(inbound)), stated) if inbound.is_typed else stated

    def judge_edit(self, edit: Edit | Reaction) -> Source:
        """Return the provenance of an edited text or a reaction."""
        stated = parse_source(edit.provenance) if isinstance(edit, Edit) else Source.OWN
        return most_foreign(source_of_role(self.role_of(_probe(edit))), stated)

    def _judge_quote(self, inbound: Inbound) -> Source:
        quote = inbound.quote
        if quote is None or not quote.text:
            return Source.OWN
        if quote.own:
            return most_foreign(self.quoted.get(quote.message, Source.WORLD), parse_source(quote.provenance))
        author = source_of_role(self.role_of(structs.replace(inbound, sender=quote.sender)))
        return most_foreign(author, parse_source(quote.provenance))

    def describe(self, inbound: Inbound, sender: Sender | None = None) -> dict[str, Any]:
        """Build the meta about the sender of a message, or another person in its chat, with the role."""
        person = inbound.sender if sender is None else sender
        if not inbound.is_typed:
            return sender_data(person)
        return sender_data(person, self.role_of(inbound if sender is None else structs.replace(inbound, sender=person)))

    def describe_editor(self, edit: Edit | Reaction) -> dict[str, Any]:
        """Build the meta about the sender of a change."""
        return sender_data(edit.sender, self.role_of(_probe(edit)))


def _probe(event: Edit | Reaction) -> Inbound:
    """Build a message of the sender of a change, to determine the sender's role."""
    return Inbound(
        event.channel, "", event.chat, event.sender, "", event.time, event.thread, direct=False, space=event.space
    )


def turn_start_entry(
    session: str, inbox: str, batch: Sequence[AcceptedInbound], cited: Sequence[int] = ()
) -> TapeEntry:
    """Build the event that names every inbound the turn answers.

    Args:
        inbox: the inbox tape.
        cited: the message entries that an interrupted attempt left on the tape; the turn answers these.
    """
    interrupted = [accepted.interrupted_turn for accepted in batch if accepted.interrupted_turn]
    return TurnStart(
        attempt=max([accepted.attempts for accepted in batch]) + 1,
        session=session,
        inbounds=tuple([(inbox, accepted.id) for accepted in batch]),
        messages=tuple(cited) or UNSET,
        again=interrupted[0] if interrupted else UNSET,
    ).to_entry()


def turn_joined_entry(inbox: str, batch: Sequence[AcceptedInbound]) -> TapeEntry:
    """Build the event that names the inbounds that joined a running turn."""
    return TurnJoined(tuple([(inbox, accepted.id) for accepted in batch])).to_entry()


def message_entry(
    inbox: str,
    accepted: AcceptedInbound,
    authors: Authors,
    edits: Sequence[TapeChange] = (),
    parts: Sequence[JsonObject] | None = None,
) -> TapeEntry:
    """Build the session-tape message of an inbound.

    Args:
        inbox: the inbox tape.
        edits: edits from before its turn; the last one replaces the text.
        parts: its attachments as content parts; None if not fetched.
    """
    inbound = accepted.inbound
    changes = [edit.event for edit in edits if isinstance(edit.event, Edit)]
    texts = [change.text for change in changes]
    meta: dict[str, Any] = {
        "inbound": [inbox, accepted.id],
        "origin": inbound.origin,
        "sender": authors.describe(inbound),
        PROVENANCE: str(authors.judge(inbound, changes)),
    }
    if inbound.message:
        meta["message"] = inbound.message
    if not inbound.direct:
        meta["group"] = True
    if inbound.origin == AGENT_ORIGIN:
        meta["agent"] = speaker_name(*inbound.agents[:1])
    if texts:
        meta["edited"] = [edit.id for edit in edits]
    if quote := _quote(inbound, authors):
        meta["quote"] = quote
    text = clean(texts[-1] if texts else inbound.text)
    if parts is None:
        parts = [unfetched_part(attachment) for attachment, _ in list_attachments(inbound)]
    if parts:
        body: list[JsonObject] = [{"type": "text", "text": text}] if text.strip() else []
        return make.message("user", [*body, *parts], **meta)
    return make.message("user", text or " ", **meta)


def message_entries(
    inbox: str,
    accepted: AcceptedInbound,
    authors: Authors,
    attachments: AttachmentResult | None,
    edits: Sequence[TapeChange] = (),
) -> list[TapeEntry]:
    """Build the message entry, its own choice of a model, and the facts about its attachments."""
    model = accepted.inbound.model
    choice = [ModelChosen(clean(model)).to_entry()] if model else []
    if attachments is None:
        return [message_entry(inbox, accepted, authors, edits), *choice]
    return [message_entry(inbox, accepted, authors, edits, attachments.parts), *choice, *attachments.facts]


def add_notices(turn: Turn, batch: Sequence[AcceptedInbound], results: Mapping[int, AttachmentResult | None]) -> None:
    """Add the notices about the attachments of these messages to the turn, each sentence once.

    Senders of messages to the bot see them even if the model stays silent; in a group whose every message is answered,
    they appear below an answer.
    """
    for accepted in batch:
        inbound, attachments = accepted.inbound, results[accepted.id]
        told = turn.alerts if inbound.direct or inbound.addressed else turn.notices
        told += [notice for notice in (attachments.notices if attachments else ()) if notice not in told]


def too_old_text(texts: Texts, batch: Sequence[AcceptedInbound]) -> str:
    """Build the notice for messages that came while the bot was away for long."""
    return texts.say("too_old", count=len(batch), when=_format_times(texts, batch))


def gave_up_text(texts: Texts, batch: Sequence[AcceptedInbound]) -> str:
    """Build the notice for messages whose turn was interrupted twice. It replies to the first message and counts all."""
    notice = texts.say("gave_up")
    if len(batch) == 1:
        return notice
    return f"{notice} {texts.say('gave_up_together', count=len(batch), when=_format_times(texts, batch))}"


def _format_times(texts: Texts, batch: Sequence[AcceptedInbound]) -> str:
    first, last = (accepted.inbound.time[:16].replace("T", " ") for accepted in (batch[0], batch[-1]))
    return texts.say("from_to", first=first, last=last) if first != last else first


def missing_edit_entries(
    inbox: str, message: TapeEntry, authors: Authors, edits: Sequence[TapeChange]
) -> list[TapeEntry]:
    """Build the corrections that a message from an interrupted attempt does not include yet."""
    included = message.meta.get("edited", ())
    return [
        Correction(message.id, clean(edit.event.text)).to_entry(**_change_meta(inbox, edit.id, edit.event, authors))
        for edit in edits
        if isinstance(edit.event, Edit) and edit.id not in included
    ]


def _change_meta(inbox: str, change_id: int, change: Edit | Reaction, authors: Authors) -> dict[str, Any]:
    return {
        "inbound": [inbox, change_id],
        "sender": authors.describe_editor(change),
        PROVENANCE: str(authors.judge_edit(change)),
    }


def sender_data(sender: Sender, role: Role | None = None) -> dict[str, Any]:
    """Build the meta about a person, with the current role."""
    data: dict[str, Any] = {"id": sender.id, "name": clean(sender.name)}
    if sender.bot:
        data["bot"] = True
    return data if role is None else data | {"role": str(role)}


def _quote(inbound: Inbound, authors: Authors) -> dict[str, Any] | None:
    quote = inbound.quote
    if quote is None or not (quote.text or quote.attachments) or quote.message in authors.withheld:
        return None
    sender = sender_data(quote.sender) if quote.own else authors.describe(inbound, quote.sender)
    data = {"message": quote.message, "sender": sender, "text": clean(quote.text)[:MAX_QUOTE_CHARS]}
    if not quote.own:
        return data
    agent = authors.writers.get(quote.message, "")
    return data | {"own": True} | ({"agent": agent} if agent else {})


async def build_change_entries(
    tape: TapeHandle, inbox: str, changed: TapeChange, authors: Authors
) -> tuple[list[TapeEntry], str]:
    """Build the session tape's entries for a change, and its outcome.

    The outcome is `applied`, `heard`, or `unknown` if the tape does not have the message.
    """
    change = changed.event
    if isinstance(change, Inbound):
        return [message_entry(inbox, AcceptedInbound(changed.id, change), authors)], "heard"
    target = await find_message_id(tape, change.message)
    if isinstance(change, Edit):
        if target is None:
            return [], "unknown"
        meta = _change_meta(inbox, changed.id, change, authors)
        return [Correction(target, clean(change.text)).to_entry(**meta)], "applied"
    if isinstance(change, Deletion):
        if target is None:
            return [], "unknown"
        return [Correction(target, hide=True).to_entry(inbound=[inbox, changed.id])], "applied"
    meta = _change_meta(inbox, changed.id, change, authors)
    sender = meta.pop("sender")
    emojis = tuple([clean(emoji) for emoji in change.emojis])
    reaction = MessageReaction(change.message, emojis, sender, UNSET if target is None else target)
    return [reaction.to_entry(**meta)], "applied"


async def find_sent(tape: TapeHandle, outbox: str, messages: Collection[str], session: str) -> dict[str, TapeEntry]:
    """Find the intents of messages that the bot sent in a session, by the platform's ids, among the newest ones.

    Args:
        tape: reads the outbox.
        outbox: the outbox tape of the messages.
        messages: the platform's ids; the result lacks those that are not found.
    """
    sent: dict[str, TapeEntry] = {}
    for limit in SENT_SEARCH_LIMITS:
        query = TapeQuery(outbox, kinds=(Kind.EVENT,), names=(RECEIPT,), newest=True, limit=limit)
        receipts = (await tape.fetch([query]))[0]
        data = [entry.payload["data"] for entry in receipts if not entry.erased]
        # Messages of other chats may have the same ids.
        intents = {each["intent"]: each["external_id"] for each in data if each["external_id"] in messages}
        found = (await tape.fetch([TapeQuery(outbox, IdRanges(tuple(spans_of(list(intents)))))]))[0] if intents else ()
        here = [entry for entry in found if not entry.erased and entry.payload["data"]["session"] == session]
        sent = {intents[entry.id]: entry for entry in here}
        if len(sent) == len(messages) or len(receipts) < limit:
            break
    return sent


async def find_message_id(tape: TapeHandle, message: str) -> int | None:
    """Find the entry of the message with this platform id; None if it is not among the newest."""
    query = TapeQuery(tape.name, kinds=(Kind.MESSAGE,), newest=True, limit=CHANGE_SEARCH_LIMIT)
    messages = (await tape.fetch([query]))[0]
    return next((entry.id for entry in messages if entry.meta.get("message") == message), None)
