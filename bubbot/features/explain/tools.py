"""The command `,explain`."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, ClassVar
from urllib.parse import quote

from pydantic import Field

from bubbot.feature import OpenCopy, ReadSession
from bubbot.features.explain.reading import EXPLAIN_TOOL, explaining_tools
from bubbot.ports.tool import INSIDE, CommandHelp, HelpTopic, Tool, ToolArgs, tool
from bubbot.ports.turn import Turn
from bubbot.texts import Texts

if TYPE_CHECKING:
    from bubbot.features.explain.service import Explanation
    from bubbot.features.explain.statements import Citation

MAX_QUESTION_CHARS = 2_000
TIMEOUT_SECONDS = 600.0
MAX_NAMED = 40
"""Entries that an answer names at most as those that were read."""


class ExplainArgs(ToolArgs):
    """The arguments of `session.explain`."""

    question: str = Field(min_length=1, max_length=MAX_QUESTION_CHARS, description="what to explain")
    chat: str = Field(default="", max_length=200, description="another chat, at the terminal of the owner only")
    positional: ClassVar[tuple[str, ...]] = ("question",)


def explain_tools(read_session: ReadSession, open_copy: OpenCopy, page: str) -> list[Tool]:
    """Make the command, and the tools of its model. The arguments: see `explain_feature`."""

    @tool(
        EXPLAIN_TOOL,
        commands=("explain",),
        for_model=False,
        effect=INSIDE,
        timeout=TIMEOUT_SECONDS,
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Ask what happened here, with sources",
            (",explain Why did you book the late train?", ",explain What did this cost yesterday?"),
        ),
    )
    async def session_explain(turn: Turn, args: ExplainArgs) -> str:
        """Answer a question about what happened in this chat with what its entries say, in whose words and when; an answer
        that quotes what does not stand there is not given."""
        # Imported here: a bot may run for long before somebody asks what happened.
        from bubbot.features.explain.service import ExplainService

        service = ExplainService(read_session, open_copy)
        explanation = await service.explain(turn, args.question.strip(), args.chat.strip())
        return format_explanation(explanation, turn.texts, page)

    return [session_explain, *explaining_tools()]


def format_explanation(explanation: Explanation, texts: Texts, page: str) -> str:
    """Write an explanation for people. `page`: see `explain_feature`."""
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
