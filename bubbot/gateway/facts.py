"""The facts of inboxes and outboxes, and of the home."""

from __future__ import annotations

from types import MappingProxyType
from typing import Annotated, ClassVar

from msgspec import UNSET, Struct, UnsetType

from bubbot.ports.channel import AgentCall, Attachment, MessagePart, PressedButton, Quote, Sender
from bubbot.ports.inbox import InboundsDone, InboundsInterrupted
from bubbot.ports.outbox import OutboxIntent, PartReceipt
from bubbot.ports.session_names import ChatMoved
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.fact import Fact, PersonalFields, models_of
from bubbot.tape.references import EntryId, PersonId, SessionId


class PersonFields(Struct, frozen=True):
    """What a person on the tape of an inbox names."""

    id: PersonId


class QuoteFields(Struct, frozen=True):
    """What a quote on the tape of an inbox names."""

    sender: PersonFields


class InboundReceived(Fact, kw_only=True):
    """A message or a press was accepted: an `Inbound`, with the session to which it belongs."""

    EVENTS = ("inbox/received",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType(
        {"sender.id": ("sender", "text", "time", "attachments"), "quote.sender.id": ("quote",)}
    )
    channel: str
    external_id: str
    chat: str
    sender: Annotated[Sender, PersonFields]
    text: str
    time: str
    thread: str
    reply_to: str
    attachments: tuple[Attachment, ...]
    message: str | UnsetType = UNSET
    direct: bool | UnsetType = UNSET
    addressed: bool | UnsetType = UNSET
    quote: Annotated[Quote, QuoteFields] | UnsetType | None = UNSET
    group: str | UnsetType = UNSET
    space: str | UnsetType = UNSET
    origin: str | UnsetType = UNSET
    model: str | UnsetType = UNSET
    instructions: str | UnsetType = UNSET
    press: PressedButton | UnsetType = UNSET
    provenance: str | UnsetType = UNSET
    is_one_shot: bool | UnsetType = UNSET
    is_plain_text: bool | UnsetType = UNSET
    agents: tuple[str, ...] | UnsetType = UNSET
    call: AgentCall | UnsetType = UNSET
    session: SessionId


class MessageChanged(Fact, kw_only=True):
    """A session changes without a turn: `what` kind of change it is, and the fields of that kind."""

    EVENTS = ("inbox/changed",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType(
        {
            "sender.id": ("what", "sender", "text", "emojis", "time", "attachments"),
            "quote.sender.id": ("quote",),
        }
    )
    what: str | UnsetType = UNSET
    channel: str | UnsetType = UNSET
    external_id: str | UnsetType = UNSET
    chat: str | UnsetType = UNSET
    thread: str | UnsetType = UNSET
    session: SessionId | UnsetType = UNSET
    sender: Annotated[Sender, PersonFields] | UnsetType = UNSET
    text: str | UnsetType = UNSET
    time: str | UnsetType = UNSET
    message: str | UnsetType = UNSET
    emojis: tuple[str, ...] | UnsetType = UNSET
    reply_to: str | UnsetType = UNSET
    attachments: tuple[Attachment, ...] | UnsetType = UNSET
    direct: bool | UnsetType = UNSET
    addressed: bool | UnsetType = UNSET
    quote: Annotated[Quote, QuoteFields] | UnsetType | None = UNSET
    group: str | UnsetType = UNSET
    space: str | UnsetType = UNSET
    origin: str | UnsetType = UNSET
    provenance: str | UnsetType = UNSET


class BotAddedToGroup(Fact):
    """An owner added the bot to a group."""

    EVENTS = ("inbox/added",)
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"by": ("channel", "time")})
    channel: str
    chat: str
    by: PersonId
    time: str


class GroupCalled(Fact):
    """The bot was added to a group, or called there."""

    EVENTS = ("inbox/called",)
    channel: str
    chat: str
    space: str
    title: str = ""


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
    PERSONAL: ClassVar[PersonalFields] = MappingProxyType({"sender": ("reason",)})
    session: SessionId
    sender: PersonId
    message: str
    reason: str


class UpdateUnparsed(Fact):
    """An update that could not be read; `raw` is base64."""

    EVENTS = ("inbox/unparsed",)
    session: SessionId
    chat: str
    reason: str
    raw: str


class ChannelBegan(Fact):
    """A channel runs from now on, for the first time or after a restore."""

    EVENTS = ("inbox/began",)
    time: str
    restored: bool | UnsetType = UNSET


class PreviewBegun(Fact):
    """The message is about to be sent in which the answer to an inbound is shown while it is written."""

    EVENTS = ("outbox/preview-begin",)
    inbound: int
    session: SessionId
    part: MessagePart


class PreviewShown(Fact):
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


class DeliveryEnded(Fact):
    """A message is not sent any more."""

    EVENTS = ("outbox/ended",)
    intent: EntryId
    reason: str


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


class OpenInbound(Struct, frozen=True, omit_defaults=True):
    """An inbound or change that is not done.

    Attributes:
        id: of its entry.
        attempts: the turns that were interrupted for it.
        turn: the last of them.
    """

    id: EntryId
    attempts: int
    turn: str = ""


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


GATEWAY_FACTS = (
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
    HomeRestored,
    HomeReleased,
)
"""What the gateway writes."""
GATEWAY_REFERENCES = KERNEL_REFERENCES.with_events(models_of(*GATEWAY_FACTS))
"""What the entries of the kernel and of the gateway name. The `inbound` of the outbox is an id of an inbox tape that it
does not name; inbox tapes are never rebased."""
