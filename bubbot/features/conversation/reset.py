"""`,reset`: the tape of a chat starts again; the old one is archived or loses its content."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Annotated, Literal, Protocol, TypeAlias

from msgspec import Meta, Struct, structs

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command
from bubbot.errors import ConfirmationNeeded
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.gateway.outbox import abandoned_entry
from bubbot.ports.channel import Role
from bubbot.ports.people import FindOwners
from bubbot.ports.turn import Turn
from bubbot.tape.copies import KnownCopies
from bubbot.tool import INSIDE, CommandHelp, HelpTopic

FindCopies: TypeAlias = Callable[[str], Awaitable[Sequence[KnownCopies]]]
"""Return what the tapes of other chats hold of a tape."""
FindTraces: TypeAlias = Callable[[Turn], Awaitable[Sequence[str]]]
"""Return further tapes with texts of a turn's session."""


class KeepsMemory(Protocol):
    """The memory of sessions, as a reset uses it."""

    async def export(self, turn: Turn) -> str:
        """Write the memory of the turn's session to a file and return its path."""
        ...

    async def start_again(self, turn: Turn) -> None:
        """Begin with an empty memory on the tape that was just reset."""
        ...


class ResetArgs(Args, frozen=True):
    """What becomes of the old tape."""

    how: Annotated[
        Literal["", "archive", "erase"],
        Meta(description="archive (keep the old tape under another name) or erase"),
    ] = ""
    copies: Annotated[
        Literal["", "erase", "keep"],
        Meta(description="what becomes of copies in other chats: erase or keep; empty: ask if there are any"),
    ] = ""


class TapeReset(Struct, frozen=True):
    """A tape that started again, or that would.

    Attributes:
        variant: what was done; `asks`: nothing yet.
        count: how many entries it had.
        name: the name of the archive; empty without one.
        path: the file with the memory; empty without one.
    """

    variant: Literal["archived", "erased", "asks"]
    count: int
    name: str = ""
    path: str = ""


class ResetCommands:
    """The reset of the chat of a turn."""

    def __init__(
        self,
        traces: Sequence[str],
        forget: Callable[[str], None],
        memory: KeepsMemory | None = None,
        *,
        view_traces: Callable[[str], SessionTraceView] = SessionTraceView,
        find_traces: FindTraces | None = None,
        wait_until_sent: Callable[[Turn], Awaitable[None]] | None = None,
        find_copies: FindCopies | None = None,
        name_tape: Callable[[str], Awaitable[str]] | None = None,
        find_owners: FindOwners | None = None,
        restart: Callable[[], None] = lambda: None,
    ) -> None:
        """Build it.

        Args:
            traces: the inbox and outbox tapes, and those of features, which hold texts of sessions.
            forget: removes the files that channels keep for a session.
            memory: exports the memory of a session, and starts it again; None without one.
            view_traces: builds the view that finds the entries of a session on them.
            find_traces: finds further tapes with texts of the session of a turn.
            wait_until_sent: returns when nothing for the chat of a turn is being sent any more.
            find_copies: finds what other chats hold of a tape; None without them.
            name_tape: returns the session of a tape, for people.
            find_owners: names those who decide about the chats of a channel.
            restart: lets the bot start again, so that no window of another chat holds what was erased there.
        """
        self._traces, self._forget, self._memory = traces, forget, memory
        self._view_traces, self._find_traces, self._wait_until_sent = view_traces, find_traces, wait_until_sent
        self._find_copies, self._name_tape, self._restart = find_copies, name_tape, restart
        self._find_owners = find_owners

    @command(
        "session reset",
        chat=("session.reset", "reset"),
        in_shell=False,
        role=Role.OWNER,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.ADMIN, "Archive or erase this chat", (",reset archive", ",reset erase")),
    )
    async def reset(self, caller: Caller, args: ResetArgs) -> TapeReset:
        """Start this tape anew: `archive` keeps the old one under another name, `erase` removes its content."""
        turn, memory = caller.required_turn, self._memory
        head = turn.tape.base
        if not args.how:
            return TapeReset("asks", head)
        if args.how == "archive":
            path = await memory.export(turn) if memory else ""
            name = await turn.tape.reset(archive=True)
            done = TapeReset("archived", head, name, path)
        else:
            copies = await self._choose_copies(caller, args)
            if self._wait_until_sent:  # an answer that is being shown could not be completed without its record
                await self._wait_until_sent(turn)
            tapes = [*self._traces, *(await self._find_traces(turn) if self._find_traces else ())]
            self._forget(turn.session)  # first: a crash in between must not leave the files of an erased session behind
            await turn.tape.reset(archive=False, erase_also=(*await self._collect_traces(turn, tapes), *copies))
            if copies:
                self._restart()
            done = TapeReset("erased", head)
        if memory:
            await memory.start_again(turn)
        return done

    async def _choose_copies(self, caller: Caller, args: ResetArgs) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Return the copies in other chats to erase. Raise `ConfirmationNeeded` if there are some, and nothing was chosen.

        Whoever has no power over other chats here may only keep them.
        """
        if self._find_copies is None or args.copies == "keep":
            return ()
        found = await self._find_copies(caller.required_turn.tape.name)
        if found and (args.copies == "" or not caller.has_power):
            lines = [await self._describe_copies(caller, each) for each in found]
            code = "reset_copies" if caller.has_power else "reset_copies_elsewhere"
            raise ConfirmationNeeded(code, count=len(found), lines="\n".join(lines))
        return tuple((each.tape, tuple(sorted({*each.entries, *each.prompts}))) for each in found)

    async def _describe_copies(self, caller: Caller, copies: KnownCopies) -> str:
        name = (await self._name_tape(copies.tape) if self._name_tape else "") or copies.tape
        entries, prompts = len(copies.entries), len(copies.prompts)
        line = caller.texts.say("reset_copies_line", chat=name, entries=entries, prompts=prompts)
        # In a group its members read along: they learn the names of those only who wrote there.
        sessions = None if caller.has_power else [caller.required_turn.session]
        owners = await self._find_owners(name.partition(":")[0], sessions) if self._find_owners else ()
        if not owners:
            return line
        return caller.texts.say("reset_copies_owners", line=line, owners=caller.texts.say("list_comma").join(owners))

    async def _collect_traces(self, turn: Turn, tapes: Sequence[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
        """Find the entries to erase on these tapes; messages that did not arrive yet end with them."""
        asking = frozenset(accepted.id for accepted in turn.inbounds)
        view, traces = structs.replace(self._view_traces(turn.session), asking=asking), []
        for tape in tapes:
            answers = await turn.tape.fetch(view.queries(tape))
            traces.append((tape, view.fold(answers)))
            if undelivered := view.fold_undelivered(answers):
                turn.tape.stage(tape, [abandoned_entry(intent, "erased") for intent in undelivered], if_absent=True)
        return tuple(traces)
