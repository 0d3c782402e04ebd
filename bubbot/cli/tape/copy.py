"""`bubbot tape copy`: moves a bot from one store to another."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated

from bubbot.app.copying import copy_between, find_place
from bubbot.arguments.fields import Args
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show_either
from bubbot.cli.progress import show_progress
from bubbot.cli.setup import load_setup
from bubbot.cli.tape.results import CopyResult
from bubbot.shell_command import Argument

EXIT_OK = 0


class CopyTapesArgs(Args, frozen=True):
    """The arguments of `bubbot tape copy`."""

    source: Annotated[str, Argument("a home, a file of SQLite, or postgresql://USER@HOST/DATABASE")]
    target: Annotated[str, Argument("the same, of a new home or file, or an empty database")]


@local_command(
    "tape copy",
    form="<source> <target>",
    example="tape copy ~/.bubbot postgresql://bubbot@localhost/bubbot",
    result=CopyResult,
)
def copy_tapes(invocation: Invocation, args: CopyTapesArgs) -> int:
    """Copy all tapes into another store: SQLite, or a server.

    Copy all tapes with archives, erasures, files and open turns from one store into another, empty one, and check both. A
    home stands for the store that its settings name. Stop the bot first. The source is only read; if the command is
    killed, the target holds nothing, and you can start again.
    """
    setup = load_setup(invocation)
    source, target = find_place(args.source), find_place(args.target)
    progress = partial(show_progress, unit="entries", plain=setup.is_plain)
    counts, head = asyncio.run(copy_between(source, target, progress))
    result = CopyResult(
        str(source),
        str(target),
        counts.tapes,
        counts.archives,
        counts.entries,
        counts.erased,
        counts.blobs,
        counts.forks,
        head,
    )
    show_either(_describe(result), result, as_json=setup.as_json)
    return EXIT_OK


def _describe(result: CopyResult) -> str:
    return (
        f"Copied {result.tapes} tapes ({result.archives} archives), {result.entries:,} entries ({result.erased:,} erased), "
        f"{result.blobs:,} blobs and {result.forks} open turns from {result.source} to {result.target}.\n"
        f"Both verify and end alike: head {result.head}\n"
        "Let [store] url in config.toml name the database on a server, or nothing for a file in the home. Then start the bot "
        f"there, and never again on {result.source}: two bots would answer everybody twice."
    )
