"""The command `bubbot tape search`: the search of the tool `tape.search`, from the shell."""

from datetime import UTC
from typing import Annotated, ClassVar

from bubbot.errors import ConfigError
from bubbot.features.search.tools import format_hit, format_remarks
from bubbot.features.search.view import SearchResult, SearchView
from bubbot.ports.command import Argument, CommandContext, CommandGroup, CommandResult, command
from bubbot.ports.tool import ToolArgs
from bubbot.records import json_data
from bubbot.tape.entry import Kind
from bubbot.tape.query import date_bounds
from bubbot.texts import Texts

EXIT_OK, EXIT_NO_MATCH = 0, 1


def parse_limit(text: str) -> int:
    """Parse the number of hits. Raise `ValueError`."""
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise ValueError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


class FindWords(ToolArgs):
    """What to find, and where."""

    tape: Annotated[str, Argument("a session such as stdin:default, or the name of a tape or archive")]
    words: Annotated[str, Argument("what to look for", rest=True)]
    kinds: Annotated[str, Argument("only these kinds, separated by commas")] = ""
    since: Annotated[str | None, Argument("from this date or time on, in UTC; a date is its whole day")] = None
    until: Annotated[str | None, Argument("up to this date or time")] = None
    limit: Annotated[int, Argument("how many hits at most (default: 20)", "N", parse_limit)] = 20
    positional: ClassVar[tuple[str, ...]] = ("tape", "words")


@command("tape search", example="tape search default green tea --since 2026-11-01", result=SearchResult)
async def search(context: CommandContext, args: FindWords) -> CommandResult:
    """Find words on a whole tape, spelling mistakes allowed.

    Finds words anywhere on a tape: exactly in any script, then with spelling mistakes; newest first. The exit code is 1
    if nothing is found.
    """
    kinds = tuple(kind.strip() for kind in args.kinds.split(",") if kind.strip())
    if unknown := [kind for kind in kinds if kind not in list(Kind)]:
        raise ConfigError(f"--kinds {unknown[0]!r} is not a kind: use one of {', '.join(Kind)}")
    query = args.words.strip()
    if not query:
        raise ConfigError("there is nothing to look for; give words, such as bubbot tape search default tea")
    try:
        since, until = date_bounds(args.since, args.until)
    except ValueError as error:
        raise ConfigError(f"{error}") from error
    async with context.open_session(args.tape, usage="searched") as tape:
        result = await tape.read(SearchView(query, kinds=kinds, since=since, until=until, limit=args.limit))
    texts = Texts()
    lines = [
        " ".join(line.splitlines())
        for line in [*(format_hit(hit, UTC, texts) for hit in result.hits), *format_remarks(result, texts)]
    ]
    if not result.hits:
        lines.append(f'Nothing found for "{query}".')
    return CommandResult(
        "".join(f"{line}\n" for line in lines), EXIT_OK if result.hits else EXIT_NO_MATCH, data=json_data(result)
    )


TAPE_COMMANDS = CommandGroup("tape", (search,))
