"""The kernel's own events: a payload model for each, which declares its references, and the registry made of them.

The models describe what is written; nothing is validated by them. Older entries lack later fields, imported ones may
hold anything. `docs/reference/tape-format.md` says what each field means, and a test compares the two.
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, NotRequired, TypedDict

from bubbot.tape.entry import JsonObject, Kind
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


class PersonData(TypedDict):
    """A person."""

    id: PersonId
    name: str
    bot: NotRequired[bool]


class SenderData(PersonData):
    """A sender, on the tape of a session: with the role that the person had then."""

    role: NotRequired[str]


class InboundSender(PersonData):
    """A sender, on an inbox tape: with the roles that the platform gives."""

    roles: NotRequired[Sequence[str]]
    language: NotRequired[str]


class HandoffState(TypedDict, total=False):
    """What a handoff leaves to the next phase; a tool or an anchor may add keys of its own."""

    phase: str
    summary: str
    next_steps: Sequence[str]
    source_ids: Sequence[EntryId]
    owner: str
    parents: Sequence[EntryId | TapeEntryId]


class TurnStart(TypedDict):
    """`turn/start`"""

    attempt: int
    session: SessionId
    inbounds: Sequence[TapeEntryId]
    messages: NotRequired[Sequence[EntryId]]
    again: NotRequired[str]


class TurnEnd(TypedDict):
    """`turn/end`"""

    status: str


class TurnJoined(TypedDict):
    """`turn/joined`"""

    inbounds: Sequence[TapeEntryId]


class TurnInterrupted(TypedDict):
    """`turn/interrupted`"""

    turn: str


class EntryVouched(TypedDict):
    """`provenance/vouched`"""

    entry: EntryId


class MessageReaction(TypedDict):
    """`reaction`"""

    message: str
    emojis: Sequence[str]
    sender: SenderData
    entry: NotRequired[EntryId]


class ForeignEntries(TypedDict):
    """The newest entries that a step was shown of each provenance that is not `own`."""

    world: Sequence[TapeEntryId]
    people: Sequence[TapeEntryId]


class LoopStep(TypedDict, total=False):
    """`loop.step`"""

    step: int
    purpose: str
    status: str
    model: str
    attempts: Sequence[JsonObject]
    cost: float | None
    view: JsonObject
    head: EntryId
    as_of: Spans
    shown: Annotated[Sequence[Any], Reference.SPANS, Reference.TAPE_SPANS]
    foreign: ForeignEntries
    system: BlobDigest
    tools: BlobDigest
    messages: BlobDigest
    parameters: JsonObject
    request: str
    elapsed_ms: int
    count: JsonObject
    answered: str
    finish: str
    finish_reason: str
    usage: JsonObject
    response_id: str
    reasoning: str
    error: str


class EffectBegin(TypedDict):
    """`effect.begin`. The `call` is an id that the model gave, and names no entry."""

    call: str
    tool: str
    digest: str
    once: str
    key: NotRequired[str]


class EffectEnd(TypedDict):
    """`effect.end`"""

    call: str
    status: str


class CommandRun(TypedDict):
    """`command`"""

    name: str
    raw: str
    status: str
    elapsed_ms: int
    output: str
    blobs: NotRequired[Sequence[BlobDigest]]


class ModelLearned(TypedDict):
    """`model/learned`. It holds no words of the refusal: a server may quote those of people."""

    model: str
    server: str
    rule: str


class ModelForgotten(TypedDict):
    """`model/forgotten`"""

    model: str


class ModelSwitched(TypedDict):
    """`model/switched`"""

    model: str
    before: str


class ModelChosen(TypedDict):
    """`model/chosen`"""

    model: str


class Handoff(TypedDict):
    """`handoff`"""

    name: str
    state: HandoffState


class Correction(TypedDict):
    """`correction`"""

    corrects: EntryId
    content: NotRequired[str]
    hide: NotRequired[bool]


class TapeArchived(TypedDict):
    """`tape/archived`"""

    archive: str
    entries: int


class TapeErased(TypedDict, total=False):
    """`tape/erased`"""

    archive: str
    entries: int
    covers: TapeSpans
    reason: str


TapeRenamed = TypedDict("TapeRenamed", {"from": str, "to": str})
"""`tape/renamed`"""
TapeNamed = TypedDict(
    "TapeNamed",
    {
        "name": str,
        "from": NotRequired[str],
        "erased": NotRequired[Spans],
        "missing_blobs": NotRequired[Sequence[BlobDigest]],
    },
)
"""`tape/named`"""


class BlobsRemoved(TypedDict):
    """`blob/removed`. The digests are of blobs that are gone, of another tape: they name none."""

    tape: str
    digests: Sequence[str]
    reason: str


class TriggersRestored(TypedDict):
    """`database/protected`"""

    triggers: Sequence[str]
    indexes: NotRequired[Sequence[str]]


class ClosedAnchor(TypedDict):
    """`tape/anchor`: an anchor that opens no window, in a file for another program."""

    name: str
    state: HandoffState
    window: NotRequired[bool]
    recalls: NotRequired[Spans]


class UnreadableLine(TypedDict):
    """`tape/unreadable`"""

    line: int
    sha256: str


class TapeImported(TypedDict):
    """`tape/imported`"""

    tape: str
    session: SessionId
    entries: int
    renumbered: int
    erased: int
    unreadable: int
    sha256: str


class InboundQuote(TypedDict):
    """The quoted message of an inbound."""

    message: str
    sender: InboundSender
    text: str
    attachments: NotRequired[Sequence[JsonObject]]
    own: NotRequired[bool]
    provenance: NotRequired[str]


class InboundReceived(TypedDict):
    """`inbox/received`"""

    channel: str
    external_id: str
    chat: str
    thread: str
    session: SessionId
    sender: InboundSender
    text: str
    time: str
    reply_to: str
    attachments: Sequence[JsonObject]
    message: NotRequired[str]
    direct: NotRequired[bool]
    addressed: NotRequired[bool]
    quote: NotRequired[InboundQuote | None]
    group: NotRequired[str]
    space: NotRequired[str]
    origin: NotRequired[str]
    model: NotRequired[str]
    instructions: NotRequired[str]
    is_one_shot: NotRequired[bool]
    is_plain_text: NotRequired[bool]
    provenance: NotRequired[str]


class MessageChanged(TypedDict, total=False):
    """`inbox/changed`: `what` kind of change it is, and the fields of that kind."""

    what: str
    channel: str
    external_id: str
    chat: str
    thread: str
    session: SessionId
    sender: InboundSender
    text: str
    time: str
    message: str
    emojis: Sequence[str]
    reply_to: str
    attachments: Sequence[JsonObject]
    direct: bool
    addressed: bool
    quote: InboundQuote | None
    group: str
    space: str
    origin: str
    provenance: str


class BotAddedToGroup(TypedDict):
    """`inbox/added`"""

    channel: str
    chat: str
    by: PersonId
    time: str


class GroupCalled(TypedDict):
    """`inbox/called`"""

    channel: str
    chat: str
    space: str
    title: NotRequired[str]


class InboundWaiting(InboundReceived):
    """`inbox/waiting`"""


class InboundRefused(TypedDict):
    """`inbox/refused`, which holds nothing."""


class ButtonPressed(InboundReceived):
    """`inbox/pressed`"""


class PressRefused(TypedDict):
    """`inbox/press-refused`"""

    session: SessionId
    sender: PersonId
    message: str
    reason: str


class ChatMoved(TypedDict):
    """`inbox/moved`"""

    chat: str
    to: str
    time: str


class UpdateUnparsed(TypedDict):
    """`inbox/unparsed`"""

    session: SessionId
    chat: str
    reason: str
    raw: str


class ChannelBegan(TypedDict):
    """`inbox/began`"""

    time: str
    restored: NotRequired[bool]


class InboundsInterrupted(TypedDict):
    """`inbox/interrupted`"""

    inbounds: Sequence[EntryId]
    turn: str


class InboundsDone(InboundsInterrupted):
    """`inbox/done`"""

    outcome: str


class OutboxPart(TypedDict):
    """A part of a message. The digest of a file is of a blob of the session's tape."""

    chat: str
    text: str
    thread: NotRequired[str]
    reply_to: NotRequired[str]
    markup: NotRequired[JsonObject]
    file: NotRequired[JsonObject]
    buttons: NotRequired[JsonObject]
    edits: NotRequired[str]
    has_no_link_previews: NotRequired[bool]


