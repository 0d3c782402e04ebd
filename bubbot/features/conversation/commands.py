"""Commands about the conversation itself, for people only: models are not offered them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from bubbot.errors import ToolRetry
from bubbot.features.memory.zone import MemoryZone
from bubbot.features.why.view import Explanation, TurnSpansView, WhyView
from bubbot.gateway.inbox_views import SessionTraceView
from bubbot.ports.channel import CommandInfo, Role
from bubbot.ports.model import ModelRequest
from bubbot.ports.tool import NoArgs, RerunModel, Tool, ToolArgs, Toolbox, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.compose import RequestComposer, embed_images, rebuild_request
from bubbot.runtime.context.selectors import find_correction
from bubbot.runtime.context.view import CONTEXT_VERSION
from bubbot.runtime.messages import sender_data
from bubbot.runtime.router import command_usage, unknown_command_text
from bubbot.tape.anchor import SESSION_NEW, SESSION_RESUME, recalled_ranges
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import IdRanges, Span, TapeQuery, WholeTape, Window, is_inside
from bubbot.texts import Texts

ENTRY_ID_DIGITS = 18
"""Longer numbers are not entry ids; a store could not even look for them."""
_INHERITED = ("phase", "summary", "next_steps")
"""The keys of its parent's state that a resumed window inherits."""
_TRACE = re.compile(r"[0-9a-f]{4,32}")


class ResumeArgs(ToolArgs):
    """The arguments of `session.resume`."""

    anchor: str = Field(description="the name or entry id of the anchor to go on from; ,anchors lists them")


class ResetArgs(ToolArgs):
    """The arguments of `session.reset`."""

    how: str = Field(default="", description="archive (keep the old tape under another name) or erase")


class CorrectArgs(ToolArgs):
    """The arguments of `session.correct`."""

    entry: int = Field(description="the entry to correct")
    text: str = Field(description="what it should have said", min_length=1)


class HelpArgs(ToolArgs):
    """The arguments of `session.help`."""

    command: str = Field(default="", description="a command to explain")


class WhyArgs(ToolArgs):
    """The arguments of `session.why`."""

    request: bool = Field(default=False, description="print the request of the last step")
    turn: str = Field(default="", description="the turn to explain: its trace, which a failure tells")
    positional: ClassVar[tuple[str, ...]] = ("request",)

    @model_validator(mode="before")
    @classmethod
    def _parse_trace(cls, arguments: Any) -> Any:
        """Read a trace that was typed as a plain word; no word for yes or no looks like one."""
        word = arguments.get("request")
        is_trace = len(arguments) == 1 and isinstance(word, str) and _TRACE.fullmatch(word)
        return {"turn": word} if is_trace else arguments


@tool("session.new", commands=("new",), for_model=False)
async def session_new(turn: Turn, args: NoArgs) -> str:
    """Start a new window: the conversation so far is no longer shown to the model; memory stays."""
    opened = await turn.tape.handoff(SESSION_NEW, {"owner": "human"})
    return turn.texts.say("new_window", entry=opened.id)


@tool("session.resume", commands=("resume",), for_model=False)
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
    recalls += [(entry.id, entry.id) for entry in await _find_corrections(turn, recalls) if entry.id > end]
    opened = await turn.tape.handoff(SESSION_RESUME, state, recalls=recalls)
    return turn.texts.say("resumed", anchor=parent.name, parent=parent.id, entry=opened.id)


async def _find_corrections(turn: Turn, spans: Sequence[Span]) -> list[TapeEntry]:
    """Find all corrections of entries in these spans, anywhere on the tape: hidden entries stay hidden."""
    query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(CORRECTION,))
    entries = (await turn.tape.fetch([query]))[0]
    return [entry for entry in entries if (data := find_correction(entry)) and is_inside(data["corrects"], spans)]


async def _find_anchor(turn: Turn, reference: str) -> TapeEntry:
    number = reference.lstrip("#")
    if number.isdecimal() and len(number) <= ENTRY_ID_DIGITS:
        entry = await turn.tape.entry(int(number))
        if entry.opens_window:
            return entry
        raise ToolRetry(f"entry {entry.id} is not an anchor that opens a window; ,anchors lists them")
    query = TapeQuery(turn.tape.name, kinds=(Kind.ANCHOR,), names=(reference,), newest=True, limit=1)
    anchors = (await turn.tape.fetch([query]))[0]
    if not anchors or not anchors[0].opens_window:
        raise ToolRetry(f"there is no anchor {reference} that opens a window; ,anchors lists them")
    return anchors[0]


@tool("session.correct", commands=("correct",), for_model=False)
async def session_correct(turn: Turn, args: CorrectArgs) -> str:
    """Correct an entry by adding what it should have said; the original stays on the tape."""
    if not turn.role.at_least(Role.ADMIN) and not await _is_own(turn, args.entry):
        raise ToolRetry(turn.texts.say("correct_own", entry=args.entry))
    added = await turn.tape.correct(args.entry, args.text, sender_data(turn.sender))
    return turn.texts.say("corrected", entry=args.entry, by=added.id)


