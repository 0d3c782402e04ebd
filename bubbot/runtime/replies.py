"""The final reply of a turn and its destination: staged to be merged with the turn."""

from __future__ import annotations

from dataclasses import dataclass

from bubbot.outbox import intent_entry
from bubbot.ports.channel import Outbound, OutboundFile
from bubbot.ports.turn import SCHEDULE_ORIGIN, AcceptedInbound, Status, Turn
from bubbot.runtime.link import SessionChannel
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.schedule.firing import Firings
from bubbot.tape.entry import TapeEntry


@dataclass(frozen=True, slots=True)
class Reply:
    """A text and files; `accepted` is the first inbound that they answer."""

    text: str
    files: tuple[OutboundFile, ...]
    accepted: AcceptedInbound


def stage_reply(
    turn: Turn, channel: SessionChannel, reply: Reply, status: Status, firings: Firings | None
) -> SessionChannel:
    """Stage the turn's reply for the outbox; return the channel that delivers it.

    Args:
        turn: the turn that ends.
        channel: the channel of its session.
        reply: the reply; without text and files nothing is staged.
        status: how the turn ended.
        firings: ends scheduled turns; None if nothing is scheduled.
    """
    if turn.origin == SCHEDULE_ORIGIN:
        return _stage_scheduled(turn, channel, reply, status, firings) if firings else channel
    inbound = reply.accepted.inbound
    if reply.text or reply.files:
        quoted = inbound.message or inbound.external_id
        out = Outbound(inbound.channel, inbound.chat, reply.text, inbound.thread, quoted, reply.files)
        parts = tuple(channel.split(out))
        turn.tape.stage(channel.outbox, [intent_entry(turn.session, turn.id, parts, inbound=reply.accepted.id)])
    return channel


def build_failure_message(
    channel: SessionChannel, session: str, first: AcceptedInbound, text: str
) -> tuple[str, TapeEntry]:
    """Build the failure message for inbounds that cannot become a turn: its key and its entry."""
    key, inbound = f"poisoned:{first.id}", first.inbound
    quoted = inbound.message or ("" if inbound.origin == SCHEDULE_ORIGIN else inbound.external_id)
    out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, quoted)
    return key, intent_entry(session, key, tuple(channel.split(out)), inbound=first.id)


def _stage_scheduled(
    turn: Turn, link: SessionChannel, reply: Reply, status: Status, firings: Firings
) -> SessionChannel:
    """Stage the reply of a scheduled turn: it quotes nothing, and may go to another chat."""
    ending = firings.build_outcome(turn, reply.accepted.inbound, status, reply.text)
    if ending.facts:
        turn.tape.stage(SCHEDULE_TAPE, ending.facts)
    chat = ending.place
    if chat is None or not (ending.text or reply.files):
        return link
    link = link.find_channel(chat.channel) or link
    if link.name != chat.channel:
        return link
    out = Outbound(chat.channel, chat.chat, ending.text, chat.thread, "", reply.files)
    turn.tape.stage(link.outbox, [intent_entry(turn.session, turn.id, tuple(link.split(out)))])
    return link
