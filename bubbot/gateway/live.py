"""Live answers: show a running turn in a chat, by typing and by changing one message as the text grows.

A fact records that the message is about to be sent before it is sent, and another its id as soon as it is known. So
delivery, also that of a later process, replaces it with the final text: no half answer stays next to the complete one.

- A channel that can search its history (`FindsMessages`) begins with the text so far. If the result of that call is
  unknown, the message is found again, or sent again under the same key: `settle_live`.
- Any other channel begins with a bare `…`, and grows only when the id is durable. If the result of that call is
  unknown, the message is not tried again, and the `…` may stay: it holds nothing of the answer.
- A turn that says nothing in the end leaves the message with the text so far; closing it is tried until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import field, replace

from msgspec import structs

from bubbot.errors import DeliveryFailed, StoreError
from bubbot.gateway.outbound import (
    CreateTask,
    call_adapter,
    live_key,
    receipt_of,
    settle_live,
    split_outbound,
)
from bubbot.gateway.outbox import Outbox
from bubbot.gateway.outbox_views import LiveMessage
from bubbot.ports.channel import (
    AcknowledgesInteractions,
    Channel,
    FindsMessages,
    ForeignWordsShown,
    MessagePart,
    Outbound,
    Preview,
    StepFinished,
    SupportsEditing,
    SupportsTyping,
    TextDiscarded,
    TextStreamed,
    ToolFinished,
    ToolStarted,
    TurnFinished,
    TurnStarted,
)
from bubbot.ports.store import no_wait_for_room
from bubbot.records import dataclass

log = logging.getLogger(__name__)

TYPING_INTERVAL_SECONDS = 4.0
"""Seconds between typing calls; Telegram shows a bot as typing for five, Discord for ten."""
TYPING_DELAY_SECONDS = 0.3
"""Seconds before typing is shown for the first time: a faster answer needs no such call."""
FIRST_MESSAGE_DELAY_SECONDS = 1.0
"""Seconds of text before a message is begun: an answer that is complete by then is simply sent."""
CONTINUES_MARK = " …"
BARE_START = "…"
"""The first text of a message on a platform that cannot be asked if it arrived."""
SILENT_TURN_TEXT = "—"
"""The final text of a message that was begun, if the turn said nothing."""
LIVE_CALL_TIMEOUT_SECONDS = 10.0
"""Seconds that one call of the adapter may take; a delivery waits for it no longer."""
CLOSE_RETRY_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Waits before a message without an answer is tried to be closed again; after the last the next start does it."""


@dataclass
class LiveTurn:
    """One running turn as its chat sees it.

    Attributes:
        session: that of the turn.
        chat: the chat in which the session began.
        thread: the thread in that chat, or empty.
        inbound: the entry id of the inbound that began the turn.
        reply_to: the platform's id of that message.
        is_first_attempt: no earlier turn has shown anything for this inbound.
        text: the text so far.
        tool: the name of the running tool, or empty.
        seen: the text that the message shows.
        live: the recorded message; None before there is one.
        has_begun: the message was recorded, or is about to be.
        part: the part that the message shows.
        unsent: the platform refused the first message, so it can be sent once more without being doubled.
        dead: nothing more is shown.
        due: when the message may be sent or changed next, by the loop's clock.
        ended: the turn has ended.
        silent: it ended without an answer.
        has_no_link_previews: its model was shown words from anywhere.
        changed: set when the turn changed in a way that matters now.
        is_waiting: there is something to show once it is due, whatever else comes until then.
        task: shows the turn; None before the turn has taken a while.
        timer: starts that task.
    """

    session: str
    chat: str
    thread: str
    inbound: int
    reply_to: str
    is_first_attempt: bool
    text: str = ""
    step_start: int = 0
    tool: str = ""
    seen: str = ""
    live: LiveMessage | None = None
    has_begun: bool = False
    part: MessagePart | None = None
    unsent: bool = False
    dead: bool = False
    due: float | None = None
    ended: bool = False
    silent: bool = False
    has_no_link_previews: bool = False
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_waiting: bool = False
    task: asyncio.Task[None] | None = None
    timer: asyncio.TimerHandle | None = None

    def apply(self, event: Preview) -> None:
        """Change the turn by an event of it."""
        match event:
            case TextStreamed(text):
                self.text += text
            case TextDiscarded():
                self.text = self.text[: self.step_start]
            case ForeignWordsShown():
                self.has_no_link_previews = True
            case ToolStarted(name, _):
                self.tool = name
            case ToolFinished():
                self.tool = ""
            case StepFinished(_, calls) if calls:
                self.text = f"{self.text.rstrip()}\n\n" if self.text.strip() else ""
                self.step_start = len(self.text)
            case TurnFinished(status):
                self.ended, self.silent = True, status == "silent"
        if self.due is None and isinstance(event, TextStreamed | ToolStarted):
            self.due = asyncio.get_running_loop().time() + FIRST_MESSAGE_DELAY_SECONDS

    def now(self) -> str:
        """Return the text that the message should show."""
        tool = f"\n\n⚙ {self.tool}" if self.tool else ""
        return f"{self.text.rstrip()}{tool}".strip()


