"""The tape of a conversation: its size, anchors and graph, new windows, and results that were too long to show.

People and models ask in a chat; from a shell, `bubbot tape` reads the anchors of any tape.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from msgspec import Meta, Struct
from msgspec.structs import astuple

from bubbot.arguments.fields import ONE_A_LINE, Args
from bubbot.command import Caller, command, make_group, make_tools
from bubbot.errors import CommandFailed, CommandRefused, ConfigError, EntryNotFound
from bubbot.features.conversation.anchors import AnchorList, AnchorsView
from bubbot.features.conversation.graph import DEFAULT_GRAPH_ANCHORS, AnchorGraph, GraphView
from bubbot.features.conversation.info import InfoView, TapeInfo
from bubbot.ports.agents import ORIGIN_PREFIX
from bubbot.ports.channel import Role
from bubbot.ports.session_names import find_tape, read_session
from bubbot.ports.turn import Turn
from bubbot.runtime.calls import MAX_RESULT_PAGE_CHARS
from bubbot.shell_command import Argument, read_as_of
from bubbot.tape.entry import Kind
from bubbot.tool import INSIDE, READS_PEOPLE, READS_STORED, CommandHelp, HelpTopic, Tool

MAX_CHAT_ANCHORS = 30
"""Anchors that `,graph` draws by default."""
MAX_DRAWN_ANCHORS = 5000
GraphFormat: TypeAlias = Literal["text", "mermaid", "svg"]


def parse_positive(text: str) -> int:
    """Parse a number of anchors or an entry id. Raise `ValueError`."""
    if not text.isdecimal() or not 1 <= int(text) <= 10**15:
        raise ValueError(f"{text!r} is not a number from 1 on")
    return int(text)


class AnchorsArgs(Args, frozen=True):
    """Which anchors of a chat."""

    zones: Annotated[bool, Meta(description="also the markers of the memory zone")] = False


class TapeAnchorsArgs(Args, frozen=True):
    """Which anchors, and of which tape."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    zones: Annotated[bool, Argument("the markers of memory zones too")] = False


class GraphArgs(Args, frozen=True):
    """How many anchors of a chat."""

    last: Annotated[int, Meta(description="how many of the newest anchors", ge=1, le=500)] = MAX_CHAT_ANCHORS


class TapeGraphArgs(Args, frozen=True):
    """Which anchors of which tape, and how they are drawn."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    format: Annotated[
        GraphFormat | None, Argument("default: by the name of the file, or text")
    ] = None  # fmt: skip
    output: Annotated[str | None, Argument("write it to this new file", "FILE")] = None
    last: Annotated[
        int, Argument(f"how many of the newest anchors (default: {DEFAULT_GRAPH_ANCHORS})", "N", parse_positive)
    ] = DEFAULT_GRAPH_ANCHORS  # fmt: skip
    as_of: Annotated[int | None, Argument("as the tape was when N was its newest entry", "N", parse_positive)] = None

    @property
    def chosen_format(self) -> GraphFormat:
        """The format that was typed, or that of the file's name."""
        if self.format is not None:
            return self.format
        name = (self.output or "").lower()
        return "svg" if name.endswith(".svg") else "mermaid" if name.endswith((".mmd", ".mermaid")) else "text"


class HandoffArgs(Args, frozen=True):
    """The least state that the next phase needs."""

    name: Annotated[str, Meta(description="the new anchor's name, such as phase/design")]
    summary: Annotated[str, Meta(description="what the next phase has to know")] = ""
    next_steps: Annotated[tuple[str, ...], ONE_A_LINE] = ()
    phase: str = ""
    source_ids: Annotated[tuple[int, ...], Meta(description="ids of the entries the summary rests on")] = ()
    parents: Annotated[tuple[int, ...], Meta(description="ids of the anchors that this one continues")] = ()


class ReadResultArgs(Args, frozen=True):
    """A page of a result."""

    handle: Annotated[str, Meta(description="the handle that the cut result or the file named")]
    offset: Annotated[int, Meta(description="the character to go on from", ge=0)] = 0
    limit: Annotated[int, Meta(description="how many characters", ge=1, le=MAX_RESULT_PAGE_CHARS)] = (
        MAX_RESULT_PAGE_CHARS
    )


