"""The view that becomes the model's messages."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate, chain
from operator import attrgetter
from types import NoneType
from typing import Any
from zoneinfo import ZoneInfo

from bubbot.errors import ConfigError
from bubbot.runtime.context.evidence import Evidence, find_evidence
from bubbot.runtime.context.selectors import (
    CALLS,
    CONTINUES_MESSAGE,
    ContextMessage,
    MessageStyle,
    ensure_user_last,
    is_in_context,
    select_messages,
)
from bubbot.runtime.context.speakers import find_viewer, is_own, see_as
from bubbot.runtime.context.strategy import (
    KERNEL_STRATEGIES,
    ContextInput,
    ContextStrategies,
    ContextStrategy,
    ModelContext,
)
from bubbot.runtime.context.tokens import estimate_context_tokens, estimate_message_tokens
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.events import EVIDENCE_EVENT, ContextPrepared, EvidenceQuoted
from bubbot.tape.handle import CORRECTION, spans_of
from bubbot.tape.query import IdRanges, OpeningAnchor, Slice, Span, TapeQuery, Window
from bubbot.tape.view import QueryAnswers

CONTEXT_VERSION = 4
"""The version of the message format, recorded with each step. Requests of version 2 may not be rebuilt exactly: it
did not escape tags and line ends in the state of an anchor. Those of version 3 can be: it did not repair what a strategy
chose."""
REPAIRED_SINCE_VERSION = 4
NEWEST = 64
"""How many of the newest entries or messages are searched first for the answered ones."""
RESULT_NOT_SHOWN = "[this result is not shown here]"
"""The result of a call if the strategy left its own one out."""
_STYLE_VALUES = attrgetter(*MessageStyle.__slots__)
_ID = attrgetter("id")
_SHOWN = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


@dataclass(frozen=True, slots=True)
class ContextView:
    """The messages of the next request to a model.

    Attributes:
        selector: `window` (the opening anchor, then the entries after it), `messages` (without the anchor's line),
            `full` (the whole tape), `from:NAME` (after the newest anchor of that name), or the name of a strategy of a
            feature or an installed package.
        style: of the messages.
        budget: tokens; None: unlimited.
        ends_with_user: the messages are for an answer, so they must not end with the model's own words, which some
            providers refuse.
        answered: the entries that the running turn answers, with their ids of that time. They are always shown, or at
            least the newest one if a compacting strategy has no room for all.
        fork: the fork of the sub-task that sees the messages; empty: none. Entries of other sub-tasks are not shown.
        strategies: the strategies that the selector may name.
        version: of the strategy; None for the current one.
        spans: the entries of the part that the strategy needs (see `ContextStrategy.start_event`); None: all. They do
            not change the result, so that no record needs them.
        is_repaired: the kernel repairs the strategy's choice; false for requests of earlier versions.
        heads: how far other tapes are read that evidence quotes, by tape; 0: they may not be read.
        withheld: the entries, with their ids of that time, whose words are left out, since they rest on entries of other tapes
            that may not be shown, and the facts of whose evidence nothing may be shown.
        agent: the agent that sees the messages, if several share the tape (empty: the bot itself); None: the bot alone.

    Raises:
        ConfigError: the selector names no strategy.
    """

    selector: str = "window"
    style: MessageStyle = field(default_factory=MessageStyle)
    budget: int | None = None
    ends_with_user: bool = False
    fork: str = ""
    heavy: bool = False
    strategies: ContextStrategies = field(default=KERNEL_STRATEGIES, repr=False, compare=False)
    version: int | None = None
    spans: tuple[Span, ...] | None = None
    answered: tuple[int, ...] = ()
    is_repaired: bool = True
    heads: Mapping[str, int] = field(default_factory=dict)
    withheld: tuple[int, ...] = ()
    agent: str | None = None
    strategy: ContextStrategy = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        strategy = self.strategies.find(self.selector)
        if self.version is not None:
            strategy = strategy.at_version(self.version) or strategy
        object.__setattr__(self, "strategy", strategy)

    def as_json(self) -> JsonObject:
        """Build the record of the view for its step, from which the request can be rebuilt."""
        zone = self.style.stamps
        style = dict(zip(MessageStyle.__slots__, _STYLE_VALUES(self.style), strict=True))
        style["stamps"] = None if zone is None else str(zone)
        data: dict[str, Any] = {
            "selector": self.selector,
            "style": style,
            "budget": self.budget,
            "asking": self.ends_with_user,
        }
        data |= {"version": CONTEXT_VERSION, "strategy_version": self.strategy.version}
        if self.answered:
            data["answered"] = self.answered
        if self.heads:
            data["heads"] = dict(self.heads)
        if self.withheld:
            data["withheld"] = self.withheld
        if self.agent is not None:
            data["agent"] = self.agent
        return data | ({"fork": self.fork} if self.fork else {})

    @classmethod
    def from_json(cls, data: JsonObject, strategies: ContextStrategies = KERNEL_STRATEGIES) -> ContextView:
        """Build a view from its record.

        Raises:
            ConfigError: its strategy is not installed, or in another version.
        """
        selector, version = data["selector"], data.get("strategy_version", 1)
        try:
            strategy = strategies.find(selector)
        except ConfigError as error:
            raise ConfigError(
                f"The request was built by the context strategy {selector!r} (version {version}), which cannot be used "
                f"here: {error}"
            ) from error
        if strategy.at_version(version) is None:
            raise ConfigError(
                f"The request was built by version {version} of the context strategy {selector!r}; installed is version "
                f"{strategy.version}, which may build another one."
            )
        return cls(
            selector,
            _read_style(data["style"]),
            data["budget"],
            data.get("asking", False),
            data.get("fork", ""),
            strategies=strategies,
            version=None if strategy.version == version else version,
            answered=tuple(data.get("answered", ())),
            is_repaired=data.get("version", 1) >= REPAIRED_SINCE_VERSION,
            heads=data.get("heads", {}),
            withheld=tuple(data.get("withheld", ())),
            agent=data.get("agent"),
        )

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Query the opening anchor and the part that the strategy names."""
        strategy = self.strategy
        part: Slice = strategy.part(self.selector.partition(":")[2])
        if self.spans is not None:
            part = IdRanges(self.spans)
        elif self.fork and part == Window():
            part = Window(self.fork)
        prepared = () if strategy.prepare is None else ContextPrepared.EVENTS
        return (
            TapeQuery(tape, OpeningAnchor(self.fork), missing="empty"),
            TapeQuery(tape, part, kinds=_SHOWN, names=(CORRECTION, EVIDENCE_EVENT, *strategy.events, *prepared)),
        )

    def newest_query(self, tape: str, limit: int) -> TapeQuery:
        """Query the `limit` newest entries of the part."""
        return replace(self.queries(tape)[1], newest=True, limit=limit)

    def find_floor(self, newest: Sequence[TapeEntry]) -> int | None:
        """Return the first entry that the strategy reads, by the newest entries of the part, newest first; None if
        unknown.
        """
        if self.budget is None:
            return None
        entries = see_as([entry for entry in reversed(newest) if entry.is_shown_to(self.fork)], self.agent)
        return self.strategy.find_floor(entries, self.style, self.budget)

    def further_queries(self, tape: str, answers: QueryAnswers) -> tuple[TapeQuery, ...]:
        """Build the further queries: answered messages that the part lacks, then those of the strategy."""
        further = self.strategy.find_further(tape, answers[1])
        missing = self._find_unread(answers[1])
        return (TapeQuery(tape, IdRanges(tuple(spans_of(missing)))), *further) if missing else tuple(further)

    def _find_unread(self, entries: Sequence[TapeEntry]) -> list[int]:
        """List the answered messages that the entries of the part, ascending, lack."""
        unread, newest = [], entries[-NEWEST:]
        for number in self.answered:
            for entry in newest:
                if entry.id == number:
                    break
            else:
                place = bisect_left(entries, number, key=_ID)
                if place == len(entries) or entries[place].id != number:
                    unread.append(number)
        return unread

    def find_evidence(self, answers: QueryAnswers) -> list[tuple[TapeEntry, EvidenceQuoted]]:
        """Return the facts of the part that quote entries beside its messages, by the answers to the first queries."""
        return [found for found in find_evidence(answers[1]) if self.is_for_viewer(found[0])]

    def is_for_viewer(self, fact: TapeEntry) -> bool:
        """Return true if a fact about the context is one of whoever sees the messages: of this fork, and this agent."""
        return fact.is_shown_to(self.fork) and is_own(fact, self.agent)

    def read_input(
        self, answers: QueryAnswers, evidence: Evidence | None = None
    ) -> tuple[ContextInput, Sequence[TapeEntry]]:
        """Build the strategy's input from the answers to all queries; return it with the answered messages that it lacks.

        Args:
            evidence: what is quoted beside messages; None: nothing.
        """
        opening, entries, *further = answers
        unread = further.pop(0) if further and self._find_unread(entries) else ()
        if [True for entry in entries if "fork" in entry.meta]:  # rare: entries of sub-tasks
            entries = tuple([entry for entry in entries if entry.is_shown_to(self.fork)])
        if evidence is not None:
            entries = evidence.put_beside(entries, self.agent)
        viewer = find_viewer(entries, self.agent)
        entries, unread = see_as(entries, viewer), see_as(unread, viewer)
        return ContextInput(self._opening(opening), entries, self.style, self.budget, further, viewer), unread

    def fold(self, answers: QueryAnswers, evidence: Evidence | None = None) -> ModelContext:
        """Build the context from the answers to the first queries, followed by those to the further ones.

        Args:
            evidence: see `read_input`.
        """
        source, unread = self.read_input(answers, evidence)
        entries = source.entries
        context = self.strategy.fold(source)
        messages = context.context_messages
        if self.is_repaired:
            if self.answered:
                readable = sorted((*unread, *entries), key=_ID) if unread else entries
                budget = self.budget if self.strategy.is_compacting else None
                messages = show_answered(messages, self.answered, readable, self.style, budget)
            messages = repair_messages(messages, self.style)
        if self.ends_with_user:
            messages = ensure_user_last(messages)
        return context if messages is context.context_messages else replace(context, context_messages=messages)

    def _opening(self, opening: Sequence[TapeEntry]) -> TapeEntry | None:
        if not opening or not is_in_context(opening[0]):
            return None
        return None if opening[0].name == SESSION_START and not self.style.bootstrap else opening[0]


def records_view(step: JsonObject) -> bool:
    """Return true if the data of a step records a view. A call for a purpose has none; an imported step may hold
    anything.
    """
    view = step.get("view")
    if not isinstance(view, Mapping) or type(view.get("selector")) is not str:
        return False
    if type(view.get("budget", False)) not in (int, NoneType) or type(view.get("fork", "")) is not str:
        return False
    if {type(view.get("strategy_version", 1)), type(view.get("version", 1))} != {int}:
        return False
    heads = view.get("heads", {})
    if not isinstance(heads, Mapping) or any(type(head) is not int for head in heads.values()):
        return False
    if not isinstance(view.get("agent"), str | None):
        return False
    for ids in (view.get("answered", ()), view.get("withheld", ())):
        if not isinstance(ids, (list, tuple)) or any(type(number) is not int for number in ids):
            return False
    try:
        _read_style(view["style"])
    except (KeyError, TypeError, ValueError):
        return False
    return True


def _read_style(data: JsonObject) -> MessageStyle:
    stamps = data["stamps"]
    return MessageStyle(**{**data, "stamps": None if stamps is None else ZoneInfo(stamps)})


def repair_messages(messages: tuple[ContextMessage, ...], style: MessageStyle) -> tuple[ContextMessage, ...]:
    """Make messages that all providers accept (T12); return them unchanged if they are.

    Put after each call its result, or a note if it is not shown. Drop results without a call and second calls with the
    same id. Do not begin with the assistant's message if the style forbids it.
    """
    if not _are_paired(messages):
        messages = tuple(_pair(messages))
    if messages and not style.first_assistant and messages[0].message["role"] != "user":
        return (ContextMessage({"role": "user", "content": CONTINUES_MESSAGE}, ()), *messages)
    return messages


def _are_paired(messages: Sequence[ContextMessage]) -> bool:
    """Return true if its results follow every call directly, in order. It calls no function per message: every step
    runs it.
    """
    waiting: tuple[str, ...] = ()
    for each in messages:
        if each.message["role"] == "tool":
            if waiting[:1] != (each.message["tool_call_id"],):
                return False
            waiting = waiting[1:]
        elif waiting:
            return False
        else:
            waiting = each.calls
    calls = [*chain.from_iterable(map(CALLS, messages))]
    return not waiting and len(calls) == len({*calls})


def _pair(messages: Sequence[ContextMessage]) -> Iterator[ContextMessage]:
    results: dict[str, ContextMessage] = {}
    for each in messages:
        if each.message["role"] == "tool":
            results.setdefault(each.message["tool_call_id"], each)
    seen = set[str]()
    for each in messages:
        if each.message["role"] == "tool" or not seen.isdisjoint(each.calls):
            continue
        seen.update(each.calls)
        yield each
        for call in each.calls:
            missing = {"role": "tool", "tool_call_id": call, "content": RESULT_NOT_SHOWN}
            yield results.get(call) or ContextMessage(missing, ())


def show_answered(
    messages: tuple[ContextMessage, ...],
    answered: Sequence[int],
    entries: Sequence[TapeEntry],
    style: MessageStyle,
    budget: int | None = None,
) -> tuple[ContextMessage, ...]:
    """Insert the answered messages that are not shown (T10), each before newer ones; keep the rest as it is.

    The newest answered one always gets in, older ones as far as the budget allows.

    Args:
        entries: hold the answered ones, ascending.
        budget: tokens; None: unlimited.
    """
    newest = messages[-NEWEST:]
    for number in answered:
        for each in newest:
            if number in each.ids:
                break
        else:
            break
    else:
        return messages
    missing = {*answered}.difference(*[each.ids for each in messages])
    if not missing:
        return messages
    found = [each for each in select_messages(entries, style) if not missing.isdisjoint(each.ids)]
    if budget is not None:
        sizes = [*accumulate(map(estimate_message_tokens, reversed(found)), initial=estimate_context_tokens(messages))]
        fitting = bisect_right(sizes, budget) - 1
        found = found[len(found) - max(fitting, 1 if max(answered) in missing else 0) :]
    shown = list(messages)
    for each in found:
        last = max(each.ids)
        place = next((at for at, other in enumerate(shown) if other.ids and min(other.ids) > last), len(shown))
        shown.insert(place, each)
    return tuple(shown)
