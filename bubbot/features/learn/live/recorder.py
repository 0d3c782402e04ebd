"""Sends the calls of chats to a proxy that records them, as chains, and what the answers were worth.

A turn is answered by the chat's own model if the proxy may not see it, or does not answer: no message is lost to training. Each fact
stands on the tape before what follows from it: a call is known to have begun before it is sent, its answer before the turn goes on,
a session as closed before the proxy is told. A reward is recorded once the proxy has it; a kill in between sends the same one again,
which changes nothing there.
"""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from typing import NamedTuple
from urllib.parse import urlsplit

from bubbot.concurrency import Backoff, run_uninterrupted
from bubbot.errors import ConfigError, ModelCallDenied, ModelError, ModelUnavailable, RlProxyFailed, StoreError
from bubbot.feature import Kernel
from bubbot.features.learn.live.chain import answer_message, digest_chain, goes_on
from bubbot.features.learn.live.client import RlClient
from bubbot.features.learn.live.consent import LiveConsent
from bubbot.features.learn.live.facts import (
    CloseReason,
    RlCallBegan,
    RlCallDropped,
    RlCallEnded,
    RlRewardLate,
    RlRewardSent,
    RlSessionBegan,
    RlSessionClosed,
    RlSessionEnded,
)
from bubbot.features.learn.live.health import LiveHealth
from bubbot.features.learn.live.keys import RlKeys, name_chat, name_session
from bubbot.features.learn.live.state import LIVE_PROJECTION, LiveState, RlSession, RlTurn
from bubbot.features.learn.rewards import add_up, assign_rewards
from bubbot.features.learn.settings import LearnSettings
from bubbot.features.learn.tape import LEARN_TAPE
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.middleware import CallNext, ModelCall
from bubbot.ports.model import ListsMessages, Model, ModelReply
from bubbot.ports.outbox import OUTBOX_PREFIX
from bubbot.ports.people import AsksConsent
from bubbot.ports.turn import Turn
from bubbot.runtime.model_choice import switch_query
from bubbot.runtime.turn_spans import find_turn_spans
from bubbot.tape.anchor import SESSION_START
from bubbot.tape.entry import JsonObject, text_field
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.events import STEP_EVENT, TURN_START, ModelSwitched
from bubbot.tape.fork import MergeResult

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
"""Seconds between two looks at judgements and idle sessions."""
SHUTDOWN_SECONDS = 10.0
"""Seconds in which sessions are ended when the bot ends; the next start ends the others."""
MAX_RETRY_SECONDS = 300.0


class _Target(NamedTuple):
    """Where a call goes: the session, its model, and the messages that are sent."""

    session: RlSession
    model: Model
    messages: Sequence[JsonObject]


async def _has_chosen_model(turn: Turn) -> bool:
    """Return true if a person switched the chat to a model; newer weights, to which a rule switched it, are no choice."""
    (found,) = await turn.tape.fetch([switch_query(turn.tape.name)])
    switch = ModelSwitched.try_of(found[0]) if found else None
    return switch is not None and switch.is_choice


