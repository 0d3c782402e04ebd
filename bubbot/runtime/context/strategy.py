"""Context strategies: ways to choose the messages that a model sees."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, tzinfo
from itertools import chain
from operator import attrgetter
from typing import Any, TypeAlias

from msgspec import Struct, structs

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean
from bubbot.ports.settings import AUTO_SELECTOR
from bubbot.runtime.context.ports import StrategyPorts
from bubbot.runtime.context.selectors import ContextMessage, MessageStyle, prepend_opening, select_messages
from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.events import ContextPrepared
from bubbot.tape.fact import Fact
from bubbot.tape.query import AfterAnchor, Slice, TapeQuery, WholeTape, Window
from bubbot.texts import Texts

_TEXT: Callable[[ContextMessage], bytes] = attrgetter("text")
_IDS: Callable[[ContextMessage], tuple[int, ...]] = attrgetter("ids")


@dataclass(frozen=True, slots=True)
class ModelContext:
    """Chat messages with their entries.

    Attributes:
        facts: the strategy's choice as entries to append with the step, so that later steps keep it.
        rests_on: entries that the messages are made of besides their own, such as what was prepared; they count as shown.
    """

    context_messages: tuple[ContextMessage, ...]
    facts: tuple[TapeEntry, ...] = ()
    rests_on: tuple[int, ...] = ()

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """Copies of the messages for a request: a model must not change later requests."""
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
        """The shown entries, ascending."""
        return tuple(sorted({*chain.from_iterable(map(_IDS, self.context_messages)), *self.rests_on}))


@dataclass(frozen=True, slots=True)
class ContextInput:
    """The input of a context strategy.

    Attributes:
        opening: the anchor that opens the window; None if it gets no line.
        entries: messages, calls, results, corrections and the strategy's own events of its part, oldest first.
        style: of the messages.
        budget: tokens; None: unlimited.
        further: the answers to its further queries.
        agent: who reads the messages, if several agents share the tape (empty: the bot itself); None: the bot alone.
    """

    opening: TapeEntry | None
    entries: Sequence[TapeEntry]
    style: MessageStyle
    budget: int | None
    further: Sequence[Sequence[TapeEntry]] = ()
    agent: str | None = None

    def find_prepared(self, strategy: str) -> list[ContextPrepared]:
        """Return what a strategy has prepared in its part, oldest first. Words in it are not escaped."""
        events = [entry for entry in self.entries if entry.kind == Kind.EVENT and entry.name in ContextPrepared.EVENTS]
        found = [ContextPrepared.try_of(entry) for entry in events if not entry.erased]
        return [prepared for prepared in found if prepared is not None and prepared.strategy == strategy]


@dataclass(frozen=True, slots=True)
class PreparationInput:
    """The input of a preparation.

    Attributes:
        tape: the name of the chat's tape, for queries.
        source: what `fold` would get now.
        answered: the messages to answer, oldest first.
        now: the current time.
        zone: the chat's time zone.
        context_tokens: the size of the model's context; None if unknown.
    """

    tape: str
    source: ContextInput
    answered: Sequence[TapeEntry]
    now: datetime
    zone: tzinfo
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class HandoffInput:
    """The input of a handoff, and of the question whether one is due.

    Attributes:
        tape: the name of the chat's tape, for queries.
        opening: the anchor that opened the window; None on a tape without one.
        now: the current time.
        zone: the chat's time zone.
        texts: the bot's own sentences in the language of the chat.
        context_tokens: the size of the model's context; None if unknown.
    """

    tape: str
    opening: TapeEntry | None
    now: datetime
    zone: tzinfo
    texts: Texts
    context_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class StrategyHandoff:
    """What a strategy hands over to a new window.

    Attributes:
        state: what the next phase needs, under the contract of handoffs: `phase`, `summary`, `next_steps`, `source_ids`, and keys
            of its own. bubbot sets `owner` and `parents`.
        recalls: the id ranges of the entries that the new window still shows.
        describe: returns the line that people are told, by the id of the anchor; empty for none.
    """

    state: Mapping[str, Any]
    recalls: tuple[tuple[int, int], ...] = ()
    describe: Callable[[int], str] = lambda _anchor: ""


HandOff: TypeAlias = Callable[[StrategyPorts, HandoffInput], Awaitable[StrategyHandoff | None]]
"""Hand off in a turn of its own, between others; return what begins the new window, or None to stay in this one."""
PrepareContext: TypeAlias = Callable[[StrategyPorts, PreparationInput], Awaitable[Sequence[TapeEntry | Fact]]]
"""Prepare the context of a turn; return the facts from which `fold` builds it, to append to the chat's tape."""


