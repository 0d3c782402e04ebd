"""The tools of servers as models call them, and what people answer servers that ask."""

from __future__ import annotations

import json
import logging
import math
import re
import shlex
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from bubbot.arguments.fields import JsonArgs, dump_args, write_given
from bubbot.command import Caller, command, make_tools
from bubbot.errors import CommandFailed, CommandRefused, ToolFailed, ValueInvalid
from bubbot.feature import Kernel
from bubbot.features.mcp.child.limits import MAX_URL_CHARS
from bubbot.features.mcp.child.values import DECLINED, ElicitedInput, McpFailed, ToolReply, accept
from bubbot.features.mcp.facts import InputGiven, InputWanted, ServerAdded, ToolPinned, WantedInput
from bubbot.features.mcp.host import LIST_SECONDS, MARGIN_SECONDS, START_SECONDS, McpHost
from bubbot.features.mcp.offers import shown_schema
from bubbot.features.mcp.results import AnswerArgs, McpAnswer
from bubbot.features.mcp.service import McpService
from bubbot.features.mcp.weighing import weigh_arguments
from bubbot.formatting import fence, replace_controls, show_details
from bubbot.json_schema import find_misfits
from bubbot.ports.approvals import ApprovalQuestion
from bubbot.ports.channel import Role
from bubbot.ports.model import read_call_headers
from bubbot.ports.turn import Receiver, Turn
from bubbot.tape import entry as make
from bubbot.tape.entry import Kind, canonical, thaw
from bubbot.tape.provenance import Source, stamp_of
from bubbot.tape.query import TapeQuery
from bubbot.texts import Texts
from bubbot.tool import (
    READS_WORLD,
    CallPlan,
    CommandHelp,
    Effect,
    GrantKind,
    GrantTarget,
    HelpTopic,
    Repeat,
    RerunModel,
    Tool,
)

log = logging.getLogger(__name__)

KEY_META = "bubbot/idempotency-key"
"""The name in `_meta` under which a server gets the key of a call: the same one if it is repeated."""
TRACE_META = ("traceparent", "tracestate")
MAX_WANTED = 100
"""The newest questions of servers in a chat, among which one is looked for."""
QUESTION_HOURS = 24.0
THIS_MACHINE = "localhost"


