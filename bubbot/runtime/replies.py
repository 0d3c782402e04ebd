"""What a turn says in the end, and where: staged to be merged with it."""

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
    """Stages the intended message, where there is one, and returns the link of the channel that is to deliver it."""
    if turn.origin == SCHEDULED:
        return _scheduled(turn, link, said, status, firings) if firings else link
    inbound = said.answered.inbound
    if said.text or said.files:
        quoted = inbound.message or inbound.external_id
        out = Outbound(inbound.channel, inbound.chat, said.text, inbound.thread, quoted, said.files)
        parts = tuple(link.parts(out))
        turn.tape.stage(link.outbox, [intent(turn.session, turn.id, parts, inbound=said.answered.id)])
    return link


def poisoned(link: SessionChannel, session: str, first: AcceptedInbound, text: str) -> tuple[str, TapeEntry]:
    """What is said of messages that no turn can be made of: the key of the intent, and the intent."""
    key, inbound = f"poisoned:{first.id}", first.inbound
    quoted = inbound.message or ("" if inbound.origin == SCHEDULED else inbound.external_id)
    out = Outbound(inbound.channel, inbound.chat, text, inbound.thread, quoted)
    return key, intent(session, key, tuple(link.parts(out)), inbound=first.id)


def _scheduled(turn: Turn, link: SessionChannel, said: Reply, status: Status, firings: Firings) -> SessionChannel:
    """What a job says quotes nothing, and may go to another chat."""
    ending = firings.ends(turn, said.answered.inbound, status, said.text)
    if ending.facts:
        turn.tape.stage(SCHEDULE_TAPE, ending.facts)
    place = ending.place
    if place is None or not (ending.text or said.files):
        return link
    link = link.other(place.channel) or link
    if link.name != place.channel:
        return link
    out = Outbound(place.channel, place.chat, ending.text, place.thread, "", said.files)
    turn.tape.stage(link.outbox, [intent(turn.session, turn.id, tuple(link.parts(out)))])
    return link
