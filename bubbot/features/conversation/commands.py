"""Commands about the conversation itself, for people only: models are not offered them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Annotated, Any

from msgspec import Meta, Struct

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command
from bubbot.errors import CommandRefused, ToolRetry
from bubbot.features.conversation.help import ALL, CommandExplained, CommandOverview
from bubbot.features.conversation.tape import COMMANDS as COMMANDS  # noqa: PLC0414 - the words of the shell are found here
from bubbot.formatting import clean_label
from bubbot.ports.channel import Role
from bubbot.ports.session_names import read_session
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest
from bubbot.runtime.messages import sender_data
from bubbot.runtime.router import is_offered, unknown_command_text
from bubbot.tape.anchor import SESSION_NEW, SESSION_RESUME, recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, thaw
from bubbot.tape.handle import ids_of
from bubbot.tape.provenance import source_of
from bubbot.tape.query import IdRanges, TapeQuery, Window, parse_moment
from bubbot.tool import (
    INSIDE,
    READS_OWN,
    READS_STORED,
    CommandHelp,
    CommandPlace,
    HelpTopic,
    RerunModel,
    Tool,
)

ENTRY_ID_DIGITS = 18
"""Longer numbers are not entry ids; a store could not even look for them."""
MAX_SHOWN_NAME = 64
"""Characters of an anchor's name that a refusal shows."""
_INHERITED = ("phase", "summary", "next_steps")
"""The keys of its parent's state that a resumed window inherits."""


class ResumeArgs(Args, frozen=True):
    """An anchor."""

    anchor: Annotated[str, Meta(description="the name or entry id of the anchor to go on from; ,anchors lists them")]


class CorrectArgs(Args, frozen=True):
    """An entry, and its correction."""

    entry: Annotated[int, Meta(description="the entry to correct")]
    text: Annotated[str, Meta(description="what it should have said", min_length=1)]


class ContextArgs(Args, frozen=True):
    """A moment on the tape."""

    at: Annotated[
        int | None, Meta(description="the entry that was the newest then; ,tape.info says how many there are")
    ] = None


class HelpArgs(Args, frozen=True):
    """A command."""

    command: Annotated[str, Meta(description="a command to explain, or all")] = ""


class Greeting(Struct, frozen=True):
    """The first words to a person who is new here.

    Attributes:
        bot: the name of the bot.
    """

    bot: str


class WindowOpened(Struct, frozen=True):
    """A new window.

    Attributes:
        entry: the anchor that opens it.
    """

    entry: int


class WindowResumed(Struct, frozen=True):
    """A new window that takes up an earlier one.

    Attributes:
        anchor: the name of the anchor that opened the earlier one.
        parent: its entry.
        entry: the anchor that opens the new one.
    """

    anchor: str
    parent: int
    entry: int


class EntryCorrected(Struct, frozen=True):
    """A correction.

    Attributes:
        entry: the corrected entry.
        by: the entry that was added.
    """

    entry: int
    by: int


class Farewell(Struct, frozen=True):
    """The last words to a person who leaves."""


class ContextShown(Struct, frozen=True):
    """A request as the model would get it.

    Attributes:
        composed: the request.
        at: the entry that was the newest then; None for now.
        quoted: how many entries of other tapes are shown, by their sessions, or their names without one.
    """

    composed: ComposedRequest
    at: int | None
    quoted: Mapping[str, int] = MappingProxyType({})

    def describe(self, caller: Caller) -> str:
        """Write the prompt, each message with the entries that it shows, and the names of the tools."""
        composed, texts = self.composed, caller.texts
        lines = [] if self.at is None else [texts.say("context_as_of", entry=self.at), ""]
        lines += [texts.say("context_system", number=len(composed.request.system)), composed.request.system, ""]
        for shown in composed.context.context_messages:
            source = ",".join(f"#{entry_id}" for entry_id in shown.ids) or texts.say("context_made_here")
            body = {key: value for key, value in shown.message.items() if key not in ("role", "content")}
            extra = f" {json.dumps(thaw(body), ensure_ascii=False)}" if body else ""
            lines.append(f"{source} {shown.message['role']}: {shown.message['content']}{extra}")
        tools = ", ".join(spec.name for spec in composed.request.tools) or texts.say("none")
        number, selector = len(composed.context.context_messages), composed.view["selector"]
        lines += ["", texts.say("context_summary", selector=selector, number=number, tools=tools)]
        lines += [texts.say("context_quoted", name=name, count=count) for name, count in self.quoted.items()]
        return "\n".join(lines)