async def _is_own(turn: Turn, entry_id: int) -> bool:
    """Return true if the sender wrote the entry, or if it does not exist: then the correction raises the error."""
    if not 1 <= entry_id <= await turn.tape.head():
        return True
    author = (await turn.tape.entry(entry_id)).meta.get("sender")
    return isinstance(author, Mapping) and author.get("id") == turn.sender.id


@tool("session.retry", commands=("retry",), for_model=False)
async def session_retry(turn: Turn, args: NoArgs) -> RerunModel:
    """Answer the last message again; the answer it had is hidden from the model."""
    query = TapeQuery(turn.tape.name, Window(), kinds=(Kind.MESSAGE,))
    messages = (await turn.tape.fetch([query]))[0]
    prompts = [entry for entry in messages if entry.payload.get("role") == "user"]
    if not prompts:
        raise ToolRetry(turn.texts.say("nothing_to_retry"))
    for entry in messages:
        if entry.id > prompts[-1].id and entry.payload.get("role") == "assistant":
            await turn.tape.hide(entry.id)
    last_id = prompts[-1].id
    corrections = await _find_corrections(turn, [(last_id, last_id)])
    turn.message_ids += [last_id, *(entry.id for entry in corrections)]
    return RerunModel()


@tool("session.quit", commands=("quit",), for_model=False)
async def session_quit(turn: Turn, args: NoArgs) -> str:
    """Leave the terminal chat; the conversation stays."""
    return turn.texts.say("bye")


def reset_tool(traces: Sequence[str], export: Callable[[str, str], str], forget: Callable[[str], None]) -> Tool:
    """Build `session.reset`.

    Args:
        traces: the inbox and outbox tapes, which hold texts of sessions.
        export: writes the memory of a session to a file; takes session and text, returns the path.
        forget: removes the files that channels keep for a session.
    """

    @tool("session.reset", commands=("reset",), for_model=False, role=Role.OWNER)
    async def session_reset(turn: Turn, args: ResetArgs) -> str:
        """Start this tape anew: `archive` keeps the old one under another name, `erase` removes its content."""
        head = turn.tape.base
        if args.how == "archive":
            memory = MemoryZone(turn.tape, now=turn.now, zone=turn.zone)
            path = export(turn.session, await memory.export())
            name = await turn.tape.reset(archive=True)
            await memory.ensure()  # on the new tape: a session has a memory zone from its first entry on
            return turn.texts.say("archived", count=head, name=name, path=path)
        if args.how == "erase":
            forget(turn.session)  # first: a crash in between must not leave the files of an erased session behind
            await turn.tape.reset(archive=False, erase_also=await _find_traces(turn, traces))
            await MemoryZone(turn.tape, now=turn.now, zone=turn.zone).ensure()
            return turn.texts.say("erased", count=head)
        return turn.texts.say("reset_asks", count=head)

    return session_reset


