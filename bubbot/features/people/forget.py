"""The commands with which a person is forgotten: in a chat for oneself, for owners of anybody."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Literal

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args, NoArguments
from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, ConfirmationNeeded, ValueInvalid
from bubbot.features.people.arguments import parse_account
from bubbot.features.people.facts import ForgetWish, PersonForgetting, PersonForgotten, read_account
from bubbot.ports.channel import Button, Role
from bubbot.ports.forgetting import PEOPLE_TAPE
from bubbot.ports.inbox import INBOX_PREFIX
from bubbot.ports.people import Account, FindAccounts, FindOwners
from bubbot.tape.entry import Kind, TapeEntry, text_field
from bubbot.tape.fact import Cited
from bubbot.tape.query import TapeQuery
from bubbot.tape.service import TapeService
from bubbot.texts import COMMAND_PREFIX
from bubbot.tool import ADMINISTERS, READS_PEOPLE, CommandHelp, HelpTopic

ACCESS_TAPE = "bubbot/access"
RECEIVED = "inbox/received"
CONFIRM = Meta(description="true once you have read what goes")


class ForgetMeArgs(Args, frozen=True):
    """The yes of the person."""

    confirm: Annotated[bool, CONFIRM] = False


class ForgetPersonArgs(Args, frozen=True):
    """The person to forget."""

    person: Annotated[str, Meta(description="an account of the person, such as telegram:42", max_length=200)]
    confirm: Annotated[bool, CONFIRM] = False


class ForgettingBegun(Struct, frozen=True):
    """A person is forgotten, or will be at the next start of the bot.

    Attributes:
        messages: how many messages of theirs are known.
        chats: in how many chats.
        who: whom the answer is for: `person` asked in a chat for themself, `owner` asked the running bot; `done`: a shell
            without a bot has done it.
        owners: who decides about what others said of the person, as far as the person may know: by the names in their chats.
    """

    messages: int
    chats: int
    who: Literal["person", "owner", "done"]
    owners: tuple[str, ...] = ()

    def describe(self, caller: Caller) -> str:
        """Say what goes, and where an owner sees what stays."""
        name = {"person": "", "owner": ".owner", "done": ".done"}[self.who]
        listing = (
            "`bubbot access forgotten`" if caller.turn is None else caller.texts.format_commands(",access.forgotten")
        )
        say = caller.result_texts.say
        told = say(f"ForgettingBegun{name}", messages=self.messages, chats=self.chats, list=listing)
        if self.who != "person":
            return told
        owners = say("list_comma").join(self.owners)
        decision = say("ForgettingBegun.owners", owners=owners) if owners else say("ForgettingBegun.no_owners")
        return f"{told} {decision}"


class MentionedRange(Struct, frozen=True):
    """Entries of others that may say something about a forgotten person.

    Attributes:
        tape: the name of their tape.
        first: the id of the first one.
        last: the id of the last one.
    """

    tape: str
    first: int
    last: int


class Forgotten(Struct, frozen=True):
    """A person who was forgotten.

    Attributes:
        date: when, ISO 8601.
        entries: how many entries were erased.
        tapes: on how many tapes.
        files: how many files of the home were removed.
        mentions: the entries of others that may say something about the person; they stay.
        backups: the backups from before, which hold everything still.
        is_in_settings: config.toml had the number of the person then.
    """

    date: str
    entries: int
    tapes: int
    files: int
    mentions: tuple[MentionedRange, ...]
    backups: tuple[str, ...]
    is_in_settings: bool

    def describe(self, caller: Caller) -> str:
        """Say what went, what others said, and which backups are older."""
        say = caller.result_texts.say
        lines = [say("Forgotten", date=self.date[:10], count=self.entries, tapes=self.tapes, files=self.files)]
        if self.mentions:
            lines.append(say("Forgotten.mentions"))
            lines += [
                f"  {each.tape} #{each.first}" + (f"-#{each.last}" if each.last > each.first else "")
                for each in self.mentions
            ]
        if self.backups:
            lines.append(say("Forgotten.backups", names=say("list_comma").join(self.backups)))
        if self.is_in_settings:
            lines.append(say("Forgotten.settings"))
        return "\n".join(lines)


class _KnownMessages(Struct, frozen=True):
    """The messages of a person, counted, their sessions, and an entry that names them."""

    messages: int
    sessions: frozenset[str]
    entry: tuple[str, int]

    @property
    def chats(self) -> int:
        """In how many chats they are; a thread is a part of one."""
        return len({":".join(session.split(":", 2)[:2]) for session in self.sessions})


class ForgetCommands:
    """The commands with which people are forgotten. What they ask for is carried out at the next start of the bot."""

    def __init__(
        self,
        open_tape: Callable[[str], TapeService],
        find_accounts: FindAccounts,
        restart: Callable[[], None] | None = None,
        find_owners: FindOwners | None = None,
    ) -> None:
        """Build them.

        Args:
            open_tape: opens a tape of the system.
            find_accounts: knows which accounts belong to one person.
            restart: lets the running bot start again; None if none runs.
            find_owners: names those who decide about the chats of a channel; None without a bot.
        """
        self._find_owners = find_owners
        self._open_tape, self._find_accounts, self._restart = open_tape, find_accounts, restart

    async def _ask_me(self, caller: Caller, _args: ForgetMeArgs) -> ConfirmationNeeded | None:
        known = await self._find(*_own_account(caller))
        yes = Button(caller.texts.say("forget_button_yes"), f"{COMMAND_PREFIX}forget.me confirm=true")
        caller.required_turn.buttons.append((yes,))
        return ConfirmationNeeded("forget_me_asks", count=known.messages, chats=known.chats)

    @command(
        "forget me",
        chat=("forget.me",),
        in_shell=False,
        form="[confirm]",
        effect=ADMINISTERS,
        ask=_ask_me,
        help=CommandHelp(HelpTopic.MEMORY, "Forget me, for good", (",forget.me",), words=("erase", "privacy")),
    )
    async def forget_me(self, caller: Caller, args: ForgetMeArgs) -> ForgettingBegun:  # noqa: ARG002 - asked before
        """Forget you, for good: what you said in any chat, your names, memory, rights, jobs and files, and copies. It asks first."""
        channel, number = _own_account(caller)
        known = await self._find(channel, number)
        caller.required_turn.tape.stage(PEOPLE_TAPE, [_wish(known, "person")])
        owners = await self._find_owners(channel, known.sessions) if self._find_owners else ()
        return ForgettingBegun(known.messages, known.chats, "person", tuple(owners))

    async def _ask_forget(self, _caller: Caller, args: ForgetPersonArgs) -> ConfirmationNeeded | None:
        known = await self._find(*parse_account(args.person))
        return ConfirmationNeeded("access_forget_asks", person=args.person, count=known.messages, chats=known.chats)

    @command(
        "access forget <person>",
        chat=("access.forget",),
        form="<person> [confirm]",
        example="telegram:42",
        role=Role.OWNER,
        is_direct=True,
        effect=ADMINISTERS,
        ask=_ask_forget,
        help=CommandHelp(HelpTopic.ADMIN, "Forget a person, for good", (",access.forget telegram:42",)),
    )
    async def forget(self, caller: Caller, args: ForgetPersonArgs) -> ForgettingBegun:
        """Forget a person, for good: what they said in any chat, names, ids, rights, memory, jobs and files, and copies."""
        known = await self._find(*parse_account(args.person))
        if caller.turn is not None:
            caller.turn.tape.stage(PEOPLE_TAPE, [_wish(known, "owner")])
            return ForgettingBegun(known.messages, known.chats, "owner")
        await self._open_tape(PEOPLE_TAPE).append([_wish(known, "owner")])
        if self._restart is None:  # this process does it once the command has ended
            return ForgettingBegun(known.messages, known.chats, "done")
        self._restart()
        return ForgettingBegun(known.messages, known.chats, "owner")

    @command(
        "access forgotten",
        chat=("access.forgotten",),
        role=Role.OWNER,
        is_direct=True,
        effect=READS_PEOPLE,
        rows="forgotten",
        help=CommandHelp(HelpTopic.ADMIN, "Who was forgotten, and what stays", (",access.forgotten",)),
    )
    async def list_forgotten(self, caller: Caller, args: NoArguments) -> list[Forgotten]:  # noqa: ARG002 - words are refused
        """List the people who were forgotten, without names: what went, what others said of them, and older backups."""
        query = TapeQuery(PEOPLE_TAPE, kinds=(Kind.EVENT,), names=PersonForgotten.EVENTS)
        facts = [Cited.of(PersonForgotten, entry) for entry in (await self._open_tape(PEOPLE_TAPE).fetch([query]))[0]]
        return [
            Forgotten(
                each.date,
                each.fact.entries,
                each.fact.tapes,
                each.fact.files,
                tuple(MentionedRange(tape, *span) for tape, spans in each.fact.mentions.items() for span in spans),
                each.fact.backups,
                each.fact.is_in_settings,
            )
            for each in facts
        ]

    async def _find(self, channel: str, number: str) -> _KnownMessages:
        """Find the messages of a person with an account. Raise `ValueInvalid` if nothing names this account."""
        account = channel, number
        found = await self._find_messages(account)
        entry = found[-1][0] if found else await self._find_rights(account)
        if entry is None:
            raise ValueInvalid("forget_unknown", person=f"{channel}:{number}")
        for other in await self._find_accounts(account):
            found += await self._find_messages(other) if other != account else []
        return _KnownMessages(len(found), frozenset(session for _, session in found), entry)

    async def _find_messages(self, account: Account) -> list[tuple[tuple[str, int], str]]:
        """Return the messages of an account in its inbox, by tape and id, and the session of each; oldest first in a shard."""
        found: list[tuple[tuple[str, int], str]] = []
        for tape in self._open_tape(f"{INBOX_PREFIX}{account[0]}").shards():
            query = TapeQuery(tape.name, kinds=(Kind.EVENT,), names=(RECEIVED,))
            found += [
                ((tape.name, entry.id), text_field(entry.data, "session"))
                for entry in (await tape.fetch([query]))[0]
                if _is_of(entry, account)
            ]
        return found

    async def _find_rights(self, account: Account) -> tuple[str, int] | None:
        """Return the newest fact about the rights of an account; None without one."""
        rights = (await self._open_tape(ACCESS_TAPE).fetch([TapeQuery(ACCESS_TAPE, kinds=(Kind.EVENT,))]))[0]
        return next(((ACCESS_TAPE, entry.id) for entry in rights[::-1] if _is_of(entry, account)), None)


def _is_of(entry: TapeEntry, account: tuple[str, str]) -> bool:
    return not entry.erased and read_account(entry) == account


def _wish(known: _KnownMessages, by: ForgetWish) -> TapeEntry:
    return PersonForgetting(known.entry, by).to_entry()


def _own_account(caller: Caller) -> Account:
    """Return the account of the one person who typed the command. Raise `CommandRefused` if there is none."""
    turn = caller.required_turn
    account = turn.typing_account
    if account is None or not turn.runs_command:
        raise CommandRefused("forget_in_person")
    return account
