"""`bubbot explain`: a question about what happened in a chat, answered with its sources."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Annotated, Any

from bubbot.app.tapes import open_tapes
from bubbot.cli.ask import DEFAULT_WAIT_SECONDS, build_inbound
from bubbot.cli.chat.connection import with_chat
from bubbot.cli.invocation import Invocation, usage_error
from bubbot.cli.local_command import local_command
from bubbot.cli.output import AnswerPrinter, format_json, show, show_on_stderr
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.errors import EntryNotFound
from bubbot.features.explain.events import EXPLAINED
from bubbot.ports.arguments import Args
from bubbot.ports.channel import TERMINAL_CHANNEL, Inbound
from bubbot.ports.command import Argument, CommandGroup
from bubbot.ports.session_names import parse_session
from bubbot.records import dataclass, json_data
from bubbot.server.chat import ChatConnection
from bubbot.server.remote import AskResult
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import session_tape

OTHER_CHATS_SESSION = f"{TERMINAL_CHANNEL}:explain"
"""The session in which questions about chats of other channels are asked: these chats are only read."""
MAX_QUESTION_CHARS = 2_000
EXIT_NO_ANSWER = 1


@dataclass(frozen=True, slots=True)
class CitedEntryLine:
    """An entry that a statement cites.

    Attributes:
        tape: the name of its tape.
        entry: its id.
    """

    tape: str
    entry: int


@dataclass(frozen=True, slots=True)
class StatementLine:
    """A statement.

    Attributes:
        text: who said what and when.
        quote: the sentences of the entry.
        cites: the entries that it rests on.
    """

    text: str
    quote: str
    cites: tuple[CitedEntryLine, ...]


@dataclass(frozen=True, slots=True)
class ReadEntries:
    """The entries of a tape that the model was shown.

    Attributes:
        tape: the name of the tape.
        spans: id ranges, each as its first and last id.
    """

    tape: str
    spans: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class ExplainReport:
    """An explanation.

    Attributes:
        chat: the chat that it is about.
        question: the question.
        status: `founded`, `unknown` (the record does not tell), `unfounded` (no answer whose sources hold) or `failed`.
        text: what a person reads.
        statements: the answer; empty unless it is founded.
        conclusion: what the model concludes, in its own words, which nothing checks; empty if it does not.
        read: the entries that the model was shown.
        problems: why answers of the model were refused, in order.
        steps: model calls.
        tokens: tokens read and written.
    """

    chat: str
    question: str
    status: str
    text: str
    statements: tuple[StatementLine, ...] = ()
    conclusion: str = ""
    read: tuple[ReadEntries, ...] = ()
    problems: tuple[str, ...] = ()
    steps: int = 0
    tokens: int = 0


class ExplainArgs(Args, frozen=True):
    """The arguments of `bubbot explain`."""

    chat: Annotated[str, Argument("a session such as telegram:42 or default, or the name of a tape")]
    question: Annotated[str, Argument("what to explain")]


@local_command("explain", example='explain telegram:42 "why did you book the late train?"', result=ExplainReport)
def explain(invocation: Invocation, args: ExplainArgs) -> int:
    """Ask what happened in a chat, with sources.

    Ask what happened in a chat. The model reads the record of the chat with tools that change nothing and answers with
    entries and their words; who said them and when comes from the record, and an answer that quotes what does not stand
    there is not given. `bubbot tape show CHAT` prints the entries. The exit code is 1 without an answer.
    """
    question = " ".join(args.question.split())
    if not question:
        raise usage_error("bubbot explain", "the question is empty: say what to explain")
    if len(question) > MAX_QUESTION_CHARS:
        raise usage_error(
            "bubbot explain", f"the question has {len(question)} characters, and {MAX_QUESTION_CHARS} are allowed"
        )
    return asyncio.run(_explain(load_setup(invocation), args.chat.strip(), question))


async def _explain(setup: CommandSetup, chat: str, question: str) -> int:
    session = parse_session(chat)
    is_other = session.partition(":")[0] != TERMINAL_CHANNEL or "__" in chat  # the name of a tape
    line = f",explain {keyed('question', question)}"
    if is_other:
        session, line = OTHER_CHATS_SESSION, f",explain {keyed('chat', chat)} {keyed('question', question)}"
    else:
        await _require_chat(setup, session)
    printer = AnswerPrinter()
    show("", end="", flush=True)  # detect a closed output before the question costs anything
    result = await ask_terminal(setup, session, build_inbound(session, line))
    fact = await read_fact(setup, session, result, EXPLAINED)
    report = _build_report(chat, question, result, fact)
    if fact is None and not setup.as_json:
        show_on_stderr(f"bubbot: {result.text}")
    else:
        printer(format_json(json_data(report)) if setup.as_json else result.text)
    printer.check(session)
    return 0 if report.status == "founded" else EXIT_NO_ANSWER


async def _require_chat(setup: CommandSetup, session: str) -> None:
    """Raise `EntryNotFound` for a chat in which nothing was said: the question would begin it."""
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        if not await store.head(session_tape(workspace, session)):
            raise EntryNotFound(f"there is no chat {session}; bubbot tape list shows all tapes")


def keyed(name: str, text: str) -> str:
    """Write an argument of a comma command."""
    doubled = text.replace('"', '""')
    return f'{name}="{doubled}"'


async def ask_terminal(setup: CommandSetup, session: str, inbound: Inbound) -> AskResult:
    """Let the bot answer a command of the owner at the terminal."""

    async def talk(chat: ChatConnection) -> AskResult:
        return await chat.ask(inbound, lambda _result, _answer: None, {})

    settings = {"write": lambda _text: None}
    return await with_chat(setup, session, settings, talk, hold=True, wait_seconds=DEFAULT_WAIT_SECONDS)


async def read_fact(setup: CommandSetup, session: str, result: AskResult, name: str) -> Mapping[str, Any] | None:
    """Read the newest fact of this name that a turn wrote; None if there was none."""
    if not result.entries:
        return None
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        part = IdRanges((tuple[int, int](result.entries),)) if len(result.entries) == 2 else IdRanges(())
        query = TapeQuery(session_tape(workspace, session), part, kinds=("event",), names=(name,))
        facts = (await store.fetch([query]))[0]
    return facts[-1].data if facts else None


def _build_report(chat: str, question: str, result: AskResult, fact: Mapping[str, Any] | None) -> ExplainReport:
    if fact is None:
        return ExplainReport(chat, question, "failed", result.text)
    statements = tuple(
        StatementLine(
            each["text"], each.get("quote", ""), tuple(CitedEntryLine(tape, entry) for tape, entry in each["cites"])
        )
        for each in fact["statements"]
    )
    read = tuple(ReadEntries(tape, tuple(tuple(span) for span in spans)) for tape, spans in fact["read"])
    return ExplainReport(
        chat,
        question,
        fact["status"],
        result.text,
        statements,
        fact.get("conclusion", ""),
        read,
        tuple(fact["problems"]),
        fact["steps"],
        fact["tokens"],
    )


EXPLAIN_COMMANDS = CommandGroup("explain", (explain,))
