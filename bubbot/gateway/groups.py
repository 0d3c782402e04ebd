"""Groups: how an owner learns that strangers call the bot in one, once for each group."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from bubbot.gateway.inbox import Inbox
from bubbot.gateway.inbox_views import GROUP_CALLED
from bubbot.ports.channel import Inbound
from bubbot.tape.entry import TapeEntry, event
from bubbot.texts import Texts

NotifyOwner: TypeAlias = Callable[[str, str, Callable[[Texts], str], TapeEntry], Awaitable[bool]]
"""Notify an owner, given the tape of the fact, a key, what says the text and the fact; false if no owner has a chat yet."""

MAX_NOTICES_PER_DAY = 10
"""Groups of which an owner is told in 24 hours: anybody can put a bot into many groups."""
DAY_SECONDS = 86_400.0
RETRY_SECONDS = 60.0
"""Seconds until a chat of an owner is looked for again."""


class GroupCalls:
    """Notifies an owner of a group whose strangers call the bot. The notice and its fact are stored together."""

    def __init__(self, inbox: Inbox, notify_owner: NotifyOwner) -> None:
        self._inbox = inbox
        self._notify_owner = notify_owner
        self._lock = asyncio.Lock()
        self._settled: set[str] = set()
        self._notices: deque[float] = deque(maxlen=MAX_NOTICES_PER_DAY)
        self._next_try = 0.0

    async def on_call(self, inbound: Inbound) -> None:
        """Handle a message to the bot from a stranger in a group."""
        group = inbound.space or inbound.chat
        async with self._lock:  # messages of one batch come at once, and of many groups
            now = asyncio.get_running_loop().time()
            if group in self._settled or now < self._next_try or self._is_over_limit(now):
                return
            if await self._notify(inbound, group, now):
                self._settled.add(group)
            else:
                self._next_try = now + RETRY_SECONDS

    def _is_over_limit(self, now: float) -> bool:
        return len(self._notices) == MAX_NOTICES_PER_DAY and now - self._notices[0] < DAY_SECONDS

    async def _notify(self, inbound: Inbound, group: str, now: float) -> bool:
        session, key = f"{inbound.channel}:{group}", f"called:{group}"
        if await self._inbox.has_fact(session, key):
            return True
        sentence = "space_called" if inbound.space else "group_called"

        def write(texts: Texts) -> str:
            return texts.say(sentence, group=group, channel=inbound.channel)

        data = {"channel": inbound.channel, "chat": inbound.chat, "space": inbound.space}
        fact = event(GROUP_CALLED, data, key=key)
        tape = self._inbox.tape_of(session)
        if not await self._notify_owner(tape, f"{inbound.channel}:{key}", write, fact):
            return False
        self._notices.append(now)
        return True
