"""The facts of the kernel and the registry of their references.

Older entries lack later fields; imported ones may hold anything. `docs/reference/tape-format.md` explains each field; a
test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar

from msgspec import UNSET, Struct, UnsetType, field

from bubbot.tape.entry import JsonObject, Kind, TapeEntry
from bubbot.tape.fact import Fact, PersonalFields, models_of
from bubbot.tape.provenance import PROVENANCE, VOUCHED, Source
from bubbot.tape.references import (
    BlobDigest,
    EntryId,
    EventReferences,
    PersonId,
    Reference,
    ReferenceRegistry,
    SessionId,
    Spans,
    TapeEntryId,
    TapeSpans,
)

TURN_START, TURN_END, TURN_INTERRUPTED = "turn/start", "turn/end", "turn/interrupted"
TURN_ENDS = (TURN_END, TURN_INTERRUPTED)
STEP_EVENT = "loop.step"
EVIDENCE_EVENT = "context/evidence"
MODEL_LEARNED = "model/learned"
MODEL_FORGOTTEN = "model/forgotten"


class PersonData(Struct, frozen=True, kw_only=True):
    """A person."""

    id: PersonId
    name: str
    bot: bool | UnsetType = UNSET


class SenderData(PersonData, frozen=True, kw_only=True):
    """A sender, on the tape of a session: with the role that the person had then."""

    role: str | UnsetType = UNSET


class HandoffState(Struct, frozen=True, kw_only=True):
    """What a handoff leaves to the next phase; a tool or an anchor may add keys of its own."""

    phase: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    next_steps: tuple[str, ...] | UnsetType = UNSET
    source_ids: tuple[EntryId | TapeEntryId, ...] | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    parents: tuple[EntryId | TapeEntryId, ...] | UnsetType = UNSET


class TurnStart(Fact):
    """A turn begins, for all of these inbounds; `again` is the interrupted turn that it repeats, and `messages` are its entries."""

    EVENTS = (TURN_START,)
    attempt: int
    session: SessionId
    inbounds: tuple[TapeEntryId, ...]
    messages: tuple[EntryId, ...] | UnsetType = UNSET
    again: str | UnsetType = UNSET


class TurnEnd(Fact):
    """A turn ended."""

    EVENTS = (TURN_END,)
    status: str


class TurnJoined(Fact):
    """Inbounds joined the running turn."""

    EVENTS = ("turn/joined",)
    inbounds: tuple[TapeEntryId, ...]


class TurnInterrupted(Fact):
    """The process ended in the middle of a turn."""

    EVENTS = (TURN_INTERRUPTED,)
    turn: str


class EntryVouched(Fact):
    """An owner vouches for the words of an entry."""

    EVENTS = (VOUCHED,)
    entry: EntryId


class MessageReaction(Fact):
    """The reactions of a person to a message; without `entry` if the message is not known."""

    EVENTS = ("reaction",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"sender.id": ("emojis",)})
    message: str
    emojis: tuple[str, ...]
    sender: Annotated[JsonObject, SenderData]
    entry: EntryId | UnsetType = UNSET


class ForeignEntries(Struct, frozen=True):
    """The newest entries that a step was shown of each provenance that is not `own`."""

    world: tuple[TapeEntryId, ...]
    people: tuple[TapeEntryId, ...]


class LoopStep(Fact, kw_only=True):
    """A call of a model. It grows while the call runs, with its keys in the order in which they are known."""

    EVENTS = (STEP_EVENT,)
    step: int | UnsetType = UNSET
    purpose: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    attempts: tuple[JsonObject, ...] | UnsetType = UNSET
    span: str | UnsetType = UNSET
    weights: str | UnsetType = UNSET
    cost: float | UnsetType | None = UNSET
    view: JsonObject | UnsetType = UNSET
    head: EntryId | UnsetType = UNSET
    as_of: Spans | UnsetType = UNSET
    shown: Annotated[Sequence[Any], Reference.SPANS, Reference.TAPE_SPANS] | UnsetType = UNSET
    foreign: ForeignEntries | UnsetType = UNSET
    system: BlobDigest | UnsetType = UNSET
    tools: BlobDigest | UnsetType = UNSET
    messages: BlobDigest | UnsetType = UNSET
    parameters: JsonObject | UnsetType = UNSET
    request: str | UnsetType = UNSET
    elapsed_ms: int | UnsetType = UNSET
    strategy_failure: StrategyFailure | UnsetType = UNSET
    count: JsonObject | UnsetType = UNSET
    answered: str | UnsetType = UNSET
    finish: str | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET
    usage: JsonObject | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class EvidenceNode(Struct, frozen=True, kw_only=True):
    """Entries that are quoted together: of the tape itself, or of another session.

    Attributes:
        title: what they are from, in a few words.
        session: the other session; empty for the tape itself.
        entries: those of the tape itself.
        elsewhere: those of the other session, as pairs of its tape and id ranges.
        until: the date of the newest of those. A later entry is none of them: the other tape began again.
        anchors: those of the other session are anchors: their names are quoted, and of their states what the grant covers.
    """

    title: str
    session: SessionId = ""
    entries: Annotated[tuple[tuple[int, int], ...], Reference.SPANS] = ()
    elsewhere: Annotated[tuple[tuple[str, tuple[tuple[int, int], ...]], ...], Reference.TAPE_SPANS] = ()
    until: str = ""
    anchors: bool | UnsetType = UNSET


class EvidenceQuoted(Fact):
    """Entries are quoted beside a message, as evidence.

    Attributes:
        message: the message; 0: they stand at the place of this fact, as a message of their own, since a request has shown
            the message without them.
        source: what has chosen them, such as `memory.views.family`.
        nodes: the entries, in the order in which they are quoted.
    """

    EVENTS = (EVIDENCE_EVENT,)
    message: EntryId
    source: str
    nodes: tuple[EvidenceNode, ...]

    def to_entry(self, name: str = "", /, *, key: str | None = None, **meta: Any) -> TapeEntry:
        """Make the entry to append, as the bot's own whoever speaks in the turn: it holds no words of people."""
        return super().to_entry(name, key=key, **{PROVENANCE: str(Source.OWN), **meta})


