"""Messages that programs want to send. Each is stored first, shown to an owner whole, and sent once, after a yes.

The chat that shall get a message asks for it, in a turn of the origin `mcp`: so its words stand on the tape of that chat alone, and
the message is recorded where it is read. The card goes to an owner's direct chat.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from datetime import timedelta
from hashlib import sha256
from typing import TYPE_CHECKING

from bubbot.command import TERMINAL
from bubbot.errors import CommandRefused, ConfigError, ValueInvalid
from bubbot.features.mcp.serve.facts import CLIENTS_TAPE, SendAsked, SendEnd, SendEnded, SendShown
from bubbot.features.mcp.serve.results import AskSendArgs, MessageState
from bubbot.features.mcp.serve.state import ClientsState
from bubbot.formatting import clean
from bubbot.gateway.quarantine_view import QuarantineView
from bubbot.ports.approvals import ApprovalQuestion
from bubbot.ports.channel import FOREIGN_WORDS, TERMINAL_CHANNEL, Inbound, Outbound, Role, Sender
from bubbot.ports.session_names import split_session
from bubbot.ports.turn import SourcedReply, Turn, TurnOutcome
from bubbot.shell_command import DEFAULT_SESSION
from bubbot.tape import entry as make
from bubbot.tape.entry import TapeEntry, timestamp
from bubbot.tape.erasure import HOME_TAPE
from bubbot.tape.fact import Cited
from bubbot.tape.fork import MergeResult
from bubbot.tape.handle import TapeHandle
from bubbot.tape.projection import ProjectedTape
from bubbot.tape.query import TapeQuery, parse_moment
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.feature import Kernel

log = logging.getLogger(__name__)

MCP_ORIGIN = "mcp"
"""The origin of the turns that ask whether a message of a program is sent."""
INBOUND_PREFIX = "mcp:"
TOOL = "message.send"
MAX_OPEN = 10
"""Messages of one program that wait at once."""
ANSWER_HOURS = 24.0
ANSWER_TIME = timedelta(hours=ANSWER_HOURS)
"""A message expires this long after the program asked, if nobody answered, and this long after a yes."""
ID_DIGITS = 12


class MessageWishes:
    """The messages that programs want to send: what asks for them, sends them and says how each stands."""

    def __init__(
        self,
        kernel: Kernel,
        tape: TapeHandle,
        projected: ProjectedTape[ClientsState],
        lock: AbstractAsyncContextManager[None],
    ) -> None:
        """Take the tape of programs, its state, and the lock under which that tape is written."""
        self._kernel, self._tape, self._projected, self._lock = kernel, tape, projected, lock

    async def ask(self, args: AskSendArgs) -> MessageState:
        """Store that a program wants to send a message and let an owner be asked; or say how the message of this id stands.

        It is durable when it returns.

        Raises:
            CommandRefused: the program may not send there, the id was used for another message, or nobody can be asked now.
        """
        text = clean(args.text)
        digest = digest_message(args.client, args.session, text)
        async with self._lock:
            state = await self._projected.catch_up()
            if args.session not in state.targets_of(args.client):
                raise CommandRefused("mcp_send_not_granted", client=args.client, session=args.session)
            await self._expire(state)
            key = asked_key(args.client, args.id)
            if stored := await self._find(key):
                return await self._report(args, stored, digest)
            await self._require_room(args)
            number = self._kernel.new_id()[:ID_DIGITS]
            fact = SendAsked(number, args.client, args.session, text, digest)
            await self._projected.write_checkpoint()
            try:
                await self._kernel.accept(self._make_inbound(fact), {CLIENTS_TAPE: [fact.to_entry(key=key)]})
            except ConfigError as error:
                raise CommandRefused("mcp_send_no_channel", session=args.session) from error
            await self._projected.catch_up()
            log.info("a program wants to send", extra={"action": "mcp.send_asked", "client": args.client})
            return await self._report(args, await self._find(key), digest)

    async def _require_room(self, args: AskSendArgs) -> None:
        """Raise `CommandRefused` if nothing more may be asked now."""
        if await self._kernel.open_tape(HOME_TAPE).read(QuarantineView()) is not None:
            raise CommandRefused("mcp_send_restored")
        if self._kernel.ask is None:
            raise CommandRefused("mcp_send_no_approvals")
        if sum(each.fact.client == args.client for each in self._projected.state.asked) >= MAX_OPEN:
            raise CommandRefused("mcp_send_too_many", client=args.client, number=MAX_OPEN)

    def _make_inbound(self, fact: SendAsked) -> Inbound:
        place = split_session(self._kernel.current_session(fact.session))
        return Inbound(
            place.channel,
            f"{INBOUND_PREFIX}{fact.id}",
            place.chat,
            Sender(TERMINAL),  # without a name: those who wrote in a chat name it for people, and a program shall not
            f",mcp.send {fact.id}",
            timestamp(self._kernel.now()),
            place.thread,
            direct=False,
            origin=MCP_ORIGIN,
            provenance=FOREIGN_WORDS,
        )

    async def _report(self, args: AskSendArgs, stored: TapeEntry | None, digest: str) -> MessageState:
        if stored is None or stored.erased:
            raise CommandRefused("mcp_send_erased", id=args.id)
        asked = Cited.of(SendAsked, stored)
        if asked.fact.digest != digest:
            raise CommandRefused("mcp_send_other", id=args.id)
        ended = await self._find(ended_key(asked.fact.id))
        if ended is not None:
            return MessageState(args.session, args.id, SendEnded.of(ended).status, ended.date)
        is_open = self._projected.state.asked.find(asked.fact.id) is not None
        return MessageState(args.session, args.id, "waiting" if is_open else "failed", asked.date)

    async def expire(self) -> None:
        """Write down which messages nobody answered in time."""
        async with self._lock:
            await self._expire(await self._projected.catch_up())

    async def _expire(self, state: ClientsState) -> None:
        late = [
            each for each in state.asked if self._is_late(each.date) and await self._read_answer(state, each) is None
        ]
        if late:
            await self._projected.append(*[_end(each.fact, "expired") for each in late], if_absent=True)

    async def _read_answer(self, state: ClientsState, asked: Cited[SendAsked]) -> tuple[bool, str] | None:
        """Return if an owner said yes, and when; None if nobody answered."""
        shown = state.shown.find(asked.fact.id)
        if shown is None or self._kernel.find_answer is None:
            return None
        answer = await self._kernel.find_answer(shown.fact.approval)
        return None if answer is None else (answer.is_yes, answer.date)

    def _is_late(self, date: str) -> bool:
        moment = parse_moment(date)
        return moment is not None and moment + ANSWER_TIME <= self._kernel.now()

    # In a turn of the chat

    async def go_on(self, turn: Turn, number: str) -> str:
        """Ask an owner about a message, or carry out the owner's answer. Return the text for a person who typed the command.

        The merge of the turn stores the message to deliver and the fact that it was sent together, or neither.

        Raises:
            ValueInvalid: there is no such message here, or it has ended; only for people.
        """
        state = await self._projected.catch_up()
        asked = state.asked.find(number)
        if asked is None or turn.session not in (asked.fact.session, self._kernel.current_session(asked.fact.session)):
            if turn.is_typed:
                raise ValueInvalid("mcp_send_unknown", id=number)
            return ""
        status = await self._decide(turn, state, asked)
        if not turn.is_typed:
            return ""
        return turn.texts.say(f"MessageState.{status}", session=asked.fact.session, date=timestamp(self._kernel.now()))

    async def _decide(self, turn: Turn, state: ClientsState, asked: Cited[SendAsked]) -> str:
        """Do the next thing about a message, and return how it stands then."""
        fact, answer = asked.fact, await self._read_answer(state, asked)
        may_send = fact.session in state.targets_of(fact.client)
        if answer is None:
            if self._is_late(asked.date):
                return _finish(turn, fact, "expired")
            if state.shown.find(fact.id) is None and turn.origin == MCP_ORIGIN:
                if not may_send:
                    return _finish(turn, fact, "declined")
                await self._show(turn, asked)
            return "waiting"
        is_yes, date = answer
        if not is_yes:
            return _finish(turn, fact, "declined")
        if not may_send or self._is_late(date) or fact.digest != digest_message(fact.client, fact.session, fact.text):
            await self._tell_owner(turn, fact, "mcp_send_no_more" if not may_send else "mcp_send_too_late")
            return _finish(turn, fact, "declined" if not may_send else "expired")
        return await self._send(turn, fact)

    async def _show(self, turn: Turn, asked: Cited[SendAsked]) -> None:
        """Ask an owner with a card, which shows the program, the chat and every word."""
        ask, fact, now = self._kernel.ask, asked.fact, self._kernel.now()
        assert ask is not None, "it was there when the program asked"
        owner = await self._kernel.find_owner()
        chat = owner.session if owner else f"{TERMINAL_CHANNEL}:{DEFAULT_SESSION}"
        texts = await self._find_texts(owner)
        head = texts.say("mcp_send_card", client=fact.client, session=fact.session)
        details = "\n".join([head, "", *(f"  {line}" for line in fact.text.split("\n"))])
        hours = (ANSWER_TIME - (now - (parse_moment(asked.date) or now))) / timedelta(hours=1)
        question = ApprovalQuestion(TOOL, details, f",mcp.send {fact.id}", "owner", hours, chat)
        approval = await ask(turn, question)
        turn.root.tape.stage(CLIENTS_TAPE, [SendShown(fact.id, approval).to_entry()])

    async def _send(self, turn: Turn, fact: SendAsked) -> str:
        place = split_session(turn.session)
        message = Outbound(place.channel, place.chat, fact.text, place.thread, has_no_link_previews=True)
        await turn.tape.append([make.message("assistant", fact.text, origin=MCP_ORIGIN)])
        if not self._kernel.stage(turn, f"mcp_send:{fact.id}", message):
            return _finish(turn, fact, "failed")
        return _finish(turn, fact, "sent")

    async def _tell_owner(self, turn: Turn, fact: SendAsked, sentence: str) -> None:
        """Tell the owner that a yes came to nothing; the card alone would say that it was allowed."""
        if (owner := await self._kernel.find_owner()) is not None:
            text = (await self._find_texts(owner)).say(sentence, client=fact.client, session=fact.session)
            self._kernel.stage(turn, f"mcp_unsent:{fact.id}", Outbound(owner.channel, owner.chat, text, owner.thread))

    async def _find_texts(self, owner: Inbound | None) -> Texts:
        if owner is None:
            return self._kernel.texts
        return await self._kernel.find_texts(owner.channel, owner.sender.id, owner.chat)

    async def apply_merge(self, result: MergeResult) -> None:
        """Forget what was erased."""
        if result.has_erased:
            await self._projected.load()

    async def _find(self, key: str) -> TapeEntry | None:
        found = (await self._tape.fetch([TapeQuery(self._tape.name, keys=(key,))]))[0]
        return found[0] if found else None


class SendTurns:
    """The source of the turns that ask about a message of a program. See `TurnSource`: they say nothing in their chat."""

    def prepare(self, turn: Turn, inbound: Inbound) -> None:
        """Let it run its one command, which acts only on what was stored, and sends only what an owner allowed."""
        turn.role, turn.cause = Role.OWNER, inbound.external_id

    def build_reply(self, turn: Turn, inbound: Inbound, outcome: TurnOutcome) -> SourcedReply:  # noqa: ARG002 - the port's
        """Say nothing; a turn that failed ends the message."""
        is_lost = outcome.status in ("failed", "stopped", "too_old")
        return SourcedReply(entries=self.failure_entries(inbound, "") if is_lost else {})

    def failure_entries(self, inbound: Inbound, reason: str) -> Mapping[str, Sequence[TapeEntry]]:  # noqa: ARG002 - the port's
        """End a message about which nobody could be asked."""
        number = inbound.external_id.removeprefix(INBOUND_PREFIX)
        return {CLIENTS_TAPE: [SendEnded(number, "failed").to_entry()]}


def digest_message(client: str, session: str, text: str) -> str:
    """Return the digest of what is allowed: who wants to send what, and where."""
    return sha256("\0".join((client, session, text)).encode()).hexdigest()


def asked_key(client: str, number: str) -> str:
    """Return the key of a message. It has a hash of the program's own id, so that no key holds its words."""
    return f"send:{client}:{sha256(number.encode()).hexdigest()[:32]}"


def ended_key(number: str) -> str:
    """Return the key of how a message ended."""
    return f"ended:{number}"


def _end(fact: SendAsked, status: SendEnd) -> TapeEntry:
    return SendEnded(fact.id, status).to_entry(key=ended_key(fact.id))


def _finish(turn: Turn, fact: SendAsked, status: SendEnd) -> str:
    turn.root.tape.stage(CLIENTS_TAPE, [_end(fact, status)], if_absent=True)
    return status


def end_open(state: ClientsState) -> list[TapeEntry]:
    """Make the facts that end all messages that wait."""
    return [_end(each.fact, "expired") for each in state.asked]
