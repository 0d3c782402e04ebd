"""Context strategies: ways to choose what a model is shown."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from itertools import chain
from operator import attrgetter

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean
from bubbot.ports.settings import AUTO_SELECTOR
from bubbot.records import dataclass
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle, prepend_opening, select_messages
from bubbot.tape.entry import JsonObject, TapeEntry
from bubbot.tape.query import AfterAnchor, Slice, TapeQuery, WholeTape, Window

_TEXT: Callable[[ContextMessage], bytes] = attrgetter("text")
_IDS: Callable[[ContextMessage], tuple[int, ...]] = attrgetter("ids")


@dataclass(frozen=True, slots=True)
class ModelContext:
    """Chat messages with their entries.

    Attributes:
        context_messages: the messages.
        facts: what the strategy chose, as entries to append with the step, so that the choice holds.
    """

    context_messages: tuple[ContextMessage, ...]
    facts: tuple[TapeEntry, ...] = ()

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """Copies of the messages for a request: a model must not change what is shown next time."""
        # Reading texts, all at once, is quicker than copying what is nested.
        nested = b",".join([item.text for item in self.context_messages if item.is_nested])
        copies = iter(json.loads(b"[%b]" % nested) if nested else ())
        return tuple([next(copies) if item.is_nested else {**item.message} for item in self.context_messages])

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The messages as canonical JSON."""
        return tuple(map(_TEXT, self.context_messages))

    @property
    def ids(self) -> tuple[int, ...]:
        """The entries that the model is shown, ascending."""
        return tuple(sorted({*chain.from_iterable(map(_IDS, self.context_messages))}))


@dataclass(frozen=True, slots=True)
class ContextInput:
    """What a context strategy chooses from.

    Attributes:
        opening: the anchor that opens the window, if it has a line; None: none.
        entries: messages, calls, results, corrections and the strategy's own events of the part that it reads, oldest
            first.
        style: of the messages.
        budget: tokens; None: unlimited.
        further: the entries that each of its further queries found.
    """

    opening: TapeEntry | None
    entries: Sequence[TapeEntry]
    style: MessageStyle
    budget: int | None
    further: Sequence[Sequence[TapeEntry]] = ()


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
        events: the names of the events that it reads beside the conversation, such as its own facts.
        find_further: returns further queries on the tape of this name, by the entries of the part.
        start_event: the name of its event of which the newest one in a window names in `from` the first entry that it
            shows: it gets the entries from there on, so that a long window costs no more than what is shown of it. For
            all entries of the window, it must build the same. Empty: it reads the whole part.
        find_floor: returns, by the newest entries of its part, oldest first, the one before which it reads nothing with
            this budget; None if it may read older ones. It then gets the entries from there on, with the newest
            `start_event`s; for all entries, it must build the same.
        earlier: the folds of earlier versions, by version, for requests that were recorded with them.
        help: what it shows, in a few English words.
    """

    name: str
    fold: Callable[[ContextInput], ModelContext]
    version: int = 1
    part: Callable[[str], Slice] = lambda _: Window()
    argument: str = ""
    is_compacting: bool = False
    events: tuple[str, ...] = ()
    find_further: Callable[[str, Sequence[TapeEntry]], Sequence[TapeQuery]] = lambda _tape, _entries: ()
    start_event: str = ""
    find_floor: Callable[[Sequence[TapeEntry], MessageStyle, int], int | None] = lambda _entries, _style, _budget: None
    earlier: Mapping[int, Callable[[ContextInput], ModelContext]] = field(default_factory=dict)
    help: str = ""

    def at_version(self, version: int) -> ContextStrategy | None:
        """Return it as it was in a version; None if that fold is gone."""
        if version == self.version:
            return self
        fold = self.earlier.get(version)
        return None if fold is None else replace(self, fold=fold, version=version, earlier={}, start_event="")

    def find_start(self, opening: Sequence[TapeEntry], events: Sequence[TapeEntry], fork: str = "") -> int | None:
        """Return the first entry to read; None for all.

        Args:
            opening: the anchor that opens the window.
            events: the newest `start_event`s, newest first; those of other sub-tasks say nothing about the window.
            fork: the fork of the sub-task whose window it is; empty: of none.
        """
        event = next((event for event in events if event.is_shown_to(fork)), None)
        if not opening or event is None or event.erased or event.id <= opening[0].id:
            return None
        start = event.data.get("from")
        return start if type(start) is int and opening[0].id < start < event.id else None

    @property
    def selector(self) -> str:
        """How it is written in the settings."""
        return f"{self.name}:{self.argument}" if self.argument else self.name

    def matches(self, selector: str) -> bool:
        """Return true if a selector names it, with an argument if it needs one."""
        if not self.argument:
            return selector == self.name
        name, colon, argument = selector.partition(":")
        return name == self.name and bool(colon) and argument not in ("", self.argument)


@dataclass(frozen=True, slots=True)
class ContextStrategies:
    """The strategies that a bot has.

    Attributes:
        own: those that are loaded.
        installed: the names of further ones.
        load: loads one of these.
        for_known_size: the one that `auto` stands for if the size of the model's context is known; else it is `window`.
    """

    own: tuple[ContextStrategy, ...]
    installed: tuple[str, ...] = ()
    load: Callable[[str], ContextStrategy] | None = None
    for_known_size: str = "window"

    def extend(self, names: Sequence[str], load: Callable[[str], ContextStrategy]) -> ContextStrategies:
        """Return these strategies and those that `load` loads by name, when they are asked for; ours come first."""
        return replace(self, installed=tuple(names), load=load)

    def is_own(self, selector: str) -> bool:
        """Return true if a selector names one of ours."""
        return any(strategy.matches(selector) for strategy in self.own)

    @property
    def selectors(self) -> tuple[str, ...]:
        """How the strategies are written in the settings."""
        return (*(strategy.selector for strategy in self.own), *self.installed)

    def has(self, selector: str) -> bool:
        """Return true if a selector is `auto`, or names a strategy that the bot has; nothing is loaded for that."""
        return selector == AUTO_SELECTOR or self.is_own(selector) or selector.partition(":")[0] in self.installed

    def resolve(self, selector: str, context_tokens: int | None) -> str:
        """Return the selector that `auto` stands for with a model of this context size; others stay."""
        if selector != AUTO_SELECTOR:
            return selector
        return self.for_known_size if context_tokens else "window"

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


KERNEL_STRATEGIES = ContextStrategies(
    (
        ContextStrategy("window", _fold_with_line, help="all since the window opened"),
        ContextStrategy("messages", _fold_without_line, help="the same without the line of the window's anchor"),
        ContextStrategy("full", _fold_without_line, part=lambda _: WholeTape(), help="the whole tape"),
        ContextStrategy(
            "from",
            _fold_without_line,
            part=AfterAnchor,
            argument="<anchor>",
            help="all after the newest anchor of this name",
        ),
    )
)
"""The strategies that leave nothing out of their part of the tape."""
