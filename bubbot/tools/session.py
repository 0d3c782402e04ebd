"""Commands about the conversation itself; people type them, models are not offered them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

from pydantic import Field

from bubbot.channel import Role
from bubbot.errors import ToolRetry
from bubbot.memory import MemoryZone
from bubbot.runtime.commands import usage
from bubbot.runtime.compose import Composer, rebuilt
from bubbot.tape.anchor import SESSION_NEW, SESSION_RESUME, recalled
from bubbot.tape.entry import Kind, TapeEntry, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import Span, Spans, TapeQuery, Whole, Window, inside
from bubbot.tool import NoArgs, Rerun, Tool, ToolArgs, tool
from bubbot.turn import Turn
from bubbot.views.inbox import SessionTraceView
from bubbot.views.selectors import correction_of
from bubbot.views.why import Explanation, TurnSpansView, WhyView

ID_DIGITS = 18
"""Longer numbers are no entry ids; a store could not even look for them."""
_INHERITED = ("phase", "summary", "next_steps")
"""What a resumed window takes over of its parent's state."""


class ResumeArgs(ToolArgs):
    """What `session.resume` takes."""

    anchor: str = Field(description="the name or entry id of the anchor to go on from; ,anchors lists them")


class ResetArgs(ToolArgs):
    """What `session.reset` takes."""

    how: str = Field(default="", description="archive (keep the old tape under another name) or erase")


class CorrectArgs(ToolArgs):
    """What `session.correct` takes."""

    entry: int = Field(description="the entry to correct")
    text: str = Field(description="what it should have said", min_length=1)


class HelpArgs(ToolArgs):
    """What `session.help` takes."""

    command: str = Field(default="", description="a command to explain")


class WhyArgs(ToolArgs):
    """What `session.why` takes."""

    request: bool = Field(default=False, description="print the request of the last step as it was sent")
    positional: ClassVar[tuple[str, ...]] = ("request",)


@tool("session.new", commands=("new",), for_model=False)
async def session_new(turn: Turn, args: NoArgs) -> str:
    """Start a new window: the conversation so far is no longer shown to the model; memory stays."""
    opened = await turn.tape.handoff(SESSION_NEW, {"owner": "human"})
    return f"A new window opens here (entry {opened.id}). Memory stays; ,resume takes up an earlier anchor."


@tool("session.resume", commands=("resume",), for_model=False)
async def session_resume(turn: Turn, args: ResumeArgs) -> str:
    """Go back: open a new window that takes up the thread of an earlier anchor."""
    parent = await _anchor(turn, args.anchor)
    later = TapeQuery(turn.tape.name, Spans(((parent.id + 1, None),)), kinds=(Kind.ANCHOR,))
    following = [entry.id for entry in (await turn.tape.fetch([later]))[0] if entry.opens_window]
    end = (following[0] if following else await turn.tape.head() + 1) - 1
    given = parent.payload.get("state")
    kept = {key: thaw(given[key]) for key in _INHERITED if key in given} if isinstance(given, Mapping) else {}
    state = {**kept, "owner": "human", "parents": [parent.id], "resumed": parent.name}
    recalls = [*recalled(parent), *([(parent.id + 1, end)] if end > parent.id else [])]
    recalls += [(entry.id, entry.id) for entry in await _corrections(turn, recalls) if entry.id > end]
    opened = await turn.tape.handoff(SESSION_RESUME, state, recalls=recalls)
    return f"Going on from {parent.name} (entry {parent.id}); a new window opens at entry {opened.id}."


async def _corrections(turn: Turn, spans: Sequence[Span]) -> list[TapeEntry]:
    """The corrections of what stands in these spans, wherever they were made: what was hidden stays hidden."""
    query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(CORRECTION,))
    made = (await turn.tape.fetch([query]))[0]
    return [entry for entry in made if (said := correction_of(entry)) and inside(said["corrects"], spans)]


