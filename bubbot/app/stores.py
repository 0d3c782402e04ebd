"""The store of a home: SQLite, or a store of an installed package."""

from __future__ import annotations

import os
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from importlib.util import find_spec
from pathlib import Path

from msgspec import Struct

from bubbot import plugins
from bubbot.errors import BubbotError, ConfigError, DatabaseLost, StoreUnavailable
from bubbot.home import Home
from bubbot.packages import requirements_command
from bubbot.ports.store import LabelsWorkspace, StoreFactory, StoreOptions, WaitsForRoom, no_wait_for_room
from bubbot.settings.sections import POSTGRES_STORE, SQLITE_STORE, StoreSettings
from bubbot.stores.sqlite.connections import read_newest_entry
from bubbot.stores.sqlite.store import open_readonly, open_store
from bubbot.tape.handle import Clock
from bubbot.tape.service import TapeService
from bubbot.tape.store import TapeStore

STORE_GROUP = "bubbot.stores"


async def open_home_store(
    settings: StoreSettings,
    home: Home,
    *,
    now: Clock,
    readonly: bool = False,
    room_retry: float | None = None,
    keep: int = 0,
) -> TapeStore:
    """Open the store of a home. A writer must hold the home's lock.

    Args:
        readonly: also works while a bot is running.
        room_retry: see `open_store`.
        keep: how many entries that were read stay in memory, of a store that is only read.

    Raises:
        ConfigError: no package offers the store, or it is unusable.
        DatabaseLost: the home had a database, which is missing, empty, or without its newest entries.
        StoreError: it cannot be opened.
    """
    if settings.kind == SQLITE_STORE:
        refuse_unusable_database(home)
        if readonly:
            return await open_readonly(home.database, keep)
        store = await open_store(
            home.database, salt=os.urandom, now=now, room_retry=room_retry, on_newest=home.mark_database
        )
        home.mark_database()
        return store
    if settings.kind == POSTGRES_STORE:
        return await _open_postgres(settings, now=now, readonly=readonly, room_retry=room_retry, keep=keep)
    try:
        factory: StoreFactory = plugins.load(STORE_GROUP, settings.kind)
    except ConfigError as error:
        raise ConfigError(f"[store] kind: {error} Write 'sqlite', or install the package of this store.") from error
    address = settings.address.get_secret_value() if settings.address else ""
    try:
        return await factory(StoreOptions(home.path, address, readonly, now))
    except BubbotError:
        raise
    except Exception as error:  # a package is third-party code
        raise ConfigError(
            f"[store] kind: the store {settings.kind!r} could not be opened: {type(error).__name__}: {error}"
        ) from error


async def _open_postgres(
    settings: StoreSettings, *, now: Clock, readonly: bool, room_retry: float | None, keep: int
) -> TapeStore:
    """Open the store on a server. Raise `ConfigError` if there is no address, or the extra is not installed."""
    url = server_url(settings)
    # Imported here: few bots have a server, and nothing of it is there without the extra.
    from bubbot.stores.postgres import store as postgres

    if readonly:
        return await postgres.open_readonly(url, keep)
    return await postgres.open_store(url, salt=os.urandom, now=now, room_retry=room_retry)


def server_url(settings: StoreSettings) -> str:
    """Return the address of the server, with its password. Raise `ConfigError` without one, or without the packages."""
    if settings.url is None:
        raise ConfigError(
            "[store] url: the store 'postgres' needs it: write an address such as postgresql://bubbot@localhost/bubbot"
        )
    require_driver()
    return settings.url.get_secret_value()


def require_driver() -> None:
    """Raise `ConfigError` if the packages for PostgreSQL are not installed."""
    if not all(map(find_spec, ("psycopg", "psycopg_pool"))):
        folder = find_spec("bubbot.stores.postgres")
        command = requirements_command(str(folder.origin)) if folder else "pip install 'bubbot[postgres]'"
        raise ConfigError(f"[store] url: PostgreSQL needs packages that are not installed: `{command}` installs them")


@asynccontextmanager
async def open_home_tape(settings: StoreSettings, home: Home, name: str) -> AsyncIterator[TapeService]:
    """Open a tape that belongs to no session, to read it. Raise the errors of `open_home_store`."""
    store = await open_home_store(settings, home, now=unused_clock, readonly=True)
    try:
        yield TapeService(store, name, now=unused_clock, new_id=str, session="")
    finally:
        await store.aclose()


def unused_clock() -> datetime:
    """Raise: the clock for code that writes nothing."""
    raise AssertionError("nothing is written here, so nobody asks for the time")


