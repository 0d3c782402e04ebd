"""The command `bubbot why`: the explanation of `,why`, from the shell."""

from typing import Annotated, ClassVar

from bubbot.errors import EntryNotFound
from bubbot.features.why.foreign import ForeignEntry, read_foreign
from bubbot.features.why.formats import find_checks, format_explanation
from bubbot.features.why.lineage import Lineage, read_step_lineage
from bubbot.features.why.view import find_explained
from bubbot.log import printable
from bubbot.ports.command import DEFAULT_SESSION, Argument, CommandContext, CommandGroup, CommandResult, command
from bubbot.ports.tool import ToolArgs
from bubbot.records import dataclass, json_data
from bubbot.tape.entry import text_field
from bubbot.texts import Texts

EXIT_NO_ANSWER = 1


class ExplainAnswer(ToolArgs):
    """Which answer."""

    session: Annotated[str, Argument(f"a session such as telegram:42 (default: {DEFAULT_SESSION})")] = DEFAULT_SESSION
    trace: Annotated[str, Argument("the turn whose id begins so, which failure messages show (default: the last)")] = ""
    positional: ClassVar[tuple[str, ...]] = ("session", "trace")


@dataclass(frozen=True, slots=True)
class StepLine:
    """A step of a turn.

    Attributes:
        entry: its entry.
        status: how it ended.
        model: the model that was asked.
        shown: the ranges of entries that the model was shown, each as its first and last id.
        request: the digest of the request.
    """

    entry: int
    status: str
    model: str
    shown: tuple[tuple[int, ...], ...]
    request: str


@dataclass(frozen=True, slots=True)
class ToolRun:
    """A tool that ran.

    Attributes:
        entry: the entry of its call.
        name: its name.
    """

    entry: int
    name: str


@dataclass(frozen=True, slots=True)
class CallCheck:
    """Whether a call ran, and what that rests on.

    Attributes:
        entry: the fact.
        tool: the tool.
        verdict: run, confirm, ask or refuse.
        effect: what the call does, as its tool declares it.
        role: of the person for whom the turn ran.
        place: direct, group, job or subtask.
        tainted_by: the entries that made the turn tainted for it.
        grant: the number of the grant under which it ran; 0 for what a job was allowed, None without one.
        approval: the card that asked for it, or that allowed it; None without one.
    """

    entry: int
    tool: str
    verdict: str
    effect: str
    role: str
    place: str
    tainted_by: tuple[int, ...] = ()
    grant: int | None = None
    approval: str | None = None


@dataclass(frozen=True, slots=True)
class WhyResult:
    """The explanation of an answer.

    Attributes:
        session: the session, as it was named.
        turn: the id of the turn; empty if no model has answered there.
        status: how the turn ended.
        first: its first entry.
        last: its last entry.
        answer: the entry of the answer; None without one.
        steps: its steps, in order.
        tools: the tools that ran, in order.
        calls: the calls that needed more than a look at what their tools declare, in order.
        lineage: where the window of the last step comes from; None if there was none.
        foreign: the entries that made its words foreign, the most foreign first.
    """

    session: str
    turn: str = ""
    status: str = ""
    first: int = 0
    last: int = 0
    answer: int | None = None
    steps: tuple[StepLine, ...] = ()
    tools: tuple[ToolRun, ...] = ()
    calls: tuple[CallCheck, ...] = ()
    lineage: Lineage | None = None
    foreign: tuple[ForeignEntry, ...] = ()


@command("why", example="why telegram:42", result=WhyResult)
async def explain(context: CommandContext, args: ExplainAnswer) -> CommandResult:
    """Explain the last answer of a session."""
    texts = Texts()
    async with context.open_session(args.session, usage="explained") as tape:
        found = await find_explained(tape, args.trace)
        lineage = None if found is None else await read_step_lineage(tape, found)
        foreign = () if found is None else await read_foreign(tape, found)
    if found is None:
        if args.trace:
            raise EntryNotFound(texts.say("why_unknown", trace=args.trace))
        return CommandResult(f"{texts.say('why_none')}\n", EXIT_NO_ANSWER, data=json_data(WhyResult(args.session)))
    data = WhyResult(
        args.session,
        found.id,
        found.status,
        found.entries[0].id,
        found.entries[-1].id,
        found.answer.id if found.answer else None,
        tuple(
            StepLine(
                step.id,
                step.status,
                text_field(step.data, "model"),
                step.shown,
                text_field(step.data, "request"),
            )
            for step in found.steps
        ),
        tuple(ToolRun(entry_id, call.name) for entry_id, call in found.calls),
        tuple(
            CallCheck(
                check.id,
                check.data["tool"],
                check.data["verdict"],
                check.data["effect"],
                check.data["role"],
                check.data["place"],
                tuple(entry for _, entry in check.data["tainted_by"]),
                check.data.get("grant"),
                check.data.get("approval"),
            )
            for check in find_checks(found)
        ),
        lineage,
        foreign,
    )
    text = format_explanation(found, texts, lineage, foreign, with_hint=False)
    return CommandResult(printable(text, keep="\n") + "\n", data=json_data(data))


WHY_COMMANDS = CommandGroup(
    "why",
    (explain,),
    "Explain the last answer of a session without asking a model: the entries that the model was shown, the window and "
    "where it comes from, tools, tokens and time. Read-only; works while the bot runs.",
    "explain the last answer of a session",
)