class LiveRecorder:
    """Records the calls of the chats in the settings.

    Attributes:
        settings: the section in force.
        health: figures for reports.
        retry_at: seconds of its clock before which the proxy is not asked.
    """

    def __init__(
        self,
        kernel: Kernel,
        settings: LearnSettings,
        consents: AsksConsent,
        open_model: Callable[[str, str, str], Model],
        *,
        elapsed: Callable[[], float] = time.monotonic,
    ) -> None:
        """Build it without reading anything.

        Args:
            consents: knows who allows that models are trained with their words.
            open_model: makes the model of a name at an address with a key. Raises `ConfigError` if it may not be called.
            elapsed: a monotonic clock in seconds.
        """
        self.settings = settings
        self.health = LiveHealth()
        self._kernel = kernel
        self._open_model = open_model
        self._elapsed = elapsed
        self._consent = LiveConsent(consents, kernel.open_copy)
        self._tape = kernel.open_tape(LEARN_TAPE)
        self._projected = kernel.projections.project(LIVE_PROJECTION, self._tape)
        self._keys = RlKeys(kernel.home)
        self._client = RlClient()
        self._models: dict[str, tuple[str, Model]] = {}
        self._locks: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._backoff = Backoff(random.random, first_seconds=LOOK_SECONDS, max_seconds=MAX_RETRY_SECONDS)
        self._failures = 0
        self.retry_at = 0.0
        self._is_model_failing = False
        self._moved = set[str]()
        self._looked: dict[str, tuple[tuple[int, ...], int]] = {}
        self._woken = asyncio.Event()
        self._looking = asyncio.Lock()
        self._is_held = False
        self._beginning = asyncio.Lock()
        self._has_orphans = True

    # What the feature hooks in

    async def around_model(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply]) -> ModelReply:
        """Let the proxy's model answer the calls of recorded chats, and the chat's own one if that cannot be.

        Raises:
            ModelError: the proxy failed in the middle of its answer, or the own model failed.
        """
        if not self._is_recorded(call) or await _has_chosen_model(call.turn):
            return await call_next(call)
        own = call.model
        async with self._locks[call.turn.session]:
            target = await self._find_target(call)
            if target is not None:
                call.model = target.model
                try:
                    return await self._call(call, call_next, target)
                except ModelCallDenied:
                    raise
                except ModelError as error:
                    self._is_model_failing = True
                    self._note_failure(str(error))
                    if call.streamed:  # the runner takes back what was shown, and asks again
                        failure = ModelUnavailable(str(error))
                        failure.is_malformed = True
                        raise failure from error
                finally:
                    call.model = own
        return await call_next(call)

    async def on_merged(self, merged: MergeResult) -> None:
        """Look at a chat whose turn was merged: its window may have moved, it may be erased, or an answer may have been judged."""
        if merged.has_erased:
            await self._projected.load()
            self._has_orphans = True
        starts = [entry for entry in merged.delta if entry.name == TURN_START]
        steps = [place for place, entry in enumerate(merged.delta) if entry.name == STEP_EVENT]
        rest = merged.delta[steps[-1] + 1 if steps else 0 :]
        if starts and any(entry.opens_window and entry.name != SESSION_START for entry in rest):
            self._moved.add(text_field(starts[0].data, "session"))
        self._woken.set()

    def wake(self) -> None:
        """Look at all sessions soon: the settings may have changed."""
        self._woken.set()

    async def run(self) -> None:
        """Send rewards and end sessions, as long as the bot runs."""
        while True:
            self._woken.clear()
            await self.look()
            is_busy = self.settings.endpoint_is_on or self._projected.state.sessions
            with suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS if is_busy else None):
                    await self._woken.wait()

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """End what is recorded, if the proxy is there, when the bot ends. In quarantine nothing is sent: the original bot may record on."""
        self._is_held = await self._kernel.open_tape(HOME_TAPE).read(QuarantineView()) is not None
        try:
            yield
        finally:
            try:
                with suppress(TimeoutError, StoreError):  # what is left is ended by the next bot
                    async with asyncio.timeout(SHUTDOWN_SECONDS):
                        if not self._kernel.projections.is_shared:  # another process may go on with them
                            await self._end_all()
            finally:
                await self._client.aclose()
                for _, model in self._models.values():
                    await model.aclose()

    async def look(self) -> None:
        """Send the rewards that are owed, and end the sessions whose time has come. Two looks come one after the other."""
        async with self._looking:
            await self._look()

    async def _look(self) -> None:
        state = await self._projected.catch_up()
        for found in [] if self._is_held else [*state.sessions]:
            lock = self._locks[found.session]
            if lock.locked():  # a call is under way: what is owed is sent behind it
                continue
            async with lock:
                with suppress(RlProxyFailed):
                    await self._look_at(found.rl)
        if self._has_orphans and not self._is_held:
            with suppress(RlProxyFailed):
                await self._end_orphans()
        self._moved.clear()
        await self._count_late(state)
        self.health.update(self._projected.state)

    # Calls

    def _is_recorded(self, call: ModelCall) -> bool:
        """Return true for a call of a listed chat that is for its answer, if nobody chose another model for this turn."""
        turn, settings = call.turn, self.settings
        if self._is_held or not settings.endpoint_is_on or turn.is_subtask or not call.step or "purpose" in call.step:
            return False
        if turn.agent.model or any(accepted.inbound.model for accepted in turn.inbounds):
            return False
        return turn.session in self._list_chats()

    def _list_chats(self) -> set[str]:
        names = self.settings.endpoint_sessions
        return {*names, *map(self._kernel.current_session, names)}

    async def _find_target(self, call: ModelCall) -> _Target | None:
        """Return where a call goes; None if the chat's own model has to answer it."""
        settings = self.settings
        if self._elapsed() < self.retry_at or not self._is_recorded(call):  # it may be switched off since
            return None
        if (reason := await self._consent.check(call)) is not None:
            self.health.withheld += 1
            log.info("not recorded for training: %s", reason, extra={"action": "learn.withheld"})
            return None
        state = await self._projected.catch_up()
        current = state.find_open(call.turn.session)
        try:
            if current is not None and (target := await self._go_on(current, call)) is not None:
                return target
            current = await self._begin(call, settings)
            return await self._go_on(current, call)
        except (RlProxyFailed, ModelError, ConfigError) as error:
            self._note_failure(str(error))
            return None

    async def _go_on(self, current: RlSession, call: ModelCall) -> _Target | None:
        """Return the target if a request goes on from the calls of a session; else close that, and return None."""
        model = await self._find_model(current)
        if model is None:
            await self._close(current.rl, "lost")
        elif current.is_calling:
            await self._close(current.rl, "uncertain")
        else:
            messages = await model.list_messages(call.request) if isinstance(model, ListsMessages) else []
            if messages and goes_on(current, messages, call.request.tools):
                return _Target(current, model, messages)
            await self._close(current.rl, "prefix")
        return None

    async def _begin(self, call: ModelCall, settings: LearnSettings) -> RlSession:
        """Begin a session of a chat. Raise `RlProxyFailed` or `ConfigError`."""
        chat = call.turn.session
        assert settings.endpoint is not None
        assert settings.endpoint_key is not None
        task = f"bubbot-{self._kernel.new_id()[:12]}"  # says nothing of the chat
        is_free = all(each.session != chat for each in self._projected.state.sessions)
        place = name_chat(settings.endpoint, chat)
        reused = self._keys.find(place) if is_free else ""
        began = await self._client.start(settings.endpoint, settings.endpoint_key.get_secret_value(), task, reused)
        async with self._beginning:
            if self._projected.state.find(began.rl) is not None:
                raise RlProxyFailed("rl/start_session answers with a session that it answered before")
            await asyncio.to_thread(self._keys.change, put={name_session(began.rl): began.key, place: began.key})
            await self._projected.append(RlSessionBegan(chat, call.turn.tape.name, began.rl, settings.endpoint))
        return self._find(began.rl)

    async def _find_model(self, current: RlSession) -> Model | None:
        """Return the model that a session calls; None if its key is not there any more."""
        key = self._keys.find(name_session(current.rl))
        if not key:
            return None
        place = f"{self.settings.endpoint_model} {current.url} {key}"
        known = self._models.get(current.session)
        if known is None or known[0] != place:
            model = self._open_model(self.settings.endpoint_model, current.url, key)
            self._models[current.session] = place, model
            if known is not None:
                await known[1].aclose()
        return self._models[current.session][1]

    async def _call(self, call: ModelCall, call_next: CallNext[ModelCall, ModelReply], target: _Target) -> ModelReply:
        """Send a call; its session goes on only if it is known what came of it."""
        current, turn = target.session, call.turn
        chat, rl = current.session, current.rl
        await self._projected.append(RlCallBegan(chat, rl, turn.id, turn.tape.base))
        call.is_sent = False
        try:
            reply = await call_next(call)
        except BaseException:
            if call.is_sent:
                await run_uninterrupted(self._projected.append(RlSessionClosed(chat, rl, "failed")))
                self._woken.set()
            else:
                await run_uninterrupted(self._projected.append(RlCallDropped(chat, rl)))
            raise
        messages = [*target.messages, answer_message(reply)]
        prefix = digest_chain(messages, call.request.tools)
        await run_uninterrupted(
            self._projected.append(RlCallEnded(chat, rl, turn.id, reply.response_id or "", len(messages), prefix))
        )
        self._is_model_failing = False
        self._note_answer()
        return reply

    # Rewards, and the end of sessions

    async def _look_at(self, rl: str) -> None:
        """Send what is owed to a session, and end it if its time has come. Raise `RlProxyFailed` if that has to wait."""
        current = self._projected.state.find(rl)
        if current is None or self._elapsed() < self.retry_at:
            return
        if current.is_closed:
            await self._end(rl)
        elif (reason := self._find_end(current)) is not None:
            await self._close(rl, reason)
        elif await self._has_news(rl, current.session, current.tape, len(current.turns)):
            try:
                await self._send_rewards(current)
            except RlProxyFailed:
                del self._looked[rl]
                raise

    def _find_end(self, current: RlSession) -> CloseReason | None:
        """Return why a session ends now; None if it goes on."""
        settings = self.settings
        if not settings.endpoint_is_on or settings.endpoint != current.url or current.session not in self._list_chats():
            return "settings"
        if current.session in self._moved:
            return "window"
        idle = self._kernel.now() - datetime.fromisoformat(current.used)
        return "idle" if idle.total_seconds() > settings.endpoint_idle else None

    async def _close(self, rl: str, reason: CloseReason) -> None:
        """Let no further call go to a session, and end it; if the proxy is not there, later."""
        current = self._find(rl)
        await self._projected.append(RlSessionClosed(current.session, rl, reason))
        log.info("a recorded session is over: %s", reason, extra={"action": "learn.closed", "rl": rl})
        with suppress(RlProxyFailed):
            await self._end(rl)

    async def _end(self, rl: str) -> None:
        """Send what is owed to a closed session, and end it. Raise `RlProxyFailed` if that has to wait."""
        current = self._find(rl)
        key = self._keys.find(name_session(rl))
        await self._send_rewards(current)
        if key:
            await self._tell(partial(self._client.end, current.url, key))
        await self._projected.append(RlSessionEnded(current.session, rl))
        await asyncio.to_thread(self._keys.change, drop=(name_session(rl),))
        self._looked.pop(rl, None)

    async def _end_orphans(self) -> None:
        """End sessions of which no fact says anything: it was erased, or a kill came before it. Raise `RlProxyFailed` if that has to wait."""
        if self._elapsed() < self.retry_at:
            return
        self._has_orphans = False
        async with self._beginning:  # a key comes before its fact
            known = {each.rl for each in self._projected.state.sessions}
            keys = self._keys.list_sessions()
        in_use = {keys.get(rl) for rl in known}
        for rl in keys.keys() - known:
            if self.settings.endpoint and keys[rl] not in in_use:
                try:
                    await self._tell(partial(self._client.end, self.settings.endpoint, keys[rl]))
                except RlProxyFailed:
                    self._has_orphans = True
                    raise
            await asyncio.to_thread(self._keys.change, drop=(name_session(rl),))

    async def _end_all(self) -> None:
        """Close and end every session."""
        state = await self._projected.catch_up()
        for found in [] if self._is_held else [*state.sessions]:
            async with self._locks[found.session]:
                if self._elapsed() < self.retry_at:
                    continue
                if not found.is_closed:
                    await self._close(found.rl, "shutdown")
                else:
                    with suppress(RlProxyFailed):
                        await self._end(found.rl)

    async def _send_rewards(self, current: RlSession) -> None:
        """Send the rewards that a session does not have yet. Raise `RlProxyFailed` if the proxy is not there."""
        key = self._keys.find(name_session(current.rl))
        for name, turn, reward in await self._find_due(current.tape, current.turns):
            late = RlRewardLate(current.session, current.rl, name, reward)
            send = partial(self._client.set_reward, current.url, key, turn.completion, reward)
            if not key or not turn.completion or not await self._tell(send):
                self._log_late(name)
                await self._projected.append(late)
                continue
            await self._projected.append(RlRewardSent(current.session, current.rl, name, turn.completion, reward))

    async def _find_due(self, tape: str, turns: Mapping[str, RlTurn]) -> list[tuple[str, RlTurn, float]]:
        """Return the turns of a tape whose reward is another than was sent, with it."""
        if not turns:
            return []
        labels = await self._kernel.read_labels(tape)
        handle = self._kernel.open_tape(tape)
        first, last = min(turn.base for turn in turns.values()) + 1, await handle.head()
        spans = [span for span in await find_turn_spans(handle, first, last) if span.id in turns]
        rewards = assign_rewards(labels, spans, self.settings)
        due = []
        for span in spans:
            turn, total = turns[span.id], add_up(rewards.get(span.id, ()))
            if total is None:
                if turn.sent is None:
                    continue
                total = 0.0  # taken back
            reward = max(-1.0, min(1.0, total))
            if reward != turn.sent:
                due.append((span.id, turn, reward))
        return due

    async def _count_late(self, state: LiveState) -> None:
        """Count the judgements of turns whose sessions have ended."""
        by_tape: defaultdict[str, dict[str, RlTurn]] = defaultdict(dict)
        past = {each.id: each for each in state.past}
        for each in state.past:
            by_tape[each.tape][each.id] = each.turn
        for tape, turns in by_tape.items():
            session = past[next(iter(turns))].session
            if not await self._has_news(tape, session, tape, len(turns)):
                continue
            for name, _, reward in await self._find_due(tape, turns):
                self._log_late(name)
                await self._projected.append(RlRewardLate(past[name].session, past[name].rl, name, reward))

    async def _has_news(self, name: str, session: str, tape: str, turns: int) -> bool:
        """Return true if a tape grew since the last look, or one that says which message is which answer.

        A reaction may be on the tape before the bot knows the id of what it has sent.
        """
        outboxes = self._tape.shards_of(f"{OUTBOX_PREFIX}/{session.partition(':')[0]}")
        seen = tuple([await self._kernel.open_tape(each).head() for each in (tape, *outboxes)]), turns
        known, self._looked[name] = self._looked.get(name), seen
        return known != seen

    async def _tell(self, send: Callable[[], Awaitable[None]]) -> bool:
        """Send the proxy something about a session; return false if it does not take it any more.

        Raises:
            RlProxyFailed: it is not there, or failed.
        """
        try:
            await send()
        except RlProxyFailed as error:
            if error.is_final:
                return False
            self._note_failure(str(error))
            raise
        if not self._is_model_failing:  # what ends a session says nothing of what answers
            self._note_answer()
        return True

    # Facts and figures

    def _find(self, rl: str) -> RlSession:
        found = self._projected.state.find(rl)
        if found is None:
            raise RlProxyFailed("its facts were erased meanwhile")
        return found

    def _note_answer(self) -> None:
        self._failures, self.retry_at = 0, 0.0
        if self.health.outage.end():
            log.info("the proxy records again", extra={"action": "learn.recording"})

    def _note_failure(self, reason: str) -> None:
        self._failures += 1
        self.retry_at = self._elapsed() + self._backoff.delay_seconds(self._failures)
        if self.health.outage.begin(reason, self._kernel.now()):
            log.warning(
                "the proxy does not record, chats are answered by their own models: %s", reason,
                extra={"action": "learn.not_recording", "host": urlsplit(self.settings.endpoint or "").netloc},
            )  # fmt: skip

    def _log_late(self, turn: str) -> None:
        log.info("a judgement came after its recorded session had ended", extra={"action": "learn.late", "turn": turn})
