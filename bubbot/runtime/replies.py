"""The final reply of a turn and its destination: staged to be merged with the turn."""

from __future__ import annotations

from dataclasses import dataclass

from bubbot.outbox import intent
from bubbot.ports.channel import Outbound, OutboundFile
from bubbot.ports.turn import SCHEDULED, AcceptedInbound, Status, Turn
from bubbot.runtime.link import SessionChannel
from bubbot.schedule.changes import SCHEDULE_TAPE
from bubbot.schedule.firing import Firings
from bubbot.tape.entry import TapeEntry


@dataclass(frozen=True, slots=True)
class Reply:
    """A text and files; `answered` is the first inbound that they answer."""

    text: str
    files: tuple[OutboundFile, ...]
    answered: AcceptedInbound


def stage_said(
    turn: Turn, link: SessionChannel, said: Reply, status: Status, firings: Firings | None
) -> SessionChannel:
    """Stage the turn's reply for the outbox; return the channel that delivers it.

    Args:
        turn: the turn that ends.
        link: the channel of its session.
        said: the reply; without text and files nothing is staged.
        status: how the turn ended.
        firings: ends scheduled turns; None if nothing is scheduled.
    """
    if turn.origin == SCHEDULED:
        return _stage_scheduled(turn, link, said, status, firings) if firings else link
    inbound = said.answered.inbound
    if said.text or said.files:
        quoted = inbound.message or inbound.external_id
        out = Outbound(inbound.channel, inbound.chat, said.text, inbound.thread, quoted, said.files)
        parts = tuple(link.parts(out))
        turn.tape.stage(link.outbox, [intent(turn.session, turn.id, parts, inbound=said.answered.id)])
    return link


def poisoned(link: SessionChannel, session: str, first: AcceptedInbound, text: str) -> tuple[str, TapeEntry]:
    """Build the failure message for inbounds that cannot become a turn: its key and its entry."""
    key, inbound = f"poisoned:{first.id}", first.inbound
    quoted = inbound.message or ("" if inbound.origin == SCHEDULED else inbound.external_id)
    out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, quoted)
    return key, intent(session, key, tuple(link.parts(out)), inbound=first.id)


def _stage_scheduled(
    turn: Turn, link: SessionChannel, reply: Reply, status: Status, firings: Firings
) -> SessionChannel:
    """Stage the reply of a scheduled turn: it quotes nothing, and may go to another chat."""
    ending = firings.ends(turn, reply.answered.inbound, status, reply.text)
    if ending.facts:
        turn.tape.stage(SCHEDULE_TAPE, ending.facts)
    chat = ending.place
    if chat is None or not (ending.text or reply.files):
        return link
    link = link.other(chat.channel) or link
    if link.name != chat.channel:
        return link
    out = Outbound(chat.channel, chat.chat, ending.text, chat.thread, "", reply.files)
    turn.tape.stage(link.outbox, [intent(turn.session, turn.id, tuple(link.parts(out)))])
    return link