@dataclass(frozen=True, slots=True)
class ContextStrategy:
    """A way to choose the messages that a model sees. Packages offer one in the group `bubbot.context`, under its name.

    Attributes:
        name: as `[context] selector` names it.
        fold: builds the context; a pure function, since it also rebuilds recorded requests.
        version: recorded with each request; raise it if `fold` builds other messages from the same entries.
        part: returns the part of the tape to read, by the argument.
        argument: the name of the argument in angle brackets, if the selector is `name:argument`; empty: none.
        is_compacting: it respects the budget.
        events: the names of the events to read in addition to the conversation, such as its own facts.
        find_further: returns further queries on the tape with this name, by the entries of the part.
        start_event: the name of its event whose `from` is the first shown entry. The strategy gets the entries from the
            newest such `from` on, so that a long window costs no more than its shown part; it must build the same from
            all entries of the window. Empty: it reads the whole part.
        find_floor: returns the first entry to read with this budget, by the newest entries of its part, oldest first;
            None if it may read older ones. The strategy gets the entries from there on and the newest `start_event`s;
            it must build the same from all entries.
        earlier: the folds of earlier versions, by version, to rebuild requests recorded with them.
        help: the shown part of the tape, in a few English words.
        prepare: called before the first request of a turn, and again if messages join it; not for sub-tasks. It may ask
            and read through its ports. What it returns, `ContextPrepared` or events of its own, is appended to the tape
            before `fold` runs, so that `fold` needs nothing else. It has a time limit. None: nothing to prepare.
        is_due: called after each answered turn that used the strategy; returns true if it wants a turn of its own, in which
            `hand_off` is called, before the next message of the chat. One comes for each window. It may read through its ports, and
            has the same time limit. None: never.
        hand_off: writes what a new window begins with. It may ask and read through its ports, and takes as long as such a turn may.
            None: it cannot.
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
    prepare: PrepareContext | None = None
    is_due: Callable[[StrategyPorts, HandoffInput], Awaitable[bool]] | None = None
    hand_off: HandOff | None = None

    def at_version(self, version: int) -> ContextStrategy | None:
        """Return the strategy as of a version; None if that fold is gone."""
        if version == self.version:
            return self
        fold = self.earlier.get(version)
        return None if fold is None else replace(self, fold=fold, version=version, earlier={}, start_event="")

    def find_start(self, opening: Sequence[TapeEntry], events: Sequence[TapeEntry], fork: str = "") -> int | None:
        """Return the first entry to read; None for all.

        Args:
            events: the newest `start_event`s, newest first; those of other sub-tasks do not count.
            fork: the fork of a sub-task; empty: the window of the tape.
        """
        event = next((event for event in events if event.is_shown_to(fork)), None)
        if not opening or event is None or event.erased or event.id <= opening[0].id:
            return None
        start = event.data.get("from")
        return start if type(start) is int and opening[0].id < start < event.id else None

    @property
    def selector(self) -> str:
        """The selector as written in the settings."""
        return f"{self.name}:{self.argument}" if self.argument else self.name

    def matches(self, selector: str) -> bool:
        """Return true if a selector names this strategy, with an argument if it needs one."""
        if not self.argument:
            return selector == self.name
        name, colon, argument = selector.partition(":")
        return name == self.name and bool(colon) and argument not in ("", self.argument)


class ContextStrategies(Struct, frozen=True):
    """The strategies that a bot has.

    Attributes:
        own: loaded ones.
        installed: the names of strategies in packages.
        load: loads one of `installed`.
        for_known_size: the meaning of `auto` if the size of the model's context is known; else it is `window`.
    """

    own: tuple[ContextStrategy, ...]
    installed: tuple[str, ...] = ()
    load: Callable[[str], ContextStrategy] | None = None
    for_known_size: str = "window"

    def extend(self, names: Sequence[str], load: Callable[[str], ContextStrategy]) -> ContextStrategies:
        """Return these strategies followed by those that `load` loads by name on first use."""
        return structs.replace(self, installed=tuple(names), load=load)

    def replace_own(self, strategy: ContextStrategy) -> ContextStrategies:
        """Return these strategies with another one in place of the own one of its name."""
        return structs.replace(self, own=tuple([strategy if each.name == strategy.name else each for each in self.own]))

    def is_own(self, selector: str) -> bool:
        """Return true if a selector names one of `own`."""
        return any(strategy.matches(selector) for strategy in self.own)

    @property
    def selectors(self) -> tuple[str, ...]:
        """The selectors of the strategies as written in the settings."""
        return (*(strategy.selector for strategy in self.own), *self.installed)

    def has(self, selector: str) -> bool:
        """Return true if a selector is `auto` or names a strategy, without loading it."""
        return selector == AUTO_SELECTOR or self.is_own(selector) or selector.partition(":")[0] in self.installed

    def resolve(self, selector: str, context_tokens: int | None) -> str:
        """Resolve `auto` for a model of this context size; return other selectors unchanged."""
        if selector != AUTO_SELECTOR:
            return selector
        return self.for_known_size if context_tokens else "window"

    def find(self, selector: str) -> ContextStrategy:
        """Find the strategy of a selector. Raise `ConfigError`, with the nearest name, if it is unknown or cannot be
        loaded.
        """
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
"""The strategies that show their whole part of the tape."""
