"""What a view shows: before each step of a turn a fact names what is new in the other chat, and the request quotes it.

Nothing is copied: each request reads the named entries anew, as long as the grant and the view hold. What is quoted is no message
of this chat, so that another view never quotes it as one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from bubbot.errors import AccessError, BubbotError, ConfigError, EntryNotFound
from bubbot.feature import ReadSession
from bubbot.features.views.facts import SOURCE_PREFIX, ChatView
from bubbot.features.views.service import ViewService
from bubbot.features.views.settings import ViewSettings
from bubbot.ports.agents import speaker_name
from bubbot.ports.turn import Turn
from bubbot.runtime.context.evidence import choose_quotable, write_anchor_quotation, write_quotation
from bubbot.runtime.context.handoffs import is_quotable_anchor, read_anchor_quotations
from bubbot.runtime.context.quoted import find_alike, find_quoted, quote_elsewhere
from bubbot.runtime.context.selectors import text_of
from bubbot.runtime.context.tokens import estimate_tokens
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import STEP_EVENT, EvidenceQuoted
from bubbot.tape.handle import CORRECTION, TapeHandle
from bubbot.tape.query import AfterAnchor, IdRanges, OpeningAnchor, Slice, TapeQuery

log = logging.getLogger(__name__)

MAX_MESSAGES = 200
"""Newest messages of the other tape that are looked at: those of sub-tasks and hidden ones may be among them."""
MAX_ANCHORS = 64
"""Newest anchors that are looked at: those of memory and of topics that were left may be among them."""
_SHOWN = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


@dataclass(slots=True)
class ViewProgress:
    """What the views have added to a turn so far.

    Attributes:
        tokens: estimated, by what the view is about.
        searched: the message whose words were looked for last, and the newest entry of the other tape then.
    """

    tokens: dict[object, int] = field(default_factory=dict)
    searched: dict[object, tuple[int, int]] = field(default_factory=dict)


class _Choice(Struct, frozen=True):
    """Entries to quote, and what they are from."""

    ids: Sequence[int]
    title: str


def is_for_agent(view: ChatView, turn: Turn) -> bool:
    """Return true if the agent that answers a turn is shown a view; one without an agent is for all turns."""
    return view.agent in ("", speaker_name(turn.agent.name))


class ViewShower:
    """Quotes the views of a turn's chat, and withholds what a removed one has quoted."""

    def __init__(
        self, views: ViewService, read_session: ReadSession, find_settings: Callable[[], ViewSettings]
    ) -> None:
        self._views = views
        self._read_session = read_session
        self._find_settings = find_settings

    async def before_step(self, turn: Turn) -> None:
        """Append facts that name what is new in the viewed chats. A chat that cannot be read now shows nothing."""
        if turn.is_subtask or turn.replies_elsewhere or not turn.message_ids:
            return
        for view in self._views.views_of(turn.session):
            if not is_for_agent(view, turn):
                continue
            try:
                there = await self._read_session(turn, view.session)
                choice = await self._choose(turn, view, there)
            except (AccessError, ConfigError, EntryNotFound):  # ,views says so
                continue
            except BubbotError as error:
                log.warning("a view of another chat failed: %s", error, extra={"action": "views.show"})
                continue
            if choice is not None:
                message = turn.message_ids[-1] if await _is_unshown(turn) else 0
                await quote_elsewhere(
                    turn.tape,
                    there,
                    choice.ids,
                    message=message,
                    source=view.source,
                    title=choice.title,
                    anchors=view.what == "anchors",
                )

    def withholds(self, turn: Turn, quoted: EvidenceQuoted) -> bool:
        """Return true for what a view has quoted that was removed since, or is for another agent."""
        if not quoted.source.startswith(SOURCE_PREFIX):
            return False
        views = [self._views.find_view(turn.session, node.session, quoted.source) for node in quoted.nodes]
        return any(view is None or not is_for_agent(view, turn) for view in views)

    async def _choose(self, turn: Turn, view: ChatView, there: TapeHandle) -> _Choice | None:
        """Choose what a view adds now; None for nothing."""
        quoted = await find_quoted(turn.tape, there.name)
        known = quoted.ids(lambda fact: not self.withholds(turn, fact))
        last = max(quoted.ids(lambda fact: fact.source == view.source), default=0)
        progress = turn.metadata.setdefault(ViewProgress, ViewProgress())
        match view.what:
            case "newest":
                part: Slice = AfterAnchor(view.start) if view.start else IdRanges(((last + 1, None),))
                messages = await _read_messages(there, part)
                lines, title = (
                    await _write_messages(there, [each for each in messages if each.id > last]),
                    "newest messages",
                )
            case "anchors":
                lines, title = await _write_anchors(there, last), "anchors"
            case "search":
                found = await self._search(turn, view, there, progress)
                lines, title = await _write_messages(there, found), "messages that share words with this one"
            case _:  # of a later version
                return None
        fresh = {number: line for number, line in lines.items() if number not in known}
        chosen = self._fit(view, progress, list(fresh.items())[: view.count])
        if not chosen:
            return None
        rest = len(fresh) - len(chosen) if view.what != "search" else 0
        more = f"; {rest} older {'is' if rest == 1 else 'are'} not quoted" if rest else ""
        return _Choice(chosen, f"{there.session}, {title}{more}")

    async def _search(self, turn: Turn, view: ChatView, there: TapeHandle, progress: ViewProgress) -> list[TapeEntry]:
        """Find messages that share words with the newest one here, best first; at later steps only what came since."""
        message, head = turn.message_ids[-1], await there.head()
        before, known = progress.searched.get(view.subject, (0, 0))
        progress.searched[view.subject] = message, head
        if before == message and known == head:
            return []
        asked = await turn.tape.entry(message)
        found = await find_alike(turn.tape, there.name, text_of(asked.payload.get("content")))
        return [entry for entry in found if before != message or entry.id > known]

    def _fit(self, view: ChatView, progress: ViewProgress, lines: Sequence[tuple[int, str]]) -> list[int]:
        """Return the first entries whose lines have room in what the view may still add to this turn."""
        chosen: list[int] = []
        for number, line in lines:
            tokens = progress.tokens.get(view.subject, 0) + estimate_tokens(line)
            if tokens > self._find_settings().tokens:
                break
            progress.tokens[view.subject] = tokens
            chosen.append(number)
        return chosen


