"""Responses to slash commands: Discord wants the first within 3 seconds, the others within 15 minutes.

A response needs the interaction's token, which is kept in memory only: after a restart the answer is an ordinary
message.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from bubbot.ports.channel import CommandInfo
from channels.discord.api import DiscordApi, DiscordApiTiming, FileUpload
from channels.discord.errors import (
    ALREADY_ACKNOWLEDGED,
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
"""Interactions kept in memory."""
RESPOND_NOW, RESPOND_LATER, RESPOND_SILENTLY = 4, 5, 6
"""Types of a first response: a message, the notice that the bot is "thinking", or nothing, which only buttons allow."""
LOADING_FLAG = 1 << 7
"""The message flag of that notice."""
EPHEMERAL_FLAG = 1 << 6
"""The message flag of a response that only the command's user can see."""
DONE_MARK = "✓"


@dataclass(slots=True, eq=False)
class _OpenInteraction:
    """An interaction whose token may still be valid.

    Attributes:
        token: the secret that allows responses.
        is_private: only the command's user sees the responses.
        defer_at: when to defer it, in monotonic seconds.
        expires_at: when its token expires, in monotonic seconds.
        state: "dead" allows no further response.
        answers: message ids by the keys of their parts.
        lock: held while a response is sent.
        answer_started: set as soon as an answer starts.
    """

    id: str
    token: str = field(repr=False)
    application_id: str
    channel_id: str
    defer_at: float
    expires_at: float
    is_private: bool
    state: Literal["new", "deferred", "answered", "dead"] = "new"
    answers: dict[str, str] = field(default_factory=dict)
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    answer_started: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def original_path(self) -> str:
        return f"/webhooks/{self.application_id}/{self.token}/messages/@original"


