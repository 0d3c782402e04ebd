"""The facts of the kernel, and the registry of references that is made of them.

Older entries lack later fields, imported ones may hold anything. `docs/reference/tape-format.md` says what each field
means, and a test compares the two.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType, field

from bubbot.tape.entry import JsonObject, Kind
from bubbot.tape.fact import Fact, models_of
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


class InboundSender(PersonData, frozen=True, kw_only=True):
    """A sender, on an inbox tape: with the roles that the platform gives."""

    roles: tuple[str, ...] | UnsetType = UNSET
    language: str | UnsetType = UNSET


class HandoffState(Struct, frozen=True, kw_only=True):
    """What a handoff leaves to the next phase; a tool or an anchor may add keys of its own."""

    phase: str | UnsetType = UNSET
    summary: str | UnsetType = UNSET
    next_steps: tuple[str, ...] | UnsetType = UNSET
    source_ids: tuple[EntryId, ...] | UnsetType = UNSET
    owner: str | UnsetType = UNSET
    parents: tuple[EntryId | TapeEntryId, ...] | UnsetType = UNSET


class TurnStart(Fact, kw_only=True):
    """A turn begins, for all of these inbounds; `again` is the interrupted turn that it repeats, and `messages` are its entries."""

    EVENTS = ("turn/start",)
    attempt: int
    session: SessionId
    inbounds: tuple[TapeEntryId, ...]
    messages: tuple[EntryId, ...] | UnsetType = UNSET
    again: str | UnsetType = UNSET


class TurnEnd(Fact):
    """A turn ended."""

    EVENTS = ("turn/end",)
    status: str


class TurnJoined(Fact):
    """Inbounds joined the running turn."""

    EVENTS = ("turn/joined",)
    inbounds: tuple[TapeEntryId, ...]


class TurnInterrupted(Fact):
    """The process ended in the middle of a turn."""

    EVENTS = ("turn/interrupted",)
    turn: str


class EntryVouched(Fact):
    """An owner vouches for the words of an entry."""

    EVENTS = ("provenance/vouched",)
    entry: EntryId


class MessageReaction(Fact, kw_only=True):
    """The reactions of a person to a message; without `entry` if the message is not known."""

    EVENTS = ("reaction",)
    message: str
    emojis: tuple[str, ...]
    sender: SenderData
    entry: EntryId | UnsetType = UNSET


class ForeignEntries(Struct, frozen=True):
    """The newest entries that a step was shown of each provenance that is not `own`."""

    world: tuple[TapeEntryId, ...]
    people: tuple[TapeEntryId, ...]


class LoopStep(Fact, kw_only=True):
    """A call of a model."""

    EVENTS = ("loop.step",)
    step: int | UnsetType = UNSET
    purpose: str | UnsetType = UNSET
    status: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    attempts: tuple[JsonObject, ...] | UnsetType = UNSET
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
    count: JsonObject | UnsetType = UNSET
    answered: str | UnsetType = UNSET
    finish: str | UnsetType = UNSET
    finish_reason: str | UnsetType = UNSET
    usage: JsonObject | UnsetType = UNSET
    response_id: str | UnsetType = UNSET
    reasoning: str | UnsetType = UNSET
    error: str | UnsetType = UNSET


class EffectBegin(Fact, kw_only=True):
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


class CommandRun(Fact, kw_only=True):
    """A command ran."""

    EVENTS = ("command",)
    name: str
    raw: str
    status: str
    elapsed_ms: int
    output: str
    blobs: tuple[BlobDigest, ...] | UnsetType = UNSET


class ModelLearned(Fact):
    """A refusal taught how requests to a model have to be. It holds no words of it: a server may quote those of people."""

    EVENTS = ("model/learned",)
    model: str
    server: str
    rule: str


class ModelForgotten(Fact):
    """What was learned about a model holds no more."""

    EVENTS = ("model/forgotten",)
    model: str


class ModelSwitched(Fact):
    """The conversation goes on with another model."""

    EVENTS = ("model/switched",)
    model: str
    before: str


class ModelChosen(Fact):
    """A message asks for a model for itself alone."""

    EVENTS = ("model/chosen",)
    model: str


class Handoff(Fact):
    """A new window was opened; it repeats the anchor."""

    EVENTS = ("handoff",)
    name: str
    state: Annotated[JsonObject, HandoffState]


class Correction(Fact, kw_only=True):
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


class TriggersRestored(Fact, kw_only=True):
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


class InboundQuote(Struct, frozen=True, kw_only=True):
    """The quoted message of an inbound."""

    message: str
    sender: InboundSender
    text: str
    attachments: tuple[JsonObject, ...] | UnsetType = UNSET
    own: bool | UnsetType = UNSET
    provenance: str | UnsetType = UNSET


class InboundReceived(Fact, kw_only=True):
    """A message or a press was accepted."""

    EVENTS = ("inbox/received",)
    channel: str
    external_id: str
    chat: str
    thread: str
    session: SessionId
    sender: InboundSender
    text: str
    time: str
    reply_to: str
    attachments: tuple[JsonObject, ...]
    message: str | UnsetType = UNSET
    direct: bool | UnsetType = UNSET
    addressed: bool | UnsetType = UNSET
    quote: InboundQuote | UnsetType | None = UNSET
    group: str | UnsetType = UNSET
    space: str | UnsetType = UNSET
    origin: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    is_one_shot: bool | UnsetType = UNSET
    is_plain_text: bool | UnsetType = UNSET
    provenance: str | UnsetType = UNSET


class MessageChanged(Fact, kw_only=True):
    """A session changes without a turn: `what` kind of change it is, and the fields of that kind."""

    EVENTS = ("inbox/changed",)
    what: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    external_id: str | UnsetType = UNSET
    chat: str | UnsetType = UNSET
    thread: str | UnsetType = UNSET
    session: SessionId | UnsetType = UNSET
    sender: InboundSender | UnsetType = UNSET
    text: str | UnsetType = UNSET
    time: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    emojis: tuple[str, ...] | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    attachments: tuple[JsonObject, ...] | UnsetType = UNSET
    direct: bool | UnsetType = UNSET
    addressed: bool | UnsetType = UNSET
    quote: InboundQuote | UnsetType | None = UNSET
    group: str | UnsetType = UNSET
    space: str | UnsetType = UNSET
    origin: str | UnsetType = UNSET
    provenance: str | UnsetType = UNSET


class BotAddedToGroup(Fact):
    """An owner added the bot to a group."""

    EVENTS = ("inbox/added",)
    channel: str
    chat: str
    by: PersonId
    time: str


class GroupCalled(Fact, kw_only=True):
    """The bot was added to a group, or called there."""

    EVENTS = ("inbox/called",)
    channel: str
    chat: str
    space: str
    title: str | UnsetType = UNSET


class InboundWaiting(InboundReceived, kw_only=True):
    """A message of a stranger who waits to be let in."""

    EVENTS = ("inbox/waiting",)


class InboundRefused(Fact):
    """A message was refused; it holds nothing."""

    EVENTS = ("inbox/refused",)


class ButtonPressed(InboundReceived, kw_only=True):
    """A button was pressed that needs no turn."""

    EVENTS = ("inbox/pressed",)


class PressRefused(Fact):
    """A press of a button did nothing."""

    EVENTS = ("inbox/press-refused",)
    session: SessionId
    sender: PersonId
    message: str
    reason: str


class ChatMoved(Fact):
    """The platform gave a chat another id."""

    EVENTS = ("inbox/moved",)
    chat: str
    to: str
    time: str


class UpdateUnparsed(Fact):
    """An update that could not be read; `raw` is base64."""

    EVENTS = ("inbox/unparsed",)
    session: SessionId
    chat: str
    reason: str
    raw: str


class ChannelBegan(Fact, kw_only=True):
    """A channel runs from now on, for the first time or after a restore."""

    EVENTS = ("inbox/began",)
    time: str
    restored: bool | UnsetType = UNSET


class InboundsInterrupted(Fact):
    """The turn of these inbounds was interrupted; they are still open."""

    EVENTS = ("inbox/interrupted",)
    inbounds: tuple[EntryId, ...]
    turn: str


class InboundsDone(InboundsInterrupted, kw_only=True):
    """A turn finished these inbounds; without a turn they need nothing more."""

    EVENTS = ("inbox/done",)
    outcome: str


class OutboxPart(Struct, frozen=True, kw_only=True):
    """A part of a message. The digest of a file is of a blob of the session's tape."""

    chat: str
    text: str
    thread: str | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    markup: JsonObject | UnsetType = UNSET
    file: JsonObject | UnsetType = UNSET
    buttons: JsonObject | UnsetType = UNSET
    edits: str | UnsetType = UNSET
    has_no_link_previews: bool | UnsetType = UNSET


