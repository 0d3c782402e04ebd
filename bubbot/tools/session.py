"""Commands about the conversation itself; people type them, models are not offered them."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from pydantic import Field, model_validator

from bubbot.errors import ToolRetry
from bubbot.memory import MemoryZone
from bubbot.ports.channel import CommandInfo, Role
from bubbot.ports.model import ModelRequest
from bubbot.ports.tool import NoArgs, RerunModel, Tool, ToolArgs, Toolbox, tool
from bubbot.ports.turn import Turn
from bubbot.runtime.commands import unknown, usage
from bubbot.runtime.compose import RequestComposer, pictured, rebuilt
from bubbot.runtime.opening import sender_data
from bubbot.tape.anchor import SESSION_NEW, SESSION_RESUME, recalled
from bubbot.tape.entry import JsonObject, Kind, TapeEntry, thaw
from bubbot.tape.handle import CORRECTION
from bubbot.tape.query import IdRanges, Span, TapeQuery, WholeTape, Window, inside
from bubbot.texts import Texts
from bubbot.views.context import CONTEXT_VERSION
from bubbot.views.inbox import SessionTraceView
from bubbot.views.selectors import correction_of
from bubbot.views.why import Explanation, TurnSpansView, WhyView

ENTRY_ID_DIGITS = 18
"""Longer numbers are no entry ids; a store could not even look for them."""
_INHERITED = ("phase", "summary", "next_steps")
"""What a resumed window takes over of its parent's state."""
_TRACE = re.compile(r"[0-9a-f]{4,32}")


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

    request: bool = Field(default=False, description="print the request of the last step")
    turn: str = Field(default="", description="the turn to explain: its trace, which a failure tells")
    positional: ClassVar[tuple[str, ...]] = ("request",)

    @model_validator(mode="before")
    @classmethod
    def _trace(cls, given: Any) -> Any:
        """A trace typed as a plain word; no word for yes or no looks like one."""
        word = given.get("request")
        return {"turn": word} if len(given) == 1 and isinstance(word, str) and _TRACE.fullmatch(word) else given


@tool("session.new", commands=("new",), for_model=False)
async def session_new(turn: Turn, args: NoArgs) -> str:
    """Start a new window: the conversation so far is no longer shown to the model; memory stays."""
    opened = await turn.tape.handoff(SESSION_NEW, {"owner": "human"})
    return turn.texts.say("new_window", entry=opened.id)


@tool("session.resume", commands=("resume",), for_model=False)
async def session_resume(turn: Turn, args: ResumeArgs) -> str:
    """Go back: open a new window that takes up the thread of an earlier anchor."""
    parent = await _anchor(turn, args.anchor)
    later = TapeQuery(turn.tape.name, IdRanges(((parent.id + 1, None),)), kinds=(Kind.ANCHOR,))
    following = [entry.id for entry in (await turn.tape.fetch([later]))[0] if entry.opens_window]
    end = (following[0] if following else await turn.tape.head() + 1) - 1
    given = parent.payload.get("state")
    kept = {key: thaw(given[key]) for key in _INHERITED if key in given} if isinstance(given, Mapping) else {}
    state = {**kept, "owner": "human", "parents": [parent.id], "resumed": parent.name}
    recalls = [*recalled(parent), *([(parent.id + 1, end)] if end > parent.id else [])]
    recalls += [(entry.id, entry.id) for entry in await _corrections(turn, recalls) if entry.id > end]
    opened = await turn.tape.handoff(SESSION_RESUME, state, recalls=recalls)
    return turn.texts.say("resumed", anchor=parent.name, parent=parent.id, entry=opened.id)


async def _corrections(turn: Turn, spans: Sequence[Span]) -> list[TapeEntry]:
    """The corrections of what stands in these spans, wherever they were made: what was hidden stays hidden."""
    query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=(CORRECTION,))
    made = (await turn.tape.fetch([query]))[0]
    return [entry for entry in made if (said := correction_of(entry)) and inside(said["corrects"], spans)]