async def _anchor(turn: Turn, wanted: str) -> TapeEntry:
    number = wanted.lstrip("#")
    if number.isdecimal() and len(number) <= ID_DIGITS:
        found = await turn.tape.entry(int(number))
        if found.opens_window:
            return found
        raise ToolRetry(f"entry {found.id} is no anchor that opens a window; ,anchors lists them")
    query = TapeQuery(turn.tape.name, kinds=(Kind.ANCHOR,), names=(wanted,), newest=True, limit=1)
    anchors = (await turn.tape.fetch([query]))[0]
    if not anchors or not anchors[0].opens_window:
        raise ToolRetry(f"there is no anchor {wanted} that opens a window; ,anchors lists them")
    return anchors[0]


@tool("session.correct", commands=("correct",), for_model=False)
async def session_correct(turn: Turn, args: CorrectArgs) -> str:
    """Correct an entry by adding what it should have said; the original stays on the tape."""
    added = await turn.tape.correct(args.entry, args.text)
    return f"Entry {args.entry} is corrected by entry {added.id}."


@tool("session.retry", commands=("retry",), for_model=False)
async def session_retry(turn: Turn, args: NoArgs) -> Rerun:
    """Answer the last message again; the answer it had is hidden from the model."""
    query = TapeQuery(turn.tape.name, Window(), kinds=(Kind.MESSAGE,))
    messages = (await turn.tape.fetch([query]))[0]
    asked = [entry for entry in messages if entry.payload.get("role") == "user"]
    if not asked:
        raise ToolRetry("there is no message in this window to answer again")
    for entry in messages:
        if entry.id > asked[-1].id and entry.payload.get("role") == "assistant":
            await turn.tape.hide(entry.id)
    last = (asked[-1].id, asked[-1].id)
    turn.message_ids += [last[0], *(entry.id for entry in await _corrections(turn, [last]))]
    return Rerun()


@tool("session.quit", commands=("quit",), for_model=False)
async def session_quit(turn: Turn, args: NoArgs) -> str:
    """Leave the terminal chat; the conversation stays."""
    return "Bye. The conversation stays on the tape."


def reset_tool(traces: Sequence[str], export: Callable[[str, str], str]) -> Tool:
    """`session.reset`. `traces` are the inbox and outbox tapes that hold texts of sessions; `export` writes the
    memory of a session to a file and returns its path."""

    @tool("session.reset", commands=("reset",), for_model=False, role=Role.OWNER)
    async def session_reset(turn: Turn, args: ResetArgs) -> str:
        """Start this tape anew: `archive` keeps the old one under another name, `erase` removes its content."""
        head = turn.tape.base
        if args.how == "archive":
            memory = MemoryZone(turn.tape, now=turn.now, zone=turn.zone)
            path = export(turn.session, await memory.export())
            name = await turn.tape.reset(archive=True)
            return f"The tape starts anew. {head} entries are kept as {name}; the memory was written to {path}."
        if args.how == "erase":
            await turn.tape.reset(archive=False, also=await _traces(turn, traces))
            return f"The tape starts anew. The content of {head} entries was erased, with memory and earlier archives."
        return (
            f"This tape has {head} entries, its memory included. ,reset archive puts them aside under another name "
            "(readable with bubbot tape show) and writes the memory to a file; ,reset erase removes their content "
            "for good, here, in earlier archives of this tape, and in the inbox and outbox."
        )

    return session_reset


async def _traces(turn: Turn, tapes: Sequence[str]) -> tuple[tuple[str, tuple[int, ...]], ...]:
    view = SessionTraceView(turn.session)
    return tuple([(tape, view.fold(await turn.tape.fetch(view.queries(tape)))) for tape in tapes])


