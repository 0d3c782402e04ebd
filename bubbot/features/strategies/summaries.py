"""When summaries are written: by a command, and by turns of their own, before a window is full."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import md5
from typing import Any

from msgspec import Struct, structs

from bubbot.command import Caller
from bubbot.errors import BubbotError
from bubbot.features.strategies.compact import SUMMARY
from bubbot.features.strategies.reader import EntriesView
from bubbot.features.strategies.summary import SummaryState, SummaryWriter, reason_of
from bubbot.middleware import CallNext
from bubbot.ports.channel import OWN_WORDS, Inbound, Outbound, Role
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.runtime.compose import PAGE_ENTRIES, PAGE_GROWTH, request_token_limit
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle, is_in_context, select_messages
from bubbot.runtime.context.tokens import estimate_context_tokens, estimate_message_tokens
from bubbot.tape.corrections import Corrections
from bubbot.tape.entry import Kind, TapeEntry, timestamp
from bubbot.tape.events import STEP_EVENT, TURN_START
from bubbot.tape.fork import MergeResult
from bubbot.tape.handle import CORRECTION, spans_of
from bubbot.tape.provenance import track_reads
from bubbot.tape.query import IdRanges, OpeningAnchor, TapeQuery, Window

log = logging.getLogger(__name__)

SUMMARY_ORIGIN = "summary"
"""The origin of turns that write a summary unasked."""
SUMMARY_HANDOFF = "auto_handoff/summary"
"""The name of the anchors with summaries."""
SUMMARY_COMMAND = ",summary"
PART = 4
"""A summary takes at most one fourth of the room of the messages, and so do the newest exchanges that stay."""
MIN_SUMMARY_TOKENS, MAX_SUMMARY_TOKENS = 150, 1_500
MAX_KEPT_TOKENS = 6_000
UNKNOWN_BUDGET = 16_000
"""The room of the messages, if no step has recorded it."""
MAX_EXPANSIONS = 5
"""Summaries of summaries that are followed to their sources."""

Accept = Callable[[Inbound, Mapping[str, Sequence[TapeEntry]]], Awaitable[bool]]


class SummaryRequest(Struct, frozen=True):
    """A summary that is written at the end of the turn in which its command was typed.

    Attributes:
        owner: who asked for it: `human` or `agent`.
    """

    owner: str

    def describe(self, _caller: Caller) -> str:
        """Say nothing: what became of it is said when it is written."""
        return ""


@dataclass(frozen=True, slots=True)
class WindowContents:
    """What a window holds.

    Attributes:
        opening: the anchor that opened it; None on a tape without one.
        entries: its entries, with those that the anchor recalls.
        messages: as a model would be shown them uncut.
        budget: the tokens that the messages may have, as the newest step recorded them; None if unlimited or unknown.
    """

    opening: TapeEntry | None
    entries: Sequence[TapeEntry]
    messages: tuple[ContextMessage, ...]
    budget: int | None


class Summaries:
    """Writes summaries at the end of turns, and asks for turns that write one. See `TurnSource`."""

    def __init__(self, accept: Accept, share: Callable[[], float]) -> None:
        """`share` returns the part of a window's room after which a summary is written; 0 for never."""
        self._accept = accept
        self._share = share
        self._due: dict[str, tuple[str, Inbound]] = {}

    async def around_turn(self, turn: Turn, call_next: CallNext[Turn, TurnOutcome]) -> TurnOutcome:
        """Write the summary that a command of the turn asks for, or note that the chat needs one."""
        outcome = await call_next(turn)
        request = turn.find_metadata(SummaryRequest)
        if request is None:
            try:
                await self._note_if_due(turn)
            except BubbotError as error:  # the answer is there, and more important
                log.warning("no turn for a summary: %s", error, extra={"action": "context.summary_refused"})
            return outcome
        if outcome.status != "answered":
            return outcome
        opening = await _find_opening(turn)
        if not turn.is_typed and turn.inbounds[0].inbound.external_id != _key(turn.session, opening):
            return TurnOutcome("silent", "")  # the window that it was for is over
        with track_reads(turn.tape.raise_source):  # also without the model it is made of what it reads
            notices = await self._write(turn, request)
        return TurnOutcome("answered", "\n\n".join([*_texts(outcome), *notices]))

    async def _write(self, turn: Turn, request: SummaryRequest) -> list[str]:
        """Write the summary and open the window after it; return what people are told."""
        window = await _read_window(turn)
        kept = find_kept(window)
        left = {entry.id for entry in window.entries if is_in_context(entry)} - kept
        opened = (await turn.tape.read(EntriesView(tuple(spans_of(sorted(left)))))).entries if left else ()
        entries = [entry for entry in opened if entry.id in left and entry.text.strip()]
        if not entries:
            return [turn.texts.say("summary_nothing")] if turn.is_typed else []
        earlier = await _read_earlier(turn, window.opening)
        budget = await _room(turn, window)
        limit = max(min(MAX_SUMMARY_TOKENS, budget // PART), MIN_SUMMARY_TOKENS)
        summary, failure = await SummaryWriter(turn, limit, earlier).write(entries)
        state = summary.as_json() | {"owner": request.owner}
        if window.opening is not None:
            state["parents"] = [window.opening.id]
        if failure is not None:
            state["form"] = "extractive"
            log.info(
                "summary written without the model: %s",
                failure,
                extra={"action": "context.summary_without_model"},
            )
        anchor = await turn.tape.handoff(SUMMARY_HANDOFF, state, recalls=spans_of(sorted(kept)))
        if failure is None:
            return [turn.texts.say("summary_written", count=len(entries), entry=anchor.id)]
        reason = reason_of(failure, turn)
        return [turn.texts.say("summary_cited", count=len(entries), entry=anchor.id, reason=reason)]

    async def _note_if_due(self, turn: Turn) -> None:
        """Note the inbound of a summary's turn if the window of this turn is fuller than it may be."""
        self._due.pop(turn.session, None)
        share = self._share()
        step = _last_step(turn.tape.delta)
        if not share or not turn.inbounds or turn.role is Role.STRANGER or step is None:
            return
        if step["view"].get("selector") != SUMMARY.name:
            return
        opening, budget = await _find_opening(turn), step["view"].get("budget")
        if opening is not None and type(budget) is int and await _is_fuller(turn, share * budget):
            self._due[turn.session] = (turn.id, _build_inbound(turn, opening))

    async def on_merged(self, result: MergeResult) -> None:
        """Accept what is due after the turn that was merged. It needs no second try: the next turn notes it again."""
        start = next((entry for entry in result.delta if entry.name == TURN_START), None)
        if start is None:
            return
        turn_id, inbound = self._due.pop(start.data.get("session", ""), ("", None))
        if inbound is None or turn_id != start.meta.get("turn"):
            return
        try:
            await self._accept(inbound, {})
        except BubbotError as error:
            log.warning("no turn for a summary: %s", error, extra={"action": "context.summary_refused"})

    def prepare(self, turn: Turn, inbound: Inbound) -> None:  # noqa: ARG002 - the port's signature
        """See `TurnSource.prepare`: it calls no tools, and is for the chat, whoever wrote last."""
        turn.role = Role.MEMBER

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:  # noqa: ARG002
        """See `TurnSource.build_reply`: a summary is announced; that there is none is not, since nobody waits for it."""
        if outcome.status not in ("answered", "stopped"):
            return SourcedReply()
        return SourcedReply(outcome.text, Outbound(inbound.channel, inbound.chat, "", inbound.thread))

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:  # noqa: ARG002
        """See `TurnSource.failure_entries`."""
        return {}


def find_kept(window: WindowContents) -> frozenset[int]:
    """Return the entries of the newest whole exchanges, which stay; empty if all of the window would stay."""
    room = min(MAX_KEPT_TOKENS, (window.budget or UNKNOWN_BUDGET) // PART)
    start, used = len(window.messages), 0
    for place in range(len(window.messages) - 1, -1, -1):
        message = window.messages[place]
        used += estimate_message_tokens(message)
        if used > room:
            break
        if message.message["role"] == "user" and message.ids:
            start = place
    if start in (0, len(window.messages)):
        return frozenset()
    first = min(window.messages[start].ids)
    return frozenset(entry.id for entry in window.entries if entry.id >= first and entry.kind in _KEPT_KINDS)


_KEPT_KINDS = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


async def _is_fuller(turn: Turn, tokens: float) -> bool:
    """Return true if the window, uncut, has more tokens; it is read from its end until that is known."""
    limit = PAGE_ENTRIES
    while True:
        query = TapeQuery(turn.tape.name, Window(), missing="empty", newest=True, limit=limit)
        page = (await turn.tape.fetch([query]))[0]
        if estimate_context_tokens(_show(turn, page[::-1])) > tokens:
            return True
        if len(page) < limit:
            return False
        limit *= PAGE_GROWTH


def _show(turn: Turn, entries: Sequence[TapeEntry]) -> tuple[ContextMessage, ...]:
    shown = [entry for entry in entries if entry.kind in _KEPT_KINDS and entry.is_shown_to("")]
    return select_messages(shown, MessageStyle(stamps=turn.zone))


async def _read_window(turn: Turn) -> WindowContents:
    name = turn.tape.name
    openings, found = await turn.tape.fetch(
        [TapeQuery(name, OpeningAnchor(), missing="empty"), TapeQuery(name, Window(), missing="empty")]
    )
    entries = [entry for entry in found if entry.is_shown_to("")]  # what sub-tasks wrote is their own
    messages = _show(turn, entries)
    step = _last_step(entries)
    budget = step["view"].get("budget") if step else None
    return WindowContents(openings[0] if openings else None, entries, messages, budget if type(budget) is int else None)


async def _find_opening(turn: Turn) -> TapeEntry | None:
    found = (await turn.tape.fetch([TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty")]))[0]
    return found[0] if found else None


async def _room(turn: Turn, window: WindowContents) -> int:
    """Return the tokens that messages may have."""
    if window.budget is not None:
        return window.budget
    try:
        size = (await turn.runner.find_model(turn)).traits.context_tokens
    except BubbotError:
        size = None
    return UNKNOWN_BUDGET if size is None else request_token_limit(size) // 2


async def _read_earlier(turn: Turn, opening: TapeEntry | None) -> SummaryState:
    """Read what the window opened with. It cites first sources: an anchor among them is replaced by its own sources."""
    if opening is None or not is_in_context(opening):
        return SummaryState()
    state = SummaryState.from_json(opening.payload.get("state"))
    if state.is_empty:
        return SummaryState()
    head = await turn.tape.head()
    sources = {number for number in state.source_ids if 1 <= number <= head}
    for _ in range(MAX_EXPANSIONS):
        if not sources:
            break
        part = IdRanges(tuple(spans_of(sorted(sources))))
        anchors = (await turn.tape.fetch([TapeQuery(turn.tape.name, part, kinds=(Kind.ANCHOR,))]))[0]
        found = {anchor.id: SummaryState.from_json(anchor.payload.get("state")).source_ids for anchor in anchors}
        found = {entry: ids for entry, ids in found.items() if ids}
        if not found:
            break
        sources -= found.keys()
        sources |= {number for entry, ids in found.items() for number in ids if 1 <= number < entry}
    return await _without_deleted(turn, structs.replace(state, source_ids=tuple(sorted(sources))))


async def _without_deleted(turn: Turn, state: SummaryState) -> SummaryState:
    """Cite no source that was deleted since, and say so: a summary that still rests on it is refused, and written again."""
    name, part = turn.tape.name, IdRanges(tuple(spans_of(state.source_ids)))
    sources, events = await turn.tape.fetch(
        [TapeQuery(name, part), TapeQuery(name, kinds=(Kind.EVENT,), names=(CORRECTION,))]
    )
    hidden = Corrections.of(events).hidden
    deleted = sorted(entry.id for entry in sources if entry.erased or entry.id in hidden)
    if not deleted:
        return state
    note = f"Deleted since, so that nothing of it may be carried over: {', '.join(map(str, deleted))}."
    left = tuple(number for number in state.source_ids if number not in deleted)
    return structs.replace(state, summary=f"{note}\n{state.summary}", source_ids=left)


def _last_step(entries: Sequence[TapeEntry]) -> Mapping[str, Any] | None:
    """Return the data of the newest step of the conversation among the entries; those of sub-tasks are not of it."""
    for entry in reversed(entries):
        if entry.name == STEP_EVENT and entry.is_shown_to(""):
            data = entry.data
            if "purpose" not in data and isinstance(data.get("view"), Mapping):
                return data
    return None


def _key(session: str, opening: TapeEntry | None) -> str:
    """Return the external id of a summary's turn: one for each window. It holds no words of people, not even a chat."""
    place = f"{session} {opening.id} {opening.date}" if opening else session
    return f"summary:{md5(place.encode(), usedforsecurity=False).hexdigest()}"


def _build_inbound(turn: Turn, opening: TapeEntry) -> Inbound:
    """Build the inbound of a turn that writes a summary, in the chat of this turn."""
    return structs.replace(
        turn.inbounds[-1].inbound,
        external_id=_key(turn.session, opening),
        text=SUMMARY_COMMAND,
        time=timestamp(turn.now()),
        reply_to="",
        attachments=(),
        message="",
        addressed=True,
        quote=None,
        group="",
        origin=SUMMARY_ORIGIN,
        model="",
        instructions="",
        press=None,
        provenance=OWN_WORDS,
    )


def _texts(outcome: TurnOutcome) -> list[str]:
    return [outcome.text] if outcome.text else []
