"""The input router: it runs commands and leaves other messages to the model."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from msgspec import Struct

from bubbot.arguments.errors import describe_argument
from bubbot.arguments.fields import Args
from bubbot.errors import AnchorNotFound, CommandError, EntryInvalid, EntryNotFound, ToolSignal
from bubbot.formatting import clean
from bubbot.ports.channel import FOREIGN_WORDS, TERMINAL_CHANNEL, Inbound
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import ToolCallRunner
from bubbot.runtime.effects import EffectRun
from bubbot.tape import entry as make
from bubbot.tape.events import CommandRun
from bubbot.tape.provenance import Source, most_foreign, stamp_of, track_reads
from bubbot.tape.withheld import FOR_PEOPLE_STAMP
from bubbot.texts import COMMAND_PREFIX, Texts
from bubbot.tool import ArgumentsInvalid, CommandPlace, RerunModel, Tool, Toolbox

log = logging.getLogger(__name__)

STOP = ",stop"
OVERTAKING_COMMANDS = (STOP, ",status")
"""Commands that do not wait for the running turn and cannot be stopped."""

_KEYED = r'(?<!\S)(?P<key>[A-Za-z_]\w*)=(?:"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>\S*))'
_LIST_ITEM = re.compile(r"""(?:"[^"]*"|\[[^\[\]]*\]|\{[^{}]*\}|[^,])+""")
"""An item of a list; brackets that are not closed, or stand in others, are characters like others."""
_WORD = re.compile(r"\S+")


def is_command(text: str) -> bool:
    """Return true if a message is a command: it begins with a comma."""
    return text.lstrip().startswith(COMMAND_PREFIX)


def holds_command(inbound: Inbound) -> bool:
    """Return true if a message is a command. A forwarded one is not: somebody else chose its words."""
    return is_command(inbound.text) and not (
        inbound.is_plain_text or (inbound.is_typed and inbound.provenance == FOREIGN_WORDS)
    )


def is_overtaking(inbound: Inbound) -> bool:
    """Return true for one of `OVERTAKING_COMMANDS`."""
    return inbound.text.strip() in OVERTAKING_COMMANDS and holds_command(inbound)


class CommandOutcome(Struct, frozen=True):
    """The result of a command.

    Attributes:
        name: the tool's name, or the typed one if it is unknown.
        status: `refused` if it never ran, `error` if it ran and raised.
        output: the command's answer.
        rerun: ask the model next.
    """

    name: str
    status: Literal["ok", "refused", "error"]
    output: str
    rerun: bool = False

    def for_model(self) -> str:
        """Format a failed command for the model, escaped so that the output cannot close the block."""
        # Imported here: it loads the standard library's HTTP client, which few turns need.
        from xml.sax.saxutils import escape, quoteattr

        return f'<command name={quoteattr(self.name)} status="{self.status}">\n{escape(self.output)}\n</command>'


@dataclass(slots=True)
class RoutedInput:
    """The outcome of a turn's commands.

    Attributes:
        replies: their answers, in order.
        ask_model: the turn needs the model: for a message, to explain a command that failed in a chat, or because a
            command asks for it.
        failure: the text for people if a command failed in an unattended turn or in a program's single request; None
            otherwise.
    """

    replies: list[str] = field(default_factory=list)
    ask_model: bool = False
    failure: str | None = None


