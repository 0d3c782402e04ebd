"""The command that answers a question about what happened, in a chat and in a shell."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Annotated, ClassVar
from urllib.parse import quote

from msgspec import Meta, Struct, UnsetType

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group, make_tools
from bubbot.errors import EntryNotFound
from bubbot.feature import OpenCopy, ReadSession
from bubbot.features.explain.facts import EXPLAINED, ExplanationEnded
from bubbot.features.explain.reading import EXPLAIN_TOOL, explaining_tools
from bubbot.ports.channel import TERMINAL_CHANNEL
from bubbot.ports.session_names import parse_session
from bubbot.shell_command import EXIT_NO_ANSWER, Argument, CommandContext, TypedAnswer, write_keyed
from bubbot.tape.query import IdRanges, TapeQuery
from bubbot.tape.service import session_tape
from bubbot.texts import Texts
from bubbot.tool import INSIDE, CommandHelp, HelpTopic, Tool

if TYPE_CHECKING:
    from bubbot.features.explain.service import Explanation
    from bubbot.features.explain.statements import Citation

MAX_QUESTION_CHARS = 2_000
EXPLAIN_TIMEOUT_SECONDS = 600.0
MAX_NAMED = 40
"""Entries that an answer names at most as those that were read."""
OTHER_CHATS_SESSION = f"{TERMINAL_CHANNEL}:explain"
"""The session in which questions about chats of other channels are asked: these chats are only read."""


class ExplainArgs(Args, frozen=True):
    """A question."""

    question: Annotated[str, Meta(description="what to explain", min_length=1, max_length=MAX_QUESTION_CHARS)]
    chat: Annotated[str, Meta(description="another chat, at the terminal of the owner only", max_length=200)] = ""


def parse_question(text: str) -> str:
    """Write a question on one line. Raise `ValueError` if it is empty or too long."""
    question = " ".join(text.split())
    if not question:
        raise ValueError("it is empty: say what to explain")
    if len(question) > MAX_QUESTION_CHARS:
        raise ValueError(f"it has {len(question)} characters, and {MAX_QUESTION_CHARS} are allowed")
    return question


class ExplainChatArgs(Args, frozen=True):
    """A question about a chat."""

    chat: Annotated[str, Argument("a session such as telegram:42 or default, or the name of a tape")]
    question: Annotated[str, Argument("what to explain", parse=parse_question)]


class CitedEntryLine(Struct, frozen=True):
    """An entry that a statement cites.

    Attributes:
        tape: the name of its tape.
        entry: its id.
    """

    tape: str
    entry: int


class StatementLine(Struct, frozen=True):
    """A statement.

    Attributes:
        text: who said what and when.
        quote: the sentences of the entry.
        cites: the entries that it rests on.
    """

    text: str
    quote: str
    cites: tuple[CitedEntryLine, ...]


class ReadEntries(Struct, frozen=True):
    """The entries of a tape that the model was shown.

    Attributes:
        tape: the name of the tape.
        spans: id ranges, each as its first and last id.
    """

    tape: str
    spans: tuple[tuple[int, ...], ...]


class ExplainReport(Struct, frozen=True):
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

    is_text: ClassVar = True
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

    @classmethod
    def of(cls, chat: str, question: str, text: str, fact: ExplanationEnded) -> ExplainReport:
        """Read the fact of an explanation; `text` is what people read of it."""
        statements = [
            StatementLine(
                each.text,
                "" if isinstance(each.quote, UnsetType) else each.quote,
                tuple([CitedEntryLine(tape, entry) for tape, entry in each.cites]),
            )
            for each in fact.statements
        ]
        return cls(
            chat,
            question,
            fact.status,
            text,
            tuple(statements),
            "" if isinstance(fact.conclusion, UnsetType) else fact.conclusion,
            tuple([ReadEntries(tape, tuple(map(tuple, spans))) for tape, spans in fact.read]),
            fact.problems,
            fact.steps,
            fact.tokens,
        )

    @property
    def exit_code(self) -> int:
        """1 without an answer."""
        return 0 if self.status == "founded" else EXIT_NO_ANSWER

    def describe(self, caller: Caller) -> str:  # noqa: ARG002 - as those of other results
        """Return the text."""
        return self.text


class ExplainRefused(ExplainReport, frozen=True):
    """A question that was not even asked: the text says why."""

    is_error: ClassVar = True


class ExplainCommands:
    """Answers to questions about what happened."""

    def __init__(
        self, read_session: ReadSession | None = None, open_copy: OpenCopy | None = None, page: str = ""
    ) -> None:
        """Set what only the running bot has.

        Args:
            read_session: opens the tapes that a chat was granted.
            open_copy: opens any tape, for the person at the terminal.
            page: the address of the trace page; empty: nobody serves it.
        """
        self._read_session = read_session
        self._open_copy = open_copy
        self._page = page

    @command(
        "explain <chat> <question>",
        chat=(EXPLAIN_TOOL, "explain"),
        form="<question>",
        example="""telegram:42 "why did you book the late train?\"""",
        effect=INSIDE,
        writes=False,
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Ask what happened here, with sources",
            (",explain Why did you book the late train?", ",explain What did this cost yesterday?"),
        ),
    )
    async def explain(self, caller: Caller, args: ExplainArgs | ExplainChatArgs) -> ExplainReport:
        """Answer a question about what happened in this chat with what its entries say, in whose words and when; an answer
        that quotes what does not stand there is not given."""
        if caller.turn is None:
            assert caller.context is not None
            return await _ask_bot(caller.context, args)
        assert self._read_session is not None
        assert self._open_copy is not None
        # Imported here: a bot may run for long before somebody asks what happened.
        from bubbot.features.explain.service import ExplainService

        question, chat = args.question.strip(), args.chat.strip()
        explanation = await ExplainService(self._read_session, self._open_copy).explain(caller.turn, question, chat)
        assert explanation.fact is not None
        text = format_explanation(explanation, caller.texts, self._page)
        return ExplainReport.of(chat, question, text, explanation.fact)