class OutboxIntent(Fact, kw_only=True):
    """A message is to be sent."""

    EVENTS = ("outbox/intent",)
    session: SessionId
    turn: str
    parts: tuple[OutboxPart, ...]
    inbound: int | UnsetType = UNSET


class PreviewBegun(Fact):
    """The message is about to be sent in which the answer to an inbound is shown while it is written."""

    EVENTS = ("outbox/preview-begin",)
    inbound: int
    session: SessionId
    part: OutboxPart


class PreviewShown(Fact, kw_only=True):
    """That message has this id on its platform."""

    EVENTS = ("outbox/preview",)
    inbound: int
    session: SessionId
    message: str
    chat: str | UnsetType = UNSET


class PreviewEnded(Fact):
    """That message becomes no answer."""

    EVENTS = ("outbox/preview-end",)
    inbound: int


class PartReceipt(Fact, kw_only=True):
    """A part arrived."""

    EVENTS = ("outbox/receipt",)
    intent: EntryId
    part: int
    external_id: str
    resumed: bool | UnsetType = UNSET
    found: bool | UnsetType = UNSET
    missing: bool | UnsetType = UNSET
    epoch: int | UnsetType = UNSET


class DeliveryEnded(Fact):
    """A message is not sent any more."""

    EVENTS = ("outbox/ended",)
    intent: EntryId
    reason: str


