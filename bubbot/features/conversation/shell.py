"""The command `bubbot tape graph`: the graph of anchors of `,graph`, from the shell."""

from typing import Annotated, Literal

from bubbot.errors import ConfigError
from bubbot.features.conversation.graph import DEFAULT_GRAPH_ANCHORS, AnchorGraph, GraphView
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, command, read_as_of
from bubbot.ports.session_names import read_session
from bubbot.ports.tool import ToolArgs
from bubbot.records import json_data
from bubbot.texts import Texts

MAX_DRAWN_ANCHORS = 5000


def parse_positive(text: str) -> int:
    """Parse a number of anchors or an entry id. Raise `ValueError`."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**15:
        raise ValueError(f"{text!r} is not a number from 1 on")
    return int(text)


class DrawGraph(ToolArgs):
    """Which anchors, and how they are drawn."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    format: Annotated[
        Literal["text", "mermaid", "svg"] | None, Argument("default: by the name of the file, or text")
    ] = None  # fmt: skip
    output: Annotated[str | None, Argument("write it to this new file", "FILE")] = None
    last: Annotated[
        int, Argument(f"how many of the newest anchors (default: {DEFAULT_GRAPH_ANCHORS})", "N", parse_positive)
    ] = DEFAULT_GRAPH_ANCHORS  # fmt: skip
    as_of: Annotated[int | None, Argument("as the tape was when N was its newest entry", "N", parse_positive)] = None

    @property
    def chosen_format(self) -> str:
        """The format that was typed, or that of the file's name."""
        endings = {".svg": "svg", ".mmd": "mermaid", ".mermaid": "mermaid"}
        ending = next((each for each in endings if self.output and self.output.lower().endswith(each)), "")
        return self.format or endings.get(ending, "text")


@command("tape graph", example="tape graph default --output windows.svg", result=AnchorGraph)
async def graph(context: CommandContext, args: DrawGraph) -> CommandResult:
    """Draw the anchors of a tape.

    Draws the anchors of a tape, oldest first: the order of its windows, the parents that anchors name, and what windows
    recall. As text, as a Mermaid flowchart (for Markdown pages), or as an SVG picture.
    """
    if args.last > MAX_DRAWN_ANCHORS:
        raise ConfigError(f"--last {args.last}: at most {MAX_DRAWN_ANCHORS} anchors are drawn")
    async with context.open_session(args.tape, usage="drawn") as tape:
        found = await (await read_as_of(tape, args.as_of)).read(GraphView(tape.name, args.last))
    others = dict.fromkeys(link.tape for link in found.links if link.tape)
    names = {name: await read_session(context.store, name) or name for name in others}
    # Imported here: other commands about tapes share this file.
    from bubbot.features.conversation.graph_formats import format_graph, format_mermaid, format_svg

    formats = {"text": format_graph, "mermaid": format_mermaid, "svg": format_svg}
    text = formats[args.chosen_format](found, context.zone, Texts(), lambda name: names[name])
    return CommandResult(f"{text.rstrip()}\n", raw=True, file=args.output, data=json_data(found))


TAPE_COMMANDS = CommandGroup("tape", (graph,))
