"""Groups: ask an owner who may speak in a group after the bot was added there or called by strangers."""

from __future__ import annotations

import asyncio
from collections import deque

from bubbot.gateway.facts import GroupCalled
from bubbot.gateway.inbox import Inbox
from bubbot.gateway.presses import escape_label
from bubbot.gateway.requests import NotifyOwner, name_person
from bubbot.ports.channel import BotAdded, Button, ButtonSet, Inbound, Role
from bubbot.texts import COMMAND_PREFIX, Texts

MAX_NOTICES_PER_DAY = 10
"""Groups to report to an owner in 24 hours: anybody can add a bot to many groups."""
DAY_SECONDS = 86_400.0
RETRY_SECONDS = 60.0
"""Seconds before the next search for a chat of an owner."""
DECISION_LIFETIME_SECONDS = 30 * 86_400
"""Seconds for which an owner can press a button of a notice."""


class GroupNotices:
    """Asks an owner about a group. The notice and its fact are stored in one transaction."""

    def __init__(self, inbox: Inbox, notify_owner: NotifyOwner) -> None:
        self._inbox = inbox
        self._notify_owner = notify_owner
        self._lock = asyncio.Lock()
        self._settled: set[str] = set()
        self._notices: deque[float] = deque(maxlen=MAX_NOTICES_PER_DAY)
        self._next_try = 0.0

    async def on_call(self, inbound: Inbound) -> None:
        """Handle a message to the bot from a stranger in a group, once for each group."""
        group = inbound.space or inbound.chat
        sentence = "space_called" if inbound.space else "group_called"
        await self._notify(inbound, group, sentence, f"called:{group}")

    async def on_added(self, added: BotAdded, *, is_again: bool) -> None:
        """Ask about a group to which the bot was added; `is_again`: an owner had let it leave."""
        key = f"called:{added.chat}"
        await self._notify(added, added.chat, "group_joined", f"{key}:{added.external_id}" if is_again else key)

    async def _notify(self, cause: Inbound | BotAdded, group: str, sentence: str, key: str) -> None:
        async with self._lock:  # the messages of a batch come at once, from many groups
            now = asyncio.get_running_loop().time()
            if key in self._settled or now < self._next_try or self._is_over_limit(now):
                return
            if await self._ask(cause, group, sentence, key, now):
                self._settled.add(key)
            else:
                self._next_try = now + RETRY_SECONDS

    def _is_over_limit(self, now: float) -> bool:
        return len(self._notices) == MAX_NOTICES_PER_DAY and now - self._notices[0] < DAY_SECONDS

    async def _ask(self, cause: Inbound | BotAdded, group: str, sentence: str, key: str, now: float) -> bool:
        session = f"{cause.channel}:{group}"
        if await self._inbox.has_fact(session, key):
            return True
        title = escape_label(cause.chat_title) or group
        command = f"{COMMAND_PREFIX}access.group {group}"

        def write(texts: Texts) -> tuple[str, ButtonSet]:
            text = texts.say(
                sentence, group=group, channel=cause.channel, title=title, person=name_person(cause.sender)
            )
            buttons = tuple(
                Button(
                    texts.say(f"group_button_{choice}"), f"{command} {choice} channel={cause.channel}", cause.chat_title
                )
                for choice in ("everybody", "known", "leave")
            )
            return text, ButtonSet(buttons, role=Role.OWNER, lifetime_seconds=DECISION_LIFETIME_SECONDS)

        fact = GroupCalled(cause.channel, cause.chat, cause.space, cause.chat_title).to_entry(key=key)
        tape = self._inbox.tape_of(session)
        if not await self._notify_owner(tape, f"{cause.channel}:{key}", write, fact):
            return False
        self._notices.append(now)
        return True
