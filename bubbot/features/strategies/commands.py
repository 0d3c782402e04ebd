"""The commands of context strategies: read entries by their ids, choose a strategy, ask for a summary, compare strategies."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.command import Caller, command, make_group
from bubbot.errors import CommandRefused
from bubbot.features.strategies.choice import StrategyChoice, StrategyInUse
from bubbot.features.strategies.compare import ContextComparison, StrategyComparer
from bubbot.features.strategies.reader import (
    MIN_PIECE_TOKENS,
    NeighboursView,
    QuotedEntries,
    merge_spans,
    parse_spans,
    quote_entries,
    require_spans,
)
from bubbot.features.strategies.summaries import SUMMARY_COMMAND
from bubbot.ports.channel import HUMAN_ORIGIN, Role
from bubbot.ports.session_names import parse_session
from bubbot.ports.turn import Turn
from bubbot.runtime.context.copies import FindHeads, find_no_heads
from bubbot.runtime.strategy_turns import HandoffRequest
from bubbot.shell_command import CommandContext
from bubbot.tape.handle import TapeHandle
from bubbot.tool import INSIDE, READS_OWN, READS_PEOPLE, CommandHelp, HelpTopic

READ_TOKENS = 2_000
"""Tokens that one call shows by default."""
MAX_READ_TOKENS = 5_000
"""Tokens that one call shows at most: in Chinese, Japanese and Korean still less than a result may have."""
READ_SHARE = 8
"""One call shows at most one eighth of a model's context."""
MAX_SELECTOR_CHARS = 200

FindContextSize: TypeAlias = Callable[[Turn], Awaitable[int | None]]
"""Return the tokens of the context of a turn's model; None if unknown."""
TokenLimit: TypeAlias = Annotated[int, Meta(ge=100, le=MAX_READ_TOKENS, description="how many tokens, about")]


class ReadEntriesArgs(Args, frozen=True):
    """Which entries to read, and how much of them."""

    ids: Annotated[tuple[str, ...], Meta(description="entry ids and ranges of them, such as 12 or 15-20")]
    offset: Annotated[int, Meta(ge=0, description="the character of the first entry to go on from")] = 0
    limit: TokenLimit = READ_TOKENS

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the ids as a text, a number, or a list of them."""
        if "ids" not in values:
            return values
        ids = values["ids"]
        words = [
            word
            for item in (ids if isinstance(ids, (list, tuple)) else [ids])
            for word in (item.replace(",", " ").replace("，", " ").split() if isinstance(item, str) else [item])
        ]
        return {**values, "ids": [str(word) if type(word) is int else word for word in words]}


class AroundArgs(Args, frozen=True):
    """Around which entry to read, and how much."""

    id: Annotated[str, Meta(description="the entry's id")]
    number: Annotated[int, Meta(ge=1, le=50, description="how many entries before and after it")] = 4
    limit: TokenLimit = READ_TOKENS

    @classmethod
    def normalize(cls, values: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take the id as a number, too."""
        return {**values, "id": str(values["id"])} if type(values.get("id")) is int else values


class StrategyArgs(Args, frozen=True):
    """Which strategy to choose."""

    name: Annotated[
        str,
        Meta(description="the strategy to choose, or `default` for the configured one", max_length=MAX_SELECTOR_CHARS),
    ] = ""


class CompareArgs(Args, frozen=True):
    """Which chat."""

    chat: Annotated[
        str,
        Meta(description="a session such as telegram:42, or the name of a tape (default: stdin:default)"),
    ] = ""


