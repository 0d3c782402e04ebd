"""Commands about the conversation itself, for people only: models are not offered them."""

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Literal, Protocol, TypeAlias

from pydantic import Field

from bubbot.errors import ToolRetry
from bubbot.feature import wait_for_nothing
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.gateway.outbox import abandoned_entry
from bubbot.ports.channel import CommandInfo, Role
from bubbot.ports.tool import (
    INSIDE,
    READS_OWN,
    READS_STORED,
    CommandHelp,
    CommandPlace,
    HelpTopic,
    NoArgs,
    RerunModel,
    Tool,
    ToolArgs,
    Toolbox,
    tool,
)
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import ComposedRequest
from bubbot.runtime.messages import sender_data
from bubbot.runtime.router import command_usage, format_command, is_offered, unknown_command_text
from bubbot.tape.anchor import SESSION_NEW, SESSION_RESUME, recalled_ranges
from bubbot.tape.entry import Kind, TapeEntry, thaw
from bubbot.tape.provenance import source_of
from bubbot.tape.query import IdRanges, TapeQuery, Window, parse_moment
from bubbot.texts import Texts

ENTRY_ID_DIGITS = 18
"""Longer numbers are not entry ids; a store could not even look for them."""
_INHERITED = ("phase", "summary", "next_steps")
"""The keys of its parent's state that a resumed window inherits."""


ALL = "all"
"""What `,help` is asked for to list every command."""
PRIVATE_TOPICS = (HelpTopic.SETTINGS, HelpTopic.ADMIN)
"""The topics whose commands are not in the menus of groups."""


FindTraces: TypeAlias = Callable[[Turn], Awaitable[Sequence[str]]]
"""Return further tapes with texts of a turn's session."""


async def find_no_traces(_turn: Turn) -> Sequence[str]:
    """Return nothing, for bots whose features have no such tapes."""
    return ()


class KeepsMemory(Protocol):
    """The memory of sessions, as a reset uses it."""

    async def export(self, turn: Turn) -> str:
        """Write the memory of the turn's session to a file and return its path."""
        ...

    async def start_again(self, turn: Turn) -> None:
        """Begin with an empty memory on the tape that was just reset."""
        ...


class ResumeArgs(ToolArgs):
    """The arguments of `session.resume`."""

    anchor: str = Field(description="the name or entry id of the anchor to go on from; ,anchors lists them")


class ResetArgs(ToolArgs):
    """The arguments of `session.reset`."""

    how: Literal["", "archive", "erase"] = Field(
        default="", description="archive (keep the old tape under another name) or erase"
    )


class CorrectArgs(ToolArgs):
    """The arguments of `session.correct`."""

    entry: int = Field(description="the entry to correct")
    text: str = Field(description="what it should have said", min_length=1)


class ContextArgs(ToolArgs):
    """The arguments of `session.context`."""

    at: int | None = Field(
        default=None, description="the entry that was the newest then; ,tape.info says how many there are"
    )


class HelpArgs(ToolArgs):
    """The arguments of `session.help`."""

    command: str = Field(default="", description="a command to explain, or all")


@tool(
    "session.new",
    effect=INSIDE,
    commands=("new",),
    for_model=False,
    help=CommandHelp(HelpTopic.TALK, "Begin a new conversation", (",new",), in_menu=True, words=("clear",)),
)
async def session_new(turn: Turn, args: NoArgs) -> str:
    """Start a new window: the conversation so far is no longer shown to the model; memory stays."""
    opened = await turn.tape.handoff(SESSION_NEW, {"owner": "human"})
    return turn.texts.say("new_window", entry=opened.id)


@tool(
    "session.resume",
    effect=INSIDE,
    commands=("resume",),
    for_model=False,
    help=CommandHelp(HelpTopic.HISTORY, "Go back to an earlier window", (",resume 41", ",resume session/start")),
)
async def session_resume(turn: Turn, args: ResumeArgs) -> str:
    """Go back: open a new window that takes up the thread of an earlier anchor."""
    parent = await _find_anchor(turn, args.anchor)
    later = TapeQuery(turn.tape.name, IdRanges(((parent.id + 1, None),)), kinds=(Kind.ANCHOR,))
    following = [entry.id for entry in (await turn.tape.fetch([later]))[0] if entry.opens_window]
    end = (following[0] if following else await turn.tape.head() + 1) - 1
    data = parent.payload.get("state")
    inherited = {key: thaw(data[key]) for key in _INHERITED if key in data} if isinstance(data, Mapping) else {}
    state = {**inherited, "owner": "human", "parents": [parent.id], "resumed": parent.name}
    recalls = [*recalled_ranges(parent), *([(parent.id + 1, end)] if end > parent.id else [])]
    recalls += [(entry.id, entry.id) for entry in await turn.tape.find_corrections(recalls) if entry.id > end]
    opened = await turn.tape.handoff(SESSION_RESUME, state, recalls=recalls, copied=source_of(parent))
    return turn.texts.say("resumed", anchor=parent.name, parent=parent.id, entry=opened.id)


