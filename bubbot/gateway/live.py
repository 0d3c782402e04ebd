"""Live answers: show a running turn in a chat, by a typing indicator and by editing one message as the text grows.

One fact records the message before it is sent, another its id as soon as it is known. So the delivery, even of a later
process, replaces it with the final text, and no half answer stays next to the complete one.

- A channel that can search its history (`FindsMessages`) begins with the text so far. If the result of that call is
  unknown, `settle_live` finds the message, or sends it again under the same key.
- Any other channel begins with a bare `…`, and grows only when the id is durable. If the result of that call is
  unknown, it does not try again, and the `…` may stay: it contains nothing of the answer.
- If the turn ends without an answer, the message keeps the text so far; closing it is retried until it succeeds.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, field

from msgspec import structs

from bubbot.errors import DeliveryFailed, LeaseLost, StoreError
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

log = logging.getLogger(__name__)

TYPING_INTERVAL_SECONDS = 4.0
"""Seconds between typing calls; Telegram shows a bot as typing for five, Discord for ten."""
TYPING_DELAY_SECONDS = 0.3
"""Seconds before the first typing call: a faster answer needs none."""
FIRST_MESSAGE_DELAY_SECONDS = 1.0
"""Seconds of text before a message begins: an answer that is complete by then is sent normally."""
CONTINUES_MARK = " …"
BARE_START = "…"
"""The first text of a message on a platform that cannot report if it arrived."""
SILENT_TURN_TEXT = "—"
"""The final text of a begun message if the turn ends without an answer."""
LIVE_CALL_TIMEOUT_SECONDS = 10.0
"""Seconds that one call of the adapter may take, and that a delivery waits for it."""
CLOSE_RETRY_SECONDS = (1.0, 5.0, 15.0, 60.0, 300.0, 900.0, 3600.0)
"""Seconds before each further attempt to close a message without an answer; after the last the next start tries."""


@dataclass
class LiveTurn:
    """A running turn as its chat sees it.

    Attributes:
        session: of the turn.
        chat: the chat id with which the session began.
        thread: the thread in the chat, or empty.
        inbound: the entry id of the inbound that began the turn.
        reply_to: the platform's id of that message.
        is_first_attempt: no earlier turn had a preview for this inbound.
        text: the text so far.
        tool: the name of the running tool, or empty.
        seen: the text that the message currently shows.
        live: the recorded message; None before it exists.
        has_begun: the message was recorded, or is about to be.
        part: the part that the message currently shows.
        unsent: the platform refused the first message, so sending it again cannot duplicate it.
        dead: show nothing more.
        due: the earliest time of the next send or edit, by the loop's clock.
        ended: the turn has ended.
        silent: the turn ended without an answer.
        has_no_link_previews: its model saw words from anywhere.
        changed: set at a change that needs an update.
        is_waiting: an update waits until it is due, so that further text need not set `changed`.
        task: shows the turn; None until the turn has taken a while.
        timer: starts the task.
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
        """Update the turn by one of its previews."""
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
        outbox: records the live messages.
        create_task: runs the task of a turn.
        current_chat: returns the current id of a chat.
        live: show growing texts.
        abandoned: messages that an earlier process began without recording an answer.
        wait_for_room: waits while the disk is full: nothing is shown then, since it could not be recorded.
            It raises `LeaseLost` if another process shows the answers by now.

    Attributes:
        has_pending: returns true if a chat still waits for earlier answers; no message begins before they are sent.
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
        delay = min(TYPING_DELAY_SECONDS, FIRST_MESSAGE_DELAY_SECONDS)  # show nothing earlier
        turn.timer = asyncio.get_running_loop().call_later(delay, self._start, turn)
        self._running.setdefault(session, []).append(turn)

    def _start(self, turn: LiveTurn) -> None:
        """Start the task that shows a turn; most answers are complete before and need none."""
        turn.task = self._spawn(self._show(turn))
        turn.task.add_done_callback(lambda _: self._forget(turn))

    def _end_early(self, turn: LiveTurn) -> None:
        """End a turn that was not shown yet. Without an answer it may have to close a message or dismiss an indicator."""
        assert turn.timer is not None
        turn.timer.cancel()
        if turn.silent:
            self._start(turn)
        else:
            self._forget(turn)

    def take_unshown(self, session: str, inbound: int) -> bool:
        """Return true, once, if the turn that answered this inbound began no message; false if only the outbox knows."""
        if self._unshown.get(session) != inbound:
            return False
        del self._unshown[session]
        return True

    async def wait_until_settled(self, session: str) -> None:
        """Wait until ended turns show nothing more, so that their answers can be delivered."""
        if ended := [turn.task for turn in self._running.get(session, ()) if turn.ended and turn.task is not None]:
            _, late = await asyncio.wait(ended, timeout=2 * LIVE_CALL_TIMEOUT_SECONDS)
            for task in late:
                task.cancel()
            if late:  # show nothing after the answer
                await asyncio.wait(late, timeout=1.0)

    def cancel(self) -> None:
        """Show nothing more of any turn, running or later: nothing would complete the message."""
        self._is_cancelled = True
        self.drop()

    def drop(self) -> None:
        """Show nothing more of the running turns: another process completes their messages, with the newer text."""
        for turn in [turn for turns in self._running.values() for turn in turns]:
            if turn.timer is not None:
                turn.timer.cancel()
            if turn.task is not None:
                turn.task.cancel()
            else:
                self._forget(turn)
        for task in list(self._closing):
            task.cancel()

    def close_abandoned(self, unanswered: Collection[tuple[str, int]]) -> None:
        """Close messages that an earlier process left without an answer.

        Skip the `unanswered` inbounds, each given with its session: they get another turn.
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
        except Exception:  # the adapter may be third-party code, and a preview must not cost a turn
            log.warning("live answer failed", exc_info=True, extra={"action": "live.failed"})

    async def _show_until_end(self, turn: LiveTurn) -> None:
        typing = None if turn.ended or self._typing is None else self._spawn(self._type(turn, self._typing))
        try:
            await self._update_until_end(turn)
        finally:
            if typing is not None:
                typing.cancel()  # an answer must not wait for a typing call
        if turn.silent:
            await self._close(turn)
            await self._dismiss(turn)

    async def _type(self, turn: LiveTurn, channel: SupportsTyping) -> None:
        """Show the typing indicator until cancelled, or until another process has the chat."""
        await asyncio.sleep(max(TYPING_DELAY_SECONDS - FIRST_MESSAGE_DELAY_SECONDS, 0.0))
        while True:
            wait = TYPING_INTERVAL_SECONDS
            try:
                await self._has_room()
                await call_adapter(channel.typing(self._where(turn.chat), turn.thread), LIVE_CALL_TIMEOUT_SECONDS)
            except DeliveryFailed as error:
                wait = max(error.retry_after or 0.0, 5 * TYPING_INTERVAL_SECONDS)
                log.debug("typing not shown: %s", error, extra={"action": "live.typing"})
            except LeaseLost:
                return
            await asyncio.sleep(wait)

    async def _update_until_end(self, turn: LiveTurn) -> None:
        """Update the message with the growing text until the turn ends."""
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
        """Begin the message or edit it; continue one that an interrupted attempt began."""
        assert self._editing is not None
        loop = asyncio.get_running_loop()
        try:
            await self._has_room()
            if turn.ended:  # while it waited
                return
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
        except (StoreError, LeaseLost):
            turn.dead = True  # the turn's own merge reports the error

    async def _begin_message(self, turn: LiveTurn) -> None:
        """Record the message, then send it."""
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
        """Send the recorded message and record its id."""
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
        turn.live = structs.replace(live, message=receipt.external_id, chat=chat)

    async def _change_message(self, turn: LiveTurn) -> None:
        """Put the text so far into the message. Leave a message in a moved chat to the delivery."""
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
        """Remove the platform's indicator of a coming answer, if it has one."""
        if not isinstance(self._channel, AcknowledgesInteractions):
            return
        try:
            dismissal = self._channel.dismiss(self._where(turn.chat), turn.thread, turn.reply_to)
            await call_adapter(dismissal, LIVE_CALL_TIMEOUT_SECONDS)
        except DeliveryFailed as error:
            log.debug("answer announcement not dismissed: %s", error, extra={"action": "live.dismiss"})

    async def _close(self, turn: LiveTurn) -> None:
        """Close the message of a turn without an answer: keep the text so far, without half a sentence."""
        try:
            live = turn.live or await self._outbox.live_message(turn.inbound, turn.session)
        except StoreError as error:
            log.debug("live answer not closed: %s", error, extra={"action": "live.close"})
            return
        if live is not None and not await self._try_close(live, text := turn.text.strip() or SILENT_TURN_TEXT):
            self._close_later(live, text)

    def _close_later(self, live: LiveMessage, text: str) -> None:
        """Close the message in the background, even if the platform is unreachable for long."""

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
        """Set the message to its final `text` and record that; return false if it must be tried again."""
        if not isinstance(self._channel, SupportsEditing):
            return True
        name, _, place = live.session.partition(":")
        chat, _, thread = place.partition(":")
        try:
            live = await settle_live(self._channel, self._outbox, live, LIVE_CALL_TIMEOUT_SECONDS, send=False)
            chat = live.chat or self._where(chat)
            # The provenance of the text is no longer known.
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
        """Return the first part of a text; None if there is nothing to show."""
        name, chat = turn.session.partition(":")[0], self._where(turn.chat)
        outbound = Outbound(
            name, chat, text, turn.thread, turn.reply_to, has_no_link_previews=turn.has_no_link_previews
        )
        parts = split_outbound(self._channel, outbound)
        return None if parts[0].file is not None else parts[0]
