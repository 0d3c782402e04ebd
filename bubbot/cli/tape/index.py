"""`bubbot tape index`: shows the state of the search index, and rebuilds it."""

from __future__ import annotations

import argparse

from bubbot.app.settings import has_search_index
from bubbot.app.tapes import open_tapes
from bubbot.cli.arguments import add_json_option
from bubbot.cli.commands import run_command
from bubbot.cli.output import show_either
from bubbot.cli.setup import CommandSetup
from bubbot.cli.tape.results import IndexResult
from bubbot.ports.command import Command, CommandContext, CommandResult
from bubbot.ports.store import CountsEntries, IndexState, require_index
from bubbot.ports.text import format_bytes
from bubbot.ports.tool import NoArgs
from bubbot.records import json_data

EXIT_OK, EXIT_INDEX_BEHIND = 0, 1


def configure(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    index = commands.add_parser(
        "index",
        help="show how far the search index goes, or rebuild it",
        description="Show how far the search index goes. The index is derived from the tapes and filled while the bot runs; "
        "searches read the rest directly. The exit code is 1 if there is no index, or it belongs to other tapes.",
        epilog="example: bubbot tape index --rebuild",
    )
    index.add_argument("--rebuild", action="store_true", help="delete it and build it again")
    add_json_option(index)


async def index(setup: CommandSetup, args: argparse.Namespace) -> int:
    """Show the state of the index, or rebuild it."""
    if args.rebuild:
        return await run_command(setup, REBUILD_INDEX, NoArgs())
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        state = await require_index(store).index_state()
    show_either(args, describe_state(state), _result(state))
    return EXIT_OK if state is not None and state.fresh else EXIT_INDEX_BEHIND


async def rebuild(context: CommandContext, _arguments: NoArgs) -> CommandResult:
    """Delete the index and fill a new one: here, or gradually in the running bot."""
    if not has_search_index(context.settings):
        text = "[search] index is false: there is none, and searches read the tape.\n"
        return CommandResult(text, EXIT_INDEX_BEHIND, data=json_data(_result(None)))
    store = require_index(context.store)
    await store.forget_index()
    if store.is_indexing:
        data = json_data(_result(None, rebuilding=True))
        return CommandResult("The search index is being rebuilt; searches read the tapes meanwhile.\n", data=data)
    indexer = store.build_indexer()
    try:
        total = await context.store.count_entries() if isinstance(context.store, CountsEntries) else 0
        await indexer.fill(context.on_progress, total)
    finally:
        await indexer.aclose()
    state = await store.index_state()
    return CommandResult(f"{describe_state(state)}\n", data=json_data(_result(state)))


def _result(state: IndexState | None, *, rebuilding: bool = False) -> IndexResult:
    return IndexResult(state is not None and state.fresh, rebuilding, state)


def describe_state(state: IndexState | None) -> str:
    """Describe the state in a line."""
    if state is None:
        return "There is no search index yet; searches read the tapes. It is filled while the bot runs."
    size = f"{format_bytes(state.bytes)} for {format_bytes(state.texts)} of text"
    if not state.fresh:
        return f"The search index is not one of these tapes as they are now, and is not used ({size})."
    behind = "" if state.behind == 0 else f", {state.behind} not yet"
    return f"{state.entries} entries are indexed{behind}; {size}."


REBUILD_INDEX = Command(
    name="tape index", run=rebuild, writes=True, result=IndexResult, progress=("Indexing the tapes", "entries")
)