async def _find_traces(turn: Turn, tapes: Sequence[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    view = SessionTraceView(turn.session)
    return tuple([(tape, view.fold(await turn.tape.fetch(view.queries(tape)))) for tape in tapes])


def help_tool(tools: Callable[[], Sequence[Tool]]) -> Tool:
    """Build `session.help` for the tools that `tools` returns."""

    @tool("session.help", commands=("help",), for_model=False)
    async def session_help(turn: Turn, args: HelpArgs) -> str:
        """List the commands, or explain one."""
        allowed = [command for command in tools() if turn.role.at_least(command.role)]
        name = args.command.lstrip(",")
        if not name:
            width = max(len(_typed_name(command)) for command in allowed)
            return "\n".join(
                f"{_typed_name(command):<{width}}  {brief_summary(command, turn.texts)}" for command in allowed
            )
        match = next((command for command in allowed if name in (command.name, *command.commands)), None)
        if match is None:
            raise ToolRetry(unknown_command_text(name, (), turn.texts))
        fields = [f"  {field}: {info.description or ''}" for field, info in match.args.model_fields.items()]
        return "\n".join([command_usage(match), turn.texts.summary(match.name, match.summary), *fields])

    return session_help


def brief_summary(command: Tool, texts: Texts) -> str:
    """Return the summary of a tool in one line for people."""
    return texts.summary(command.name, command.summary).partition(". ")[0].rstrip(".")


def _typed_name(command: Tool) -> str:
    return "," + (command.commands[0] if command.commands else command.name)


def context_tool(composer: RequestComposer) -> Tool:
    """Build `session.context`, which shows the next request."""

    @tool("session.context", commands=("context",), for_model=False)
    async def session_context(turn: Turn, args: NoArgs) -> str:
        """Show exactly what the model would be shown next, with the ids of the entries."""
        composed = await composer.compose(turn)
        lines = [f"system prompt ({len(composed.request.system)} characters):", composed.request.system, ""]
        for shown in composed.context.context_messages:
            source = ",".join(f"#{entry_id}" for entry_id in shown.ids) or "(made here)"
            body = {key: value for key, value in shown.message.items() if key not in ("role", "content")}
            extra = f" {json.dumps(thaw(body), ensure_ascii=False)}" if body else ""
            lines.append(f"{source} {shown.message['role']}: {shown.message['content']}{extra}")
        offered = ", ".join(spec.name for spec in composed.request.tools) or "none"
        lines += [
            "",
            f"selector {composed.view['selector']}, {len(composed.context.context_messages)} messages, tools: {offered}",
        ]
        return "\n".join(lines)

    return session_context


@tool("session.why", commands=("why",), for_model=False)
async def session_why(turn: Turn, args: WhyArgs) -> str:
    """Explain the last answer, or a turn by its trace, without asking a model: entries, tools, tokens, time."""
    trace = args.turn.strip()
    for span in await turn.tape.read(TurnSpansView(trace)):
        explanation = await turn.tape.read(WhyView(span, without_model=bool(trace)))
        if explanation is not None:
            print_request = args.request and explanation.steps
            return await _format_request(turn, explanation) if print_request else _format_explanation(explanation)
    if trace:
        raise ToolRetry(f"no turn on this tape has the trace {trace}; the log says in which session it was")
    return "No model has answered here yet."


def _format_explanation(turn: Explanation) -> str:
    answer = f"entry {turn.answer}" if turn.answer else "no answer"
    lines = [f"turn {turn.turn} (entries {turn.first} to {turn.last}): {turn.status}, {answer}"]
    for entry_id, step in turn.steps:
        lines += _format_step(entry_id, step)
    lines += [f"tool {name} (entry {entry_id})" for entry_id, name in turn.tools]
    lines += [f"error {kind} (entry {entry_id}): {message}" for entry_id, kind, message in turn.errors]
    if turn.steps:
        lines.append(",why yes prints the last request as bubbot made it")
    return "\n".join(lines)


def _format_step(entry_id: int, step: JsonObject) -> list[str]:
    """Say which model was called, which one answered, which calls failed and why, and what the step cost."""
    usage_data = step.get("usage", {})
    tokens = f"{usage_data.get('input_tokens', 0)} tokens in, {usage_data.get('output_tokens', 0)} out"
    shown = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in step["shown"]) or "none"
    cut = ", cut at the model's token limit" if step.get("finish") == "length" else ""
    answered = step.get("answered", step["model"])
    models = step["model"] if answered == step["model"] else f"{step['model']} asked, {answered} answered"
    failed = [call for call in step.get("attempts", ()) if call["status"] == "failed"]
    head = (
        f"step {step['step']} (entry {entry_id}): {step['status']}{cut}, {models}, {tokens}, {_format_cost(step)}, "
        f"{step['elapsed_ms']} ms; shown entries {shown}; request {step['request'][:12]}"
    )
    lines = [head]
    lines += [f"  {call['model']} failed after {call['elapsed_ms']} ms: {call['error']}" for call in failed]
    if "error" in step and step["error"] not in [call["error"] for call in failed]:
        lines.append(f"  {step['error']}")
    return lines


def _format_cost(step: JsonObject) -> str:
    """Say what a step cost. Steps of earlier versions have only the cost that the model reported, if any."""
    if step.get("attempts") == ():
        return "no model asked"
    cost = step.get("cost", step.get("usage", {}).get("cost"))
    if not isinstance(cost, int | float):
        return "cost unknown"
    return f"cost {cost:.9f}".rstrip("0").rstrip(".") + " USD"


async def _format_request(turn: Turn, explanation: Explanation) -> str:
    """Rebuild the last step's request from the tape and check it against its recorded digest."""
    _, step = explanation.steps[-1]
    batches = await turn.tape.fetch([TapeQuery(turn.tape.name, WholeTape())])
    system = (await turn.tape.get_blob(step["system"])).decode()
    tools = (await turn.tape.get_blob(step["tools"])).decode()

    def rebuild() -> ModelRequest:
        return rebuild_request(step, batches.pop(), tape=turn.tape.name, system=system, tools=tools)

    request = await asyncio.to_thread(rebuild)  # the thread reads the whole tape and frees it, off the event loop
    is_equal = (await embed_images(request, turn.tape.get_blob)).digest() == step["request"]
    verdict = "equal to the recorded one, byte for byte" if is_equal else "NOT equal to the recorded one"
    if not is_equal and step["view"].get("version", 1) != CONTEXT_VERSION:
        verdict = "an earlier version of bubbot wrote requests differently; this one cannot be compared"
    # Printed with the digests of images: the output goes onto the tape, which must not hold their bytes.
    # The translation for the provider adds the model's name and orders keys in its own way; nothing records that.
    label = f"the request to {step['model']} before its translation for the provider, keys sorted"
    return f"{request.as_bytes().decode()}\n[{label}: {verdict}]"


def session_tools() -> list[Tool]:
    """Return the tools of this file that need nothing from the deployment."""
    return [
        session_new,
        session_resume,
        session_correct,
        session_retry,
        session_why,
        session_quit,
    ]


def list_commands(toolbox: Toolbox, texts: Texts) -> list[CommandInfo]:
    """List the commands as people type them, for menus and completion."""
    return [
        CommandInfo(name, brief_summary(command, texts), tuple(command.args.model_fields))
        for command in toolbox
        for name in command.commands or (command.name,)
    ]