class McpTools:
    """Calls pinned tools, and goes on with calls whose server wanted input."""

    def __init__(self, kernel: Kernel, service: McpService, host: McpHost) -> None:
        self._kernel = kernel
        self._service = service
        self._host = host

    def build(self) -> list[Tool]:
        """Build the tools that models may call now, and the command with which people answer servers."""
        return [
            *map(self._make_tool, self._service.state.offered),
            *make_tools(McpTools, lambda: self, mcp_answer={"timeout": self._timeout}),
        ]

    @property
    def _timeout(self) -> float:
        """Seconds for a call with all that may come before it: the start of the child, the connection and the list of tools."""
        settings = self._service.rules.find_settings()
        return settings.timeout + settings.connect_timeout + LIST_SECONDS + START_SECONDS + 2 * MARGIN_SECONDS

    def _make_tool(self, pin: ToolPinned) -> Tool:
        effect = READS_WORLD if pin.only_reads else Effect(once=Repeat(pin.once))

        async def run(turn: Turn, args: JsonArgs) -> str:
            return await self._run(turn, pin, dump_args(args))

        async def plan(_turn: Turn, args: JsonArgs) -> CallPlan:
            return self._plan(pin, effect, args)

        async def probe(turn: Turn, args: JsonArgs) -> str | None:
            return await self._probe(turn, pin, dump_args(args))

        return Tool(
            pin.name,
            " ".join(pin.description.split()) or f"{pin.tool} of {pin.server}.",
            JsonArgs,
            run,
            role=Role.OWNER,
            effect=effect,
            timeout=self._timeout,
            plan=plan,
            probe=probe if pin.once == "probe" else None,
            is_rare=True,
            schema=shown_schema(pin.schema, pin.key),
        )

    def _plan(self, pin: ToolPinned, effect: Effect, args: JsonArgs) -> CallPlan:
        """Say what a call would send, and to whom. What a reading call sends is weighed like the words of a search."""
        server = self._service.state.find_server(pin.server)
        reaches = "" if server is None else server.url or shlex.join(server.argv)
        details = f"{pin.server}: {pin.tool}\n{reaches}\n{write_given(args, indent=2)}"
        if pin.only_reads:
            sent = weigh_arguments(pin.schema, dump_args(args))
            choices = sum(each.only_reads for each in self._service.state.offered)
            bits = sent.bits + math.log2(max(choices, 1) + 1)
            return CallPlan(effect, details, query=sent.text, bits=bits, receiver=self._find_receiver(pin.server))
        target = GrantTarget(GrantKind.PINNED, f"{pin.server}/{pin.tool}@{pin.digest}")
        return CallPlan(effect, details, target)

    def _find_receiver(self, name: str) -> Receiver | None:
        """Return a server as the one that wrote the results of its pinned tools."""
        server = self._service.state.servers.find(name)
        names = [pin.name for pin in self._service.state.list_pins(name)]
        tools = frozenset([*names, *(each.replace(".", "_") for each in names)])
        return Receiver(tools, server.date) if server else None

    async def _run(self, turn: Turn, pin: ToolPinned, arguments: dict[str, Any]) -> str:
        key = turn.effect_key
        if pin.key and key:
            arguments = {**arguments, pin.key: key}
        reply = await self._call(turn, pin, arguments, key=key)
        if reply.questions:
            return await self._ask(turn, pin, arguments, reply, key=key, answers={})
        text = _format_reply(turn, pin, reply)
        if reply.is_error:
            raise ToolFailed(text)
        return text

    async def _call(
        self,
        turn: Turn,
        pin: ToolPinned,
        arguments: Mapping[str, Any],
        *,
        key: str = "",
        tool: str = "",
        answers: Mapping[str, Any] | None = None,
        state: str = "",
    ) -> ToolReply:
        """Call a pinned tool as it was pinned, or another tool of its server. Raise `ToolFailed` in words."""
        server = self._find_server(turn.result_texts, pin)
        meta = {**({KEY_META: key} if key else {}), **_find_trace(server)}
        # In canonical order: the order that the model chose would reveal bits that nobody has weighed.
        arguments = json.loads(canonical(arguments))
        try:
            await self._service.verify(self._host, server)
            self._find_server(turn.result_texts, pin)
            return await self._host.call(server, tool or pin.tool, arguments, meta=meta, answers=answers, state=state)
        except McpFailed as error:
            turn_texts = turn.result_texts
            code = "mcp_needs_login" if error.needs_login else "mcp_failed"
            raise ToolFailed(turn_texts.say(code, name=pin.server, problem=error.reason)) from error

    def _find_server(self, texts: Texts, pin: ToolPinned) -> ServerAdded:
        """Return the server of a pin. Raise `ToolFailed` if the tool changed, or an owner removed or replaced the pin."""
        state = self._service.state
        server, now = state.find_server(pin.server), state.find_pin(pin.server, pin.tool)
        if server is None or now is None or now.digest != pin.digest:
            raise ToolFailed(texts.say("mcp_tool_gone", tool=pin.name))
        if state.find_change(pin.server, pin.tool) is not None:
            raise ToolFailed(texts.say("mcp_tool_changed", tool=pin.name, server=pin.server))
        return server

    async def _probe(self, turn: Turn, pin: ToolPinned, arguments: dict[str, Any]) -> str | None:
        """Ask the pin's probe whether a call happened. Return its reply; None if that is empty: the call did not happen."""
        asked = {pin.key: turn.effect_key} if pin.key else arguments
        reply = await self._call(turn, pin, asked, key=turn.effect_key, tool=pin.probe)
        if reply.is_error or reply.questions:
            raise ToolFailed(turn.result_texts.say("mcp_probe_failed", tool=pin.probe))
        return None if _is_empty(reply) else _format_reply(turn, pin, reply)

    # What servers want first

    async def _ask(
        self,
        turn: Turn,
        pin: ToolPinned,
        arguments: Mapping[str, Any],
        reply: ToolReply,
        *,
        key: str,
        answers: Mapping[str, Any],
    ) -> str:
        """Store a call that rests, and ask people: with a card what is answered by yes or no, else in words."""
        number = self._kernel.new_id()[:8]
        questions = tuple(WantedInput(each.key, each.message, each.schema, each.url) for each in reply.questions)
        texts, root = turn.texts, turn.root
        told = "\n".join(_describe_question(each, texts) for each in questions)
        head = texts.say("mcp_wants", server=pin.server, tool=pin.tool)
        approval = ""
        if self._kernel.ask is not None and len(questions) == 1 and _find_flag(questions[0]) is not None:
            question = ApprovalQuestion(pin.name, f"{head}\n{told}", f",mcp.answer {number}", "asker", QUESTION_HOURS)
            approval = await self._kernel.ask(turn, question)
        else:
            command_text = texts.format_commands(f",mcp.answer {number}")
            how = texts.say("mcp_answer_how", command=command_text)
            root.alerts.append(f"{head}\n{fence(show_details(told))}\n{how}")
        fact = InputWanted(
            number,
            pin.server,
            pin.name,
            pin.digest,
            dict(arguments),
            key,
            questions,
            reply.state,
            dict(answers),
            approval,
        )
        await root.tape.append([fact.to_entry()])
        log.info("a server wants input", extra={"action": "mcp.wanted", "server": pin.server, "tool": pin.name})
        model_told = "\n".join(_describe_question(each, turn.result_texts) for each in questions)
        return turn.result_texts.say("mcp_rests", server=pin.server, id=number, questions=model_told)

    @command(
        "mcp answer",
        chat=("mcp.answer",),
        in_shell=False,
        form="<id> [values]",
        role=Role.OWNER,
        effect=Effect(),
        help=CommandHelp(
            HelpTopic.OTHER,
            "Answer a server of tools",
            (",mcp.answer 3f09a1b2 name=Ann", ",mcp.answer 3f09a1b2 decline=yes"),
        ),
    )
    async def answer(self, caller: Caller, args: AnswerArgs) -> McpAnswer | RerunModel:
        """Give a server of tools what it wants before it goes on with a call, or decline. The model goes on with what it returns."""
        turn = caller.required_turn
        wanted = await self._find_wanted(turn, args.id)
        pin = next((each for each in self._service.state.offered if each.name == wanted.tool), None)
        if pin is None or pin.digest != wanted.digest:
            raise CommandRefused("mcp_tool_gone", tool=wanted.tool)
        given = await self._read_answers(wanted, args)
        answers = {**thaw(wanted.answers), **given}
        await turn.tape.append([InputGiven(wanted.id).to_entry()])
        await turn.tape.save()  # a call goes on once, whatever comes now
        try:
            reply = await self._call(
                turn, pin, thaw(wanted.arguments), key=wanted.key, answers=answers, state=wanted.state
            )
        except ToolFailed as error:
            raise CommandFailed("mcp_call_failed", problem=str(error)) from error
        if reply.questions:
            return McpAnswer(await self._ask(turn, pin, wanted.arguments, reply, key=wanted.key, answers=answers))
        if reply.is_error:
            raise CommandFailed("mcp_call_failed", problem=_format_reply(turn, pin, reply))
        return await self._go_on(turn, _format_reply(turn, pin, reply))

    async def _go_on(self, turn: Turn, text: str) -> RerunModel:
        """Show the model what a call has given after all, as words of the world, and let it answer."""
        stored = await turn.tape.append([make.message("user", text, origin="system", **stamp_of(Source.WORLD))])
        turn.message_ids.append(stored[0].id)
        return RerunModel(fence(show_details(text)))

    async def _find_wanted(self, turn: Turn, number: str) -> InputWanted:
        """Return what a server wants. Raise `CommandRefused` if there is no such question here, or it was answered."""
        names = (*InputWanted.EVENTS, *InputGiven.EVENTS)
        query = TapeQuery(turn.tape.name, kinds=(Kind.EVENT,), names=names, newest=True, limit=MAX_WANTED)
        entries = [entry for entry in (await turn.tape.fetch([query]))[0] if not entry.erased]
        found = [InputWanted.try_of(entry) for entry in entries if entry.name in InputWanted.EVENTS]
        wanted = next((each for each in found if each is not None and each.id == number), None)
        if wanted is None:
            raise ValueInvalid("mcp_no_question", id=number)
        given = [InputGiven.try_of(entry) for entry in entries if entry.name in InputGiven.EVENTS]
        if any(each is not None and each.id == number for each in given):
            raise CommandRefused("mcp_answered", id=number)
        return wanted

    async def _read_answers(self, wanted: InputWanted, args: AnswerArgs) -> dict[str, Any]:
        """Return the answers to all questions, as the protocol has them. Raise `CommandRefused` for values that do not fit."""
        if wanted.approval:
            find = self._kernel.find_answer
            answer = await find(wanted.approval) if find is not None else None
            if answer is None:
                raise CommandRefused("mcp_card_open", id=wanted.approval)
            (question,) = wanted.questions
            flag = _find_flag(question) or ""
            content = {flag: True} if flag else {}
            return {question.key: accept(content, thaw(question.schema)) if answer.is_yes else DECLINED}
        if args.decline:
            return {each.key: DECLINED for each in wanted.questions}
        values, answers, known = _split_values(args.values), dict[str, Any](), dict[str, None]()
        for each in wanted.questions:
            schema = thaw(each.schema)
            fields = schema.get("properties", {}) if isinstance(schema.get("properties"), dict) else {}
            known |= dict.fromkeys(fields)
            content = {name: _read_value(values[name], field) for name, field in fields.items() if name in values}
            accepted = accept(content, schema)
            if each.url:
                answers[each.key] = {"action": "accept"}
                continue
            try:
                problems = find_misfits(accepted["content"], schema)
            except TimeoutError as error:
                problems = [str(error)]
            if problems:
                raise CommandRefused("mcp_wrong_values", problem="; ".join(problems))
            answers[each.key] = accepted
        if unknown := [name for name in values if name not in known]:
            raise ValueInvalid("mcp_unknown_field", field=unknown[0], fields=", ".join(known) or "-")
        return answers