def refuse_unusable_database(home: Home) -> None:
    """Raise an error if the home's database is not a file or is lost.

    Raises:
        StoreUnavailable: something other than a file has its name.
        DatabaseLost: the home had an SQLite database, which is missing, empty, or without its newest entries: it must
            not be replaced unasked.
    """
    if special_file := find_special_file(home):
        kind = "a folder" if special_file.is_dir() else "not a regular file"
        raise StoreUnavailable(
            f"{special_file} is {kind}, and a file of the database has to be there: move it away (`{move_away(special_file)}`)"
        )
    loss = find_loss(home)
    if loss is None:
        return
    # Imported here: few homes lose their database.
    from bubbot.ports.checks import shell_quote
    from bubbot.stores.sqlite.backups import list_backups

    backups = []
    with suppress(OSError):
        backups = list_backups(home.path)
    command = f"bubbot --home {shell_quote(home.path)} restore"
    backup = f"{command} {shell_quote(backups[-1].path)}" if backups else ""
    accept = f"{command} --accept-loss" if loss.newest else f"{command} --empty"
    other_way = "go on with what it holds" if loss.newest else "begin with an empty one"
    files = "its files" if loss.newest else "the file"
    backup_end = backups[-1].head.partition(":")[0] if backups else ""
    is_backup_newer = backup_end.isdecimal() and int(backup_end) > loss.newest
    raise DatabaseLost(
        f"the database {home.database} {loss.state}: put {files} back, or restore a backup "
        f"(`{backup or f'{command} BACKUP'}`), or {other_way} (`{accept}`)",
        fix=backup if backup and (is_backup_newer or not loss.newest) else accept,
    )


class DatabaseLoss(Struct, frozen=True):
    """The loss of a database that a home had.

    Attributes:
        state: its current state, for people.
        newest: the position of its newest entry; 0 if nothing is left.
    """

    state: str
    newest: int = 0


def find_loss(home: Home) -> DatabaseLoss | None:
    """Return the loss if the SQLite database lacks all or the newest entries that this home had; None otherwise.

    An unreadable database counts as complete.
    """
    has_file = home.has_database
    if home.has_lost_database:
        return DatabaseLoss(f"is {'empty' if has_file else 'missing'}, and this home had one")
    if not has_file or not os.path.lexists(home.database_mark):
        return None
    position, chain = home.read_marked_entry() or (0, "")  # read first: a writer commits before it marks
    newest = read_newest_entry(home.database, position, chain)
    if newest is None or (newest.holds and newest.version):
        return None
    if not newest.position:
        return DatabaseLoss("holds nothing, and this home had one")
    if newest.position < position:
        return DatabaseLoss(
            f"ends with entry {newest.position}, and this home had {position}: its newest entries are missing, because a file "
            "beside it was lost or damaged, or because it is an older copy",
            newest.position,
        )
    return DatabaseLoss(f"is not the one that this home had: its entry {position} is another one", newest.position)


def find_special_file(home: Home) -> Path | None:
    """Find a folder, pipe or device in place of the database or one of its files; None if there is none.

    SQLite would wait for a pipe for ever and report a folder as a failing disk. Containers create such a folder if a
    file to mount does not exist.
    """
    path = home.database
    files = (path, Path(f"{path}-wal"), Path(f"{path}-shm"))
    for file in files:
        with suppress(OSError):  # there is none, or the code that opens it reports why
            if not stat.S_ISREG(file.stat().st_mode):
                return file
    return None


def move_away(file: Path) -> str:
    """Return the shell command that moves a file aside."""
    from bubbot.ports.checks import shell_quote  # few homes need it

    return f"mv {shell_quote(file)} {shell_quote(f'{file}.old')}"


def database_file(settings: StoreSettings, home: Home, action: str) -> Path:
    """Return the SQLite database of a home. Raise `ConfigError`, which names `action`, if its tapes are elsewhere."""
    if settings.kind != SQLITE_STORE:
        raise ConfigError(
            f"{action} is for SQLite databases; the tapes of this home are in the store {settings.kind!r}."
        )
    return home.database


async def find_workspace(store: TapeStore, home: Home) -> str:
    """Return the label in the names of tapes: the one in the store, else the path of the home."""
    path = str(home.path.resolve())
    return await store.workspace(path) if isinstance(store, LabelsWorkspace) else path


def room_waiter(store: TapeStore) -> Callable[[], Awaitable[None]]:
    """Return the function that waits for room on the store's disk; it returns at once if the store cannot tell."""
    return store.wait_for_room if isinstance(store, WaitsForRoom) else no_wait_for_room
