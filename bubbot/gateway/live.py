"""Live answers: what a running turn shows in a chat, by typing and by changing one message as the text grows.

That the message is about to be sent is a fact before it is sent, and its id is one as soon as it is known. So delivery,
also that of a later process, puts the final text in its place, and no piece of an answer stays beside the whole one.

- A channel that can search its history (`FindsMessages`) begins with the text so far. If nobody heard what became of that, the
  message is found again, or sent again under the same key: `settle_live`.
- Any other channel begins with a bare `…`, and grows only when the id is durable. If nobody heard what became of that,
  the message is not tried again, and the `…` may stay: it holds nothing of the answer.
- A turn that says nothing in the end leaves the message with what was said until then; that is tried until it holds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field, replace

from bubbot.errors import DeliveryFailed, StoreError
from bubbot.gateway.outbound import Spawn, always_room, answered, live_key, parts_of, receipt_of, settle_live
from bubbot.outbox import Outbox
from bubbot.ports.channel import (
    AcknowledgesInteractions,
    Channel,
    FindsMessages,
    MessagePart,
    Outbound,
    Preview,
    StepFinished,
    SupportsEditing,
    SupportsTyping,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from bubbot.views.outbox import LiveMessage

log = logging.getLogger(__name__)

TYPING_EVERY = 4.0
"""Seconds; Telegram shows a bot as typing for five, Discord for ten."""
TYPING_AFTER = 0.3
"""Seconds before it is shown for the first time: what is answered by then needs no such call."""
FIRST_AFTER = 1.0
"""Seconds of text before a message is begun: what is finished by then is simply sent."""
CONTINUES_MARK = " …"
BARE_START = "…"
"""What a message begins with on a platform that cannot be asked what became of it."""
NOTHING_MORE = "—"
"""What a message that was begun says in the end, where the turn said nothing."""
CALLED = 10.0
"""Seconds that one call of the adapter may take; a delivery waits for it no longer."""
CLOSE_RETRY_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Waits before a message without an answer is tried to be closed again; after the last one the next start does it."""


