"""Answers to slash commands: Discord wants the first within three seconds, and the rest within fifteen minutes.

What answers one is its token, which is kept in memory only: after a restart the answer is an ordinary message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from channels.discord.api import DiscordApi, DiscordApiTiming, FileUpload
from channels.discord.errors import (
    ALREADY_ANSWERED,
    INVALID_WEBHOOK_TOKEN,
    THREAD_ARCHIVED,
    UNKNOWN_INTERACTION,
    UNKNOWN_MESSAGE,
    UNKNOWN_WEBHOOK,
    DiscordApiError,
    DiscordUnavailable,
)

log = logging.getLogger(__name__)
MAX_OPEN_INTERACTIONS = 1_000
"""Interactions that are remembered."""
RESPOND_NOW, RESPOND_LATER = 4, 5
"""Kinds of a first answer: a message, or the notice that one is worked on."""
LOADING = 1 << 7
"""The flag of such a notice."""
FOR_ONE = 1 << 6
"""The flag of an answer that only the one who asked can see."""
DONE_MARK = "✓"


@dataclass(slots=True, eq=False)
class _OpenInteraction:
    """An interaction whose token may still be used. `notice`: when it is shown that an answer is worked on; `answers`: ids
    of messages by the keys of their parts."""

    id: str
    token: str = field(repr=False)
    application: str
    place: str
    notice: float
    until: float
    state: Literal["new", "deferred", "answered", "dead"] = "new"
    answers: dict[str, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    begun: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def original(self) -> str:
        return f"/webhooks/{self.application}/{self.token}/messages/@original"


class OpenInteractions:
    """The interactions of one bot that can still be answered."""

    def __init__(self, api: DiscordApi, timing: DiscordApiTiming) -> None:
        self._api = api
        self._timing = timing
        self._living: OrderedDict[str, _OpenInteraction] = OrderedDict()
        self._of_message: dict[str, _OpenInteraction] = {}

    def remember(self, raw: Any) -> None:
        """Takes note of an interaction as the gateway tells it; before its event is handed on."""
        now = self._timing.monotonic()
        try:
            number, token, application, place = (
                str(raw[key]) for key in ("id", "token", "application_id", "channel_id")
            )
        except (KeyError, TypeError):
            return
        if not all(word.isdecimal() for word in (number, application, place)) or "/" in token:
            return
        if number not in self._living:
            notice, until = now + self._timing.answer_first, now + self._timing.interaction
            self._living[number] = _OpenInteraction(number, token, application, place, notice, until)
        while len(self._living) > MAX_OPEN_INTERACTIONS:
            self._forget(next(iter(self._living.values())))

    async def defer(self, raw: Any) -> None:
        """Shows that an answer is worked on, where none has begun by then. Raises nothing; takes at most a few seconds."""
        self.remember(raw)
        one = self._alive(str(raw.get("id")) if isinstance(raw, dict) else "")
        if one is None:
            return
        try:
            async with asyncio.timeout(max(0.0, one.notice - self._timing.monotonic())):
                await one.begun.wait()
        except TimeoutError:
            async with one.lock:
                await self._defer(one)

    async def confirm(self, raw: Any) -> None:
        """Shows the person alone that the command was taken, where nothing more will be said to it. Raises nothing."""
        self.remember(raw)
        one = self._alive(str(raw.get("id")) if isinstance(raw, dict) else "")
        if one is None:
            return
        async with one.lock:
            if one.state != "new" or one.begun.is_set():
                return
            try:
                await self._callback(one, RESPOND_NOW, {"content": DONE_MARK, "flags": FOR_ONE})
                one.state = "dead"
            except (DiscordApiError, DiscordUnavailable) as error:
                log.debug("a command was not confirmed: %s", error, extra={"action": "discord.confirm"})

    async def answer(
        self, number: str, key: str, payload: dict[str, Any], files: Sequence[FileUpload] = ()
    ) -> str | None:
        """Answers an interaction and returns the id of the message; None where an ordinary message has to do it:
        the interaction is unknown, over, or has its answer.

        The same key again returns the same message. Raises `DiscordApiError` or `DiscordUnavailable`.
        """
        one = self._alive(number)
        if one is None:
            return None
        one.begun.set()
        async with one.lock:
            if key and key in one.answers:
                return one.answers[key]
            if one.state in ("answered", "dead"):
                return None
            try:
                message = await self._first(one, payload, files)
            except DiscordApiError as error:
                if not _over(error):
                    raise
                self._end(one, error)
                return None
            one.state = "answered"
            self._keep(one, key, message)
            return message

    async def follow(
        self, place: str, key: str, payload: dict[str, Any], files: Sequence[FileUpload] = ()
    ) -> str | None:
        """A further message to the newest interaction that has its answer in this channel or thread; None where there
        is none. For channels in which the bot may only answer."""
        for one in reversed(list(self._living.values())):
            if one.place == place and one.state == "answered" and self._alive(one.id):
                break
        else:
            return None
        async with one.lock:
            if key and key in one.answers:
                return one.answers[key]
            try:
                path = f"/webhooks/{one.application}/{one.token}"
                made = await self._api.call("POST", path, json=payload, params={"wait": "true"}, files=files)
            except DiscordApiError as error:
                if not _over(error):
                    raise
                self._end(one, error)
                return None
            self._keep(one, key, _id(made))
            return _id(made)

    async def edit(self, message: str, payload: dict[str, Any]) -> bool:
        """Changes a message that answered an interaction; False where that has to be done in the channel."""
        one = self._of_message.get(message)
        if one is None or self._alive(one.id) is None:
            return False
        try:
            await self._api.call("PATCH", f"/webhooks/{one.application}/{one.token}/messages/{message}", json=payload)
        except DiscordApiError as error:
            if error.code == THREAD_ARCHIVED:
                return False
            if not _over(error) or error.code == UNKNOWN_MESSAGE:
                raise
            self._end(one, error)
            return False
        return True

    async def dismiss(self, number: str) -> None:
        """Takes back the notice of an interaction that gets no answer. Raises nothing."""
        one = self._alive(number)
        if one is None:
            return
        one.begun.set()
        async with one.lock:
            await self._defer(one)
            if one.state != "deferred":
                return
            one.state = "dead"
            try:
                await self._api.call("DELETE", one.original)
            except (DiscordApiError, DiscordUnavailable) as error:
                log.debug("a notice was not taken back: %s", error, extra={"action": "discord.notice"})

    async def _first(self, one: _OpenInteraction, payload: dict[str, Any], files: Sequence[FileUpload]) -> str:
        if files:
            await self._defer(one)  # a file may take longer than Discord waits
        if one.state == "dead":
            raise DiscordApiError(404, UNKNOWN_INTERACTION, "the interaction is over")
        if one.state == "new" and files:
            raise DiscordUnavailable("it is not known whether an interaction is still open")
        if one.state == "new":
            try:
                found = await self._callback(one, RESPOND_NOW, payload)
            except DiscordApiError as error:
                if error.code != ALREADY_ANSWERED:
                    raise
                return await self._found(one, payload, files)
            if message := _id((found or {}).get("resource", {}).get("message")):
                return message
            return _id(await self._api.call("GET", one.original))
        return _id(await self._api.call("PATCH", one.original, json=payload, files=files))

    async def _found(self, one: _OpenInteraction, payload: dict[str, Any], files: Sequence[FileUpload]) -> str:
        """What an earlier try whose outcome nobody heard has made: a notice, or the answer itself."""
        found = await self._api.call("GET", one.original)
        if isinstance(found, dict) and int(found.get("flags") or 0) & LOADING:
            found = await self._api.call("PATCH", one.original, json=payload, files=files)
        return _id(found)

    async def _defer(self, one: _OpenInteraction) -> None:
        """The notice, where nothing was said yet; the caller holds the lock."""
        if one.state != "new":
            return
        try:
            await self._callback(one, RESPOND_LATER, None)
            one.state = "deferred"
        except DiscordApiError as error:
            if error.code == ALREADY_ANSWERED:
                one.state = "deferred"
            elif _over(error):
                self._end(one, error)
            else:
                log.debug("a notice was refused: %s", error, extra={"action": "discord.notice"})
        except DiscordUnavailable as error:
            log.debug("a notice was not shown: %s", error, extra={"action": "discord.notice"})

    async def _callback(self, one: _OpenInteraction, kind: int, payload: dict[str, Any] | None) -> Any:
        body: dict[str, Any] = {"type": kind} if payload is None else {"type": kind, "data": payload}
        return await self._api.call(
            "POST", f"/interactions/{one.id}/{one.token}/callback", json=body, params={"with_response": "true"},
            within=self._timing.callback,
        )  # fmt: skip

    def _alive(self, number: str) -> _OpenInteraction | None:
        one = self._living.get(number)
        if one is None or one.state == "dead":
            return None
        if self._timing.monotonic() >= one.until:
            self._forget(one)
            return None
        return one

    def _keep(self, one: _OpenInteraction, key: str, message: str) -> None:
        if key:
            one.answers[key] = message
        if message:
            self._of_message[message] = one

    def _end(self, one: _OpenInteraction, error: DiscordApiError) -> None:
        one.state = "dead"
        log.debug("an interaction is over: %s", error, extra={"action": "discord.interaction"})

    def _forget(self, one: _OpenInteraction) -> None:
        self._living.pop(one.id, None)
        for message in [message for message, of in self._of_message.items() if of is one]:
            del self._of_message[message]


def _over(error: DiscordApiError) -> bool:
    """Whether it is that the token or what it is for has come to its end."""
    codes = (UNKNOWN_INTERACTION, UNKNOWN_WEBHOOK, INVALID_WEBHOOK_TOKEN, UNKNOWN_MESSAGE)
    return error.code in codes or error.status in (401, 404)


def _id(message: Any) -> str:
    return str(message.get("id") or "") if isinstance(message, dict) else ""
