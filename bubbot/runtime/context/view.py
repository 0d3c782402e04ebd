"""The context: the one view that becomes the model's messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from zoneinfo import ZoneInfo

from bubbot.errors import ConfigError
from bubbot.ports.text import did_you_mean
from bubbot.records import dataclass
from bubbot.runtime.context.compact import find_cut
from bubbot.runtime.context.selectors import (
    ContextMessage,
    MessageStyle,
    ensure_user_last,
    is_in_context,
    prepend_opening,
    select_messages,
)
from bubbot.runtime.context.summary import build_hint
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import AfterAnchor, OpeningAnchor, Slice, TapeQuery, WholeTape, Window
from bubbot.tape.view import QueryAnswers

CUT = "context/cut"
"""The event that records a compaction: `{"from": id}`, the oldest entry still read."""
CONTEXT_VERSION = 2
"""The version of the message format, recorded with each step. Requests of other versions cannot be rebuilt exactly."""
_SHOWN = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


@dataclass(frozen=True, slots=True)
class ModelContext:
    """Chat messages with their entries. `new_cut`: a compaction that has to be recorded to hold."""

    context_messages: tuple[ContextMessage, ...]
    new_cut: int | None = None

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """Copies of the messages for a request: a model must not change what is shown next time."""
        return tuple([thaw(item.message) if item.is_nested else {**item.message} for item in self.context_messages])

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The messages as canonical JSON."""
        return tuple([item.text for item in self.context_messages])

    @property
    def ids(self) -> tuple[int, ...]:
        """The entries that the model is shown, ascending."""
        return tuple(sorted({entry_id for item in self.context_messages for entry_id in item.ids}))


@dataclass(frozen=True, slots=True)
class ContextInput:
    """What a context strategy chooses from.

    Attributes:
        opening: the anchor that opens the window, if it has a line; None: none.
        entries: messages, calls, results, corrections and cuts of the part that the strategy reads, oldest first.
        style: of the messages.
        budget: tokens; None: unlimited.
    """

    opening: TapeEntry | None
    entries: Sequence[TapeEntry]
    style: MessageStyle
    budget: int | None


@dataclass(frozen=True, slots=True)
class ContextStrategy:
    """A way to choose what a model is shown. A package offers one in the group `bubbot.context`, under its name.

    Attributes:
        name: as `[context] selector` names it.
        fold: builds the context; a pure function, since a recorded request is built again by it.
        version: recorded with each request; count up if `fold` builds other messages from the same entries.
        part: returns the part of the tape that it reads, by its argument.
        argument: what the argument is, in angle brackets, if the selector is written `name:argument`; empty: none.
        is_compacting: it respects the budget.
    """

    name: str
    fold: Callable[[ContextInput], ModelContext]
    version: int = 1
    part: Callable[[str], Slice] = lambda _: Window()
    argument: str = ""
    is_compacting: bool = False

    @property
    def selector(self) -> str:
        """How it is written in the settings."""
        return f"{self.name}:{self.argument}" if self.argument else self.name

    def matches(self, selector: str) -> bool:
        """Return true if a selector names it, with an argument if it needs one."""
        name, colon, argument = selector.partition(":")
        if not self.argument:
            return selector == self.name
        return name == self.name and bool(colon) and argument not in ("", self.argument)


@dataclass(frozen=True, slots=True)
class ContextStrategies:
    """The strategies that a bot has.

    Attributes:
        own: those that are loaded.
        installed: the names of further ones.
        load: loads one of these.
    """

    own: tuple[ContextStrategy, ...]
    installed: tuple[str, ...] = ()
    load: Callable[[str], ContextStrategy] | None = None

    def extend(self, names: Sequence[str], load: Callable[[str], ContextStrategy]) -> ContextStrategies:
        """Return these strategies and those that `load` loads by name, when they are asked for; ours come first."""
        return ContextStrategies(self.own, tuple(names), load)

    @property
    def selectors(self) -> tuple[str, ...]:
        """How the strategies are written in the settings."""
        return (*(strategy.selector for strategy in self.own), *self.installed)

    def find(self, selector: str) -> ContextStrategy:
        """Find the strategy of a selector. Raise `ConfigError` with the nearest name, or if it cannot be loaded."""
        for strategy in self.own:
            if strategy.matches(selector):
                return strategy
        name = selector.partition(":")[0]
        if self.load is not None and name in self.installed:
            strategy = self.load(name)
            if strategy.matches(selector):
                return strategy
            raise ConfigError(f"[context] selector is {selector!r}; it is written {strategy.selector!r}.")
        hint = did_you_mean(selector, self.selectors, before="; ", otherwise=".")
        raise ConfigError(f"[context] selector is {selector!r}; it has to be one of {', '.join(self.selectors)}{hint}")


def _fold_with_line(source: ContextInput) -> ModelContext:
    return ModelContext(prepend_opening(source.opening, select_messages(source.entries, source.style), source.style))


def _fold_without_line(source: ContextInput) -> ModelContext:
    return ModelContext(prepend_opening(None, select_messages(source.entries, source.style), source.style))


def _fold_compact(source: ContextInput) -> ModelContext:
    return _compact(source, has_hint=False)


def _fold_summary(source: ContextInput) -> ModelContext:
    return _compact(source, has_hint=True)


def _compact(source: ContextInput, *, has_hint: bool) -> ModelContext:
    """Cut whole exchanges, oldest first, until the rest fits into the budget; name them in a hint if wanted."""
    body = select_messages(source.entries, source.style)
    new_cut = None
    if source.budget is not None:
        rest = _messages_from(body, _recorded_cut(source.entries))
        new_cut = find_cut(rest, source.budget)
        rest = _messages_from(rest, new_cut)
        hint = build_hint(body[: len(body) - len(rest)]) if has_hint else ()
        body = (*hint, *rest)
    return ModelContext(prepend_opening(source.opening, body, source.style), new_cut)