class ReadingCommands:
    """Open entries of a chat's tape by their ids."""

    def __init__(self, find_size: FindContextSize, find_heads: FindHeads = find_no_heads) -> None:
        self._find_size = find_size
        self._find_heads = find_heads

    @command(
        "tape read",
        chat=("tape.read", "read"),
        in_shell=False,
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(HelpTopic.HISTORY, "Read what was said, by its numbers", (",read 12", ",read 12,15-20")),
    )
    async def read(self, caller: Caller, args: ReadEntriesArgs) -> QuotedEntries:
        """Open entries of this chat by their ids, word for word: what a summary, a search hit or evidence cites (#7)."""
        return await quote_entries(
            caller.required_turn,
            parse_spans(args.ids),
            await self._limit(caller.required_turn, args.limit),
            args.offset,
            find_heads=self._find_heads,
        )

    @command(
        "tape around",
        chat=("tape.around", "around"),
        in_shell=False,
        effect=READS_PEOPLE,
        for_model=True,
        help=CommandHelp(
            HelpTopic.HISTORY, "Read what was said around an entry", (",around 12", ",around 12 number=8")
        ),
    )
    async def around(self, caller: Caller, args: AroundArgs) -> QuotedEntries:
        """Open an entry of this chat with what was said and done just before and after it."""
        turn, spans = caller.required_turn, parse_spans((args.id,))
        entry = spans[0][0]
        if len(spans) > 1 or spans[0][1] != entry:
            raise CommandRefused("read_one_id", ids=args.id)
        require_spans(spans, await turn.tape.head())
        ids = await turn.tape.read(NeighboursView(entry, args.number))
        limit = await self._limit(turn, args.limit)
        return await quote_entries(turn, merge_spans(ids, ()), limit, find_heads=self._find_heads)

    async def _limit(self, turn: Turn, wanted: int) -> int:
        size = None if turn.runs_command else await self._find_size(turn)
        return wanted if size is None else max(min(wanted, size // READ_SHARE), 2 * MIN_PIECE_TOKENS)


class StrategyCommands:
    """Choose how a chat's window is shown, and begin a new one with a summary."""

    def __init__(self, choice: StrategyChoice) -> None:
        self._choice = choice

    @command(
        "session strategy",
        chat=("session.strategy", "strategy"),
        in_shell=False,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.SETTINGS, "See or choose what I read back", (",strategy", ",strategy window")),
    )
    async def strategy(self, caller: Caller, args: StrategyArgs) -> StrategyInUse:
        """Say which context strategy this chat uses, or choose another one for it."""
        name = args.name.strip()
        if not name:
            return await self._choice.describe(caller.required_turn)
        if not caller.is_direct and not caller.role.at_least(Role.ADMIN):
            raise CommandRefused("strategy_for_admin", role=caller.role)
        return await self._choice.choose(caller.required_turn, name)

    @command(
        "session summary",
        chat=("session.summary", "summary"),
        in_shell=False,
        effect=INSIDE,
        help=CommandHelp(HelpTopic.TALK, "Go on from a summary", (SUMMARY_COMMAND,)),
    )
    async def summary(self, caller: Caller) -> HandoffRequest:
        """Let the model summarise this window, and go on in a new one that begins with the summary."""
        request = HandoffRequest("human" if caller.required_turn.origin == HUMAN_ORIGIN else "agent")
        caller.required_turn.metadata[HandoffRequest] = request
        return request


class ContextCommands:
    """Look at the context that models are shown."""

    def __init__(self, comparer: StrategyComparer) -> None:
        self._comparer = comparer

    @command(
        "context compare [chat]",
        chat=("context.compare", "context.compare"),
        example="telegram:42",
        effect=READS_OWN,
        help=CommandHelp(HelpTopic.HISTORY, "What each strategy would send", (",context.compare",)),
    )
    async def compare(self, caller: Caller, args: CompareArgs) -> ContextComparison:
        """Show what each context strategy would send with the next message of a chat: tokens, cost, and how many entries of
        the window it shows and leaves out. No model is asked, and nothing is written; works while the bot runs."""
        async with _open_chat(caller, args.chat.strip()) as tape:
            return await self._comparer.compare(tape)


@asynccontextmanager
async def _open_chat(caller: Caller, chat: str) -> AsyncIterator[TapeHandle]:
    """Open the tape of a chat; in a chat it can only be that one."""
    if caller.context is not None:
        async with caller.context.open_session(chat or None, usage="compared") as tape:
            yield tape
        return
    if chat and parse_session(chat) != caller.required_turn.session:
        raise CommandRefused("compare_elsewhere")
    yield caller.required_turn.tape


async def _open_commands(context: CommandContext) -> ContextCommands:
    return ContextCommands(context.settings)


COMMANDS = make_group(
    "context",
    ContextCommands,
    _open_commands,
    "Look at the context that models are shown. Read-only; works while the bot runs.",
    section="Look",
    help_line="compare what each context strategy sends",
    compare={"help": "show what each context strategy would send", "is_answered_without_home": False},
)