class DrawnGraph(AnchorGraph, frozen=True, kw_only=True):
    """A graph, and how it is drawn.

    Attributes:
        names: what people call other tapes, by the names of the tapes; None in a chat, which learns of others only that they
            are linked.
        format: as text, as a Mermaid flowchart or as an SVG picture.
        file: the new file that it is written to; None: standard output.
    """

    is_text: ClassVar = True
    is_raw: ClassVar = True
    names: Mapping[str, str] | None = None
    format: GraphFormat = "text"
    file: str | None = None

    def describe(self, caller: Caller) -> str:
        """Draw it; in English for a shell."""
        # Imported here: few chats draw, and `bubbot status` loads this module.
        from bubbot.features.conversation.graph_formats import format_graph, format_mermaid, format_svg

        names = self.names
        if names is None:
            texts = caller.result_texts
            return format_graph(self, caller.required_turn.zone, texts, lambda _: texts.say("graph_other_chat"))
        assert caller.context is not None
        draw = {"text": format_graph, "mermaid": format_mermaid, "svg": format_svg}[self.format]
        return draw(self, caller.context.zone, caller.texts.english, lambda name: names[name]).rstrip()


class HandoffPlanned(Struct, frozen=True):
    """A window that opens once the calls of the step have their results.

    Attributes:
        name: of its anchor.
    """

    name: str


class ResultPage(Struct, frozen=True):
    """A page of a result or of a text file.

    Attributes:
        text: its characters.
        end: the character after it.
        left: how many characters follow.
        limit: how many characters were asked for.
    """

    text: str
    end: int
    left: int
    limit: int

    def describe(self, caller: Caller) -> str:
        """Write the page, and how to read on."""
        texts = caller.result_texts
        size = f", limit={self.limit}" if self.limit < MAX_RESULT_PAGE_CHARS else ""
        tail = texts.say("result_end")
        if self.left > 0:
            tail = texts.say("result_rest", number=self.left, offset=self.end, limit=size)
        return f"{self.text}\n{tail}"