class OpenInteractions:
    """The interactions of one bot that still accept responses.

    In a server, only the user sees the answer to a command that no group menu offers, since it is about settings or the bot.
    """

    def __init__(
        self, api: DiscordApi, timing: DiscordApiTiming, list_commands: Callable[[], Sequence[CommandInfo]] = tuple
    ) -> None:
        self._api = api
        self._list_commands = list_commands
        self._timing = timing
        self._open: OrderedDict[str, _OpenInteraction] = OrderedDict()
        self._by_message: dict[str, _OpenInteraction] = {}

    def remember(self, raw: Any) -> None:
        """Store an interaction from the gateway, before its event is handled."""
        now = self._timing.monotonic()
        try:
            number, token, application, place = (
                str(raw[key]) for key in ("id", "token", "application_id", "channel_id")
            )
        except (KeyError, TypeError):
            return
        if not all(value.isdecimal() for value in (number, application, place)) or "/" in token:
            return
        if number not in self._open:
            notice, until = now + self._timing.defer_after, now + self._timing.interaction_lifetime
            is_private = self._is_about_bot(raw)
            self._open[number] = _OpenInteraction(number, token, application, place, notice, until, is_private)
        while len(self._open) > MAX_OPEN_INTERACTIONS:
            self._forget(next(iter(self._open.values())))

    def is_private(self, interaction_id: str) -> bool:
        """Return true if only its user sees the responses to an interaction that is still open."""
        interaction = self._find_open(interaction_id)
        return interaction is not None and interaction.is_private

    def _is_about_bot(self, raw: Mapping[str, Any]) -> bool:
        data = raw.get("data")
        name = data.get("name") if isinstance(data, dict) and raw.get("guild_id") else None
        return any(name in info.slash_names and not info.is_shared for info in self._list_commands())

    async def defer(self, raw: Any) -> None:
        """Show "thinking" if no answer has started in time. Takes a few seconds at most; raises nothing."""
        self.remember(raw)
        interaction = self._find_open(str(raw.get("id")) if isinstance(raw, dict) else "")
        if interaction is None:
            return
        try:
            async with asyncio.timeout(max(0.0, interaction.defer_at - self._timing.monotonic())):
                await interaction.answer_started.wait()
        except TimeoutError:
            async with interaction.lock:
                await self._defer(interaction)

    async def confirm(self, raw: Any) -> None:
        """Confirm a command that gets no other answer, visible to its user only. Raises nothing."""
        self.remember(raw)
        interaction = self._find_open(str(raw.get("id")) if isinstance(raw, dict) else "")
        if interaction is None:
            return
        async with interaction.lock:
            if interaction.state != "new" or interaction.answer_started.is_set():
                return
            try:
                await self._callback(interaction, RESPOND_NOW, {"content": DONE_MARK, "flags": EPHEMERAL_FLAG})
                interaction.state = "dead"
            except (DiscordApiError, DiscordUnavailable) as error:
                log.debug("command not confirmed: %s", error, extra={"action": "discord.confirm"})

    async def acknowledge(self, raw: Any, text: str = "") -> None:
        """Acknowledge the press of a button, with a text for the person who pressed, if any. Raises nothing."""
        self.remember(raw)
        interaction = self._find_open(str(raw.get("id")) if isinstance(raw, dict) else "")
        if interaction is None:
            return
        async with interaction.lock:
            if interaction.state != "new":
                return
            interaction.state = "dead"  # what comes after it are ordinary messages
            try:
                if text:
                    content = {"content": text, "flags": EPHEMERAL_FLAG, "allowed_mentions": {"parse": []}}
                    await self._callback(interaction, RESPOND_NOW, content)
                else:
                    await self._callback(interaction, RESPOND_SILENTLY, None)
            except (DiscordApiError, DiscordUnavailable) as error:
                log.debug("press not acknowledged: %s", error, extra={"action": "discord.press"})

    async def answer(
        self, interaction_id: str, key: str, payload: dict[str, Any], files: Sequence[FileUpload] = ()
    ) -> str | None:
        """Send the first response and return its message id; None if only an ordinary message is possible.

        None if the interaction is unknown, has expired or has its response; a private one accepts further responses. The
        same key returns the same message.

        Args:
            key: the part's key; empty if it has none.

        Raises:
            DiscordApiError: Discord refused the message.
            DiscordUnavailable: no readable response came; the outcome is unknown.
        """
        interaction = self._find_open(interaction_id)
        if interaction is None:
            return None
        interaction.answer_started.set()
        async with interaction.lock:
            if key and key in interaction.answers:
                return interaction.answers[key]
            if interaction.state == "dead" or (interaction.state == "answered" and not interaction.is_private):
                return None
            try:
                if interaction.state == "answered":
                    message = await self._post_further(interaction, payload, files)
                else:
                    message = await self._respond(interaction, payload, files)
            except DiscordApiError as error:
                if not _is_expired(error):
                    raise
                self._mark_dead(interaction, error)
                return None
            interaction.state = "answered"
            self._keep(interaction, key, message)
            return message

    async def follow_up(
        self, channel_id: str, key: str, payload: dict[str, Any], files: Sequence[FileUpload] = ()
    ) -> str | None:
        """Send a follow-up to the newest answered interaction of a chat and return its id; None if there is none.

        For channels in which the bot may only respond to commands. The same key returns the same message.

        Args:
            key: the part's key; empty if it has none.

        Raises:
            DiscordApiError: Discord refused the message.
            DiscordUnavailable: no readable response came; the outcome is unknown.
        """
        for interaction in reversed(list(self._open.values())):
            if (
                interaction.channel_id == channel_id
                and interaction.state == "answered"
                and self._find_open(interaction.id)
            ):
                break
        else:
            return None
        async with interaction.lock:
            if key and key in interaction.answers:
                return interaction.answers[key]
            try:
                message = await self._post_further(interaction, payload, files)
            except DiscordApiError as error:
                if not _is_expired(error):
                    raise
                self._mark_dead(interaction, error)
                return None
            self._keep(interaction, key, message)
            return message

    async def edit(self, message_id: str, payload: dict[str, Any]) -> bool:
        """Edit a response to an interaction; return false if only the channel's route can edit the message."""
        interaction = self._by_message.get(message_id)
        if interaction is None or self._find_open(interaction.id) is None:
            return False
        try:
            path = f"/webhooks/{interaction.application_id}/{interaction.token}/messages/{message_id}"
            await self._api.call("PATCH", path, json=payload)
        except DiscordApiError as error:
            if error.code == THREAD_ARCHIVED:
                return False
            if not _is_expired(error) or error.code == UNKNOWN_MESSAGE:
                raise
            self._mark_dead(interaction, error)
            return False
        return True

    async def dismiss(self, interaction_id: str) -> None:
        """Remove the notice of an interaction that gets no answer. Raises nothing."""
        interaction = self._find_open(interaction_id)
        if interaction is None:
            return
        interaction.answer_started.set()
        async with interaction.lock:
            await self._defer(interaction)
            if interaction.state != "deferred":
                return
            interaction.state = "dead"
            try:
                await self._api.call("DELETE", interaction.original_path)
            except (DiscordApiError, DiscordUnavailable) as error:
                log.debug("thinking notice not removed: %s", error, extra={"action": "discord.notice"})

    async def _post_further(
        self, interaction: _OpenInteraction, payload: dict[str, Any], files: Sequence[FileUpload]
    ) -> str:
        """Post a response after the first one."""
        path = f"/webhooks/{interaction.application_id}/{interaction.token}"
        body = _for_user(payload) if interaction.is_private else payload
        return _id(await self._api.call("POST", path, json=body, params={"wait": "true"}, files=files))

    async def _respond(
        self, interaction: _OpenInteraction, payload: dict[str, Any], files: Sequence[FileUpload]
    ) -> str:
        if files:
            await self._defer(interaction)  # an upload may take longer than Discord waits
        if interaction.state == "dead":
            raise DiscordApiError(404, UNKNOWN_INTERACTION, "the interaction is over")
        if interaction.state == "new" and files:
            raise DiscordUnavailable("it is not known whether an interaction is still open")
        if interaction.state == "new":
            try:
                result = await self._callback(interaction, RESPOND_NOW, payload)
            except DiscordApiError as error:
                if error.code != ALREADY_ACKNOWLEDGED:
                    raise
                return await self._recover(interaction, payload, files)
            if message := _id((result or {}).get("resource", {}).get("message")):
                return message
            return _id(await self._api.call("GET", interaction.original_path))
        return _id(await self._api.call("PATCH", interaction.original_path, json=payload, files=files))

    async def _recover(
        self, interaction: _OpenInteraction, payload: dict[str, Any], files: Sequence[FileUpload]
    ) -> str:
        """Complete an earlier try with unknown outcome, which left a notice or the response itself."""
        message = await self._api.call("GET", interaction.original_path)
        if isinstance(message, dict) and int(message.get("flags") or 0) & LOADING_FLAG:
            message = await self._api.call("PATCH", interaction.original_path, json=payload, files=files)
        return _id(message)

    async def _defer(self, interaction: _OpenInteraction) -> None:
        """Show the notice if there is no response yet; the caller holds the lock."""
        if interaction.state != "new":
            return
        try:
            await self._callback(interaction, RESPOND_LATER, None)
            interaction.state = "deferred"
        except DiscordApiError as error:
            if error.code == ALREADY_ACKNOWLEDGED:
                interaction.state = "deferred"
            elif _is_expired(error):
                self._mark_dead(interaction, error)
            else:
                log.debug("thinking notice refused: %s", error, extra={"action": "discord.notice"})
        except DiscordUnavailable as error:
            log.debug("thinking notice not shown: %s", error, extra={"action": "discord.notice"})

    async def _callback(self, interaction: _OpenInteraction, kind: int, payload: dict[str, Any] | None) -> Any:
        data = _for_user(payload or {}) if interaction.is_private else payload
        body: dict[str, Any] = {"type": kind} if data is None else {"type": kind, "data": data}
        return await self._api.call(
            "POST",
            f"/interactions/{interaction.id}/{interaction.token}/callback",
            json=body,
            params={"with_response": "true"},
            timeout=self._timing.callback_timeout,
        )

    def _find_open(self, number: str) -> _OpenInteraction | None:
        interaction = self._open.get(number)
        if interaction is None or interaction.state == "dead":
            return None
        if self._timing.monotonic() >= interaction.expires_at:
            self._forget(interaction)
            return None
        return interaction

    def _keep(self, interaction: _OpenInteraction, key: str, message: str) -> None:
        if key:
            interaction.answers[key] = message
        if message:
            self._by_message[message] = interaction

    def _mark_dead(self, interaction: _OpenInteraction, error: DiscordApiError) -> None:
        interaction.state = "dead"
        log.debug("interaction expired: %s", error, extra={"action": "discord.interaction"})

    def _forget(self, interaction: _OpenInteraction) -> None:
        self._open.pop(interaction.id, None)
        for message in [message for message, owner in self._by_message.items() if owner is interaction]:
            del self._by_message[message]


def _for_user(payload: dict[str, Any]) -> dict[str, Any]:
    """Return the payload of a response that only the command's user can see."""
    return {**payload, "flags": payload.get("flags", 0) | EPHEMERAL_FLAG}


def _is_expired(error: DiscordApiError) -> bool:
    """Return true if the token, or the response that it belongs to, is no longer valid."""
    codes = (UNKNOWN_INTERACTION, UNKNOWN_WEBHOOK, INVALID_WEBHOOK_TOKEN, UNKNOWN_MESSAGE)
    return error.code in codes or error.status in (401, 404)


def _id(message: Any) -> str:
    return str(message.get("id") or "") if isinstance(message, dict) else ""