async def _find_anchor(turn: Turn, reference: str) -> TapeEntry:
    number = reference.lstrip("#")
    if number.isdecimal() and len(number) <= ENTRY_ID_DIGITS:
        entry = await _find_entry(turn, int(number))
        if entry.opens_window:
            return entry
        raise ToolRetry(turn.texts.say("anchor_not_window", entry=entry.id))
    query = TapeQuery(turn.tape.name, kinds=(Kind.ANCHOR,), names=(reference,), newest=True, limit=1)
    anchors = (await turn.tape.fetch([query]))[0]
    if not anchors or not anchors[0].opens_window:
        raise ToolRetry(turn.texts.say("anchor_unknown", name=reference))
    return anchors[0]


async def _find_entry(turn: Turn, entry_id: int) -> TapeEntry:
    last = await turn.tape.head()
    if not 1 <= entry_id <= last:
        raise ToolRetry(turn.texts.say("no_entry", entry=entry_id, last=last))
    return await turn.tape.entry(entry_id)


@tool(
    "session.correct",
    effect=INSIDE,
    commands=("correct",),
    for_model=False,
    help=CommandHelp(
        HelpTopic.TALK,
        "Correct what was said in an entry",
        (",correct 41 The meeting is on Friday.", ',correct entry=41 text="We meet at nine."'),
    ),
)
async def session_correct(turn: Turn, args: CorrectArgs) -> str:
    """Correct an entry by adding what it should have said; the original stays on the tape."""
    entry = await _find_entry(turn, args.entry)
    if not turn.role.at_least(Role.ADMIN) and not _is_own(turn, entry):
        raise ToolRetry(turn.texts.say("correct_own", entry=args.entry))
    if entry.kind != Kind.MESSAGE:
        kind = f"{entry.kind} {entry.name}" if entry.name else entry.kind
        raise ToolRetry(turn.texts.say("correct_no_message", entry=args.entry, kind=kind))
    added = await turn.tape.correct(args.entry, args.text, sender_data(turn.sender, turn.role))
    return turn.texts.say("corrected", entry=args.entry, by=added.id)


def _is_own(turn: Turn, entry: TapeEntry) -> bool:
    author = entry.meta.get("sender")
    return isinstance(author, Mapping) and author.get("id") == turn.sender.id


@tool(
    "session.retry",
    effect=INSIDE,
    commands=("retry",),
    for_model=False,
    help=CommandHelp(HelpTopic.TALK, "Answer the last message again", (",retry",), in_menu=True),
)
async def session_retry(turn: Turn, args: NoArgs) -> RerunModel:
    """Answer the last message again; the answer it had is hidden from the model."""
    query = TapeQuery(turn.tape.name, Window(), kinds=(Kind.MESSAGE,))
    messages = [entry for entry in (await turn.tape.fetch([query]))[0] if entry.is_shown_to("")]
    prompts = [entry for entry in messages if entry.payload.get("role") == "user"]
    if not prompts:
        raise ToolRetry(turn.texts.say("nothing_to_retry"))
    for entry in messages:
        if entry.id > prompts[-1].id and entry.payload.get("role") == "assistant":
            await turn.tape.hide(entry.id)
    last_id = prompts[-1].id
    corrections = await turn.tape.find_corrections([(last_id, last_id)])
    turn.message_ids += [last_id, *(entry.id for entry in corrections)]
    return RerunModel()


@tool(
    "session.quit",
    effect=READS_OWN,
    commands=("quit",),
    for_model=False,
    help=CommandHelp(HelpTopic.TALK, "Leave this chat", (",quit",), place=CommandPlace.TERMINAL),
)
async def session_quit(turn: Turn, args: NoArgs) -> str:
    """Leave the terminal chat; the conversation stays."""
    return turn.texts.say("bye")


