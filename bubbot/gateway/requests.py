"""Strangers who wait to be let in: their waiting message, the question to an owner, and the answer.

The inbox stores a message that got a code. Once the person is let in, by any way, the message is accepted under a new
id, in one transaction with the notice to the person: so both come once, even after a crash. The next start looks for
people who were let in meanwhile.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from msgspec import structs

from bubbot.gateway.inbox import Inbox
from bubbot.gateway.presses import escape_label
from bubbot.ports.access import AccessRequest, KnowsPeople
from bubbot.ports.channel import Button, ButtonSet, Inbound, MessagePart, Outbound, Role, Sender
from bubbot.ports.outbox import intent_entry
from bubbot.tape.entry import TapeEntry
from bubbot.texts import COMMAND_PREFIX, Texts

WriteNotice: TypeAlias = Callable[[Texts], tuple[str, ButtonSet | None]]
"""Return a notice and its buttons in a language."""
NotifyOwner: TypeAlias = Callable[[str, str, WriteNotice, TapeEntry], Awaitable[bool]]
"""Notify an owner; arguments: the fact's tape, a key, the notice's writer, the fact. False if no owner has a chat yet."""

REQUEST_LIFETIME_SECONDS = 7 * 86_400
"""Seconds for which an owner can press a button of a question."""


def name_person(sender: Sender) -> str:
    """Return the name of a person with the id, as Markdown, escaped, since people choose their names."""
    name = escape_label(sender.name)
    return f"{name} ({sender.id})" if name else sender.id


class AccessRequests:
    """The waiting strangers of one channel.

    Args:
        access: knows who may speak.
        find_texts: returns the bot's own sentences in the language of a person.
        notify_owner: asks an owner; None: do not ask.
    """

    def __init__(
        self,
        inbox: Inbox,
        access: KnowsPeople,
        find_texts: Callable[[Sender], Texts],
        notify_owner: NotifyOwner | None = None,
    ) -> None:
        self._inbox = inbox
        self._access = access
        self._find_texts = find_texts
        self._notify_owner = notify_owner

    async def keep(self, inbound: Inbound, *, is_first: bool = False) -> bool:
        """Store a message that gets a code, and ask an owner; return true if an owner was asked.

        `is_first`: do so only if no other message of its sender waits.
        """
        if not is_first or await self._inbox.find_waiting(inbound.sender.id) is None:
            await self._inbox.record_waiting(inbound)
        notify_owner = self._notify_owner
        if notify_owner is None:
            return False
        ask: NotifyOwner = notify_owner

        channel, person = inbound.channel, inbound.sender

        def write(texts: Texts) -> tuple[str, ButtonSet]:
            options = f"{person.id} member channel={channel}", f"{person.id} admin channel={channel}"
            buttons = (
                Button(texts.say("access_button_in"), f"{COMMAND_PREFIX}access.grant {options[0]}"),
                Button(texts.say("access_button_admin"), f"{COMMAND_PREFIX}access.grant {options[1]}"),
                Button(texts.say("access_button_no"), f"{COMMAND_PREFIX}access.decline {person.id} channel={channel}"),
            )
            text = texts.say("access_asked", person=name_person(person), channel=channel, id=person.id)
            return text, ButtonSet(buttons, role=Role.OWNER, lifetime_seconds=REQUEST_LIFETIME_SECONDS)

        async def send(request: AccessRequest) -> bool:
            return await ask(request.tape, str(request.fact.key), write, request.fact)

        return await self._access.request(inbound.sender, inbound.channel, inbound.chat, send)

    async def find_admitted(self, person: str | None = None) -> tuple[Inbound, ...]:
        """Return the waiting messages of people who may speak by now, one or all, in the form in which they are
        accepted.
        """
        waiting = await self._inbox.list_waiting()
        return tuple(
            structs.replace(inbound, external_id=admitted_id(inbound))
            for inbound in waiting
            if person in (None, inbound.sender.id)
            and self._access.role(inbound.channel, inbound.sender.id) is not Role.STRANGER
        )

    def welcome(self, inbound: Inbound, split: Callable[[Outbound], Sequence[MessagePart]]) -> TapeEntry:
        """Make the notice to a person who was let in and whose message is answered."""
        outbound = Outbound(
            inbound.channel, inbound.chat, self._find_texts(inbound.sender).say("let_in"), inbound.thread
        )
        return intent_entry(inbound.session, f"let-in:{inbound.external_id}", tuple(split(outbound)))


def admitted_id(inbound: Inbound) -> str:
    """Return the external id under which a waiting message is accepted."""
    return f"admitted:{inbound.external_id}"
