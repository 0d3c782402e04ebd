"""Comma commands: a tool call by its sender, written by hand."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args, get_origin
from xml.sax.saxutils import escape, quoteattr

from bubbot.errors import AnchorNotFound, CommandError, EntryInvalid, EntryNotFound, ToolError, ToolFailed, ToolRetry
from bubbot.ports.tool import RerunModel, Tool, ToolArgs, Toolbox
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import ToolCallRunner, clean
from bubbot.runtime.router import COMMAND_PREFIX
from bubbot.tape import entry as make
from bubbot.texts import Texts

log = logging.getLogger(__name__)

_KEYED = re.compile(r'(?<!\S)(?P<key>[A-Za-z_]\w*)=(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>\S*))')
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class CommandOutcome:
    """`output` is the answer; `refused` commands never ran; `error`: it ran and raised; `rerun`: ask the model."""

    name: str
    status: Literal["ok", "refused", "error"]
    output: str
    rerun: bool = False

    def for_model(self) -> str:
        """A failed command as the model is shown it; the output cannot close the block."""
        return f'<command name={quoteattr(self.name)} status="{self.status}">\n{escape(self.output)}\n</command>'


class CommandRunner:
    """Parses and runs commands. `elapsed` is a monotonic clock in seconds."""

    def __init__(self, toolbox: Toolbox, calls: ToolCallRunner, elapsed: Callable[[], float]) -> None:
        self._toolbox = toolbox
        self._calls = calls
        self._elapsed = elapsed

    async def run(self, turn: Turn, line: str) -> CommandOutcome:
        """Runs one command and records it as a `command` event."""
        started = self._elapsed()
        outcome = await self._outcome(turn, clean(line.strip()))
        data = {
            "name": outcome.name,
            "raw": clean(line.strip()),
            "status": outcome.status,
            "elapsed_ms": round((self._elapsed() - started) * 1000),
            "output": await self._calls.shown(turn.tape, outcome.output),
        }
        await turn.tape.append([make.event("command", data)])
        return outcome

    async def _outcome(self, turn: Turn, line: str) -> CommandOutcome:
        name = line.removeprefix(COMMAND_PREFIX).split(maxsplit=1)[0] if line.strip(", ") else ""
        try:
            tool, args = parse(line, self._toolbox, turn.texts)
            name = tool.name
            if not turn.role.at_least(tool.role):
                needed, role = turn.texts.role(tool.role), turn.texts.role(turn.role)
                raise CommandError(turn.texts.say("not_allowed", command=name, needed=needed, role=role))
            turn.runs_command = True
            output = await self._calls.invoke(turn, tool, args)
        except (CommandError, ToolRetry, ToolFailed, EntryNotFound, EntryInvalid, AnchorNotFound) as error:
            return CommandOutcome(name, "refused", str(error))
        except Exception as error:  # the tool call: what a command raises goes to the model
            log.info("a command raised", exc_info=True, extra={"action": "command.raised", "command": name})
            return CommandOutcome(name, "error", clean(f"{type(error).__name__}: {error}"))
        finally:
            turn.runs_command = False
        if isinstance(output, RerunModel):
            return CommandOutcome(name, "ok", output.text, rerun=True)
        return CommandOutcome(name, "ok", clean(output))


def parse(line: str, toolbox: Toolbox, texts: Texts) -> tuple[Tool, ToolArgs]:
    """The tool and its checked arguments. Raises `CommandError` with the right form of the command.

    `key=value` and `key="some words"` may stand before and after the plain words; the plain words fill the
    tool's positional fields, of which the last takes all that are left. A quote within quoted words is written twice;
    quotes elsewhere are just characters.
    """
    body = line.strip().removeprefix(COMMAND_PREFIX).strip()
    if not body:
        raise CommandError(texts.say("no_name"))
    name, *rest = body.split(maxsplit=1)
    try:
        tool = toolbox.find(name)
    except ToolError as error:
        raise CommandError(unknown(name, toolbox.near(name), texts)) from error
    try:
        return tool, tool.checked(_values(tool, rest[0] if rest else ""))
    except ToolRetry as error:
        raise CommandError(texts.say("wrong_form", problem=error, usage=usage(tool))) from error


def unknown(name: str, near: Sequence[str], texts: Texts) -> str:
    """What people are told who typed a command that there is not; `near` are names that look like it."""
    if not near:
        return texts.say("no_command", name=name)
    return texts.say("no_command_but", name=name, near=texts.say("or").join(near))


def usage(tool: Tool) -> str:
    """How a command is typed: `,tape.search <query> [kinds=…] [limit=…]`."""
    fields = tool.args.model_fields
    positional = _positional(tool)
    words = [f"<{name}>" if fields[name].is_required() else f"[{name}]" for name in positional]
    keyed = [f"[{name}=…]" for name in fields if name not in positional]
    return " ".join([f"{COMMAND_PREFIX}{tool.commands[0] if tool.commands else tool.name}", *words, *keyed])


def _positional(tool: Tool) -> tuple[str, ...]:
    """The fields that plain words fill: those the arguments name, else the required ones, else the first."""
    if tool.args.positional:
        return tool.args.positional
    fields = tool.args.model_fields
    return tuple(name for name, field in fields.items() if field.is_required()) or tuple(fields)[:1]


def _values(tool: Tool, text: str) -> dict[str, Any]:
    """Argument values as texts, from what stands behind the command's name."""
    fields = tool.args.model_fields
    values: dict[str, Any] = {}
    text = text.strip()
    while (found := _KEYED.match(text)) and found["key"] in fields:
        values[found["key"]] = _value(found)
        text = text[found.end() :].lstrip()
    trailing = list(_KEYED.finditer(text))
    while trailing and trailing[-1].end() == len(text) and trailing[-1]["key"] in fields:
        found = trailing.pop()
        values[found["key"]] = _value(found)
        text = text[: found.start()].rstrip()
    open_fields = [name for name in _positional(tool) if name not in values]
    for place, name in enumerate(open_fields):
        if not text:
            break
        if place == len(open_fields) - 1:
            values[name], text = _unquoted(text), ""
        elif word := _WORD.match(text):
            values[name], text = word[0], text[word.end() :].lstrip()
    if text:
        raise ToolRetry(f"{tool.name} does not know what to do with {text!r}")
    return {name: _listed(fields[name].annotation, value) for name, value in values.items()}


def _value(found: re.Match[str]) -> str:
    """What stands behind `key=`; within quotes two of them are one that is meant."""
    quoted: str | None = found["quoted"]
    return found["plain"] if quoted is None else quoted.replace('""', '"')


def _unquoted(text: str) -> str:
    """Without the quotes around the whole, where there are any."""
    whole = len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1] if whole else text


def _listed(annotation: Any, value: str) -> Any:
    """A comma-separated text as a list, where the field is one."""
    kinds = (annotation, *get_args(annotation))
    if any(get_origin(kind) in (list, tuple) for kind in kinds):
        return [item.strip() for item in value.split(",") if item.strip()]
    return value
