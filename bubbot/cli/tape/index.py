"""`bubbot tape index`: how far the search index goes, and making it anew."""

from __future__ import annotations

import argparse
from dataclasses import dataclass

from bubbot.cli.output import show
from bubbot.cli.setup import CommandSetup
from bubbot.cli.write_command import CommandContext, CommandResult, perform
from bubbot.stores.sqlite.indexer import Indexer
from bubbot.tape.index import IndexState
from bubbot.wiring.app import open_tapes

EXIT_OK, EXIT_INDEX_BEHIND = 0, 1


@dataclass(frozen=True, slots=True)
class RebuildIndex:
    """Make the index anew."""


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Adds the subcommand."""
    index = commands.add_parser(
        "index",
        help="how far the search index goes, or make it anew",
        description="Says how far the search index goes. It is derived from the tapes, and filled while the bot runs; "
        "what it does not cover is read when somebody searches. The exit code is 1 where there is none, or not one of "
        "these tapes.",
        epilog="example: bubbot tape index --rebuild",
    )
    index.add_argument("--rebuild", action="store_true", help="delete it and make it anew")


async def index(made: CommandSetup, args: argparse.Namespace) -> int:
    """Shows or makes it."""
    if args.rebuild:
        return await perform(made, "tape index", RebuildIndex())
    async with open_tapes(made.home) as (store, _):
        found = await store.index_state()
    show(shown(found))
    return EXIT_OK if found is not None and found.fresh else EXIT_INDEX_BEHIND


async def make(desk: CommandContext, _given: RebuildIndex) -> CommandResult:
    """Deletes the index. A running bot fills the new one by and by; otherwise it is filled here."""
    if not desk.settings.search.index:
        return CommandResult("[search] index is false: there is none, and searches read the tape.\n", EXIT_INDEX_BEHIND)
    await desk.store.forget_index()
    if desk.store.keeper is not None:
        return CommandResult("The search index is being made anew; searches read the tapes meanwhile.\n")
    filler = Indexer(desk.store)
    try:
        await filler.fill()
    finally:
        await filler.aclose()
    return CommandResult(f"{shown(await desk.store.index_state())}\n")


def shown(found: IndexState | None) -> str:
    """The state in a line."""
    if found is None:
        return "There is no search index yet; searches read the tapes. It is filled while the bot runs."
    size = f"{found.bytes / 1e6:.1f} MB for {found.texts / 1e6:.1f} MB of text"
    if not found.fresh:
        return f"The search index is not one of these tapes as they are now, and is not used ({size})."
    behind = "" if found.behind == 0 else f", {found.behind} not yet"
    return f"{found.position} entries are indexed{behind}; {size}."