class OutboxIntent(TypedDict):
    """`outbox/intent`"""

    session: SessionId
    turn: str
    parts: Sequence[OutboxPart]
    inbound: NotRequired[int]


class PreviewBegun(TypedDict):
    """`outbox/preview-begin`"""

    inbound: int
    session: SessionId
    part: OutboxPart


class PreviewShown(TypedDict):
    """`outbox/preview`"""

    inbound: int
    session: SessionId
    message: str
    chat: NotRequired[str]


class PreviewEnded(TypedDict):
    """`outbox/preview-end`"""

    inbound: int


class PartReceipt(TypedDict):
    """`outbox/receipt`"""

    intent: EntryId
    part: int
    external_id: str
    resumed: NotRequired[bool]
    found: NotRequired[bool]
    missing: NotRequired[bool]
    epoch: NotRequired[int]


class DeliveryEnded(TypedDict):
    """`outbox/ended`"""

    intent: EntryId
    reason: str


class ConfigLoaded(TypedDict):
    """`config/loaded`"""

    how: str
    changed: JsonObject
    later: Sequence[str]


class ConfigRefused(TypedDict):
    """`config/refused`"""

    how: str
    problems: Sequence[str]


class HomeRestored(TypedDict):
    """`home/restored`"""

    backup: str
    created: str
    head: str
    bubbot: str
    lost: NotRequired[str]