OWN_STRATEGIES = ContextStrategies(
    (
        ContextStrategy("window", _fold_with_line),
        ContextStrategy("messages", _fold_without_line),
        ContextStrategy("full", _fold_without_line, part=lambda _: WholeTape()),
        ContextStrategy("from", _fold_without_line, part=AfterAnchor, argument="<anchor>"),
        ContextStrategy("compact", _fold_compact, is_compacting=True),
        ContextStrategy("summary", _fold_summary, is_compacting=True),
    )
)
"""The strategies of bubbot itself. `auto` is `compact` if the model's context size is known, else `window`."""
SELECTORS = OWN_STRATEGIES.selectors
"""How they are written in the settings."""


@dataclass(frozen=True, slots=True)
class ContextView:
    """The messages of the next request to a model.

    Attributes:
        selector: `window` (the opening anchor, then the entries after it), `messages` (without the anchor's line),
            `full` (the whole tape), `from:NAME` (after the newest anchor of that name), `compact` (the window cut to
            `budget` tokens, whole exchanges, oldest first), `summary` (the same, with a hint that cites the cut
            messages), or the name of an installed strategy.
        style: of the messages.
        budget: tokens; None: unlimited.
        ends_with_user: the messages are for a model that answers now, so they never end with its own words, which some
            providers refuse.
        fork: the fork of the sub-task that is shown them; empty: of none. What other sub-tasks wrote is not shown.
        heavy: see `View`.
        strategies: those among which the selector names one.
    """

    selector: str = "window"
    style: MessageStyle = field(default_factory=MessageStyle)
    budget: int | None = None
    ends_with_user: bool = False
    fork: str = ""
    heavy: bool = False
    strategies: ContextStrategies = field(default=OWN_STRATEGIES, repr=False, compare=False)

    @property
    def strategy(self) -> ContextStrategy:
        """The strategy that the selector names. Raises `ConfigError` if there is none."""
        return self.strategies.find(self.selector)

    def as_json(self) -> JsonObject:
        """Build the record of the view for its step, so that the request can be rebuilt."""
        zone = self.style.stamps
        style = {name: getattr(self.style, name) for name in MessageStyle.__slots__}
        style["stamps"] = None if zone is None else str(zone)
        data = {"selector": self.selector, "style": style, "budget": self.budget, "asking": self.ends_with_user}
        data |= {"version": CONTEXT_VERSION, "strategy_version": self.strategy.version}
        return data | ({"fork": self.fork} if self.fork else {})

    @classmethod
    def from_json(cls, data: JsonObject, strategies: ContextStrategies = OWN_STRATEGIES) -> ContextView:
        """Read a view from its record.

        Raises:
            ConfigError: its strategy is not installed, or in another version.
        """
        style, stamps = dict(data["style"]), data["style"]["stamps"]
        style["stamps"] = None if stamps is None else ZoneInfo(stamps)
        selector, version = data["selector"], data.get("strategy_version", 1)
        try:
            strategy = strategies.find(selector)
        except ConfigError as error:
            raise ConfigError(
                f"The request was built by the context strategy {selector!r} (version {version}), which cannot be used "
                f"here: {error}"
            ) from error
        if strategy.version != version:
            raise ConfigError(
                f"The request was built by version {version} of the context strategy {selector!r}; installed is version "
                f"{strategy.version}, which may build another one."
            )
        fork = data.get("fork", "")
        return cls(
            selector, MessageStyle(**style), data["budget"], data.get("asking", False), fork, strategies=strategies
        )

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the opening anchor, and the part that the strategy names."""
        part = self.strategy.part(self.selector.partition(":")[2])
        return (
            TapeQuery(tape, OpeningAnchor(self.fork), missing="empty"),
            TapeQuery(tape, Window(self.fork) if part == Window() else part, kinds=_SHOWN, names=(CORRECTION, CUT)),
        )

    def fold(self, answers: QueryAnswers) -> ModelContext:
        """Build the context."""
        opening, entries = answers
        if any("fork" in entry.meta for entry in entries):
            entries = tuple([entry for entry in entries if entry.is_shown_to(self.fork)])
        context = self.strategy.fold(ContextInput(self._opening(opening), entries, self.style, self.budget))
        if not self.ends_with_user:
            return context
        return ModelContext(ensure_user_last(context.context_messages), context.new_cut)

    def _opening(self, opening: Sequence[TapeEntry]) -> TapeEntry | None:
        if not opening or not is_in_context(opening[0]):
            return None
        return None if opening[0].name == SESSION_START and not self.style.bootstrap else opening[0]


def _messages_from(body: tuple[ContextMessage, ...], cut: int | None) -> tuple[ContextMessage, ...]:
    """Return the messages from the entry `cut` on. A result stays with its call, however late it came."""
    if cut is None:
        return body
    positions = (
        (place, message.ids[-1])
        for place, message in enumerate(body)
        if message.ids and message.message["role"] != "tool"
    )
    return body[next((place for place, entry_id in positions if entry_id >= cut), len(body)) :]


def _recorded_cut(entries: Sequence[TapeEntry]) -> int | None:
    data = [entry.payload.get("data") for entry in entries if entry.name == CUT]
    cuts = [item.get("from") for item in data if isinstance(item, Mapping)]
    return max((cut for cut in cuts if type(cut) is int), default=None)