class ConfigLoaded(Fact):
    """The settings of the bot have changed; null stands for the default. `later`: what waits for the next start."""

    EVENTS = ("config/loaded",)
    how: str
    changed: JsonObject
    later: tuple[str, ...]


class ConfigRefused(Fact):
    """Settings were refused."""

    EVENTS = ("config/refused",)
    how: str
    problems: tuple[str, ...]


class HomeRestored(Fact, kw_only=True):
    """The home was made from a backup; `lost`: from its own database, and what is wrong with that."""

    EVENTS = ("home/restored",)
    backup: str
    created: str
    head: str
    bubbot: str
    lost: str | UnsetType = UNSET


class HomeReleased(Fact, kw_only=True):
    """The quarantine of a restored home ended; the numbers count what ended with it."""

    EVENTS = ("home/released",)
    deliver: bool
    intents: int
    inbounds: int
    jobs: int
    approvals: int | UnsetType = UNSET


class OpenInbound(Struct, frozen=True, kw_only=True):
    """An inbound in a checkpoint."""

    id: EntryId
    attempts: int
    turn: str | UnsetType = UNSET


class InboxState(Struct, frozen=True):
    """The state of an inbox."""

    open: tuple[OpenInbound, ...]


class InboxCheckpoint(Fact):
    """The inbounds that are open."""

    EVENTS = ("inbox/checkpoint",)
    version: int
    after: EntryId
    state: InboxState


class MovesState(Struct, frozen=True):
    """The chats that moved."""

    chats: tuple[tuple[str, str], ...]


class MovesCheckpoint(Fact):
    """The chats that moved."""

    EVENTS = ("moves/checkpoint",)
    version: int
    after: EntryId
    state: MovesState


class OpenIntent(Struct, frozen=True):
    """An intent in a checkpoint."""

    id: EntryId
    sent: tuple[int, ...]


class OutboxState(Struct, frozen=True):
    """The state of an outbox."""

    open: tuple[OpenIntent, ...]


class OutboxCheckpoint(Fact):
    """The messages that are not delivered."""

    EVENTS = ("outbox/checkpoint",)
    version: int
    after: EntryId
    state: OutboxState


KERNEL_FACTS = (
    TurnStart,
    TurnEnd,
    TurnJoined,
    TurnInterrupted,
    MessageReaction,
    LoopStep,
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
    InboundReceived,
    MessageChanged,
    BotAddedToGroup,
    GroupCalled,
    InboundWaiting,
    InboundRefused,
    PressRefused,
    ButtonPressed,
    ChatMoved,
    UpdateUnparsed,
    ChannelBegan,
    InboundsInterrupted,
    InboundsDone,
    InboxCheckpoint,
    MovesCheckpoint,
    OutboxIntent,
    PreviewBegun,
    PreviewShown,
    PreviewEnded,
    PartReceipt,
    DeliveryEnded,
    OutboxCheckpoint,
    ConfigLoaded,
    ConfigRefused,
    HomeRestored,
    HomeReleased,
)
"""What the tape, the stores, the runtime and the gateway write."""
KERNEL_EVENTS: Mapping[str, type[Fact]] = MappingProxyType(models_of(*KERNEL_FACTS))
"""The classes of these facts, by the name of the event."""

_STATE = EventReferences(entries=("state.source_ids[]", "state.parents[]"), tape_entries=("state.parents[]",))
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
        tape_entries=("inbound", "source"), sessions=("session",), people=("sender.id", "quote.sender.id")
    ),
)
"""What the kernel's own entries name. `meta.edited` and the `inbound` of the outbox are ids of an inbox tape that they
do not name; inbox tapes are never rebased."""