class InputRouter:
    """Runs the commands of a turn and leaves other messages to the model."""

    def __init__(
        self,
        toolbox: Toolbox,
        calls: ToolCallRunner,
        elapsed: Callable[[], float],
        *,
        has_model: Callable[[Turn], Awaitable[bool]],
    ) -> None:
        """`elapsed` is a monotonic clock in seconds; `has_model` returns true if a model can explain a failed command."""
        self._toolbox = toolbox
        self._calls = calls
        self._elapsed = elapsed
        self._has_model = has_model

    async def route(self, turn: Turn) -> RoutedInput:
        """Run the turn's commands in order of arrival and decide if the model is needed."""
        routed = RoutedInput(ask_model=bool(turn.message_ids))
        for accepted in turn.inbounds:
            if not holds_command(accepted.inbound):
                continue
            outcome = await self.run_command(turn, accepted.inbound.text)
            await turn.write_handoffs()
            has_failed = outcome.status == "error" if turn.is_typed else outcome.status != "ok"
            if has_failed and (accepted.inbound.is_one_shot or not turn.is_typed):
                routed.failure = _reply_text(turn, outcome)
                return routed
            is_for_model = outcome.status == "error" and not self.is_for_people(accepted.inbound.text)
            if is_for_model and await self._has_model(turn):
                await self._pass_to_model(turn, outcome)
                routed.ask_model = True
            else:
                routed.replies += [_reply_text(turn, outcome)] if outcome.output else []
                routed.ask_model = routed.ask_model or outcome.rerun
        return routed

    def stops_tasks(self, inbound: Inbound) -> bool:
        """Return true for a command that a person types, and that stops a running step of a task instead of waiting for it."""
        if not (inbound.is_typed and holds_command(inbound)):
            return False
        name = _read_name(inbound.text)
        return any(tool.stops_tasks and name in tool.names for tool in self._toolbox)

    async def run_command(self, turn: Turn, line: str) -> CommandOutcome:
        """Run one command and record it as a `command` event."""
        started, effect = self._elapsed(), EffectRun()
        outcome = await self._outcome(turn, clean(line.strip()), effect)
        elapsed_ms = round((self._elapsed() - started) * 1000)
        shown = await self._calls.cut_result(turn.tape, outcome.output)
        blobs = (shown.blob,) if shown.blob else ()
        fact = CommandRun(outcome.name, clean(line.strip()), outcome.status, elapsed_ms, shown.text, blobs)
        meta = {**stamp_of(most_foreign(turn.answer_source, turn.tape.source)), **turn.take_copied()}
        if self.is_for_people(line):
            turn.answers_people_alone = True
            meta |= FOR_PEOPLE_STAMP
        await turn.tape.append([*effect.end(is_error=outcome.status != "ok"), fact.to_entry(**meta)])
        if effect.is_begun:
            await turn.tape.save()
        return outcome

    def is_for_people(self, text: str) -> bool:
        """Return true if a text is a command that no model is shown, as it is typed on any platform."""
        word = text.lstrip()
        if not word.startswith((COMMAND_PREFIX, "/")):
            return False
        name = _read_name(COMMAND_PREFIX + word[1:]).partition("@")[0]
        return any(tool.is_for_people and name in tool.names for tool in self._toolbox)

    async def _pass_to_model(self, turn: Turn, outcome: CommandOutcome) -> None:
        """Pass a command that raised to the model as a message, so that it can explain the error."""
        meta = stamp_of(most_foreign(turn.answer_source, turn.tape.source))
        stored = await turn.tape.append([make.message("user", outcome.for_model(), origin="system", **meta)])
        turn.message_ids.append(stored[0].id)

    async def _outcome(self, turn: Turn, line: str, effect: EffectRun) -> CommandOutcome:
        name = _read_name(line)
        try:
            offered = [tool for tool in self._toolbox if is_offered(tool, turn)]
            tool = find_command(name, self._toolbox, offered, turn.texts)
            name = tool.name
            _check_allowed(tool, turn)
            args = parse_arguments(line, tool, turn.texts)
            turn.runs_command = True
            if tool.effect.source is Source.WORLD:
                turn.note_answer(Source.WORLD)
            with track_reads(turn.note_answer):
                output = await self._calls.invoke(turn, tool, args, effect)
        except (CommandError, ToolSignal, EntryNotFound, EntryInvalid, AnchorNotFound) as error:
            return CommandOutcome(name, "refused", str(error))
        except Exception as error:  # tool call boundary: the model gets the error
            log.info("command raised %s", type(error).__name__, extra={"action": "command.raised", "command": name})
            log.debug("traceback", exc_info=True, extra={"action": "command.raised"})  # its text may be that of people
            return CommandOutcome(name, "error", clean(f"{type(error).__name__}: {error}"))
        finally:
            turn.runs_command = False
        if isinstance(output, RerunModel):
            return CommandOutcome(name, "ok", output.text, rerun=True)
        return CommandOutcome(name, "ok", clean(output))


