"""Events that a channel receives, and the chats and people in them."""

from __future__ import annotations

from enum import StrEnum
from typing import Literal, TypeAlias

from msgspec import Struct


class Role(StrEnum):
    """The rights of a sender, least first; compare with `at_least`."""

    STRANGER = "stranger"
    MEMBER = "member"
    ADMIN = "admin"
    OWNER = "owner"

    def at_least(self, other: Role) -> bool:
        return _ROLES.index(self) >= _ROLES.index(other)


_ROLES = list(Role)


class HasChat:
    """The base of all events that belong to a chat."""

    __slots__ = ()
    channel: str
    chat: str
    thread: str

    @property
    def session(self) -> str:
        """The session id, `channel:chat` or `channel:chat:thread`."""
        chat = f"{self.channel}:{self.chat}" if self.chat else self.channel
        return f"{chat}:{self.thread}" if self.thread else chat


OWN_WORDS, FOREIGN_WORDS = "own", "world"
"""Provenances: no words are more foreign than the sender; the words may be anybody's."""
HUMAN_ORIGIN = "human"
"""The origin of messages that people write."""
AGENT_ORIGIN = "agent"
"""The origin of an inbound with which an agent, or a person who addressed several, asks a further one."""
APPROVAL_ORIGIN = "approval"
"""The origin of an inbound that continues a chat after a person has said yes or no."""
TASK_ORIGIN = "task"
"""The origin of an inbound with which a chat goes on with the run of a task that a person began."""
JOB_TASK_ORIGIN = "task/job"
"""The same of a run that a job began: nobody is there."""


class Sender(Struct, frozen=True, forbid_unknown_fields=True):
    """The sender of a message.

    Attributes:
        id: the platform's numeric id as text.
        name: the name that the platform shows, which proves nothing.
        bot: the platform marks it as a bot.
        roles: numeric ids of the roles that the platform gives the person in this space.
        language: the tag of the person's language, such as `de` or `zh-hans`; empty if unknown.
    """

    id: str
    name: str = ""
    bot: bool = False
    roles: tuple[str, ...] = ()
    language: str = ""


AttachmentKind: TypeAlias = Literal["image", "audio", "voice", "video", "file"]


class Attachment(Struct, frozen=True, forbid_unknown_fields=True):
    """A file that came with a message. Without a digest it is fetched after the message was accepted.

    Attributes:
        reference: the adapter's own reference to the file.
        size: bytes according to the platform; None if unknown.
        note: its meaning as text, such as a sticker's emoji.
        digest: of the blob with its bytes on the session's tape, if they came with the message; else empty.
    """

    reference: str
    name: str = ""
    media_type: str = ""
    size: int | None = None
    kind: AttachmentKind = "file"
    note: str = ""
    digest: str = ""


class Quote(Struct, frozen=True, forbid_unknown_fields=True):
    """The message that a message replies to, as far as the platform shows it.

    Attributes:
        message: the platform's id of the quoted message.
        own: the bot itself wrote it.
        provenance: the least provenance of its words, regardless of the sender: `world` for a forwarded message and one
            of another chat.
    """

    message: str
    sender: Sender
    text: str = ""
    attachments: tuple[Attachment, ...] = ()
    own: bool = False
    provenance: str = OWN_WORDS


class PressedButton(Struct, frozen=True, forbid_unknown_fields=True):
    """The press that caused an inbound.

    Attributes:
        id: the platform's id of the press.
        buttons: the key of the button set.
        message: the platform's id of the message with the buttons.
        label: the label of the button.
    """

    id: str
    buttons: str
    message: str
    label: str
    value: str = ""


class AgentCall(Struct, frozen=True, forbid_unknown_fields=True):
    """What an agent that others call may use up, with all whom it calls itself: so a chain of agents ends.

    Attributes:
        by: the agent that calls; empty for the bot itself, or a person.
        turns: turns that may follow a message of a person, this one included.
        tokens: tokens that they may read and write.
        message: the platform's id of the message of a person with which the chain began; empty without one.
    """

    by: str
    turns: int
    tokens: int
    message: str = ""


