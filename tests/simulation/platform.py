"""The world around a simulated bot: people in chats, a platform that keeps what a bot has not acknowledged, and outside acts."""

from __future__ import annotations

import random
import re
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.ports.channel import (
    ButtonPress,
    ButtonSet,
    ChannelEvent,
    Deletion,
    Edit,
    Inbound,
    MessagePart,
    Receipt,
    Sender,
)
from tests.doubles import CountingIds
from tests.gateways import TIME
from tests.turns import CHANNEL

TOKEN = re.compile(r"#m\d+#")
"""The mark of one message: wherever its words go, it goes along."""
DIRECT = frozenset({"1", "2"})
"""The chats with one person, by the id of that person. The others are groups."""
OWNER = "1"


@dataclass
class Said:
    """One message that a person sent.

    Attributes:
        token: its mark.
        inbound: as the platform handed it in.
        place: its place among the updates of its chat.
        is_deleted: its author deleted it.
        is_edited: its author changed it; what it says now is shown when it changed.
    """

    token: str
    inbound: Inbound
    place: int
    is_deleted: bool = False
    is_edited: bool = False


@dataclass
class Post:
    """One message that the platform shows.

    Attributes:
        key: the key under which it was sent; a part that is sent twice has two posts with one key.
        text: what it says now.
        texts: everything it ever said.
    """

    id: str
    chat: str
    key: str
    text: str
    reply_to: str
    buttons: ButtonSet | None
    texts: list[str] = field(default_factory=list)


class Platform:
    """Keeps the updates of each chat until they are acknowledged, and everything that was posted.

    Attributes:
        is_searchable: the bot can look for its own messages.
        said: what people sent, by mark.
        posts: what the bot sent, by the id of the platform.
        acts: what the bot did outside.
        yes: the cards on which a person pressed yes, by the marks of their calls.
        on_update: called with the chat of each new update.
        on_buttons: called with each post that has got buttons.
        on_moment: called with `act` or `send` before something happens that a process may be killed before or after.
        story: what happened, in order.
    """

    def __init__(self, rng: random.Random, *, is_searchable: bool) -> None:
        self.rng = rng
        self.is_searchable = is_searchable
        self.said: dict[str, Said] = {}
        self.posts: dict[str, Post] = {}
        self.acts: list[str] = []
        self.yes: dict[str, set[str]] = {}
        self.on_update: Callable[[str], None] = lambda _: None
        self.on_buttons: Callable[[Post], None] = lambda _: None
        self.on_moment: Callable[[str], None] = lambda _: None
        self.story: list[str] = []
        self._updates: dict[str, deque[ChannelEvent]] = {}
        self._counts: Counter[str] = Counter()
        self._new_id = CountingIds("p")

    def say(self, text: str, *, chat: str, sender: str) -> Said:
        """A person sends a message; its mark is added to the text."""
        token = f"#m{len(self.said) + 1}#"
        shown = text if text.startswith(",") else f"{text} {token}"
        inbound = Inbound(
            CHANNEL, token, chat, Sender(sender, f"P{sender}"), shown, TIME, message=token, direct=chat in DIRECT
        )
        said = self.said[token] = Said(token, structs.replace(inbound, addressed=True), self._counts[chat])
        self._add(said.inbound)
        return said

    def edit(self, said: Said) -> None:
        """The author changes a message."""
        inbound = said.inbound
        if not inbound.text.startswith(","):
            said.is_edited = True
            text = f"changed: {inbound.text}"
            key = f"edit-{self._counts[inbound.chat]}-{inbound.chat}"
            self._add(Edit(CHANNEL, key, inbound.chat, inbound.message, inbound.sender, text, TIME))

    def delete(self, said: Said) -> None:
        """The author deletes a message."""
        said.is_deleted = True
        self._add(Deletion(CHANNEL, f"delete-{said.token}", said.inbound.chat, said.token, TIME))

    def press(self, post: Post, number: int, sender: str) -> None:
        """A person presses a button."""
        assert post.buttons is not None
        key = f"press-{post.id}-{self._counts[post.chat]}"
        button, command = post.buttons.button_id(number), post.buttons.buttons[number].command
        if command.startswith(",approve"):
            for token in TOKEN.findall(post.text):
                self.yes.setdefault(token, set()).add(command.split()[1])
        who = Sender(sender, f"P{sender}")
        self._add(ButtonPress(CHANNEL, key, post.chat, post.id, who, button, TIME, direct=post.chat in DIRECT))

    def _add(self, event: ChannelEvent) -> None:
        chat = event.chat
        self._counts[chat] += 1
        self._updates.setdefault(chat, deque()).append(event)
        self.story.append(f"{chat}: {_describe(event)}")
        self.on_update(chat)

    def next_update(self, chat: str) -> ChannelEvent | None:
        """The oldest update of a chat that nobody acknowledged."""
        waiting = self._updates.get(chat)
        return waiting[0] if waiting else None

    def acknowledge(self, chat: str, event: ChannelEvent) -> None:
        """Never deliver this update again."""
        if self.next_update(chat) is event:
            self._updates[chat].popleft()

    @property
    def has_updates(self) -> bool:
        """True if something was not acknowledged."""
        return any(self._updates.values())

    def act(self, token: str) -> None:
        """Something happens outside."""
        self.story.append(f"ACT {token}")
        self.acts.append(token)

    def post(self, part: MessagePart) -> Receipt:
        """Show a message."""
        post = Post(self._new_id(), part.chat, part.key, part.text, part.reply_to, part.buttons, [part.text])
        self.posts[post.id] = post
        self.story.append(f"{part.chat}: bot {post.id} [{part.key[:6]}] {part.text[:90]!r}")
        if part.buttons is not None:
            self.on_buttons(post)
        return Receipt(post.id)

    def change(self, message: str, part: MessagePart) -> None:
        """Change a message."""
        post = self.posts.get(message)
        if post is None:
            raise DeliveryFailed("there is no such message", permanent=True)
        self.story.append(f"{part.chat}: bot changes {message} [{part.key[:6]}] {part.text[:90]!r}")
        had_buttons = post.buttons is not None
        post.text, post.buttons = part.text, part.buttons
        post.texts.append(part.text)
        if not post.key.startswith("p"):
            post.key = part.key or post.key
        if part.buttons is not None and not had_buttons:
            self.on_buttons(post)

    def find(self, part: MessagePart) -> Sequence[str]:
        """The messages that say this."""
        return [post.id for post in self.posts.values() if (post.chat, post.text) == (part.chat, part.text)]


def _describe(event: ChannelEvent) -> str:
    match event:
        case Inbound():
            return f"P{event.sender.id} says {event.text!r} {event.message}"
        case Edit():
            return f"P{event.sender.id} edits {event.message}"
        case Deletion():
            return f"{event.message} is deleted"
        case ButtonPress():
            return f"P{event.sender.id} presses {event.button} of {event.message}"
    return type(event).__name__
