"""Notices to the owner that no turn wrote: in the direct chat in which an owner wrote last."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bubbot.gateway.channel_runtime import ChannelRuntime
from bubbot.gateway.requests import WriteNotice
from bubbot.ports.channel import Outbound, Role
from bubbot.tape.entry import TapeEntry
from bubbot.texts import Texts


class OwnerChat:
    """Finds the chat of an owner. `tape` records the fact that the owner was told; `texts` are the bot's own sentences."""

    def __init__(self, channel_runtimes: Mapping[str, ChannelRuntime], tape: str, texts: Texts) -> None:
        self._channel_runtimes = channel_runtimes
        self._tape = tape
        self._texts = texts

    async def __call__(self, key: str, write: Callable[[Texts], str], fact: TapeEntry) -> bool:
        """Notify with a fact of the own tape."""
        return await self.notify(self._tape, key, lambda texts: (write(texts), None), fact)

    async def notify(self, tape: str, key: str, write: WriteNotice, fact: TapeEntry) -> bool:
        """Store a notice and its fact in one transaction and send it; return false if no owner has a direct chat.

        `write` writes the notice and its buttons, in the language of the owner.
        """
        for channel_runtime in self._channel_runtimes.values():
            access = channel_runtime.policy.access
            if access is None:
                continue
            name = channel_runtime.channel.name
            owners = frozenset(person for person in access.list_people(name) if access.role(name, person) is Role.OWNER)
            inbound = await channel_runtime.inbox.find_direct_message(owners) if owners else None
            if inbound is None:
                continue
            text, buttons = write(await channel_runtime.find_texts(self._texts, inbound.sender.id))
            # People choose their names themselves, and names of groups: an address in one is not fetched.
            notice = Outbound(name, inbound.chat, text, inbound.thread, buttons=buttons, has_no_link_previews=True)
            parts = tuple(channel_runtime.link.split(notice))
            message = await channel_runtime.outbox.enqueue(inbound.session, key, parts, {tape: [fact]})
            await channel_runtime.deliver(message)
            return True
        return False