def _help(topic: HelpTopic, brief: str, *examples: str, **more: Any) -> CommandHelp:
    return CommandHelp(topic, brief, examples, **more)


class ConversationCommands:
    """The commands of a chat, for the turns of a bot."""

    def __init__(
        self,
        list_tools: Callable[[], Sequence[Tool]],
        compose: Callable[[Turn], Awaitable[ComposedRequest]],
        bot_name: str,
        reserved_names: Sequence[str] = (),
    ) -> None:
        """Build them.

        Args:
            list_tools: returns all tools, for the help.
            compose: builds the next request of a turn.
            bot_name: the name of the bot, for the greeting.
            reserved_names: how the names of anchors begin that a feature writes and takes up itself.
        """
        self._reserved_names = tuple(reserved_names)
        self._list_tools = list_tools
        self._compose = compose
        self._bot_name = bot_name

    @command(
        "session help",
        chat=("session.help", "help"),
        in_shell=False,
        effect=READS_OWN,
        help=_help(HelpTopic.TALK, "What I can do", ",help", ",help remind", in_menu=True),
    )
    async def help(self, caller: Caller, args: HelpArgs) -> CommandOverview | CommandExplained:
        """List the commands that people need most, or all, or explain one."""
        turn = caller.required_turn
        offered = [command for command in self._list_tools() if is_offered(command, turn)]
        name = args.command.lstrip(",/")
        if not name or name == ALL:
            return CommandOverview(offered=offered, is_complete=bool(name))
        match = next((command for command in offered if name in command.names), None)
        if match is None:
            raise ToolRetry(unknown_command_text(name, offered, turn.texts))
        return CommandExplained(match)

    @command(
        "session start",
        chat=("session.start", "start"),
        in_shell=False,
        effect=READS_OWN,
        help=_help(HelpTopic.TALK, "Say hello, and what to try", ",start"),
    )
    async def start(self) -> Greeting:
        """Greet a person who is new here, with three things to try."""
        return Greeting(self._bot_name)

    @command(
        "session new",
        chat=("session.new", "new"),
        in_shell=False,
        effect=INSIDE,
        help=_help(HelpTopic.TALK, "Begin a new conversation", ",new", in_menu=True, words=("clear",)),
    )
    async def new(self, caller: Caller) -> WindowOpened:
        """Start a new window: the conversation so far is no longer shown to the model; memory stays."""
        opened = await caller.required_turn.tape.handoff(SESSION_NEW, {"owner": "human"})
        return WindowOpened(opened.id)

    @command(
        "session resume",
        chat=("session.resume", "resume"),
        in_shell=False,
        effect=INSIDE,
        help=_help(HelpTopic.HISTORY, "Go back to an earlier window", ",resume 41", ",resume session/start"),
    )
    async def resume(self, caller: Caller, args: ResumeArgs) -> WindowResumed:
        """Go back: open a new window that takes up the thread of an earlier anchor."""
        tape = caller.required_turn.tape
        parent = await _find_anchor(caller.required_turn, args.anchor)
        if (parent.name or "").startswith(self._reserved_names):  # its window would be another topic's, by the anchors
            title = clean_label((parent.name or "").partition("/")[2], MAX_SHOWN_NAME)
            raise CommandRefused("resume_topic", entry=parent.id, title=title)
        later = TapeQuery(tape.name, IdRanges(((parent.id + 1, None),)), kinds=(Kind.ANCHOR,))
        following = [entry.id for entry in (await tape.fetch([later]))[0] if entry.opens_window]
        end = (following[0] if following else await tape.head() + 1) - 1
        data = parent.payload.get("state")
        inherited = {key: thaw(data[key]) for key in _INHERITED if key in data} if isinstance(data, Mapping) else {}
        state = {**inherited, "owner": "human", "parents": [parent.id], "resumed": parent.name}
        recalls = [*recalled_ranges(parent), *([(parent.id + 1, end)] if end > parent.id else [])]
        recalls += [(entry.id, entry.id) for entry in await tape.find_corrections(recalls) if entry.id > end]
        opened = await tape.handoff(SESSION_RESUME, state, recalls=recalls, copied=source_of(parent))
        return WindowResumed(parent.name or "", parent.id, opened.id)

    @command(
        "session correct",
        chat=("session.correct", "correct"),
        in_shell=False,
        effect=INSIDE,
        help=_help(
            HelpTopic.TALK,
            "Correct what was said in an entry",
            ",correct 41 The meeting is on Friday.",
            ',correct entry=41 text="We meet at nine."',
        ),
    )
    async def correct(self, caller: Caller, args: CorrectArgs) -> EntryCorrected:
        """Correct an entry by adding what it should have said; the original stays on the tape."""
        turn = caller.required_turn
        entry = await _find_entry(turn, args.entry)
        if not turn.role.at_least(Role.ADMIN) and not _is_own(turn, entry):
            raise CommandRefused("correct_own", entry=args.entry)
        if entry.kind != Kind.MESSAGE:
            kind = f"{entry.kind} {entry.name}" if entry.name else entry.kind
            raise CommandRefused("correct_no_message", entry=args.entry, kind=kind)
        added = await turn.tape.correct(args.entry, args.text, sender_data(turn.sender, turn.role))
        return EntryCorrected(args.entry, added.id)

    @command(
        "session retry",
        chat=("session.retry", "retry"),
        in_shell=False,
        effect=INSIDE,
        help=_help(HelpTopic.TALK, "Answer the last message again", ",retry", in_menu=True),
    )
    async def retry(self, caller: Caller) -> RerunModel:
        """Answer the last message again; the answer it had is hidden from the model."""
        turn = caller.required_turn
        query = TapeQuery(turn.tape.name, Window(), kinds=(Kind.MESSAGE,))
        messages = [entry for entry in (await turn.tape.fetch([query]))[0] if entry.is_shown_to("")]
        prompts = [entry for entry in messages if entry.payload.get("role") == "user"]
        if not prompts:
            raise CommandRefused("nothing_to_retry")
        for entry in messages:
            if entry.id > prompts[-1].id and entry.payload.get("role") == "assistant":
                await turn.tape.hide(entry.id)
        last_id = prompts[-1].id
        corrections = await turn.tape.find_corrections([(last_id, last_id)])
        turn.message_ids += [*(entry.id for entry in corrections), last_id]  # the last one is the message
        return RerunModel()

    @command(
        "session quit",
        chat=("session.quit", "quit"),
        in_shell=False,
        effect=READS_OWN,
        help=_help(HelpTopic.TALK, "Leave this chat", ",quit", place=CommandPlace.TERMINAL),
    )
    async def quit(self) -> Farewell:
        """Leave the terminal chat; the conversation stays."""
        return Farewell()

    @command(
        "session context",
        chat=("session.context", "context"),
        in_shell=False,
        effect=READS_STORED,
        help=_help(HelpTopic.HISTORY, "What the model would be shown", ",context", ",context at=41"),
    )
    async def context(self, caller: Caller, args: ContextArgs) -> ContextShown:
        """Show exactly what the model would be shown next, with the ids of the entries, or what it would have been shown at an entry."""
        turn = caller.required_turn
        composed = await self._compose(turn if args.at is None else await _rewind(turn, args.at))
        others = {tape: spans for tape, spans in composed.prompt_shown.items() if tape != turn.tape.name}
        names = {tape: await read_session(turn.tape, tape) or tape for tape in sorted(others)}
        return ContextShown(composed, args.at, {name: len(ids_of(others[tape], 0)) for tape, name in names.items()})


