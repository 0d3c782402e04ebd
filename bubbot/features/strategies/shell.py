"""The command `bubbot context`: what each context strategy would send. Its settings are `CompareDeps`."""

from typing import Annotated, ClassVar

from bubbot.features.strategies.compare import CompareDeps, ComparedStrategy, ContextComparison, compare_strategies
from bubbot.log import printable
from bubbot.ports.channel import Role
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, command
from bubbot.ports.text import format_table
from bubbot.ports.tool import READS_OWN, CommandHelp, HelpTopic, ToolArgs
from bubbot.records import json_data
from bubbot.texts import Texts


class CompareArgs(ToolArgs):
    """Which chat."""

    chat: Annotated[str, Argument("a session such as telegram:42, or the name of a tape (default: stdin:default)")] = ""
    positional: ClassVar[tuple[str, ...]] = ("chat",)


@command(
    "context compare",
    example="context compare telegram:42",
    result=ContextComparison,
    typed=("context.compare",),
    typed_help=CommandHelp(HelpTopic.HISTORY, "What each strategy would send", (",context.compare",)),
    role=Role.MEMBER,
    effect=READS_OWN,
)
async def compare(context: CommandContext, args: CompareArgs) -> CommandResult:
    """Show what each context strategy would send.

    Shows what each context strategy would send with the next message of a chat: tokens, cost, and how many entries of
    the window it shows and leaves out. No model is asked, and nothing is written; works while the bot runs.
    """
    deps: CompareDeps = context.settings
    async with context.open_session(args.chat.strip() or None, usage="compared") as tape:
        found = await compare_strategies(tape, deps)
    texts = context.turn.texts if context.turn is not None else Texts()
    text = format_comparison(found, texts, context.terminal_width)
    return CommandResult(printable(text, keep="\n") + "\n", data=json_data(found))


def format_comparison(found: ContextComparison, texts: Texts, columns: int = 0) -> str:
    """Write the comparison as a table, with lines about it. `columns`: the width of the terminal; 0 for no limit."""
    usable = [item for item in found.strategies if not item.problem]
    header = [
        texts.say("compare_strategy"),
        texts.say("compare_tokens"),
        texts.say("compare_cost"),
        texts.say("compare_shown"),
        texts.say("compare_left_out"),
        texts.say("compare_shortened"),
    ]
    lines = [texts.say("compare_head", step=found.step, model=found.model, fixed=found.fixed_tokens)]
    rows = [_row(item, texts) for item in usable]
    lines += format_table(rows, columns=columns, right=range(1, len(header)), header=header)
    lines += [
        texts.say("compare_problem", selector=item.selector, problem=item.problem)
        for item in found.strategies
        if item.problem
    ]
    has_cut = any(item.is_cut for item in usable)
    return "\n".join([*lines, texts.say("compare_foot"), *([texts.say("compare_cut")] if has_cut else [])])


def _row(item: ComparedStrategy, texts: Texts) -> tuple[str, ...]:
    cost = texts.say("compare_unknown") if item.cost is None else f"{item.cost:.6f}"
    name = item.selector if len(item.selector) <= 28 else f"{item.selector[:27]}…"
    return (
        f"{name}*" if item.is_cut else name,
        str(item.tokens),
        cost,
        str(item.shown),
        str(item.left_out),
        str(item.shortened),
    )


CONTEXT_COMMANDS = CommandGroup(
    "context",
    (compare,),
    "Look at the context that models are shown. Read-only; works while the bot runs.",
    "compare what each context strategy sends",
)
