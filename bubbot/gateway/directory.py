"""The running channels by name, for features and other channels."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from bubbot.errors import ConfigError, DeliveryFailed
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.ports.channel import Inbound, LeavesGroups, Outbound, Role
from bubbot.ports.outbox import buttons_key, intent_entry
from bubbot.ports.turn import Turn
from bubbot.runtime.session import SessionChannel
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts

SENDING_SECONDS = 10.0
"""Seconds for which an erasure waits for earlier answers; answers that are undelivered then end with it."""


class ChannelDirectory:
    """Finds the runtime of a channel. `runtimes` is the bot's mapping, which a reload changes in place."""

    def __init__(self, runtimes: Mapping[str, ChannelRuntime], texts: Texts) -> None:
        self._runtimes = runtimes
        self._texts = texts

    async def find_texts(self, channel: str, person: str = "", chat: str = "") -> Texts:
        """Return the bot's own sentences for a person; without one, for the last writer in a chat of the channel."""
        runtime = self._runtimes.get(channel)
        return await runtime.find_texts(self._texts, person, chat) if runtime else self._texts

    def role_of(self, inbound: Inbound) -> Role:
        """Return the role of an inbound's sender; stranger if the channel does not run here."""
        runtime = self._runtimes.get(inbound.channel)
        return runtime.link.role(inbound) if runtime else Role.STRANGER

    def list_owners(self, channel: str) -> frozenset[str]:
        """Return the numeric ids of the owners on a channel; empty if it does not run here."""
        runtime = self._runtimes.get(channel)
        access = runtime.policy.access if runtime else None
        people = access.list_people(channel) if access else ()
        return frozenset(person for person in people if access and access.role(channel, person) is Role.OWNER)

    async def admit(self, channel: str, person: str) -> None:
        """Answer the waiting message of a person who was let in, if the channel runs here."""
        if runtime := self._runtimes.get(channel):
            await runtime.gate.admit(person)

    async def is_group(self, channel: str, number: str) -> bool:
        """Return true if an id is a known group or space of a channel that runs here."""
        runtime = self._runtimes.get(channel)
        return runtime is not None and await runtime.inbox.is_group(number)

    async def leave(self, channel: str, group: str) -> None:
        """Leave a group or a space.

        Raises:
            ConfigError: the channel does not run here.
            DeliveryFailed: the platform refuses, or its bots cannot leave groups.
        """
        runtime = self._find(channel)
        if not isinstance(runtime.channel, LeavesGroups):
            raise DeliveryFailed(f"a bot cannot leave groups on {channel}", permanent=True)
        await runtime.channel.leave(runtime.migrations.current(group))

    def find_link(self, channel: str) -> SessionChannel | None:
        """Return the session side of a channel; None if it does not run here."""
        runtime = self._runtimes.get(channel)
        return runtime.link if runtime else None

    def current_session(self, session: str) -> str:
        """Return the session id with the current id of its chat."""
        channel, colon, rest = session.partition(":")
        chat, separator, thread = rest.partition(":")
        runtime = self._runtimes.get(channel)
        return session if runtime is None else f"{channel}{colon}{runtime.migrations.current(chat)}{separator}{thread}"

    async def accept(self, inbound: Inbound, extra_entries: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """Accept an inbound through the channel's gate; false if it was accepted before. Raise `ConfigError` if the
        channel does not run here.
        """
        return await self._find(inbound.channel).gate.accept(inbound, extra_entries, is_own=True) is not None

    async def send(
        self, session: str, key: str, outbound: Outbound, extra_entries: Mapping[str, Sequence[TapeEntry]]
    ) -> None:
        """Send a message from outside any turn; store it in one transaction with entries of other tapes.

        Raises:
            ConfigError: the channel does not run here.
        """
        runtime = self._find(outbound.channel)
        parts = tuple(runtime.link.split(outbound))
        await runtime.deliver(await runtime.outbox.enqueue(session, key, parts, extra_entries))

    def draft(self, session: str, key: str, outbound: Outbound) -> Mapping[str, Sequence[TapeEntry]]:
        """Make the facts of a message for another transaction; `send` with the same key delivers it afterwards.

        Raises:
            ConfigError: the channel does not run here.
        """
        runtime = self._find(outbound.channel)
        parts = tuple(runtime.link.split(outbound))
        return {runtime.outbox.tape_of(session): [intent_entry(session, key, parts)]}

    def stage(self, turn: Turn, key: str, outbound: Outbound) -> bool:
        """Add a message to those that a turn sends; false if its channel does not run here.

        It is merged with the turn and sent afterwards.
        """
        runtime = self._runtimes.get(outbound.channel)
        if runtime is None:
            return False
        parts = tuple(runtime.link.split(outbound))
        turn.tape.stage(runtime.link.outbox_of(turn.session), [intent_entry(turn.session, key, parts)])
        return True

    async def find_sent(self, session: str, channel: str, key: str) -> str | None:
        """Return the platform's id of a sent message's part with buttons; None if unknown."""
        runtime = self._runtimes.get(channel)
        intent = await runtime.outbox.find_intent(buttons_key(key)) if runtime else None
        if runtime is None or intent is None or intent.session != session:
            return None
        place = next((place for place, part in enumerate(intent.parts) if part.buttons), 0)
        return await runtime.outbox.receipt_of(intent, place) or None

    async def notify(self, channel: str, outbound: Outbound) -> None:
        """Send a notice that is on no tape, unless a reload has removed the channel."""
        if runtime := self._runtimes.get(channel):
            await runtime.deliverer.notify(outbound)

    async def wait_until_sent(self, turn: Turn) -> None:
        """Wait until nothing is being sent to the turn's chat, at most `SENDING_SECONDS`."""
        inbound = turn.inbounds[0].inbound
        if runtime := self._runtimes.get(inbound.channel):
            with suppress(TimeoutError):
                async with asyncio.timeout(SENDING_SECONDS):
                    await runtime.deliverer.wait_until_delivered(inbound.chat)

    def join(self, runtime: ChannelRuntime, on_chat_unreachable: Callable[[str, str, str], Awaitable[None]]) -> None:
        """Connect a channel to the others.

        Args:
            on_chat_unreachable: called with channel, chat and reason if a chat becomes unreachable.
        """
        name = runtime.channel.name

        async def report(chat: str, reason: str) -> None:
            await on_chat_unreachable(name, chat, reason)

        runtime.link = replace(runtime.link, find_channel=self.find_link)
        runtime.deliverer.on_chat_unreachable = report

    def _find(self, channel: str) -> ChannelRuntime:
        if (runtime := self._runtimes.get(channel)) is None:
            raise ConfigError(f"no channel {channel} runs here")
        return runtime
