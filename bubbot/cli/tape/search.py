"""`bubbot tape search`: the search of the tool `tape.search`, from the shell."""

from __future__ import annotations

import argparse
from datetime import UTC

from bubbot.app.bot import open_tapes
from bubbot.cli.output import show, show_line
from bubbot.cli.session_names import find_tape, require_user_tape, tape_service
from bubbot.cli.setup import CommandSetup
from bubbot.errors import ConfigError
from bubbot.features.search.tools import format_hit, format_remarks
from bubbot.features.search.view import SearchView
from bubbot.tape.entry import Kind
from bubbot.tape.query import date_bounds

EXIT_OK, EXIT_NO_MATCH = 0, 1


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    search = commands.add_parser(
        "search",
        help="find words on a whole tape, spelling mistakes allowed",
        description="Finds words anywhere on a tape: exactly in any script, then with spelling mistakes; newest first. "
        "The exit code is 1 if nothing is found.",
        epilog="example: bubbot tape search default green tea --since 2026-11-01",
    )
    search.add_argument("tape", help="a session such as stdin:default, or the name of a tape or archive")
    search.add_argument("words", nargs="+", help="what to look for")
    search.add_argument("--kinds", default="", help="only these kinds, separated by commas")
    search.add_argument("--since", help="from this date or time on, in UTC; a date is its whole day")
    search.add_argument("--until", help="up to this date or time")
    search.add_argument("--limit", type=_limit, default=20, metavar="N", help="how many hits at most (default: 20)")


def _limit(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 1000:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to 1000")
    return int(text)


async def search(setup: CommandSetup, args: argparse.Namespace) -> int:
    """Print the hits, one on a line; return 1 if there are none."""
    kinds = tuple(kind.strip() for kind in args.kinds.split(",") if kind.strip())
    if unknown := [kind for kind in kinds if kind not in list(Kind)]:
        raise ConfigError(f"--kinds {unknown[0]!r} is not a kind: use one of {', '.join(Kind)}")
    query = " ".join(args.words).strip()
    if not query:
        raise ConfigError("there is nothing to look for; give words, such as bubbot tape search default tea")
    try:
        since, until = date_bounds(args.since, args.until)
    except ValueError as error:
        raise ConfigError(f"{error}") from error
    async with open_tapes(setup.home, setup.settings.store) as (store, workspace):
        name = await find_tape(store, workspace, args.tape)
        require_user_tape(name, "searched")
        view = SearchView(query, kinds=kinds, since=since, until=until, limit=args.limit)
        result = await tape_service(store, name).read(view)
    for hit in result.hits:
        show_line(format_hit(hit, UTC))
    for line in format_remarks(result):
        show_line(line)
    if not result.hits:
        show(f'Nothing found for "{query}".')
    return EXIT_OK if result.hits else EXIT_NO_MATCH