def _reply_text(turn: Turn, outcome: CommandOutcome) -> str:
    return turn.texts.add_trace(outcome.output, turn.id) if outcome.status == "error" else outcome.output


def parse_command(line: str, toolbox: Toolbox, texts: Texts) -> tuple[Tool, Args]:
    """Parse a command into its tool and checked arguments. Raise `CommandError` like `parse_arguments`."""
    tool = find_command(_read_name(line), toolbox, tuple(toolbox), texts)
    return tool, parse_arguments(line, tool, texts)


def _read_name(line: str) -> str:
    return body.split(maxsplit=1)[0] if (body := line.strip().removeprefix(COMMAND_PREFIX).strip()) else ""


def is_offered(tool: Tool, turn: Turn) -> bool:
    """Return true if the turn's person may type a command in this chat."""
    return turn.role.at_least(tool.role) and _is_place(tool.help.place, turn) and not tool.is_reserved


def _is_place(place: CommandPlace, turn: Turn) -> bool:
    if place is CommandPlace.DIRECT:
        return turn.is_direct
    return place is CommandPlace.ANYWHERE or turn.session.partition(":")[0] == TERMINAL_CHANNEL


def find_command(name: str, tools: Iterable[Tool], offered: Sequence[Tool], texts: Texts) -> Tool:
    """Find a typed command. Raise `CommandError` with the most similar offered one."""
    if not name:
        raise CommandError(texts.say("no_name"))
    for tool in tools:
        if name in tool.names and not tool.is_reserved:
            return tool
    raise CommandError(unknown_command_text(name, offered, texts))


def _check_allowed(tool: Tool, turn: Turn) -> None:
    """Raise `CommandError` if this person may not use the command, or not in this chat."""
    texts = turn.texts
    command = format_command(tool, texts)
    if not turn.role.at_least(tool.role):
        needed, role = texts.role(tool.role), texts.role(turn.role)
        raise CommandError(texts.say("not_allowed", command=command, needed=needed, role=role))
    if not _is_place(tool.help.place, turn):
        is_direct = tool.help.place is CommandPlace.DIRECT
        raise CommandError(texts.say("only_direct" if is_direct else "only_terminal", command=command))


def format_command(tool: Tool, texts: Texts) -> str:
    """Format a command as typed here: `,memory.save`, or `/memory_save` on platforms with their own commands."""
    return texts.format_commands(f"{COMMAND_PREFIX}{tool.typed_name}")


def parse_arguments(line: str, tool: Tool, texts: Texts) -> Args:
    """Parse the arguments of a command and check them.

    `key=value` and `key="some words"` may stand before and after the plain words; the plain words fill the tool's
    positional fields, and the last field takes all remaining words. Double a quote within quoted words; quotes
    elsewhere are ordinary characters.

    Raises:
        CommandError: names the mistake, the right form of the command, and an example.
    """
    rest = line.strip().removeprefix(COMMAND_PREFIX).strip().partition(_read_name(line))[2]
    try:
        return tool.validate(_parse_values(tool, rest, texts))
    except ArgumentsInvalid as error:
        problems = texts.say("and_also").join(
            describe_argument(each, tool.name, tool.fields, texts) for each in error.problems
        )
    except CommandError as error:
        problems = str(error)
    example = texts.format_commands(tool.help.examples[0]) if tool.help.examples else ""
    usage = command_usage(tool, texts, is_short=True)
    right_form = texts.say("right_form", usage=usage)
    if example not in ("", usage):
        right_form = texts.say("right_form_example", usage=usage, example=example)
    raise CommandError(texts.say("wrong_form", command=format_command(tool, texts), problem=problems, form=right_form))


