"""`bubbot tape index`: shows the state of the search index, and rebuilds it."""

from __future__ import annotations

import asyncio
from typing import Annotated

from bubbot.app.tapes import open_tapes
from bubbot.cli.commands import run_command
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show_either
from bubbot.cli.setup import CommandSetup, load_setup
from bubbot.cli.tape.results import IndexResult
from bubbot.ports.arguments import Args
from bubbot.ports.command import Argument, Command, CommandContext, CommandResult
from bubbot.ports.store import CountsEntries, IndexState, require_index
from bubbot.ports.text import format_bytes
from bubbot.ports.tool import NoArgs
from bubbot.records import json_data

EXIT_OK, EXIT_INDEX_BEHIND = 0, 1


class IndexTapesArgs(Args, frozen=True):
    """The arguments of `bubbot tape index`."""

    rebuild: Annotated[bool, Argument("delete it and build it again")] = False


@local_command("tape index", example="tape index --rebuild", result=IndexResult)
def index_tapes(invocation: Invocation, args: IndexTapesArgs) -> int:
    """Show how far the search index goes, or rebuild it.

    Show how far the search index goes. The index is derived from the tapes and filled while the bot runs; searches read the
    rest directly. The exit code is 1 if there is no index, or it belongs to other tapes.
    """
    setup = load_setup(invocation)
    if args.rebuild:
        return asyncio.run(run_command(setup, REBUILD_INDEX, NoArgs()))
    state = asyncio.run(_read_state(setup))
    show_either(describe_state(state), _result(state), as_json=setup.as_json)
    return EXIT_OK if state is not None and state.fresh else EXIT_INDEX_BEHIND


async def _read_state(setup: CommandSetup) -> IndexState | None:
    async with open_tapes(setup.home, setup.settings.store) as (store, _):
        return await require_index(store).index_state()


async def rebuild(context: CommandContext, _arguments: NoArgs) -> CommandResult:
    """Delete the index and fill a new one: here, or gradually in the running bot."""
    if not context.settings.search.index:
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