async def _is_unshown(turn: Turn) -> bool:
    """Return true if no request has shown the newest message of a turn yet, so that words before it change none."""
    message = turn.message_ids[-1]
    after = IdRanges(((message + 1, None),))
    opening, later = await turn.tape.fetch(
        [
            TapeQuery(turn.tape.name, OpeningAnchor(), missing="empty"),
            TapeQuery(turn.tape.name, after, kinds=_SHOWN, names=(STEP_EVENT,), limit=1),
        ]
    )
    return not later and (not opening or opening[0].id < message)


async def _read_messages(there: TapeHandle, part: Slice) -> Sequence[TapeEntry]:
    """Read the newest messages of a part of a tape, newest first."""
    query = TapeQuery(there.name, part, kinds=(Kind.MESSAGE,), newest=True, limit=MAX_MESSAGES, missing="empty")
    return (await there.fetch([query]))[0]


async def _write_messages(there: TapeHandle, found: Sequence[TapeEntry]) -> dict[int, str]:
    """Write the messages that may be quoted, as the request will, in the same order."""
    if not found:
        return {}
    since = IdRanges(((min([entry.id for entry in found]), None),))
    (events,) = await there.fetch([TapeQuery(there.name, since, kinds=(Kind.EVENT,), names=(CORRECTION,))])
    quotable = choose_quotable(found, events)
    shown = [entry for entry in found if entry.id in quotable.entries]
    return {entry.id: write_quotation(entry, quotable.corrections.get(entry.id)) for entry in shown}


async def _write_anchors(there: TapeHandle, last: int) -> dict[int, str]:
    """Write the anchors of a tape that are newer than the last quoted one, as the request will, newest first."""
    query = TapeQuery(there.name, IdRanges(((last + 1, None),)), kinds=(Kind.ANCHOR,), newest=True, limit=MAX_ANCHORS)
    (found,) = await there.fetch([query])
    ids = [entry.id for entry in found if is_quotable_anchor(entry) and entry.name != SESSION_START]
    quotations = await read_anchor_quotations(there, there.name, [(number, number) for number in ids])
    return {number: write_anchor_quotation(quotations[number]) for number in ids}