def unknown_command_text(name: str, offered: Sequence[Tool], texts: Texts) -> str:
    """Build the text for an unknown command, with the commands that people mean by this word, or a similar one."""
    typed = texts.format_commands(f"{COMMAND_PREFIX}{name}")
    if meant := [tool for tool in offered if name.lower() in tool.help.words]:
        lines = [
            texts.say("help_line", command=format_command(tool, texts), brief=texts.brief(tool.name, tool.help.brief))
            for tool in meant
        ]
        return "\n".join([texts.say("no_command_means", command=typed), *lines])
    near = _find_nearest(name, offered)
    if near is None:
        return texts.say("no_command", command=typed)
    return texts.say("no_command_but", command=typed, near=format_command(near, texts))


def _find_nearest(name: str, offered: Sequence[Tool]) -> Tool | None:
    """Find a command one typing error away: one letter, or two in names of six letters or more."""
    from rapidfuzz.distance import OSA  # only an unknown command needs it

    typed = name.replace("_", ".").lower()
    near = [(OSA.distance(typed, each.replace("_", ".")), tool) for tool in offered for each in tool.names]
    distance, found = min(near, key=lambda item: item[0], default=(len(name), None))
    return found if distance <= (1 if len(name) < 6 else 2) and distance < len(name) - 1 else None


def command_usage(tool: Tool, texts: Texts, *, is_short: bool = False) -> str:
    """Format the usage of a command: `,search <query> [kinds=…] [limit=…]`; the short form is `,search <query> …`."""
    fields, positional = tool.fields, tool.words
    words = [f"<{name}>" if fields[name].is_required else f"[{name}]" for name in positional]
    keyed = [f"[{name}=…]" for name in fields if name not in positional]
    if is_short and keyed:
        keyed = ["…"]
    return " ".join([format_command(tool, texts), *words, *keyed])


def _parse_values(tool: Tool, text: str, texts: Texts) -> dict[str, Any]:
    """Split the text after the command's name into argument values. Raise `CommandError` for words without a field."""
    fields = tool.fields
    values: dict[str, Any] = {}
    text = text.strip()
    while (match := re.match(_KEYED, text)) and match["key"] in fields:
        values[match["key"]] = _match_value(match)
        text = text[match.end() :].lstrip()
    trailing = list(re.finditer(_KEYED, text))
    while trailing and trailing[-1].end() == len(text) and trailing[-1]["key"] in fields:
        match = trailing.pop()
        values[match["key"]] = _match_value(match)
        text = text[: match.start()].rstrip()
    open_fields = [name for name in tool.words if name not in values]
    for index, name in enumerate(open_fields):
        if not text:
            break
        if index == len(open_fields) - 1:
            values[name], text = _unquote(text), ""
        elif word := _WORD.match(text):
            values[name], text = word[0], text[word.end() :].lstrip()
    if text:
        raise CommandError(texts.say("too_many_words", words=text))
    return {name: split_list(value) if fields[name].is_list else value for name, value in values.items()}


def _match_value(match: re.Match[str]) -> str:
    """Return the value after `key=`; a doubled quote within quotes stands for one."""
    quoted: str | None = match["quoted"]
    return match["plain"] if quoted is None else quoted.replace('""', '"')


def _unquote(text: str) -> str:
    """Strip the quotes around the full text, if there are any."""
    is_quoted = len(text) >= 2 and text[0] == text[-1] == '"' and '"' not in text[1:-1]
    return text[1:-1] if is_quoted else text


def split_list(value: str) -> list[str]:
    """Split at commas; one within brackets or quotes belongs to its item, such as `most=[1,2]`."""
    return [item for match in _LIST_ITEM.finditer(value) if (item := match[0].strip())]