async def _anchor(turn: Turn, wanted: str) -> TapeEntry:
    number = wanted.lstrip("#")
    if number.isdecimal() and len(number) <= ENTRY_ID_DIGITS:
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
    if not turn.role.at_least(Role.ADMIN) and not await _is_own(turn, args.entry):
        raise ToolRetry(turn.texts.say("correct_own", entry=args.entry))
    added = await turn.tape.correct(args.entry, args.text, sender_data(turn.sender))
    return turn.texts.say("corrected", entry=args.entry, by=added.id)


async def _is_own(turn: Turn, entry_id: int) -> bool:
    """Return true if the sender of the turn wrote the entry, or if there is none, which its correction will say."""
    if not 1 <= entry_id <= await turn.tape.head():
        return True
    author = (await turn.tape.entry(entry_id)).meta.get("sender")
    return isinstance(author, Mapping) and author.get("id") == turn.sender.id


@tool("session.retry", commands=("retry",), for_model=False)
async def session_retry(turn: Turn, args: NoArgs) -> RerunModel:
    """Answer the last message again; the answer it had is hidden from the model."""
    query = TapeQuery(turn.tape.name, Window(), kinds=(Kind.MESSAGE,))
    messages = (await turn.tape.fetch([query]))[0]
    asked = [entry for entry in messages if entry.payload.get("role") == "user"]
    if not asked:
        raise ToolRetry(turn.texts.say("nothing_to_retry"))
    for entry in messages:
        if entry.id > asked[-1].id and entry.payload.get("role") == "assistant":
            await turn.tape.hide(entry.id)
    last = (asked[-1].id, asked[-1].id)
    turn.message_ids += [last[0], *(entry.id for entry in await _corrections(turn, [last]))]
    return RerunModel()


@tool("session.quit", commands=("quit",), for_model=False)
async def session_quit(turn: Turn, args: NoArgs) -> str:
    """Leave the terminal chat; the conversation stays."""
    return turn.texts.say("bye")


def reset_tool(traces: Sequence[str], export: Callable[[str, str], str], forget: Callable[[str], None]) -> Tool:
    """`session.reset`. `traces` are the inbox and outbox tapes that hold texts of sessions; `export` writes the
    memory of a session to a file and returns its path; `forget` removes what channels keep of it beside the tapes."""

    @tool("session.reset", commands=("reset",), for_model=False, role=Role.OWNER)
    async def session_reset(turn: Turn, args: ResetArgs) -> str:
        """Start this tape anew: `archive` keeps the old one under another name, `erase` removes its content."""
        head = turn.tape.base
        if args.how == "archive":
            memory = MemoryZone(turn.tape, now=turn.now, zone=turn.zone)
            path = export(turn.session, await memory.export())
            name = await turn.tape.reset(archive=True)
            await memory.ensure()  # in the new tape: a session has a memory zone from its first entry on
            return turn.texts.say("archived", count=head, name=name, path=path)
        if args.how == "erase":
            forget(turn.session)  # first: a crash in between must not leave the files of an erased session behind
            await turn.tape.reset(archive=False, also=await _traces(turn, traces))
            await MemoryZone(turn.tape, now=turn.now, zone=turn.zone).ensure()
            return turn.texts.say("erased", count=head)
        return turn.texts.say("reset_asks", count=head)

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
            return "\n".join(f"{_typed(one):<{width}}  {brief(one, turn.texts)}" for one in known)
        found = next((one for one in known if wanted in (one.name, *one.commands)), None)
        if found is None:
            raise ToolRetry(unknown(wanted, (), turn.texts))
        fields = [f"  {name}: {field.description or ''}" for name, field in found.args.model_fields.items()]
        return "\n".join([usage(found), turn.texts.summary(found.name, found.summary), *fields])

    return session_help


def brief(one: Tool, texts: Texts) -> str:
    """What a tool does, in one line for people."""
    return texts.summary(one.name, one.summary).partition(". ")[0].rstrip(".")


def _typed(one: Tool) -> str:
    return "," + (one.commands[0] if one.commands else one.name)


def context_tool(composer: RequestComposer) -> Tool:
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
    """Explain the last answer, or a turn by its trace, without asking a model: entries, tools, tokens, time."""
    wanted = args.turn.strip()
    for span in await turn.tape.read(TurnSpansView(wanted)):
        found = await turn.tape.read(WhyView(span, bare=bool(wanted)))
        if found is not None:
            return await _request(turn, found) if args.request and found.steps else _explained(found)
    if wanted:
        raise ToolRetry(f"no turn on this tape has the trace {wanted}; the log says in which session it was")
    return "No model has answered here yet."