async def _find_anchor(turn: Turn, reference: str) -> TapeEntry:
    number = reference.lstrip("#")
    if number.isdecimal() and len(number) <= ENTRY_ID_DIGITS:
        entry = await _find_entry(turn, int(number))
        if entry.opens_window:
            return entry
        raise CommandRefused("anchor_not_window", entry=entry.id)
    query = TapeQuery(turn.tape.name, kinds=(Kind.ANCHOR,), names=(reference,), newest=True, limit=1)
    anchors = (await turn.tape.fetch([query]))[0]
    if not anchors or not anchors[0].opens_window:
        raise CommandRefused("anchor_unknown", name=reference)
    return anchors[0]


async def _find_entry(turn: Turn, entry_id: int) -> TapeEntry:
    last = await turn.tape.head()
    if not 1 <= entry_id <= last:
        raise CommandRefused("no_entry", entry=entry_id, last=last)
    return await turn.tape.entry(entry_id)


def _is_own(turn: Turn, entry: TapeEntry) -> bool:
    author = entry.meta.get("sender")
    return isinstance(author, Mapping) and author.get("id") == turn.sender.id


async def _rewind(turn: Turn, entry_id: int) -> Turn:
    """Return the turn on the tape as it was, at the time of its newest entry then."""
    newest = await _find_entry(turn, entry_id)
    moment = parse_moment(newest.date)
    return replace(
        turn, tape=await turn.tape.as_of(((1, entry_id),)), now=turn.now if moment is None else lambda: moment
    )