@dataclass
class _LiveTurn:
    """One running turn as its chat sees it."""

    session: str
    chat: str
    thread: str
    inbound: int
    reply_to: str
    text: str = ""
    tool: str = ""
    seen: str = ""
    live: LiveMessage | None = None
    part: MessagePart | None = None
    unsent: bool = False
    """Whether the platform refused the first message, so that it may be sent once more without being doubled."""
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
    """See `ShowsPreviews`.

    Args:
        spawn: runs a turn's task.
        where: says which chat a chat is now.
        live: whether texts are shown as they grow.
        left: messages that an earlier process began and to which it intended no answer.
        has_room: waits while the disk is full: nothing is shown then, as nothing could be written down.
    """

    def __init__(
        self,
        channel: Channel,
        outbox: Outbox,
        *,
        spawn: Spawn,
        where: Callable[[str], str] = lambda chat: chat,
        live: bool = True,
        left: Sequence[LiveMessage] = (),
        has_room: Callable[[], Awaitable[None]] = always_room,
    ) -> None:
        self._has_room = has_room
        self._left = tuple(left)
        self._closing: set[asyncio.Task[None]] = set()
        self._channel = channel
        self._outbox = outbox
        self._spawn = spawn
        self._where = where
        self._editing = channel if live and isinstance(channel, SupportsEditing) and channel.edit_interval > 0 else None
        self.behind: Callable[[str], bool] = lambda _: False
        """Whether a chat still waits for earlier answers; no message is begun before them."""
        self._running: dict[str, list[tuple[_LiveTurn, asyncio.Task[None]]]] = {}
        self._over = False

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews.preview`."""
        if self._over:
            return
        if isinstance(event, TurnStarted):
            _, chat, *thread = session.split(":", 2)
            shown = _LiveTurn(session, chat, "".join(thread), event.inbound, event.message)
            task = self._spawn(self._show(shown))
            self._running.setdefault(session, []).append((shown, task))
            task.add_done_callback(lambda _: self._forget(session))
            return
        if not (running := self._running.get(session)):
            return
        shown = running[-1][0]
        match event:
            case TextStreamed(text):
                shown.text += text
            case ToolStarted(name, _):
                shown.tool = name
            case ToolFinished():
                shown.tool = ""
            case StepFinished(_, calls) if calls:
                shown.text = f"{shown.text.rstrip()}\n\n" if shown.text.strip() else ""
            case TurnFinished(status):
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
        for task in list(self._closing):
            task.cancel()

    def close_left(self, unanswered: Collection[int]) -> None:
        """Close what an earlier process left of turns that said nothing; `unanswered` inbounds get another turn."""
        for live in self._left:
            if live.inbound not in unanswered:
                self._close_later(live, NOTHING_MORE)
        self._left = ()

    def _forget(self, session: str) -> None:
        left = [(shown, task) for shown, task in self._running.get(session, ()) if not task.done()]
        if left:
            self._running[session] = left
        else:
            self._running.pop(session, None)

    async def _show(self, shown: _LiveTurn) -> None:
        try:
            await self._shown(shown)
        except Exception:  # the adapter is someone else's code, and what it shows must not cost a turn
            log.warning("a live answer failed", exc_info=True, extra={"action": "live.failed"})

    async def _shown(self, shown: _LiveTurn) -> None:
        typing = self._spawn(self._type(shown))
        try:
            await self._grow(shown)
        finally:
            typing.cancel()  # no answer waits for a call that says it is on its way
        if shown.silent:
            await self._close(shown)
            await self._dismiss(shown)

    async def _type(self, shown: _LiveTurn) -> None:
        """Shows that the bot types, until cancelled."""
        if not isinstance(self._channel, SupportsTyping):
            return
        wait = TYPING_AFTER
        while True:
            await asyncio.sleep(wait)
            wait = TYPING_EVERY
            await self._has_room()
            try:
                await answered(self._channel.typing(self._where(shown.chat), shown.thread), CALLED)
            except DeliveryFailed as error:
                wait = max(error.retry_after or 0.0, 5 * TYPING_EVERY)
                log.debug("typing was not shown: %s", error, extra={"action": "live.typing"})

    async def _grow(self, shown: _LiveTurn) -> None:
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

    async def _say(self, shown: _LiveTurn) -> None:
        """Begin the message, or change it; continue with one that an interrupted attempt has begun."""
        assert self._editing is not None
        loop = asyncio.get_running_loop()
        await self._has_room()
        if shown.ended:  # while it waited
            return
        try:
            shown.live = shown.live or await self._outbox.live_message(shown.inbound)
            if shown.live is None and self.behind(shown.chat):
                shown.due = loop.time() + self._editing.edit_interval
                return
            wait = self._editing.edit_interval
            if shown.live is None:
                await self._begin(shown)
                wait = wait if shown.seen else 0.0  # a bare start has waited for its text long enough
            elif shown.live.message:
                await self._change(shown)
            elif shown.unsent:
                await self._send_first(shown)
            else:
                shown.live = await settle_live(self._channel, self._outbox, shown.live, CALLED)
                shown.dead = not shown.live.message
                wait = 0.0
            shown.due = loop.time() + wait
        except DeliveryFailed as error:
            begun = shown.live is not None and bool(shown.live.message)
            again = begun or isinstance(self._channel, FindsMessages) or shown.unsent
            shown.dead = shown.dead or error.permanent or not again
            shown.due = loop.time() + max(error.retry_after or 0.0, 2 * self._editing.edit_interval)
            log.debug("a live answer was not shown: %s", error, extra={"action": "live.failed"})
        except StoreError:
            shown.dead = True  # the turn's own merge will say what is wrong

    async def _begin(self, shown: _LiveTurn) -> None:
        """Record that the message is about to be sent, and send it."""
        text, finds = shown.now(), isinstance(self._channel, FindsMessages)
        part = self._part(shown, text + CONTINUES_MARK if finds else BARE_START)
        if part is None or not shown.inbound:
            shown.dead = True
            return
        shown.live = await self._outbox.begin_live(shown.inbound, shown.session, part)
        await self._send_first(shown)
        if finds:
            shown.seen, shown.part = text, part

    async def _send_first(self, shown: _LiveTurn) -> None:
        """Send the message that was recorded, and record its id."""
        live = shown.live
        assert live is not None
        assert live.part is not None
        shown.unsent = False
        try:
            receipt = receipt_of(await answered(self._channel.send(replace(live.part, key=live_key(live))), CALLED))
        except DeliveryFailed as error:
            shown.unsent = error.retry_after is not None and not error.maybe
            raise
        if not receipt.external_id:
            shown.dead = True  # it cannot be changed: one is enough
            return
        chat = receipt.chat or live.part.chat
        await self._outbox.live(shown.inbound, shown.session, receipt.external_id, chat)
        shown.live = replace(live, message=receipt.external_id, chat=chat)

    async def _change(self, shown: _LiveTurn) -> None:
        """Put the text so far into the message. One that stays in a chat that moved is for the delivery to replace."""
        assert self._editing is not None
        assert shown.live is not None
        text = shown.now()
        part = self._part(shown, text + CONTINUES_MARK)
        chat = shown.live.chat or self._where(shown.chat)
        if part is None or self._where(chat) != chat:
            shown.dead = True
            return
        if part != shown.part:
            await answered(self._editing.edit(shown.live.message, replace(part, chat=chat)), CALLED)
        shown.seen, shown.part = text, part

    async def _dismiss(self, shown: _LiveTurn) -> None:
        """Takes away what says that an answer is on its way, where the platform has such a thing."""
        if not isinstance(self._channel, AcknowledgesInteractions):
            return
        try:
            away = self._channel.dismiss(self._where(shown.chat), shown.thread, shown.reply_to)
            await answered(away, CALLED)
        except DeliveryFailed as error:
            log.debug("what announced an answer was not taken away: %s", error, extra={"action": "live.dismiss"})

    async def _close(self, shown: _LiveTurn) -> None:
        """A turn that says nothing leaves no half sentence behind: the message keeps what was said until then."""
        try:
            live = shown.live or await self._outbox.live_message(shown.inbound)
        except StoreError as error:
            log.debug("a live answer was not closed: %s", error, extra={"action": "live.close"})
            return
        if live is not None and not await self._closed(live, text := shown.text.strip() or NOTHING_MORE):
            self._close_later(live, text)

    def _close_later(self, live: LiveMessage, text: str) -> None:
        """Close the message in the background, however long the platform is away."""

        async def close() -> None:
            for wait in CLOSE_RETRY_SECONDS:
                if await self._closed(live, text):
                    return
                await asyncio.sleep(wait)

        if not self._over:
            task = self._spawn(close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _closed(self, live: LiveMessage, text: str) -> bool:
        """Let the message say `text` for good and record that; False if that has to be tried again."""
        if not isinstance(self._channel, SupportsEditing):
            return True
        name, _, where = live.session.partition(":")
        chat, _, thread = where.partition(":")
        try:
            live = await settle_live(self._channel, self._outbox, live, CALLED, send=False)
            chat = live.chat or self._where(chat)
            part = parts_of(self._channel, Outbound(name, chat, text, thread))[0]
            if live.message and part.file is None:
                await answered(self._channel.edit(live.message, part), CALLED)
        except (DeliveryFailed, StoreError) as error:
            log.debug("a live answer was not closed: %s", error, extra={"action": "live.close"})
            if not (isinstance(error, DeliveryFailed) and error.permanent):
                return False
        try:
            await self._outbox.end_live(live.inbound)
        except StoreError as error:
            log.debug("a live answer was not closed: %s", error, extra={"action": "live.close"})
            return False
        return True

    def _part(self, shown: _LiveTurn, text: str) -> MessagePart | None:
        """The first part of a text, where it can be shown."""
        name, chat = shown.session.partition(":")[0], self._where(shown.chat)
        parts = parts_of(self._channel, Outbound(name, chat, text, shown.thread, shown.reply_to))
        return None if parts[0].file is not None else parts[0]
