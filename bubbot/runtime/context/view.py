"""The context: the one view that becomes the model's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from bubbot.errors import ConfigError
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

SELECTORS = ("window", "messages", "full", "from:<anchor>", "compact", "summary")
CONTEXT_VERSION = 2
"""The version of the message format, recorded with each step. Requests of other versions cannot be rebuilt exactly."""
COMPACTING_SELECTORS = ("compact", "summary")
"""The selectors that respect a budget."""
_FROM = "from:"
_SHOWN = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


def is_selector(name: str) -> bool:
    """Return true if a context can be built by this name."""
    return name.removeprefix(_FROM) not in ("", "<anchor>") if name.startswith(_FROM) else name in SELECTORS


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
class ContextView:
    """The messages of the next request to a model.

    Attributes:
        selector: `window` (the opening anchor, then the entries after it), `messages` (without the anchor's line),
            `full` (the whole tape), `from:NAME` (after the newest anchor of that name), `compact` (the window cut to
            `budget` tokens, whole exchanges, oldest first), `summary` (the same, with a hint that cites the cut
            messages).
        style: of the messages.
        budget: tokens; None: unlimited.
        ends_with_user: the messages are for a model that answers now, so they never end with its own words, which some
            providers refuse.
        heavy: see `View`.
    """

    selector: str = "window"
    style: MessageStyle = field(default_factory=MessageStyle)
    budget: int | None = None
    ends_with_user: bool = False
    heavy: bool = False

    def as_json(self) -> JsonObject:
        """Build the record of the view for its step, so that the request can be rebuilt."""
        zone = self.style.stamps
        style = {name: getattr(self.style, name) for name in MessageStyle.__slots__}
        style["stamps"] = None if zone is None else str(zone)
        data = {"selector": self.selector, "style": style, "budget": self.budget, "asking": self.ends_with_user}
        return {**data, "version": CONTEXT_VERSION}

    @classmethod
    def from_json(cls, data: JsonObject) -> ContextView:
        """Read a view from its record."""
        style, stamps = dict(data["style"]), data["style"]["stamps"]
        style["stamps"] = None if stamps is None else ZoneInfo(stamps)
        return cls(data["selector"], MessageStyle(**style), data["budget"], data.get("asking", False))

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the opening anchor, and the part that the selector names."""
        names = (CORRECTION, CUT)
        return (
            TapeQuery(tape, OpeningAnchor(), missing="empty"),
            TapeQuery(tape, self._part(), kinds=_SHOWN, names=names),
        )

    def _part(self) -> Slice:
        if self.selector in ("window", "messages", *COMPACTING_SELECTORS):
            return Window()
        if self.selector == "full":
            return WholeTape()
        if self.selector.startswith(_FROM) and is_selector(self.selector):
            return AfterAnchor(self.selector.removeprefix(_FROM))
        raise ConfigError(f"[context] selector is {self.selector!r}; it has to be one of {', '.join(SELECTORS)}")

    def fold(self, answers: QueryAnswers) -> ModelContext:
        """Build the context."""
        opening, entries = answers
        body = select_messages(entries, self.style)
        new_cut = None
        if self.selector in COMPACTING_SELECTORS and self.budget is not None:
            rest = _messages_from(body, _recorded_cut(entries))
            new_cut = find_cut(rest, self.budget)
            rest = _messages_from(rest, new_cut)
            hint = build_hint(body[: len(body) - len(rest)]) if self.selector == "summary" else ()
            body = (*hint, *rest)
        messages = prepend_opening(self._opening(opening), body, self.style)
        return ModelContext(ensure_user_last(messages) if self.ends_with_user else messages, new_cut)

    def _opening(self, opening: Sequence[TapeEntry]) -> TapeEntry | None:
        if self.selector not in ("window", *COMPACTING_SELECTORS) or not opening or not is_in_context(opening[0]):
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
