"""The context: the one view that becomes the model's messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from zoneinfo import ZoneInfo

from bubbot.errors import ConfigError
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import AfterAnchor, OpeningAnchor, Slice, TapeQuery, WholeTape, Window
from bubbot.tape.view import Found
from bubbot.views.compact import cut_at
from bubbot.views.selectors import ContextMessage, MessageStyle, answerable, is_shown, opened, select
from bubbot.views.summary import hint_at

CUT = "context/cut"
"""The event that records a compaction: `{"from": id}`, the oldest entry still read."""

SELECTORS = ("window", "messages", "full", "from:<anchor>", "compact", "summary")
CONTEXT_VERSION = 2
"""How messages are written; recorded with each step. A request of another version cannot be built again byte for byte."""
COMPACTING = ("compact", "summary")
"""Those that keep to a budget."""
_FROM = "from:"
_SHOWN = (Kind.MESSAGE, Kind.TOOL_CALL, Kind.TOOL_RESULT, Kind.EVENT)


def is_selector(name: str) -> bool:
    """Return true if a context can be built by this name."""
    return name.removeprefix(_FROM) not in ("", "<anchor>") if name.startswith(_FROM) else name in SELECTORS


@dataclass(frozen=True, slots=True)
class ModelContext:
    """Chat messages with the entries behind them. `new_cut`: a compaction that has to be recorded to hold."""

    shown: tuple[ContextMessage, ...]
    new_cut: int | None = None

    @property
    def messages(self) -> tuple[JsonObject, ...]:
        """The messages, as a request takes them: copies, for models are not to change what is shown next time."""
        return tuple([thaw(one.message) if one.nested else {**one.message} for one in self.shown])

    @property
    def texts(self) -> tuple[bytes, ...]:
        """The messages as canonical JSON."""
        return tuple([one.text for one in self.shown])

    @property
    def ids(self) -> tuple[int, ...]:
        """The entries the model is shown, ascending."""
        return tuple(sorted({entry_id for one in self.shown for entry_id in one.ids}))


@dataclass(frozen=True, slots=True)
class ContextView:
    """The messages a model is shown next.

    `selector`: `window` (the opening anchor, then the entries after it), `messages` (without the anchor's line),
    `full` (the whole tape), `from:NAME` (after the newest anchor of that name), `compact` (the window cut to
    `budget` tokens, whole exchanges, oldest first), `summary` (the same, with a hint that cites what was cut).
    `asking`: the messages are for a model that answers now, so they never end with its own words, which some
    providers refuse.
    """

    selector: str = "window"
    style: MessageStyle = field(default_factory=MessageStyle)
    budget: int | None = None
    asking: bool = False
    heavy: bool = False

    def as_json(self) -> JsonObject:
        """The view as it is recorded with a step, so that its request can be built again."""
        zone = self.style.stamps
        style = {name: getattr(self.style, name) for name in MessageStyle.__slots__}
        style["stamps"] = None if zone is None else str(zone)
        data = {"selector": self.selector, "style": style, "budget": self.budget, "asking": self.asking}
        return {**data, "version": CONTEXT_VERSION}

    @classmethod
    def from_json(cls, data: JsonObject) -> ContextView:
        """The view that was recorded."""
        style, stamps = dict(data["style"]), data["style"]["stamps"]
        style["stamps"] = None if stamps is None else ZoneInfo(stamps)
        return cls(data["selector"], MessageStyle(**style), data["budget"], data.get("asking", False))

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """The opening anchor, and the part that the selector names."""
        names = (CORRECTION, CUT)
        return (
            TapeQuery(tape, OpeningAnchor(), missing="empty"),
            TapeQuery(tape, self._part(), kinds=_SHOWN, names=names),
        )

    def _part(self) -> Slice:
        if self.selector in ("window", "messages", *COMPACTING):
            return Window()
        if self.selector == "full":
            return WholeTape()
        if self.selector.startswith(_FROM) and is_selector(self.selector):
            return AfterAnchor(self.selector.removeprefix(_FROM))
        raise ConfigError(f"[context] selector is {self.selector!r}; it has to be one of {', '.join(SELECTORS)}")

    def fold(self, found: Found) -> ModelContext:
        """The context."""
        opening, entries = found
        body = select(entries, self.style)
        new_cut = None
        if self.selector in COMPACTING and self.budget is not None:
            kept = _from(body, _recorded(entries))
            new_cut = cut_at(kept, self.budget)
            kept = _from(kept, new_cut)
            hint = hint_at(body[: len(body) - len(kept)]) if self.selector == "summary" else ()
            body = (*hint, *kept)
        shown = opened(self._opening(opening), body, self.style)
        return ModelContext(answerable(shown) if self.asking else shown, new_cut)

    def _opening(self, opening: Sequence[TapeEntry]) -> TapeEntry | None:
        if self.selector not in ("window", *COMPACTING) or not opening or not is_shown(opening[0]):
            return None
        return None if opening[0].name == SESSION_START and not self.style.bootstrap else opening[0]


def _from(body: tuple[ContextMessage, ...], cut: int | None) -> tuple[ContextMessage, ...]:
    """What stands from the entry `cut` on. A result stands where its call does, however late it came."""
    if cut is None:
        return body
    own = ((place, one.ids[-1]) for place, one in enumerate(body) if one.ids and one.message["role"] != "tool")
    return body[next((place for place, entry_id in own if entry_id >= cut), len(body)) :]


def _recorded(entries: Sequence[TapeEntry]) -> int | None:
    data = [entry.payload.get("data") for entry in entries if entry.name == CUT]
    cuts = [one.get("from") for one in data if isinstance(one, Mapping)]
    return max((cut for cut in cuts if type(cut) is int), default=None)
