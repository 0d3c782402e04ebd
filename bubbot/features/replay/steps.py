"""Recorded requests, built again from the facts, and built as this code would."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from bubbot.errors import ConfigError, EntryNotFound
from bubbot.features.replay.facts import Recorded, StepReplay
from bubbot.gateway.inbox_views import inbound_from
from bubbot.ports.channel import HUMAN_ORIGIN, Inbound, Role
from bubbot.ports.model import ModelRequest, ToolSpecs
from bubbot.ports.turn import AcceptedInbound, Turn
from bubbot.runtime.compose import Recompose, find_recorded_part, rebuild_sent
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.runtime.shown import parse_role
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, canonical
from bubbot.tape.events import STEP_EVENT, TURN_START, TurnJoined, TurnStart
from bubbot.tape.query import IdRanges, Span, TapeQuery, parse_moment
from bubbot.tape.references import TapeEntryId
from bubbot.tape.service import TapeService

PARTS = ("prompt", "tools", "messages")
MAX_SHOWN_CHARS = 300


async def replay_steps(
    host: Turn, tape: TapeService, span: tuple[int, int], strategies: ContextStrategies, recompose: Recompose
) -> tuple[StepReplay, ...]:
    """Replay the model calls of a range of entries whose requests were kept."""
    query = TapeQuery(tape.name, IdRanges((span,)), kinds=(Kind.EVENT,), names=(STEP_EVENT,))
    steps = [entry for entry in (await tape.fetch([query]))[0] if "system" in entry.data]
    return tuple([await _replay_step(host, tape, entry, strategies, recompose) for entry in steps])


async def _replay_step(
    host: Turn, tape: TapeService, entry: TapeEntry, strategies: ContextStrategies, recompose: Recompose
) -> StepReplay:
    """Build the request of a step from the facts, compare its digest, and compare it with what this code would build."""
    await asyncio.sleep(0)  # a slice may be long, and turns of others go on
    step: JsonObject = entry.data
    where = (tape.name, entry.id)
    try:
        rebuilt = await rebuild_sent(step, tape, strategies=strategies)
    except EntryNotFound:
        return StepReplay(where, "gone")
    except ConfigError:
        return StepReplay(where, "unknown")
    recorded: Recorded = "equal" if rebuilt.is_equal else "different"
    if "messages" in step:  # a call for a purpose: no view made it, so that none makes it again
        return StepReplay(where, recorded, unknown=PARTS)
    turn, is_whole = await _build_turn(host, tape, entry)
    try:
        today, shown = await recompose(turn, step)
    except ConfigError:
        return StepReplay(where, recorded, unknown=PARTS)
    return _compare(where, recorded, rebuilt.composed, today, _list_unknown(turn, shown, is_whole=is_whole))


def _list_unknown(turn: Turn, shown: Mapping[str, Sequence[Span]], *, is_whole: bool) -> frozenset[str]:
    """List the parts that may differ for other reasons than the code."""
    unknown = set()
    is_subtask = bool(turn.parent)
    if is_subtask or not is_whole or not turn.is_typed or any(tape != turn.tape.name for tape in shown):
        unknown.add("prompt")  # what a job, a sub-task or another tape added to it then is not on this tape
    if is_subtask:
        unknown.add("tools")
    return frozenset(unknown)


async def _build_turn(host: Turn, tape: TapeService, entry: TapeEntry) -> tuple[Turn, bool]:
    """Build the turn of a step as it was, for what reads it; nothing runs in it. The second value: all of its messages are known."""
    past = await tape.as_of(find_recorded_part(entry.data))
    starts = TapeQuery(
        tape.name,
        IdRanges(((1, entry.id),)),
        kinds=(Kind.EVENT,),
        names=(TURN_START, *TurnJoined.EVENTS),
        newest=True,
        limit=50,
    )
    (events,) = await tape.fetch([starts])
    named = [
        (str(name), int(number))
        for event in reversed(events)
        if not event.erased and event.meta.get("turn") == entry.meta.get("turn")
        for name, number in _read_inbounds(event)
    ]
    inbounds: list[AcceptedInbound] = []
    for name, number in named:
        (found,) = await tape.fetch([TapeQuery(name, IdRanges(((number, number),)))])
        if found and not found[0].erased:
            inbounds.append(AcceptedInbound(number, inbound_from(found[0].data)))
    first: Inbound | None = inbounds[0].inbound if inbounds else None
    moment = parse_moment(entry.date) or host.now()
    role = await _find_role(tape, entry, first)
    turn = replace(
        host,
        tape=past,
        session=tape.session,
        sender=first.sender if first else host.sender,
        role=role,
        origin=first.origin if first else HUMAN_ORIGIN,
        now=lambda: moment,
        inbounds=inbounds,
        parent=host if entry.meta.get("fork") else None,
        metadata={},
    )
    return turn, len(inbounds) == len(named) > 0


def _read_inbounds(event: TapeEntry) -> Sequence[TapeEntryId]:
    """Return the inbounds that a turn began with, or that joined it; none if an import wrote something else."""
    fact = TurnStart.try_of(event) or TurnJoined.try_of(event)
    return fact.inbounds if fact else ()


async def _find_role(tape: TapeService, entry: TapeEntry, first: Inbound | None) -> Role:
    """Find the role that the person had, as the message has it."""
    if first is None:
        return Role.OWNER
    query = TapeQuery(tape.name, IdRanges(((1, entry.id),)), kinds=(Kind.MESSAGE,), newest=True, limit=20)
    for message in (await tape.fetch([query]))[0]:
        sender = message.meta.get("sender")
        if isinstance(sender, Mapping) and sender.get("id") == first.sender.id and "role" in sender:
            return parse_role(str(sender["role"]))
    return Role.OWNER


def _compare(
    entry: tuple[str, int], recorded: Recorded, before: ModelRequest, today: ModelRequest, unknown: frozenset[str]
) -> StepReplay:
    old, new = _parts(before), _parts(today)
    changed = [part for part in PARTS if old[part] != new[part]]
    differs = tuple(part for part in changed if part not in unknown)
    first = _first_difference(differs[0], old[differs[0]], new[differs[0]]) if differs else ""
    return StepReplay(entry, recorded, differs, tuple(part for part in changed if part in unknown), first)


def _parts(request: ModelRequest) -> dict[str, list[str]]:
    return {
        "prompt": request.system.split("\n"),
        "tools": [canonical(spec) for spec in _tool_data(request)],
        "messages": [canonical(message) for message in request.messages],
    }


def _tool_data(request: ModelRequest) -> list[dict[str, Any]]:
    return [
        {"name": spec.name, "description": spec.description, "parameters": spec.parameters}
        for spec in ToolSpecs.of(request.tools)
    ]


def _first_difference(part: str, old: Sequence[str], new: Sequence[str]) -> str:
    """Describe where two parts differ first."""
    place = next(
        (at for at, (one, other) in enumerate(zip(old, new, strict=False)) if one != other), min(len(old), len(new))
    )
    before, after = (lines[place] if place < len(lines) else "" for lines in (old, new))
    at = next(
        (at for at, (one, other) in enumerate(zip(before, after, strict=False)) if one != other),
        min(len(before), len(after)),
    )
    start = max(at - 60, 0)
    return f"{part}[{place}]: {before[start : start + MAX_SHOWN_CHARS]!r} -> {after[start : start + MAX_SHOWN_CHARS]!r}"