def _find_trace(server: ServerAdded) -> dict[str, str]:
    """Return the trace context of this call, if the settings let this server know it."""
    host = urlsplit(server.url).hostname or "" if server.url else THIS_MACHINE
    headers = read_call_headers(host)
    return {name: headers[name] for name in TRACE_META if name in headers}


def _format_reply(turn: Turn, pin: ToolPinned, reply: ToolReply) -> str:
    """Show what a server said below a line about its source. It is indented: no line of it looks like that one."""
    texts, now = turn.result_texts, turn.now()
    head = f"[{texts.say('mcp_source', server=pin.server, tool=pin.tool, time=_format_time(now))}]"
    body = replace_controls(reply.text).strip()
    if not body:
        return f"{head}\n{texts.say('mcp_no_text')}"
    return "\n".join([head, *(f"  {line}" if line else "" for line in body.split("\n"))])


def _format_time(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


def _is_empty(reply: ToolReply) -> bool:
    """Return true for an answer of a probe that says that nothing happened: no text, or nothing, no, zero or empty as JSON."""
    if reply.structured is not None:
        return not any(reply.structured.values())
    try:
        return not (json.loads(reply.text) if reply.text.strip() else None)
    except ValueError:
        return False


def _find_flag(question: WantedInput | ElicitedInput) -> str | None:
    """Return the only field of a form if it is a boolean; empty if the form has no field, None for all else."""
    properties = question.schema.get("properties") or {}
    if question.url or not isinstance(properties, Mapping) or len(properties) > 1:
        return None
    for name, field in properties.items():
        return str(name) if isinstance(field, Mapping) and field.get("type") == "boolean" else None
    return ""


def _describe_question(question: WantedInput, texts: Texts) -> str:
    """Say what a server wants, its words indented."""
    lines = [f"  {line}" for line in replace_controls(question.message).splitlines()]
    if question.url:
        lines.append(texts.say("mcp_wants_address", url=_code(question.url, MAX_URL_CHARS)))
    properties = question.schema.get("properties") or {}
    required = question.schema.get("required") or ()
    for name, field in properties.items() if isinstance(properties, Mapping) else ():
        about = field if isinstance(field, Mapping) else {}
        words = [_line(str(about.get("type", ""))), *([texts.say("mcp_required")] if name in required else [])]
        if isinstance(choices := about.get("enum"), list | tuple):
            words.append(_line(" | ".join(map(str, choices))))
        label = about.get("description") or about.get("title") or ""
        lines.append(f"  {_code(str(name))} ({', '.join(filter(None, words))}) {_line(str(label))}".rstrip())
    return "\n".join(lines)


def _line(text: str, limit: int = 500) -> str:
    return " ".join(replace_controls(text).split())[:limit]


def _code(text: str, limit: int = 500) -> str:
    """Put a text into a code span, so that nobody's platform makes a link of it."""
    return f"`{_line(text, limit).replace('`', chr(39))}`"


def _split_values(text: str) -> dict[str, str]:
    """Split `name=Ann note="two words"`. Raise `CommandRefused` for words without a name."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise CommandRefused("mcp_wrong_values", problem=str(error)) from error
    found: dict[str, str] = {}
    for word in words:
        name, sign, value = word.partition("=")
        if not sign or not re.fullmatch(r"[^\s=]+", name):
            raise CommandRefused("mcp_wrong_values", problem=f"{word!r} has no name: write name=value")
        found[name] = value
    return found


def _read_value(text: str, field: Any) -> Any:
    """Read a typed value as the type of its field."""
    kind = field.get("type") if isinstance(field, Mapping) else None
    if kind == "boolean":
        return {"yes": True, "true": True, "on": True, "no": False, "false": False, "off": False}.get(
            text.lower(), text
        )
    if kind == "array":
        return [each.strip() for each in text.split(",") if each.strip()]
    if kind in ("integer", "number"):
        try:
            return json.loads(text)
        except ValueError:
            return text
    return text
