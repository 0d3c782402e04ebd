"""`bubbot tape repair`: restores the triggers that keep the database from losing history, and rebuilds its indexes."""

from __future__ import annotations

import os

from bubbot.app.stores import database_file, refuse_unusable_database
from bubbot.app.tapes import now
from bubbot.cli.invocation import Invocation
from bubbot.cli.local_command import local_command
from bubbot.cli.output import show_either
from bubbot.cli.setup import load_setup
from bubbot.cli.tape.results import RepairResult
from bubbot.home import WriterLock
from bubbot.settings.sections import POSTGRES_STORE
from bubbot.stores.sqlite.check import repair_database
from bubbot.tape.entry import timestamp

EXIT_OK = 0


@local_command("tape repair", example="bubbot tape repair && bubbot tape verify", result=RepairResult)
def repair_tapes(invocation: Invocation) -> int:
    """Restore the triggers that protect the history, and rebuild damaged indexes.

    Restore the triggers of the database if some are missing or changed: without them the database does not protect its
    history, and bubbot writes nothing to it. Build indexes anew that do not hold what their tables hold: they hide facts. No
    entry changes. Stop the bot first.
    """
    setup = load_setup(invocation)
    if setup.settings.store.kind == POSTGRES_STORE and setup.settings.store.url is not None:
        # Imported here: few homes have a server.
        from bubbot.stores.postgres.check import repair_server_database

        triggers, indexes = repair_server_database(setup.settings.store.url.get_secret_value())
        _show(triggers, indexes, as_json=setup.as_json)
        return EXIT_OK
    database = database_file(setup.settings.store, setup.home, "bubbot tape repair")
    refuse_unusable_database(setup.home)
    setup.home.ensure()
    with WriterLock(setup.home):
        repair = repair_database(database, timestamp(now()), os.urandom)
    _show(repair.triggers, repair.indexes, as_json=setup.as_json)
    return EXIT_OK


def _show(triggers: tuple[str, ...], indexes: tuple[str, ...], *, as_json: bool) -> None:
    lines: list[str] = []
    if triggers:
        lines.append(
            f"Restored: {', '.join(triggers)}. bubbot tape verify checks whether anything was changed meanwhile."
        )
    if indexes:
        lines.append(f"Built anew from their tables: {', '.join(indexes)}.")
    text = "\n".join(lines) or "All triggers and indexes are as they should be; nothing was changed."
    show_either(text, RepairResult(triggers, indexes), as_json=as_json)