def _explained(found: Explanation) -> str:
    answer = f"entry {found.answer}" if found.answer else "no answer"
    lines = [f"turn {found.turn} (entries {found.first} to {found.last}): {found.status}, {answer}"]
    for entry_id, step in found.steps:
        lines += _explained_step(entry_id, step)
    lines += [f"tool {name} (entry {entry_id})" for entry_id, name in found.tools]
    lines += [f"error {kind} (entry {entry_id}): {message}" for entry_id, kind, message in found.errors]
    if found.steps:
        lines.append(",why yes prints the last request as bubbot made it")
    return "\n".join(lines)


def _explained_step(entry_id: int, step: JsonObject) -> list[str]:
    """Say which model was asked, which answered, what failed on the way and why, and what it took."""
    usage_data = step.get("usage", {})
    tokens = f"{usage_data.get('input_tokens', 0)} tokens in, {usage_data.get('output_tokens', 0)} out"
    shown = ", ".join(f"{low}" if low == high else f"{low}-{high}" for low, high in step["shown"]) or "none"
    cut = ", cut at the model's token limit" if step.get("finish") == "length" else ""
    answered = step.get("answered", step["model"])
    models = step["model"] if answered == step["model"] else f"{step['model']} asked, {answered} answered"
    failed = [call for call in step.get("attempts", ()) if call["status"] == "failed"]
    head = (
        f"step {step['step']} (entry {entry_id}): {step['status']}{cut}, {models}, {tokens}, {_cost(step)}, "
        f"{step['elapsed_ms']} ms; shown entries {shown}; request {step['request'][:12]}"
    )
    lines = [head]
    lines += [f"  {call['model']} failed after {call['elapsed_ms']} ms: {call['error']}" for call in failed]
    if "error" in step and step["error"] not in [call["error"] for call in failed]:
        lines.append(f"  {step['error']}")
    return lines


def _cost(step: JsonObject) -> str:
    """The cost of a step in words. Steps of earlier versions know what the model said, if it said anything."""
    if step.get("attempts") == ():
        return "no model asked"
    cost = step.get("cost", step.get("usage", {}).get("cost"))
    if not isinstance(cost, int | float):
        return "cost unknown"
    return f"cost {cost:.9f}".rstrip("0").rstrip(".") + " USD"


async def _request(turn: Turn, found: Explanation) -> str:
    """The last step's request, built again from the tape and checked against its recorded digest."""
    _, step = found.steps[-1]
    whole = await turn.tape.fetch([TapeQuery(turn.tape.name, WholeTape())])
    system = (await turn.tape.get_blob(step["system"])).decode()
    tools = (await turn.tape.get_blob(step["tools"])).decode()

    def again() -> ModelRequest:
        return rebuilt(step, whole.pop(), tape=turn.tape.name, system=system, tools=tools)

    request = await asyncio.to_thread(again)  # the whole tape is gone through, and let go of, beside the event loop
    same = (await pictured(request, turn.tape.get_blob)).digest() == step["request"]
    verdict = "equal to the recorded one, byte for byte" if same else "NOT equal to the recorded one"
    if not same and step["view"].get("version", 1) != CONTEXT_VERSION:
        verdict = "an earlier version of bubbot wrote requests differently; this one cannot be compared"
    # Printed with the digests of images: what is printed goes onto the tape, where their bytes have no place.
    # What translates it for the provider adds the model's name and orders keys in its own way; no record has that.
    made = f"the request to {step['model']} before its translation for the provider, keys sorted"
    return f"{request.as_bytes().decode()}\n[{made}: {verdict}]"


def session_tools() -> list[Tool]:
    """The tools of this file that need nothing from the deployment."""
    return [
        session_new,
        session_resume,
        session_correct,
        session_retry,
        session_why,
        session_quit,
    ]


def typed_commands(toolbox: Toolbox, texts: Texts) -> list[CommandInfo]:
    """The commands as people type them, for menus and completion."""
    return [
        CommandInfo(name, brief(one, texts), tuple(one.args.model_fields))
        for one in toolbox
        for name in one.commands or (one.name,)
    ]