class StrategyFailure(Struct, frozen=True):
    """A context strategy that failed, so that `window` built the request; `problem` is one line."""

    selector: str
    problem: str


class ContextPrepared(Fact, kw_only=True):
    """A context strategy prepared what its requests show. bubbot sets `strategy`, `version`, `messages` and `elsewhere`.

    Attributes:
        data: the strategy's own, such as a text; it names no entries.
        entries: the entries of this tape that it rests on.
        strategy: its name.
        version: its version.
        messages: the messages that were to be answered.
        elsewhere: the entries of granted tapes that were read for it.
    """

    EVENTS = ("context/prepared",)
    data: JsonObject
    entries: Annotated[tuple[tuple[int, int], ...], Reference.SPANS] = ()
    strategy: str = ""
    version: int = 0
    messages: tuple[EntryId, ...] = ()
    elsewhere: Annotated[tuple[tuple[str, tuple[tuple[int, int], ...]], ...], Reference.TAPE_SPANS] = ()


class EffectBegin(Fact):
    """A tool is about to act outside. The `call` is an id that the model gave, and names no entry."""

    EVENTS = ("effect.begin",)
    call: str
    tool: str
    digest: str
    once: str
    key: str | UnsetType = UNSET


class EffectEnd(Fact):
    """A tool has acted outside."""

    EVENTS = ("effect.end",)
    call: str
    status: str


class CommandRun(Fact):
    """A command ran."""

    EVENTS = ("command",)
    name: str
    raw: str
    status: str
    elapsed_ms: int
    output: str
    blobs: tuple[BlobDigest, ...] = ()


class ModelLearned(Fact):
    """A refusal taught how requests to a model have to be. It holds no words of it: a server may quote those of people."""

    EVENTS = (MODEL_LEARNED,)
    model: str
    server: str
    rule: str


class ModelForgotten(Fact):
    """What was learned about a model holds no more."""

    EVENTS = (MODEL_FORGOTTEN,)
    model: str


class ModelSwitched(Fact):
    """The conversation goes on with another model.

    Attributes:
        model: its name.
        before: that of the model before; empty if it no longer existed.
        weights: the digest of its weights, if a rule switched to them.
        accepted: the fact on the tape of the rule by which it did; 0 if the rule took it back, so that the configured model
            answers again, whichever that is. Absent if a person chose the model.
    """

    EVENTS = ("model/switched",)
    model: str
    before: str
    weights: str | UnsetType = UNSET
    accepted: int | UnsetType = UNSET

    @property
    def is_choice(self) -> bool:
        """True if a person chose the model."""
        return self.accepted is UNSET


class ModelChosen(Fact):
    """A message asks for a model for itself alone."""

    EVENTS = ("model/chosen",)
    model: str


class Handoff(Fact):
    """A new window was opened; it repeats the anchor."""

    EVENTS = ("handoff",)
    name: str
    state: Annotated[JsonObject, HandoffState]