class Inbound(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """An incoming message, normalised.

    Attributes:
        channel: the configured instance's name.
        external_id: unique on the channel, and the same if the platform delivers the message again.
        chat: the platform's id of the chat.
        time: when it was sent, ISO 8601 in UTC.
        thread: the platform's id of the thread; empty if none.
        reply_to: the `message` of the quoted message; empty if none.
        message: the platform's id of the message in its chat, which replies, edits and reactions name.
        direct: the chat has one person only.
        addressed: the platform marks the message as for the bot (direct, a mention, a reply to it).
        quote: the quoted message, if any.
        group: messages of one group (an album) belong together; empty if it stands alone.
        space: numeric id of the space the chat is part of (a Discord server); empty if the platform has none.
        origin: `human`, or the source of an inbound that no channel received, such as `schedule`.
        model: the name of the model that answers it; empty: that of the session.
        instructions: further instructions in the system prompt, only for its turn.
        press: the press whose command the text is; None if the person wrote it. Only the gate sets it.
        provenance: the least provenance of its words, regardless of the sender: `world` for a forwarded message and one
            that another bot wrote for its sender; for an inbound that no channel received, that of the words it was
            made of.
        is_one_shot: a command of the shell or another program asks once and accepts a failure as the result.
        is_plain_text: never a command, even if it looks like one: a program sent it, which may pass on words of others.
        chat_title: the platform's name of the group or its space; empty if unknown. No tape stores it.
        agents: the agents that it asks, in this order, by name (empty for the bot itself); none: whoever answers in the chat.
            Only the gate sets it.
        call: what the called agent may use up; None for a message of a person.
    """

    channel: str
    external_id: str
    chat: str
    sender: Sender
    text: str
    time: str
    thread: str = ""
    reply_to: str = ""
    attachments: tuple[Attachment, ...] = ()
    message: str = ""
    direct: bool = True
    addressed: bool = True
    quote: Quote | None = None
    group: str = ""
    space: str = ""
    origin: str = HUMAN_ORIGIN
    model: str = ""
    instructions: str = ""
    press: PressedButton | None = None
    provenance: str = OWN_WORDS
    is_one_shot: bool = False
    is_plain_text: bool = False
    chat_title: str = ""
    agents: tuple[str, ...] = ()
    call: AgentCall | None = None

    @property
    def is_typed(self) -> bool:
        """True if a person wrote it."""
        return self.origin == HUMAN_ORIGIN

    @property
    def is_of_chat(self) -> bool:
        """True if people of its chat wait for the answer: a person wrote it, or an agent asks another one there."""
        return self.origin in (HUMAN_ORIGIN, AGENT_ORIGIN)

    @property
    def is_answered_by_person(self) -> bool:
        """True if a person wrote it, or if it continues after a person's approval."""
        return self.origin in (HUMAN_ORIGIN, APPROVAL_ORIGIN)

    def follow_up(self, external_id: str, text: str, time: str, *, origin: str, provenance: str) -> Inbound:
        """Return an inbound with which the bot itself goes on in the same place, for the same person and the same agents.

        Nothing else of this one is in it: not its words, files and limits, and not what a program sent with it.
        """
        return Inbound(
            self.channel,
            external_id,
            self.chat,
            self.sender,
            text,
            time,
            self.thread,
            direct=self.direct,
            space=self.space,
            origin=origin,
            provenance=provenance,
            agents=self.agents,
        )


class Edit(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """A message that its sender changed.

    `text` is the complete new text, `external_id` identifies the change; `provenance`: see `Inbound`.
    """

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    text: str
    time: str
    thread: str = ""
    space: str = ""
    provenance: str = OWN_WORDS


class Deletion(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """A message that was deleted on the platform."""

    channel: str
    external_id: str
    chat: str
    message: str
    time: str
    thread: str = ""


class Reaction(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """All current reactions of one person to a message; empty `emojis`: the person removed them."""

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    emojis: tuple[str, ...]
    time: str
    thread: str = ""
    space: str = ""


class ButtonPress(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """A press of a button below a message of the bot.

    Attributes:
        channel: the configured instance's name.
        external_id: unique on the channel, and the same if the platform delivers the press again.
        chat: the platform's id of the chat.
        message: the platform's id of the message with the button.
        sender: the person who pressed.
        button: the id of the button, as the platform returned it; it may be forged.
        time: the time of the press, or of its receipt if unknown, ISO 8601 in UTC.
        thread: the platform's id of the thread; empty if none.
        direct: the chat has one person only.
        space: see `Inbound`.
    """

    channel: str
    external_id: str
    chat: str
    message: str
    sender: Sender
    button: str
    time: str
    thread: str = ""
    direct: bool = True
    space: str = ""


class ChatMigration(Struct, frozen=True, forbid_unknown_fields=True):
    """A chat that got another id, such as a group that became a supergroup; `to` is the new id."""

    channel: str
    external_id: str
    chat: str
    to: str
    time: str


class BotAdded(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """The bot was added to a group; `sender` is the person who added it."""

    channel: str
    external_id: str
    chat: str
    sender: Sender
    time: str
    thread: str = ""
    space: str = ""
    chat_title: str = ""


class UnparsedUpdate(Struct, frozen=True, forbid_unknown_fields=True):
    """An update that the adapter could not parse; its bytes are stored as a fact if its sender may speak.

    Attributes:
        channel: the configured instance's name.
        external_id: unique on the channel.
        chat: the platform's id of the chat.
        reason: the parse error.
        sender: the sender's numeric id; empty if unreadable.
    """

    channel: str
    external_id: str
    chat: str
    raw: bytes
    reason: str
    sender: str = ""


class StopRequest(HasChat, Struct, frozen=True, forbid_unknown_fields=True):
    """A request to end the running turn of a session. It overtakes queued messages and is not stored."""

    channel: str
    chat: str
    thread: str = ""


ChannelEvent: TypeAlias = (
    Inbound | Edit | Deletion | Reaction | BotAdded | ButtonPress | ChatMigration | UnparsedUpdate | StopRequest
)
