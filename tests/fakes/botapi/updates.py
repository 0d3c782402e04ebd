"""The queue of updates of one bot: confirmation by offset, long polls, conflicts. Kept for 24 hours."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tests.fakes.botapi.errors import Json, Refusal, conflict

DAY = 86_400
LONGEST_POLL = 50
KINDS = [
    "message",
    "edited_message",
    "channel_post",
    "edited_channel_post",
    "inline_query",
    "chosen_inline_result",
    "callback_query",
    "shipping_query",
    "pre_checkout_query",
    "poll",
    "poll_answer",
    "my_chat_member",
    "chat_member",
    "message_reaction",
    "message_reaction_count",
    "chat_join_request",
    "chat_boost",
    "removed_chat_boost",
    "business_connection",
    "business_message",
    "edited_business_message",
    "deleted_business_messages",
    "purchased_paid_media",
]
ONLY_WHEN_ASKED = frozenset({"chat_member", "message_reaction", "message_reaction_count"})
USUAL = frozenset(KINDS) - ONLY_WHEN_ASKED
TERMINATED = "terminated by other getUpdates request; make sure that only one bot instance is running"
BY_WEBHOOK = "terminated by setWebhook request"
WHILE_WEBHOOK = "can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first"


@dataclass(slots=True)
class Queue:
    """Updates that a bot has not confirmed yet, oldest first, with the time at which they expire."""

    clock: Callable[[], float]
    next_id: int
    allowed: frozenset[str] = USUAL
    waiting: list[tuple[Json, float]] = field(default_factory=list)
    confirmed: list[int] = field(default_factory=list)
    expired: list[int] = field(default_factory=list)
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    poll: asyncio.Future[None] | None = None

    def push(self, kind: str, content: object, *, always: bool = False) -> int | None:
        """Adds an update of a kind that is asked for; None if it is not. `always` is for kinds nobody can ask for."""
        if kind not in self.allowed and not always:
            return None
        number, self.next_id = self.next_id, self.next_id + 1
        self.waiting.append(({"update_id": number, kind: content}, self.clock() + DAY))
        self.changed.set()
        return number

    def allow(self, kinds: list[object] | None) -> None:
        """`allowed_updates`: None keeps what was set; an empty list, or one without a known kind, is the usual set."""
        if kinds is not None and all(isinstance(kind, str) for kind in kinds):
            self.allowed = frozenset(str(kind).lower() for kind in kinds) & frozenset(KINDS) or USUAL

    def pending(self) -> list[Json]:
        """What is neither confirmed nor too old."""
        now = self.clock()
        self.expired += [update["update_id"] for update, end in self.waiting if end <= now]
        self.waiting = [(update, end) for update, end in self.waiting if end > now]
        return [update for update, _ in self.waiting]

    def take(self, offset: int, limit: int) -> list[Json]:
        """The answer to getUpdates at this moment.

        A positive offset confirms everything before it; 0 confirms nothing; a negative one is counted from the end
        and confirms all but that many. One that is more than ten ids beyond the newest update is not believed: then
        nothing is confirmed and everything is given.
        """
        pending = self.pending()
        if offset < 0:
            offset += self.next_id
        if offset <= self.next_id + 10:
            self._confirm(offset)
            pending = self.pending()
        return pending[:limit]

    def _confirm(self, before: int) -> None:
        self.confirmed += [update["update_id"] for update, _ in self.waiting if update["update_id"] < before]
        self.waiting = [(update, end) for update, end in self.waiting if update["update_id"] >= before]

    def drop(self) -> None:
        """`drop_pending_updates`: all are gone."""
        self.waiting.clear()

    def delivered(self, number: int) -> None:
        """A webhook took this one."""
        self.confirmed.append(number)
        self.waiting = [(update, end) for update, end in self.waiting if update["update_id"] != number]

    def abort(self, refusal: Refusal) -> None:
        """Ends the long poll that waits now, if one does."""
        if self.poll is not None and not self.poll.done():
            self.poll.set_exception(refusal)

    async def get(self, offset: int, limit: int, timeout: float) -> list[Json]:
        """Long polling: waits up to `timeout` seconds for the first update. A later request ends an earlier one."""
        self.abort(conflict(TERMINATED))
        if (ready := self.take(offset, limit)) or timeout <= 0:
            return ready
        mine: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.poll = mine
        end = asyncio.get_running_loop().time() + timeout
        try:
            while not (ready := self.take(offset, limit)):
                self.changed.clear()
                left = end - asyncio.get_running_loop().time()
                if left <= 0 or not await self._wait(mine, left):
                    break
            return ready
        finally:
            if self.poll is mine:
                self.poll = None
            mine.cancel()

    async def _wait(self, mine: asyncio.Future[None], seconds: float) -> bool:
        """Whether an update came in time; raises what ended the poll."""
        news = asyncio.ensure_future(self.changed.wait())
        try:
            both: set[asyncio.Future[Any]] = {mine, news}
            await asyncio.wait(both, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            news.cancel()
        if mine.done():
            mine.result()
        return self.changed.is_set()