class Correction(Fact):
    """An entry has another text, or is hidden."""

    EVENTS = ("correction",)
    corrects: EntryId
    content: str | UnsetType = UNSET
    hide: bool | UnsetType = UNSET


class TapeArchived(Fact):
    """The tape before this one was put aside."""

    EVENTS = ("tape/archived",)
    archive: str
    entries: int


class TapeErased(Fact, kw_only=True):
    """Content was removed: of the tape before this one, of an archive, or of the entries that it covers."""

    EVENTS = ("tape/erased",)
    archive: str | UnsetType = UNSET
    entries: int | UnsetType = UNSET
    covers: TapeSpans | UnsetType = UNSET
    reason: str | UnsetType = UNSET


class TapeRenamed(Fact):
    """The last entry of an archive: the old name of its tape, and its name from then on."""

    EVENTS = ("tape/renamed",)
    from_: str = field(name="from")
    to: str


class TapeNamed(Fact, kw_only=True):
    """The name of a tape, once, when the database began to check names; only on tapes that are older than that."""

    EVENTS = ("tape/named",)
    name: str
    from_: str | UnsetType = field(name="from", default=UNSET)
    erased: Spans | UnsetType = UNSET
    missing_blobs: tuple[BlobDigest, ...] | UnsetType = UNSET


class BlobsRemoved(Fact):
    """Blobs were removed. The digests are of blobs that are gone, of another tape: they name none."""

    EVENTS = ("blob/removed",)
    tape: str
    digests: tuple[str, ...]
    reason: str


class TriggersRestored(Fact):
    """Triggers and indexes of the database that were missing or changed were made anew."""

    EVENTS = ("database/protected",)
    triggers: tuple[str, ...]
    indexes: tuple[str, ...] | UnsetType = UNSET


class ClosedAnchor(Fact, kw_only=True):
    """An anchor that opens no window, in a file for another program."""

    EVENTS = ("tape/anchor",)
    name: str
    state: Annotated[JsonObject, HandoffState]
    window: bool | UnsetType = UNSET
    recalls: Spans | UnsetType = UNSET


class UnreadableLine(Fact):
    """Stands for a line of an imported file that could not be read."""

    EVENTS = ("tape/unreadable",)
    line: int
    sha256: str


class TapeImported(Fact):
    """A file was imported as a tape."""

    EVENTS = ("tape/imported",)
    tape: str
    session: SessionId
    entries: int
    renumbered: int
    erased: int
    unreadable: int
    sha256: str


KERNEL_FACTS = (
    TurnStart,
    TurnEnd,
    TurnJoined,
    TurnInterrupted,
    MessageReaction,
    LoopStep,
    EvidenceQuoted,
    ContextPrepared,
    EffectBegin,
    EffectEnd,
    EntryVouched,
    CommandRun,
    ModelLearned,
    ModelForgotten,
    ModelSwitched,
    ModelChosen,
    Handoff,
    Correction,
    TapeArchived,
    TapeErased,
    TapeRenamed,
    TapeNamed,
    ClosedAnchor,
    UnreadableLine,
    TapeImported,
    BlobsRemoved,
    TriggersRestored,
)
"""What the tape, the stores and the runtime write."""
KERNEL_EVENTS: Mapping[str, type[Fact]] = MappingProxyType(models_of(*KERNEL_FACTS))
"""The classes of these facts, by the name of the event."""

_STATE = EventReferences(
    entries=("state.source_ids[]", "state.parents[]"), tape_entries=("state.source_ids[]", "state.parents[]")
)
_OPEN_ITEMS = EventReferences(entries=("state.after", "state.open[].id"))

KERNEL_REFERENCES = ReferenceRegistry(
    kinds={
        Kind.MESSAGE: EventReferences(blobs=("content[].digest", "content[].text_digest")),
        Kind.SYSTEM: EventReferences(blobs=("digest",)),
        Kind.TOOL_RESULT: EventReferences(blobs=("blobs[]",)),
        Kind.ANCHOR: EventReferences(_STATE.entries, spans=("recalls",), tape_entries=_STATE.tape_entries),
    },
    anchors={"inbox/mark": _OPEN_ITEMS, "outbox/mark": _OPEN_ITEMS},
    events=KERNEL_EVENTS,
    meta=EventReferences(
        tape_entries=("inbound", "source"),
        tape_spans=("sources",),
        sessions=("session",),
        people=("sender.id", "quote.sender.id"),
    ),
)
"""What the kernel's own entries name. `meta.edited` has ids of an inbox tape that they do not name; inbox tapes are never
rebased."""
