"""Live answers: what a running turn shows in a chat, by typing and by changing one message as the text grows.

Nothing here is owed. The message's id is a fact as soon as it is known, so that delivery, also that of a later
process, puts the final text in its place.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from hashlib import sha256

from bubbot.channel import (
    Channel,
    Dismisses,
    Editing,
    Outbound,
    Part,
    Preview,
    StepEnded,
    TextShown,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Typing,
)
from bubbot.errors import DeliveryFailed, StoreError
from bubbot.gateway.outbound import Spawn, answered, parts_of, receipt_of
from bubbot.outbox import Outbox

log = logging.getLogger(__name__)

TYPING_EVERY = 4.0
"""Seconds; Telegram shows a bot as typing for five, Discord for ten."""
TYPING_AFTER = 0.3
"""Seconds before it is shown for the first time: what is answered by then needs no such call."""
FIRST_AFTER = 1.0
"""Seconds of text before a message is begun: what is finished by then is simply sent."""
GOES_ON = " …"
NOTHING_MORE = "—"
"""What a message that was begun says in the end, where the turn said nothing."""
CALLED = 10.0
"""Seconds that one call of the adapter may take; a delivery waits for it no longer."""


@dataclass
class _Shown:
    """One running turn as its chat sees it."""

    session: str
    chat: str
    thread: str
    inbound: int
    reply_to: str
    text: str = ""
    tool: str = ""
    seen: str = ""
    message: str = ""
    part: Part | None = None
    dead: bool = False
    due: float | None = None
    ended: bool = False
    silent: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def now(self) -> str:
        """What the message should say."""
        tool = f"\n\n⚙ {self.tool}" if self.tool else ""
        return f"{self.text.rstrip()}{tool}".strip()


class LiveAnswers:
    """See `Previews`. `spawn` runs a turn's task; `where` says which chat a chat is now; `live`: texts as they grow."""

    def __init__(
        self,
        channel: Channel,
        outbox: Outbox,
        *,
        spawn: Spawn,
        where: Callable[[str], str] = lambda chat: chat,
        live: bool = True,
    ) -> None:
        self._channel = channel
        self._outbox = outbox
        self._spawn = spawn
        self._where = where
        self._editing = channel if live and isinstance(channel, Editing) and channel.edit_interval > 0 else None
        self.behind: Callable[[str], bool] = lambda _: False
        """Whether a chat still waits for earlier answers; no message is begun before them."""
        self._running: dict[str, list[tuple[_Shown, asyncio.Task[None]]]] = {}
        self._over = False

    def preview(self, session: str, event: Preview) -> None:
        """See `Previews.preview`."""
        if self._over:
            return
        if isinstance(event, TurnStarted):
            _, chat, *thread = session.split(":", 2)
            shown = _Shown(session, chat, "".join(thread), event.inbound, event.message)
            task = self._spawn(self._show(shown))
            self._running.setdefault(session, []).append((shown, task))
            task.add_done_callback(lambda _: self._forget(session))
            return
        if not (running := self._running.get(session)):
            return
        shown = running[-1][0]
        match event:
            case TextShown(text):
                shown.text += text
            case ToolStarted(name, _):
                shown.tool = name
            case ToolEnded():
                shown.tool = ""
            case StepEnded(_, calls) if calls:
                shown.text = f"{shown.text.rstrip()}\n\n" if shown.text.strip() else ""
            case TurnEnded(status):
                shown.ended, shown.silent = True, status == "silent"
        shown.changed.set()

    async def settled(self, session: str) -> None:
        """Returns when nothing more is shown of turns that have ended, so that their answers can be delivered."""
        if ended := [task for shown, task in self._running.get(session, ()) if shown.ended]:
            _, late = await asyncio.wait(ended, timeout=2 * CALLED)
            for task in late:
                task.cancel()
            if late:  # what it was about to show must not come after the answer
                await asyncio.wait(late, timeout=1.0)

    def cancel(self) -> None:
        """Shows nothing more of any turn, nor of one that begins later: nobody would see to its end."""
        self._over = True
        for turns in list(self._running.values()):
            for _, task in turns:
                task.cancel()

    def _forget(self, session: str) -> None:
        left = [(shown, task) for shown, task in self._running.get(session, ()) if not task.done()]
        if left:
            self._running[session] = left
        else:
            self._running.pop(session, None)

    async def _show(self, shown: _Shown) -> None:
        try:
            await self._shown(shown)
        except Exception:  # the adapter is someone else's code, and what it shows must not cost a turn
            log.warning("a live answer failed", exc_info=True, extra={"action": "live.failed"})

    async def _shown(self, shown: _Shown) -> None:
        typing = self._spawn(self._type(shown))
        try:
            await self._grow(shown)
        finally:
            typing.cancel()  # no answer waits for a call that says it is on its way
        if shown.silent:
            await self._close(shown)
            await self._dismiss(shown)

    async def _type(self, shown: _Shown) -> None:
        """Shows that the bot types, until cancelled."""
        if not isinstance(self._channel, Typing):
            return
        wait = TYPING_AFTER
        while True:
            await asyncio.sleep(wait)
            wait = TYPING_EVERY
            try:
                await answered(self._channel.typing(self._where(shown.chat), shown.thread), CALLED)
            except DeliveryFailed as error:
                wait = max(error.retry_after or 0.0, 5 * TYPING_EVERY)
                log.debug("typing was not shown: %s", error, extra={"action": "live.typing"})

    async def _grow(self, shown: _Shown) -> None:
        """Lets the message grow with the text until the turn ends."""
        loop = asyncio.get_running_loop()
        while not shown.ended:
            wants = self._editing is not None and not shown.dead and shown.now() not in ("", shown.seen)
            if wants and shown.due is None:
                shown.due = loop.time() + FIRST_AFTER
            if wants and shown.due is not None and loop.time() >= shown.due and not shown.ended:
                await self._say(shown)
                continue
            shown.changed.clear()
            try:
                async with asyncio.timeout_at(shown.due if wants else None):
                    await shown.changed.wait()
            except TimeoutError:
                continue

    async def _say(self, shown: _Shown) -> None:
        """Begins the message, or changes it; one that an interrupted attempt has begun is gone on with."""
        assert self._editing is not None
        loop, text = asyncio.get_running_loop(), shown.now()
        part = self._part(shown, text + GOES_ON)
        try:
            shown.message = shown.message or await self._outbox.live_message(shown.inbound)
            if not shown.message and self.behind(shown.chat):
                shown.due = loop.time() + self._editing.edit_interval
                return
            if part is None:
                shown.dead = True
            elif shown.message:
                if part != shown.part:
                    await answered(self._editing.edit(shown.message, part), CALLED)
            else:
                shown.message = receipt_of(await answered(self._channel.send(part), CALLED)).external_id
                if shown.message:
                    await self._outbox.live(shown.inbound, shown.session, shown.message)
                else:
                    shown.dead = True  # it cannot be changed: one is enough
            shown.seen, shown.part = text, part
            shown.due = loop.time() + self._editing.edit_interval
        except DeliveryFailed as error:
            shown.dead = shown.dead or error.permanent or (not shown.message and error.retry_after is None)
            shown.due = loop.time() + max(error.retry_after or 0.0, 2 * self._editing.edit_interval)
            log.debug("a live answer was not shown: %s", error, extra={"action": "live.failed"})
        except StoreError:
            shown.dead = True  # the turn's own merge will say what is wrong

    async def _dismiss(self, shown: _Shown) -> None:
        """Takes away what says that an answer is on its way, where the platform has such a thing."""
        if not isinstance(self._channel, Dismisses):
            return
        try:
            away = self._channel.dismiss(self._where(shown.chat), shown.thread, shown.reply_to)
            await answered(away, CALLED)
        except DeliveryFailed as error:
            log.debug("what announced an answer was not taken away: %s", error, extra={"action": "live.dismiss"})

    async def _close(self, shown: _Shown) -> None:
        """A turn that says nothing leaves no half sentence behind: the message keeps what was said until then."""
        if self._editing is None:
            return
        try:
            message = shown.message or await self._outbox.live_message(shown.inbound)
            part = self._part(shown, shown.text.strip() or NOTHING_MORE)
            if message and part is not None:
                await answered(self._editing.edit(message, part), CALLED)
        except (DeliveryFailed, StoreError) as error:
            log.debug("a live answer was not closed: %s", error, extra={"action": "live.close"})

    def _part(self, shown: _Shown, text: str) -> Part | None:
        """The first part of a text, where it can be shown."""
        name, chat = shown.session.partition(":")[0], self._where(shown.chat)
        parts = parts_of(self._channel, Outbound(name, chat, text, shown.thread, shown.reply_to))
        return None if parts[0].file is not None else replace(parts[0], key=live_key(shown.session, shown.reply_to))


def live_key(session: str, message: str) -> str:
    """The `key` of the message that shows the answer to a message; empty where the platform gave that no id."""
    return f"l{sha256(f'{session}:{message}'.encode()).hexdigest()[:20]}" if message else ""