class TapeCommands:
    """The commands, for the turns of a bot and for a shell."""

    def __init__(self, reserved_names: Sequence[str] = ()) -> None:
        """Build them.

        Args:
            reserved_names: what the name of a handoff may not begin with, as a feature writes such anchors.
        """
        self._reserved_names = tuple(reserved_names)

    @command(
        "tape info",
        chat=("tape.info",),
        in_shell=False,
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(HelpTopic.HISTORY, "The size of this chat", (",tape.info",)),
    )
    async def info(self, caller: Caller) -> TapeInfo:
        """Show how many entries the tape of this chat has, where its window opened and what the last model call used."""
        return await caller.required_turn.tape.read(InfoView())

    @command(
        "tape anchors <tape>",
        chat=("tape.anchors", "anchors"),
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(HelpTopic.HISTORY, "Where earlier windows begin", (",anchors", ",anchors zones=yes")),
    )
    async def anchors(self, caller: Caller, args: AnchorsArgs | TapeAnchorsArgs) -> AnchorList:
        """List the anchors of this chat's tape, newest first: where windows opened and what was handed over."""
        view = AnchorsView(zones=args.zones)
        if caller.context is None:
            tape = caller.required_turn.tape
            return AnchorList(tape.name, await tape.read(view))
        assert isinstance(args, TapeAnchorsArgs)
        context = caller.context
        name = await find_tape(context.store, context.workspace, args.tape)  # those of the system have anchors, too
        return AnchorList(name, await context.open_tape(name).read(view))

    @command(
        "tape graph <tape>",
        chat=("tape.graph", "graph"),
        example="default --output windows.svg",
        effect=READS_PEOPLE,
        help=CommandHelp(HelpTopic.HISTORY, "How the windows of this chat are linked", (",graph", ",graph last=100")),
    )
    async def graph(self, caller: Caller, args: GraphArgs | TapeGraphArgs) -> AnchorGraph:
        """Draw the anchors of this chat, oldest first: the order of its windows, their parents, and what they recall."""
        if isinstance(args, GraphArgs):
            tape = caller.required_turn.tape
            return DrawnGraph(*astuple(await tape.read(GraphView(tape.name, args.last))))
        if args.last > MAX_DRAWN_ANCHORS:
            raise ConfigError(f"--last {args.last}: at most {MAX_DRAWN_ANCHORS} anchors are drawn")
        context = caller.context
        assert context is not None
        async with context.open_session(args.tape, usage="drawn") as whole:
            found = await (await read_as_of(whole, args.as_of)).read(GraphView(whole.name, args.last))
        others = dict.fromkeys(link.tape for link in found.links if link.tape)
        names = {name: await read_session(context.store, name) or name for name in others}
        return DrawnGraph(*astuple(found), names=names, format=args.chosen_format, file=args.output)

    @command(
        "tape handoff",
        chat=("tape.handoff", "handoff"),
        in_shell=False,
        form="<name> [summary]",
        effect=INSIDE,
        for_model=True,
        help=CommandHelp(
            HelpTopic.TALK,
            "Go on in a new window with a summary",
            (
                ",handoff plan-done",
                ',handoff name=trip summary="Hotel booked, flights open."',
                ",handoff name=trip-done parents=12,41",
            ),
        ),
    )
    async def handoff(self, caller: Caller, args: HandoffArgs) -> HandoffPlanned:
        """Open a new window that begins with the state given here. What came before stays on the tape, out of view."""
        turn, name = caller.required_turn, args.name.strip()
        if turn.runs_command and not caller.is_direct and not turn.role.at_least(Role.ADMIN):
            raise CommandRefused("handoff_only_admins")
        if not name:
            raise CommandRefused("handoff_unnamed")
        if name.startswith("memory/"):
            raise CommandRefused("handoff_memory", name=name)
        if name.startswith(self._reserved_names):
            raise CommandRefused("handoff_reserved", name=name)
        last = await turn.tape.head()
        for entry in args.source_ids:
            if not 1 <= entry <= last:
                raise CommandRefused("handoff_no_source", entry=entry, last=last)
        for entry in args.parents:
            if not 1 <= entry <= last or (await turn.tape.entry(entry)).kind != Kind.ANCHOR:
                raise CommandRefused("handoff_no_parent", entry=entry)
        fields: dict[str, Any] = {
            "phase": args.phase,
            "summary": args.summary,
            "next_steps": list(args.next_steps),
            "source_ids": list(args.source_ids),
            "parents": list(args.parents),
        }
        state = {key: value for key, value in fields.items() if value} | {"owner": _owner(turn)}
        turn.handoff_after_results(name, state)
        return HandoffPlanned(name)

    @command(
        "tape result",
        chat=("result.read",),
        in_shell=False,
        effect=READS_STORED,
        for_model=True,
        help=CommandHelp(
            HelpTopic.HISTORY,
            "Read on in a result that was cut",
            tuple(f",result.read {'3f' * 32}{more}" for more in ("", " offset=8000")),
        ),
    )
    async def read_result(self, caller: Caller, args: ReadResultArgs) -> ResultPage:
        """Read on in a result or an attached text file that was cut because it was too long."""
        try:
            text = (await caller.required_turn.tape.get_blob(args.handle)).decode("utf-8-sig")
        except EntryNotFound:
            raise CommandRefused("result_unknown", handle=args.handle) from None
        except UnicodeDecodeError:
            raise CommandFailed("result_not_text") from None
        end = args.offset + args.limit
        return ResultPage(text[args.offset : end], end, len(text) - end, args.limit)


def _owner(turn: Turn) -> str:
    """Return a handoff's owner: `human` for a typed command, `agent` for a call of the model, or an agent's name."""
    if turn.origin.startswith(ORIGIN_PREFIX):
        return turn.origin.removeprefix(ORIGIN_PREFIX)
    if turn.agent.name and not turn.runs_command:
        return turn.agent.name
    return "human" if turn.origin == "human" and turn.runs_command else "agent"


def tape_tools(reserved_names: Sequence[str] = ()) -> list[Tool]:
    """Make the tools of chats and models. `reserved_names`: see `TapeCommands`."""
    commands, is_rare = TapeCommands(reserved_names), {"is_rare": True}
    return make_tools(TapeCommands, lambda: commands, tape_info=is_rare, tape_anchors=is_rare, tape_handoff=is_rare)


_OPTIONS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        "anchors": {"help": "the anchors of a tape, newest first", "is_answered_without_home": False},
        "graph": {
            "help": "draw the anchors of a tape",
            "description": "Draws the anchors of a tape, oldest first: the order of its windows, the parents that anchors name, "
            "and what windows recall. As text, as a Mermaid flowchart (for Markdown pages), or as an SVG picture.",
            "is_answered_without_home": False,
        },
    }
)
"""What only a shell has: the words for chats and models speak of one chat."""
COMMANDS = make_group("tape", TapeCommands, None, "", (), help_line="", section="Change", **_OPTIONS)