class HomeReleased(TypedDict):
    """`home/released`"""

    deliver: bool
    intents: int
    inbounds: int
    jobs: int
    approvals: NotRequired[int]


class OpenInbound(TypedDict):
    """An inbound in a checkpoint."""

    id: EntryId
    attempts: int
    turn: NotRequired[str]


class InboxState(TypedDict):
    """The state of an inbox."""

    open: Sequence[OpenInbound]


class InboxCheckpoint(TypedDict):
    """`inbox/checkpoint`"""

    version: int
    after: EntryId
    state: InboxState


class MovesState(TypedDict):
    """The chats that moved."""

    chats: Sequence[Sequence[str]]


class MovesCheckpoint(TypedDict):
    """`moves/checkpoint`"""

    version: int
    after: EntryId
    state: MovesState


class OpenIntent(TypedDict):
    """An intent in a checkpoint."""

    id: EntryId
    sent: Sequence[int]


class OutboxState(TypedDict):
    """The state of an outbox."""

    open: Sequence[OpenIntent]


class OutboxCheckpoint(TypedDict):
    """`outbox/checkpoint`"""

    version: int
    after: EntryId
    state: OutboxState


KERNEL_EVENTS: Mapping[str, type] = MappingProxyType(
    {
        TURN_START: TurnStart,
        TURN_END: TurnEnd,
        "turn/joined": TurnJoined,
        TURN_INTERRUPTED: TurnInterrupted,
        "reaction": MessageReaction,
        STEP_EVENT: LoopStep,
        "effect.begin": EffectBegin,
        "effect.end": EffectEnd,
        "provenance/vouched": EntryVouched,
        "command": CommandRun,
        MODEL_LEARNED: ModelLearned,
        MODEL_FORGOTTEN: ModelForgotten,
        "model/switched": ModelSwitched,
        "model/chosen": ModelChosen,
        "handoff": Handoff,
        "correction": Correction,
        "tape/archived": TapeArchived,
        "tape/erased": TapeErased,
        "tape/renamed": TapeRenamed,
        "tape/named": TapeNamed,
        "tape/anchor": ClosedAnchor,
        "tape/unreadable": UnreadableLine,
        "tape/imported": TapeImported,
        "blob/removed": BlobsRemoved,
        "database/protected": TriggersRestored,
        "inbox/received": InboundReceived,
        "inbox/changed": MessageChanged,
        "inbox/added": BotAddedToGroup,
        "inbox/called": GroupCalled,
        "inbox/waiting": InboundWaiting,
        "inbox/refused": InboundRefused,
        "inbox/press-refused": PressRefused,
        "inbox/pressed": ButtonPressed,
        "inbox/moved": ChatMoved,
        "inbox/unparsed": UpdateUnparsed,
        "inbox/began": ChannelBegan,
        "inbox/interrupted": InboundsInterrupted,
        "inbox/done": InboundsDone,
        "inbox/checkpoint": InboxCheckpoint,
        "moves/checkpoint": MovesCheckpoint,
        "outbox/intent": OutboxIntent,
        "outbox/preview-begin": PreviewBegun,
        "outbox/preview": PreviewShown,
        "outbox/preview-end": PreviewEnded,
        "outbox/receipt": PartReceipt,
        "outbox/ended": DeliveryEnded,
        "outbox/checkpoint": OutboxCheckpoint,
        "config/loaded": ConfigLoaded,
        "config/refused": ConfigRefused,
        "home/restored": HomeRestored,
        "home/released": HomeReleased,
    }
)
"""The payload models of what the tape, the stores, the runtime and the gateway write, by the name of the event."""

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