def reset_tool(
    traces: Sequence[str],
    forget: Callable[[str], None],
    memory: KeepsMemory | None,
    *,
    view_traces: Callable[[str], SessionTraceView] = SessionTraceView,
    find_traces: FindTraces = find_no_traces,
    wait_until_sent: Callable[[Turn], Awaitable[None]] = wait_for_nothing,
) -> Tool:
    """Build `session.reset`.

    Args:
        traces: the inbox and outbox tapes, and those of features, which hold texts of sessions.
        view_traces: builds the view that finds the entries of a session on them.
        forget: removes the files that channels keep for a session.
        memory: exports the memory of a session, and starts it again; None without one.
        find_traces: returns further tapes with texts of a turn's session.
        wait_until_sent: returns when nothing for the chat of a turn is being sent any more.
    """

    @tool(
        "session.reset",
        effect=INSIDE,
        commands=("reset",),
        for_model=False,
        role=Role.OWNER,
        help=CommandHelp(HelpTopic.ADMIN, "Archive or erase this chat", (",reset archive", ",reset erase")),
    )
    async def session_reset(turn: Turn, args: ResetArgs) -> str:
        """Start this tape anew: `archive` keeps the old one under another name, `erase` removes its content."""
        head = turn.tape.base
        if args.how == "archive":
            path = await memory.export(turn) if memory else ""
            name = await turn.tape.reset(archive=True)
            if memory:
                await memory.start_again(turn)
            return turn.texts.say("archived", count=head, name=name, path=path)
        if args.how == "erase":
            await wait_until_sent(turn)  # an answer that is being shown could not be completed without its record
            tapes = [*traces, *await find_traces(turn)]
            forget(turn.session)  # first: a crash in between must not leave the files of an erased session behind
            await turn.tape.reset(archive=False, erase_also=await _collect_traces(turn, tapes, view_traces))
            if memory:
                await memory.start_again(turn)
            return turn.texts.say("erased", count=head)
        return turn.texts.say("reset_asks", count=head)

    return session_reset


async def _collect_traces(
    turn: Turn, tapes: Sequence[str], view_traces: Callable[[str], SessionTraceView]
) -> tuple[tuple[str, tuple[int, ...]], ...]:
    """Find the entries to erase on these tapes; messages that did not arrive yet end with them."""
    asking = frozenset(accepted.id for accepted in turn.inbounds)
    view, traces = replace(view_traces(turn.session), asking=asking), []
    for tape in tapes:
        answers = await turn.tape.fetch(view.queries(tape))
        traces.append((tape, view.fold(answers)))
        if undelivered := view.fold_undelivered(answers):
            turn.tape.stage(tape, [abandoned_entry(intent, "erased") for intent in undelivered], if_absent=True)
    return tuple(traces)


def help_tool(tools: Callable[[], Sequence[Tool]]) -> Tool:
    """Build `session.help` for the tools that `tools` returns."""

    @tool(
        "session.help",
        effect=READS_OWN,
        commands=("help",),
        for_model=False,
        help=CommandHelp(HelpTopic.TALK, "What I can do", (",help", ",help remind"), in_menu=True),
    )
    async def session_help(turn: Turn, args: HelpArgs) -> str:
        """List the commands that people need most, or all, or explain one."""
        offered = [command for command in tools() if is_offered(command, turn)]
        name = args.command.lstrip(",/")
        if not name:
            most_needed = [command for command in offered if command.help.in_menu and command.name != "session.help"]
            return _list_by_topic(most_needed, turn.texts, "help_all")
        if name == ALL:
            return _list_by_topic(offered, turn.texts, "help_more")
        match = next((command for command in offered if name in command.names), None)
        if match is None:
            raise ToolRetry(unknown_command_text(name, offered, turn.texts))
        return _explain(match, turn.texts)

    return session_help


def start_tool(bot_name: str) -> Tool:
    """Build `session.start`, the first thing that people send on Telegram. `bot_name` is the name of the bot."""

    @tool(
        "session.start",
        effect=READS_OWN,
        commands=("start",),
        for_model=False,
        help=CommandHelp(HelpTopic.TALK, "Say hello, and what to try", (",start",)),
    )
    async def session_start(turn: Turn, args: NoArgs) -> str:
        """Greet a person who is new here, with three things to try."""
        return turn.texts.say("greeting", bot=bot_name)

    return session_start