def help_tool(tools: Callable[[], Sequence[Tool]]) -> Tool:
    """`session.help` over the tools that `tools` gives."""

    @tool("session.help", commands=("help",), for_model=False)
    async def session_help(turn: Turn, args: HelpArgs) -> str:
        """List the commands, or explain one."""
        known = [one for one in tools() if turn.role.at_least(one.role)]
        wanted = args.command.lstrip(",")
        if not wanted:
            width = max(len(_typed(one)) for one in known)
            return "\n".join(f"{_typed(one):<{width}}  {one.summary.partition('. ')[0].rstrip('.')}" for one in known)
        found = next((one for one in known if wanted in (one.name, *one.commands)), None)
        if found is None:
            raise ToolRetry(f"there is no command ,{wanted}; ,help lists them all")
        fields = [f"  {name}: {field.description or ''}" for name, field in found.args.model_fields.items()]
        return "\n".join([usage(found), found.summary, *fields])

    return session_help


def _typed(one: Tool) -> str:
    return "," + (one.commands[0] if one.commands else one.name)


def context_tool(composer: Composer) -> Tool:
    """`session.context`: what the model would be shown next."""

    @tool("session.context", commands=("context",), for_model=False)
    async def session_context(turn: Turn, args: NoArgs) -> str:
        """Show exactly what the model would be shown next, with the ids of the entries."""
        composed = await composer.compose(turn)
        lines = [f"system prompt ({len(composed.request.system)} characters):", composed.request.system, ""]
        for one in composed.context.shown:
            cited = ",".join(f"#{entry_id}" for entry_id in one.ids) or "(made here)"
            body = {key: value for key, value in one.message.items() if key not in ("role", "content")}
            extra = f" {json.dumps(thaw(body), ensure_ascii=False)}" if body else ""
            lines.append(f"{cited} {one.message['role']}: {one.message['content']}{extra}")
        offered = ", ".join(spec.name for spec in composed.request.tools) or "none"
        lines += ["", f"selector {composed.view['selector']}, {len(composed.context.shown)} messages, tools: {offered}"]
        return "\n".join(lines)

    return session_context


@tool("session.why", commands=("why",), for_model=False)
async def session_why(turn: Turn, args: WhyArgs) -> str:
    """Explain the last answer without asking a model: entries shown, tools run, tokens, time."""
    for span in await turn.tape.read(TurnSpansView()):
        found = await turn.tape.read(WhyView(span))
        if found is not None:
            return await _request(turn, found) if args.request else _explained(found)
    return "No model has answered here yet."


def _explained(found: Explanation) -> str:
    answer = f"entry {found.answer}" if found.answer else "no answer"
    lines = [f"turn {found.turn} (entries {found.first} to {found.last}): {found.status}, {answer}"]
    for entry_id, step in found.steps:
        usage_data = step.get("usage", {})
        tokens = f"{usage_data.get('input_tokens', 0)} tokens in, {usage_data.get('output_tokens', 0)} out"
        shown = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in step["shown"]) or "none"
        cut = ", cut at the model's token limit" if step.get("finish") == "length" else ""
        lines.append(
            f"step {step['step']} (entry {entry_id}): {step['status']}{cut}, {step['model']}, {tokens}, "
            f"{step['elapsed_ms']} ms; shown entries {shown}; request {step['request'][:12]}"
        )
        if "error" in step:
            lines.append(f"  {step['error']}")
    lines += [f"tool {name} (entry {entry_id})" for entry_id, name in found.tools]
    return "\n".join([*lines, ",why yes prints the last request as it was sent"])


async def _request(turn: Turn, found: Explanation) -> str:
    """The last step's request, built again from the tape and checked against its recorded digest."""
    _, step = found.steps[-1]
    entries = (await turn.tape.fetch([TapeQuery(turn.tape.name, Whole())]))[0]
    system = (await turn.tape.get_blob(step["system"])).decode()
    tools = (await turn.tape.get_blob(step["tools"])).decode()
    request = rebuilt(step, entries, tape=turn.tape.name, system=system, tools=tools)
    same = request.digest() == step["request"]
    verdict = "equal to the one that was sent, byte for byte" if same else "NOT equal to the one that was sent"
    return f"{request.as_bytes().decode()}\n[{verdict}]"


def session_tools() -> list[Tool]:
    """The tools of this file that need nothing from the deployment."""
    return [session_new, session_resume, session_correct, session_retry, session_why, session_quit]