class LiveAnswers:
    """See `ShowsPreviews`.

    Args:
        channel: the adapter.
        outbox: records the live messages.
        create_task: runs a turn's task.
        current_chat: returns the current id of a chat.
        live: show texts as they grow.
        abandoned: messages that an earlier process began and to which it intended no answer.
        wait_for_room: waits while the disk is full: nothing is shown then, as nothing could be recorded.

    Attributes:
        has_pending: returns true if a chat still waits for earlier answers; no message is begun before them.
    """

    def __init__(
        self,
        channel: Channel,
        outbox: Outbox,
        *,
        create_task: CreateTask,
        current_chat: Callable[[str], str] = lambda chat: chat,
        live: bool = True,
        abandoned: Sequence[LiveMessage] = (),
        wait_for_room: Callable[[], Awaitable[None]] = no_wait_for_room,
    ) -> None:
        self._has_room = wait_for_room
        self._left = tuple(abandoned)
        self._closing: set[asyncio.Task[None]] = set()
        self._channel = channel
        self._outbox = outbox
        self._spawn = create_task
        self._where = current_chat
        self._editing = channel if live and isinstance(channel, SupportsEditing) and channel.edit_interval > 0 else None
        self._typing = channel if isinstance(channel, SupportsTyping) else None
        self.has_pending: Callable[[str], bool] = lambda _: False
        self._running: dict[str, list[LiveTurn]] = {}
        self._unshown: dict[str, int] = {}
        self._is_cancelled = False

    def preview(self, session: str, event: Preview) -> None:
        """See `ShowsPreviews.preview`."""
        if self._is_cancelled:
            return
        if isinstance(event, TurnStarted):
            self._begin(session, event)
            return
        if not (running := self._running.get(session)):
            return
        turn = running[-1]
        turn.apply(event)
        if turn.task is None:
            if turn.ended:
                self._end_early(turn)
        elif turn.ended or not turn.is_waiting:  # an answer comes in many pieces
            turn.changed.set()

    def _begin(self, session: str, event: TurnStarted) -> None:
        _, chat, *thread = session.split(":", 2)
        turn = LiveTurn(session, chat, "".join(thread), event.inbound, event.message, event.is_first_attempt)
        delay = min(TYPING_DELAY_SECONDS, FIRST_MESSAGE_DELAY_SECONDS)  # nothing is shown before
        turn.timer = asyncio.get_running_loop().call_later(delay, self._start, turn)
        self._running.setdefault(session, []).append(turn)

    def _start(self, turn: LiveTurn) -> None:
        """Show a turn from now on: most answers are complete before, and cost no task."""
        turn.task = self._spawn(self._show(turn))
        turn.task.add_done_callback(lambda _: self._forget(turn))

    def _end_early(self, turn: LiveTurn) -> None:
        """End a turn of which nothing was shown yet. One that says nothing may have to close or dismiss something."""
        assert turn.timer is not None
        turn.timer.cancel()
        if turn.silent:
            self._start(turn)
        else:
            self._forget(turn)

    def take_unshown(self, session: str, inbound: int) -> bool:
        """Return true, once, if no message was begun for the turn that answered this inbound; false if only the outbox knows."""
        if self._unshown.get(session) != inbound:
            return False
        del self._unshown[session]
        return True

    async def wait_until_settled(self, session: str) -> None:
        """Return when nothing more is shown of turns that have ended, so that their answers can be delivered."""
        if ended := [turn.task for turn in self._running.get(session, ()) if turn.ended and turn.task is not None]:
            _, late = await asyncio.wait(ended, timeout=2 * LIVE_CALL_TIMEOUT_SECONDS)
            for task in late:
                task.cancel()
            if late:  # nothing may be shown after the answer
                await asyncio.wait(late, timeout=1.0)

    def cancel(self) -> None:
        """Show nothing more of any turn, nor of one that begins later: nobody would complete it."""
        self._is_cancelled = True
        for turn in [turn for turns in self._running.values() for turn in turns]:
            if turn.timer is not None:
                turn.timer.cancel()
            if turn.task is not None:
                turn.task.cancel()
        for task in list(self._closing):
            task.cancel()

    def close_abandoned(self, unanswered: Collection[tuple[str, int]]) -> None:
        """Close messages that an earlier process left without an answer.

        The `unanswered` inbounds, each with its session, get another turn.
        """
        for live in self._left:
            if (live.session, live.inbound) not in unanswered:
                self._close_later(live, SILENT_TURN_TEXT)
        self._left = ()

    def _forget(self, turn: LiveTurn) -> None:
        running = [other for other in self._running.get(turn.session, ()) if other is not turn]
        if running:
            self._running[turn.session] = running
            return
        self._running.pop(turn.session, None)
        if turn.is_first_attempt and turn.ended and not (turn.has_begun or turn.live):
            self._unshown[turn.session] = turn.inbound

    async def _show(self, turn: LiveTurn) -> None:
        try:
            await self._show_until_end(turn)
        except Exception:  # the adapter is someone else's code, and a preview must not cost a turn
            log.warning("live answer failed", exc_info=True, extra={"action": "live.failed"})

    async def _show_until_end(self, turn: LiveTurn) -> None:
        typing = None if turn.ended or self._typing is None else self._spawn(self._type(turn, self._typing))
        try:
            await self._update_until_end(turn)
        finally:
            if typing is not None:
                typing.cancel()  # no answer waits for a typing call
        if turn.silent:
            await self._close(turn)
            await self._dismiss(turn)

    async def _type(self, turn: LiveTurn, channel: SupportsTyping) -> None:
        """Show that the bot types, until cancelled."""
        await asyncio.sleep(max(TYPING_DELAY_SECONDS - FIRST_MESSAGE_DELAY_SECONDS, 0.0))
        while True:
            wait = TYPING_INTERVAL_SECONDS
            await self._has_room()
            try:
                await call_adapter(channel.typing(self._where(turn.chat), turn.thread), LIVE_CALL_TIMEOUT_SECONDS)
            except DeliveryFailed as error:
                wait = max(error.retry_after or 0.0, 5 * TYPING_INTERVAL_SECONDS)
                log.debug("typing not shown: %s", error, extra={"action": "live.typing"})
            await asyncio.sleep(wait)

    async def _update_until_end(self, turn: LiveTurn) -> None:
        """Let the message grow with the text until the turn ends."""
        loop = asyncio.get_running_loop()
        while not turn.ended:
            has_news = self._editing is not None and not turn.dead and turn.now() not in ("", turn.seen)
            if has_news and turn.due is not None and loop.time() >= turn.due:
                await self._update_message(turn)
                continue
            turn.changed.clear()
            turn.is_waiting = has_news
            try:
                async with asyncio.timeout_at(turn.due if has_news else None):
                    await turn.changed.wait()
            except TimeoutError:
                continue

    async def _update_message(self, turn: LiveTurn) -> None:
        """Begin the message, or change it; continue with one that an interrupted attempt has begun."""
        assert self._editing is not None
        loop = asyncio.get_running_loop()
        await self._has_room()
        if turn.ended:  # while it waited
            return
        try:
            turn.live = turn.live or await self._outbox.live_message(turn.inbound, turn.session)
            if turn.live is None and self.has_pending(turn.chat):
                turn.due = loop.time() + self._editing.edit_interval
                return
            wait = self._editing.edit_interval
            if turn.live is None:
                await self._begin_message(turn)
                wait = wait if turn.seen else 0.0  # a bare start gets its text at once
            elif turn.live.message:
                await self._change_message(turn)
            elif turn.unsent:
                await self._send_first(turn)
            else:
                turn.live = await settle_live(self._channel, self._outbox, turn.live, LIVE_CALL_TIMEOUT_SECONDS)
                turn.dead = not turn.live.message
                wait = 0.0
            turn.due = loop.time() + wait
        except DeliveryFailed as error:
            has_begun = turn.live is not None and bool(turn.live.message)
            can_retry = has_begun or isinstance(self._channel, FindsMessages) or turn.unsent
            turn.dead = turn.dead or error.permanent or not can_retry
            turn.due = loop.time() + max(error.retry_after or 0.0, 2 * self._editing.edit_interval)
            log.debug("live answer not shown: %s", error, extra={"action": "live.failed"})
        except StoreError:
            turn.dead = True  # the turn's own merge will report the error

    async def _begin_message(self, turn: LiveTurn) -> None:
        """Record that the message is about to be sent, and send it."""
        text, finds = turn.now(), isinstance(self._channel, FindsMessages)
        part = self._part(turn, text + CONTINUES_MARK if finds else BARE_START)
        if part is None or not turn.inbound:
            turn.dead = True
            return
        turn.has_begun = True
        turn.live = await self._outbox.begin_live(turn.inbound, turn.session, part)
        await self._send_first(turn)
        if finds:
            turn.seen, turn.part = text, part

    async def _send_first(self, turn: LiveTurn) -> None:
        """Send the message that was recorded, and record its id."""
        live = turn.live
        assert live is not None
        assert live.part is not None
        turn.unsent = False
        try:
            receipt = receipt_of(
                await call_adapter(
                    self._channel.send(structs.replace(live.part, key=live_key(live))), LIVE_CALL_TIMEOUT_SECONDS
                )
            )
        except DeliveryFailed as error:
            turn.unsent = error.retry_after is not None and not error.maybe
            raise
        if not receipt.external_id:
            turn.dead = True  # it cannot be changed
            return
        chat = receipt.chat or live.part.chat
        await self._outbox.record_live(turn.inbound, turn.session, receipt.external_id, chat)
        turn.live = replace(live, message=receipt.external_id, chat=chat)

    async def _change_message(self, turn: LiveTurn) -> None:
        """Put the text so far into the message. One in a chat that moved is left to the delivery."""
        assert self._editing is not None
        assert turn.live is not None
        text = turn.now()
        part = self._part(turn, text + CONTINUES_MARK)
        chat = turn.live.chat or self._where(turn.chat)
        if part is None or self._where(chat) != chat:
            turn.dead = True
            return
        if part != turn.part:
            await call_adapter(
                self._editing.edit(turn.live.message, structs.replace(part, chat=chat)), LIVE_CALL_TIMEOUT_SECONDS
            )
        turn.seen, turn.part = text, part

    async def _dismiss(self, turn: LiveTurn) -> None:
        """Remove the sign that an answer is on its way, if the platform has one."""
        if not isinstance(self._channel, AcknowledgesInteractions):
            return
        try:
            dismissal = self._channel.dismiss(self._where(turn.chat), turn.thread, turn.reply_to)
            await call_adapter(dismissal, LIVE_CALL_TIMEOUT_SECONDS)
        except DeliveryFailed as error:
            log.debug("answer announcement not dismissed: %s", error, extra={"action": "live.dismiss"})

    async def _close(self, turn: LiveTurn) -> None:
        """Close the message of a turn that says nothing: it keeps the text so far, without half a sentence."""
        try:
            live = turn.live or await self._outbox.live_message(turn.inbound, turn.session)
        except StoreError as error:
            log.debug("live answer not closed: %s", error, extra={"action": "live.close"})
            return
        if live is not None and not await self._try_close(live, text := turn.text.strip() or SILENT_TURN_TEXT):
            self._close_later(live, text)

    def _close_later(self, live: LiveMessage, text: str) -> None:
        """Close the message in the background, however long the platform is away."""

        async def close() -> None:
            for wait in CLOSE_RETRY_SECONDS:
                if await self._try_close(live, text):
                    return
                await asyncio.sleep(wait)

        if not self._is_cancelled:
            task = self._spawn(close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _try_close(self, live: LiveMessage, text: str) -> bool:
        """Set the message to `text` for good and record that; return False if that has to be tried again."""
        if not isinstance(self._channel, SupportsEditing):
            return True
        name, _, place = live.session.partition(":")
        chat, _, thread = place.partition(":")
        try:
            live = await settle_live(self._channel, self._outbox, live, LIVE_CALL_TIMEOUT_SECONDS, send=False)
            chat = live.chat or self._where(chat)
            # Nobody knows any more what the text is made of.
            outbound = Outbound(name, chat, text, thread, has_no_link_previews=True)
            part = split_outbound(self._channel, outbound)[0]
            if live.message and part.file is None:
                await call_adapter(self._channel.edit(live.message, part), LIVE_CALL_TIMEOUT_SECONDS)
        except (DeliveryFailed, StoreError) as error:
            log.debug("live answer not closed: %s", error, extra={"action": "live.close"})
            if not (isinstance(error, DeliveryFailed) and error.permanent):
                return False
        try:
            await self._outbox.end_live(live)
        except StoreError as error:
            log.debug("live answer not closed: %s", error, extra={"action": "live.close"})
            return False
        return True

    def _part(self, turn: LiveTurn, text: str) -> MessagePart | None:
        """Return the first part of a text; None if it cannot be shown."""
        name, chat = turn.session.partition(":")[0], self._where(turn.chat)
        outbound = Outbound(
            name, chat, text, turn.thread, turn.reply_to, has_no_link_previews=turn.has_no_link_previews
        )
        parts = split_outbound(self._channel, outbound)
        return None if parts[0].file is not None else parts[0]
