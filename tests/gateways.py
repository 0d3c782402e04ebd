"""Channels and rules for tests of the gateway."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from msgspec import structs

from bubbot.errors import DeliveryFailed
from bubbot.features.access.service import AccessService
from bubbot.gateway.admission import AdmissionPolicy, AdmissionSettings
from bubbot.gateway.channel_runtime import ChannelPolicy
from bubbot.gateway.outbound import RetryPolicy
from bubbot.ports.channel import Deletion, Edit, MessagePart, Reaction, Receipt, Sender
from bubbot.runtime.queue import QueuePolicy
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore
from tests.doubles import CountingIds, SteppingClock
from tests.turns import CHANNEL, KeptChannel

TIME = "2026-11-21T20:21:00+00:00"
WAITS = (1.0, 2.0)


def rules(
    debounce: float = 0.0,
    *,
    admission: AdmissionPolicy | None = None,
    access: AccessService | None = None,
    **waiting: Any,
) -> ChannelPolicy:
    """Rules as the daemon's: answers go out in the background, and are tried for a day."""
    return ChannelPolicy(
        QueuePolicy(debounce, **waiting),
        RetryPolicy(WAITS, repeat_last=True),
        admission=admission,
        access=access,
        queue_limit=None,
        deliver_in_background=True,
    )


def admitting(store: TapeStore, **listed: Any) -> ChannelPolicy:
    """Rules with an admission; its settings are given."""
    kept: dict[str, Any] = {name: frozenset(ids) for name, ids in listed.items()}
    settings = AdmissionSettings(**kept)
    tape = TapeService(store, "bubbot/access", now=SteppingClock(), new_id=CountingIds("access"))
    seeds = iter(range(1, 1000))
    access = AccessService(
        tape,
        now=SteppingClock(),
        random=lambda size: bytes([next(seeds) % 256]) * size,
        configured={CHANNEL: settings.listed_people},
    )
    return rules(admission=AdmissionPolicy(settings, access.role, lambda: 0.0), access=access)


class Stage(KeptChannel):
    """A channel as the platforms have them: it shows typing and changes messages, and keeps what people saw.

    `seen` is what each message says now, by its id; `shown` everything in the order it was shown. What `fail` raises
    for an act (`send`, `edit`, `typing`) meets it; what `lose_response` raises for a `send` meets its response: the message is
    there, and nobody is told.
    """

    edit_interval = 2.0

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[str, str] = {}
        self.shown: list[tuple[float, str, str]] = []
        self.fail: Callable[[str], Exception | None] = lambda _: None
        self.lose_response: Callable[[str], Exception | None] = lambda _: None
        self.hang: set[str] = set()
        self.ids = CountingIds("p")

    async def _act(self, act: str, text: str) -> None:
        if act in self.hang:
            await asyncio.Event().wait()
        if (error := self.fail(act)) is not None:
            raise error
        self.shown.append((asyncio.get_running_loop().time(), act, text))

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        await self._act("send", part.text)
        receipt = await super().send(part)
        given = Receipt(self.ids()) if receipt.external_id else receipt
        self.seen[given.external_id] = part.text
        await self._lost()
        return given

    async def _lost(self) -> None:
        if "response" in self.hang:
            await asyncio.Event().wait()
        if (error := self.lose_response("send")) is not None:
            raise error

    async def edit(self, message: str, part: MessagePart) -> None:
        """See `SupportsEditing`."""
        await self._act("edit", part.text)
        if message not in self.seen:
            raise DeliveryFailed("there is no such message", permanent=True)
        self.seen[message] = part.text

    async def typing(self, chat: str, thread: str) -> None:
        """See `SupportsTyping`."""
        await self._act("typing", chat)

    def acts(self, act: str) -> list[str]:
        """The texts of one kind of act."""
        return [text for _, done, text in self.shown if done == act]

    def times(self, act: str) -> list[float]:
        """When they were."""
        return [at for at, done, _ in self.shown if done == act]


class SearchedStage(Stage):
    """One whose history can be searched, and which takes a part once by its key, as long as it remembers `keys`."""

    def __init__(self) -> None:
        super().__init__()
        self.keys: dict[str, str] = {}

    async def send(self, part: MessagePart) -> Receipt:
        """See `Channel.send`."""
        if part.key in self.keys:
            await self._act("repeat", part.text)
            return Receipt(self.keys[part.key])
        before = set(self.seen)
        try:
            return await super().send(part)
        finally:
            for message in self.seen.keys() - before:
                self.keys[part.key] = message

    async def find(self, part: MessagePart, since: str) -> Sequence[str]:
        """See `FindsMessages`."""
        await self._act("find", part.text)
        return [message for message, text in self.seen.items() if text == part.text]


def failing(act: str, *errors: Exception | None) -> Callable[[str], Exception | None]:
    """Fails at this act with these errors, one after another; None lets one through."""
    left = list(errors)
    return lambda done: left.pop(0) if done == act and left else None


def edit_of(message: str, text: str, *, chat: str = "home", sender: str = "1", key: str = "") -> Edit:
    """A change of a message."""
    return Edit(CHANNEL, key or f"edit-{message}-{text}", chat, message, Sender(sender, "Ann"), text, TIME)


def deletion_of(message: str, *, chat: str = "home") -> Deletion:
    """A message that is taken away."""
    return Deletion(CHANNEL, f"deletion-{message}", chat, message, TIME)


def reaction_to(message: str, *emojis: str, chat: str = "home", sender: str = "1") -> Reaction:
    """What somebody shows on a message."""
    who = structs.replace(Sender("", "Ann"), id=sender)
    return Reaction(CHANNEL, f"reaction-{message}-{''.join(emojis)}-{sender}", chat, message, who, emojis, TIME)
