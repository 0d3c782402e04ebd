"""The running channels by name, as features and other channels use them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace

from bubbot.errors import ConfigError
from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.ports.channel import Inbound, Outbound, Role
from bubbot.runtime.session import SessionChannel
from bubbot.tape.entry import TapeEntry


class ChannelDirectory:
    """Finds the runtime of a channel. `runtimes` is the bot's own mapping, which a reload changes."""

    def __init__(self, runtimes: Mapping[str, ChannelRuntime]) -> None:
        self._runtimes = runtimes

    def role_of(self, inbound: Inbound) -> Role:
        """Return the role of an inbound's sender; a stranger if the channel does not run here."""
        runtime = self._runtimes.get(inbound.channel)
        return runtime.link.role(inbound) if runtime else Role.STRANGER

    def find_link(self, channel: str) -> SessionChannel | None:
        """Return a channel as sessions use it; None if it does not run here."""
        runtime = self._runtimes.get(channel)
        return runtime.link if runtime else None

    async def accept(self, inbound: Inbound, extra_entries: Mapping[str, Sequence[TapeEntry]]) -> bool:
        """Accept an inbound as the channel's gate accepts a message. Raise `ConfigError` if the channel does not run here."""
        return await self._find(inbound.channel).gate.accept(inbound, extra_entries, is_own=True) is not None

    async def send(
        self, session: str, key: str, outbound: Outbound, extra_entries: Mapping[str, Sequence[TapeEntry]]
    ) -> None:
        """Send a message that no turn writes, with facts of other tapes in the same transaction.

        Raises:
            ConfigError: the channel does not run here.
        """
        runtime = self._find(outbound.channel)
        parts = tuple(runtime.link.split(outbound))
        await runtime.deliver(await runtime.outbox.enqueue(session, key, parts, extra_entries))

    async def notify(self, channel: str, outbound: Outbound) -> None:
        """Send a notice that no tape holds; nothing if a reload has removed the channel."""
        if runtime := self._runtimes.get(channel):
            await runtime.deliverer.notify(outbound)

    def join(self, runtime: ChannelRuntime, on_chat_unreachable: Callable[[str, str, str], Awaitable[None]]) -> None:
        """Make a channel known to the others, in its current state.

        Args:
            runtime: the channel.
            on_chat_unreachable: called with channel, chat and reason if a chat can no longer be reached.
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