async def _ask_bot(context: CommandContext, args: ExplainArgs | ExplainChatArgs) -> ExplainReport:
    """Ask the bot of the home in a turn at the terminal: a chat of the terminal there, any other from a chat for this."""
    assert context.type_command is not None
    chat, question = args.chat.strip(), args.question
    session = parse_session(chat)
    is_other = session.partition(":")[0] != TERMINAL_CHANNEL or "__" in chat  # the name of a tape
    line = f",explain {write_keyed('question', question)}"
    if is_other:
        session, line = OTHER_CHATS_SESSION, f",explain {write_keyed('chat', chat)} {write_keyed('question', question)}"
    elif not await context.store.head(session_tape(context.workspace, session)):
        raise EntryNotFound(f"there is no chat {session}; bubbot tape list shows all tapes")  # it would begin one
    answer = await context.type_command(session, line, "")
    fact = await _find_fact(context, session, answer)
    if fact is None:
        return ExplainRefused(chat, question, "failed", answer.text)
    return ExplainReport.of(chat, question, answer.text, fact)


async def _find_fact(context: CommandContext, session: str, answer: TypedAnswer) -> ExplanationEnded | None:
    """Find the explanation that a turn wrote; None if there is none."""
    if not answer.entries:
        return None
    tape = session_tape(context.workspace, session)
    query = TapeQuery(tape, IdRanges((answer.entries,)), kinds=("event",), names=(EXPLAINED,))
    (facts,) = await context.store.fetch([query])
    return ExplanationEnded.of(facts[-1]) if facts else None


def explain_tools(commands: ExplainCommands) -> list[Tool]:
    """Make the command, and the tools of its model."""
    made = make_tools(ExplainCommands, lambda: commands, session_explain={"timeout": EXPLAIN_TIMEOUT_SECONDS})
    return [*made, *explaining_tools()]


COMMANDS = make_group(
    "explain",
    ExplainCommands,
    None,
    "Ask what happened in a chat. The model reads the record of the chat with tools that change nothing and answers with "
    "entries and their words; who said them and when comes from the record, and an answer that quotes what does not stand "
    "there is not given. `bubbot tape show CHAT` prints the entries. The exit code is 1 without an answer.",
    section="Look",
    help_line="ask what happened in a chat, with sources",
    explain={"is_answered_without_home": False},
)


def format_explanation(explanation: Explanation, texts: Texts, page: str) -> str:
    """Write an explanation for people. `page`: see `ExplainCommands`."""
    read = _format_read(explanation.read, texts)
    match explanation.status:
        case "founded":
            lines = [
                f"{each.text} [{_format_citation(each.citation, page, explanation.tape)}]"
                for each in explanation.statements
            ]
            if explanation.conclusion:
                lines.append(texts.say("explain_concluded", words=explanation.conclusion))
            return "\n".join(lines)
        case "unknown":
            return texts.say("explain_unknown", entries=read)
        case "unfounded":
            return texts.say("explain_unfounded", reason=explanation.reason, entries=read)
        case "failed":
            return texts.say("explain_failed", reason=explanation.reason.rstrip("."), entries=read)


def _format_citation(citation: Citation, page: str, tape: str) -> str:
    if not page or citation.tape:  # a session of another chat is no name of a tape
        return str(citation)
    return f"{citation} {page}/session/{quote(tape, safe='')}/entry/{citation.entry}"


def _format_read(read: Collection[Citation], texts: Texts) -> str:
    named: Sequence[Citation] = sorted(read, key=lambda each: (each.tape, each.entry))
    words = ", ".join(str(each) for each in named[:MAX_NAMED])
    return f"{words}, …" if len(named) > MAX_NAMED else words or texts.say("none")