def _list_by_topic(offered: Sequence[Tool], texts: Texts, closing: str) -> str:
    """List commands under their topics; `closing` is the name of the last sentence."""
    topics = []
    for topic in HelpTopic:
        lines = [
            texts.say("help_line", command=format_command(command, texts), brief=brief_summary(command, texts))
            for command in sorted(offered, key=lambda each: not each.help.in_menu)
            if command.help.topic is topic
        ]
        if lines:
            topics.append("\n".join([texts.topic(topic), *lines]))
    example = next((command for command in offered if command.help.topic is HelpTopic.TIMES), offered[0])
    return "\n\n".join([*topics, texts.say(closing, example=format_command(example, texts)[1:])])


def _explain(command: Tool, texts: Texts) -> str:
    """Tell how a command is typed, what it does, its arguments, examples, and who may use it."""
    lines = [command_usage(command, texts), texts.summary(command.name, command.summary)]
    fields = command.fields
    lines += [
        texts.say("help_argument", name=name, meaning=texts.meaning(command.name, name, fields[name].description))
        for name in dict.fromkeys([*command.words, *fields])
    ]
    if examples := [texts.format_commands(example) for example in command.help.examples]:
        lines.append("\n".join([texts.say("help_examples"), *examples]))
    match command.role:
        case Role.OWNER:
            lines.append(texts.say("help_owner"))
        case Role.ADMIN:
            lines.append(texts.say("help_admin"))
        case _:
            lines.append(texts.say("help_everybody"))
    return "\n".join(lines)


def brief_summary(command: Tool, texts: Texts) -> str:
    """Return the meaning of a command in a few words; of one that has none, the beginning of its summary."""
    if command.help.brief:
        return texts.brief(command.name, command.help.brief)
    return texts.summary(command.name, command.summary).partition(". ")[0].rstrip(".")


def context_tool(compose: Callable[[Turn], Awaitable[ComposedRequest]]) -> Tool:
    """Build `session.context`, which shows the next request as `compose` builds it."""

    @tool(
        "session.context",
        effect=READS_STORED,
        commands=("context",),
        for_model=False,
        help=CommandHelp(HelpTopic.HISTORY, "What the model would be shown", (",context", ",context at=41")),
    )
    async def session_context(turn: Turn, args: ContextArgs) -> str:
        """Show exactly what the model would be shown next, with the ids of the entries, or what it would have been shown at an entry."""
        composed, texts = await compose(turn if args.at is None else await _rewind(turn, args.at)), turn.texts
        lines = [] if args.at is None else [texts.say("context_as_of", entry=args.at), ""]
        lines += [texts.say("context_system", number=len(composed.request.system)), composed.request.system, ""]
        for shown in composed.context.context_messages:
            source = ",".join(f"#{entry_id}" for entry_id in shown.ids) or texts.say("context_made_here")
            body = {key: value for key, value in shown.message.items() if key not in ("role", "content")}
            extra = f" {json.dumps(thaw(body), ensure_ascii=False)}" if body else ""
            lines.append(f"{source} {shown.message['role']}: {shown.message['content']}{extra}")
        tools = ", ".join(spec.name for spec in composed.request.tools) or texts.say("none")
        number, selector = len(composed.context.context_messages), composed.view["selector"]
        return "\n".join([*lines, "", texts.say("context_summary", selector=selector, number=number, tools=tools)])

    return session_context


async def _rewind(turn: Turn, entry_id: int) -> Turn:
    """Return the turn on the tape as it was, at the time of its newest entry then. Raise `ToolRetry` without that entry."""
    newest = await _find_entry(turn, entry_id)
    moment = parse_moment(newest.date)
    return replace(
        turn, tape=await turn.tape.as_of(((1, entry_id),)), now=turn.now if moment is None else lambda: moment
    )


def session_tools() -> list[Tool]:
    """Return the tools of this file that need nothing from the deployment."""
    return [
        session_new,
        session_resume,
        session_correct,
        session_retry,
        session_quit,
    ]


def list_commands(toolbox: Toolbox, texts: Texts, translations: Mapping[str, Texts]) -> list[CommandInfo]:
    """List the commands as people type them, for menus and completion.

    Args:
        toolbox: the commands.
        texts: the language of the bot.
        translations: the languages of the menus, by tag.
    """
    return [
        CommandInfo(
            name,
            brief_summary(command, texts),
            tuple(dict.fromkeys([*command.words, *command.fields])),
            in_menu=command.help.in_menu and name == command.typed_name,
            is_shared=command.help.topic not in PRIVATE_TOPICS,
            translations={tag: brief_summary(command, other) for tag, other in translations.items()},
            further_names=tuple(other for other in command.names if other != name),
        )
        for command in toolbox
        if not command.is_reserved
        for name in command.commands or (command.name,)
    ]
