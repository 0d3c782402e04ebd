"""The move of all tapes between stores: files of SQLite, and databases on a server."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeAlias

from msgspec import Struct

from bubbot.app.settings import load_with_missing_secrets
from bubbot.app.stores import refuse_unusable_database, require_driver, server_url
from bubbot.app.tapes import now
from bubbot.errors import ConfigError, TapeCorrupt
from bubbot.home import Home, WriterLock
from bubbot.ports.passages import PASSAGES_FILE
from bubbot.ports.progress import OnProgress
from bubbot.ports.store import DeploymentAudit
from bubbot.settings.sections import POSTGRES_STORE, SQLITE_STORE
from bubbot.stores.copying import CopyCounts, TapesToCopy
from bubbot.stores.files import remove_partials, scratch_folder, sync, sync_tree
from bubbot.stores.sqlite import copying as files
from bubbot.stores.sqlite.index.schema import INDEX_FILE
from bubbot.stores.sqlite.store import open_store

Progress: TypeAlias = Callable[[str], AbstractContextManager[OnProgress]]
"""Shows the progress of a work with this name, counted in entries."""
_FILES_OF_DATABASE = ("", "-wal", "-shm", "-journal")
_ADDRESSES = ("postgresql://", "postgres://")


class StorePlace(Protocol):
    """Where tapes are."""

    def __str__(self) -> str:
        """The place for people, without a password."""
        ...

    def read(self, progress: Progress) -> AbstractContextManager[tuple[TapesToCopy, DeploymentAudit]]:
        """Audit the tapes, and read them while nobody writes. Raise `HomeLocked` if a bot runs, `StoreError`."""
        ...

    async def adopt(self, source: TapesToCopy, progress: Progress, head: str) -> tuple[CopyCounts, str]:
        """Take over all tapes, all or nothing; return the counts and the deployment head here.

        Args:
            head: of the source.

        Raises:
            HomeLocked: a bot runs there.
            ConfigError: there are tapes already.
            TapeCorrupt: what was written is not what was read.
        """
        ...


def find_place(text: str) -> StorePlace:
    """Return the place that an argument names: an address of a server, a file, or the store of a home. Raise `ConfigError`."""
    if text.startswith(_ADDRESSES):
        require_driver()
        return ServerTapes(text)
    path = Path(text).absolute()
    if not (path.is_dir() or (not path.suffix and not path.exists())):
        return FileTapes(path)
    store = load_with_missing_secrets(home=path).store
    if store.kind == POSTGRES_STORE:
        return ServerTapes(server_url(store))
    if store.kind != SQLITE_STORE:
        raise ConfigError(f"{path} keeps its tapes in the store {store.kind!r}, which bubbot cannot copy")
    return FileTapes(Home(path).database)


async def copy_between(source: StorePlace, target: StorePlace, progress: Progress) -> tuple[CopyCounts, str]:
    """Copy all tapes into an empty store; return the counts and the deployment head there.

    Raises:
        ConfigError: both places are the same, or the target holds tapes.
        HomeLocked: a bot runs on one of them.
        TapeCorrupt: the source does not verify.
        StoreError: one of them cannot be opened.
    """
    if str(source) == str(target) or (
        isinstance(source, FileTapes) and isinstance(target, FileTapes) and source.path.parent == target.path.parent
    ):
        raise ConfigError(f"the tapes of {source} cannot be copied to the same place, or folder: name another one")
    with source.read(progress) as (tapes, audit):
        _refuse_damage(source, audit)
        tapes.refuse_older()
        return await target.adopt(tapes, progress, audit.head)


def _refuse_damage(place: StorePlace, audit: DeploymentAudit) -> None:
    if wrong := (*audit.triggers, *audit.indexes):
        raise TapeCorrupt(
            f"{place} lacks what protects its history, or what it is read through ({', '.join(wrong)}), so nothing was copied: "
            "`bubbot tape repair` restores it"
        )
    if audit.damage:
        first = audit.damage[0]
        raise TapeCorrupt(
            f"{place} does not verify, so nothing was copied: {first.location} {first.problem} ({first.detail}), "
            f"{len(audit.damage)} findings; `bubbot tape verify` names each"
        )


def _check_copy(place: StorePlace, audit: DeploymentAudit, head: str) -> None:
    """Raise `TapeCorrupt` if a copy does not verify, or its tapes do not end as those of the source."""
    _, _, expected = head.partition(":")
    if audit.damage or audit.triggers or audit.head.partition(":")[2] != expected:
        found = f"{audit.damage[0].location} {audit.damage[0].problem}" if audit.damage else f"its head is {audit.head}"
        raise TapeCorrupt(
            f"the copy in {place} is not what was copied ({found}): use it for nothing, its disk is failing"
        )


class FileTapes(Struct, frozen=True):
    """The tapes in a file of SQLite."""

    path: Path

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def read(self, progress: Progress) -> Iterator[tuple[TapesToCopy, DeploymentAudit]]:
        """See `StorePlace.read`. A folder without the lock of a home has no bot, and may be one that nobody can write to."""
        home = Home(self.path.parent)
        if self.path == home.database:
            refuse_unusable_database(home)
        with ExitStack() as stack:
            if home.lock_file.exists():
                stack.enter_context(WriterLock(home))
            with progress("Checking the source") as on_progress:
                found = stack.enter_context(files.read_tapes(self.path, on_progress))
            yield found

    async def adopt(self, source: TapesToCopy, progress: Progress, head: str) -> tuple[CopyCounts, str]:
        """See `StorePlace.adopt`. The file gets its name last."""
        home, newest = Home(self.path.parent), list[str]()
        self._refuse_existing()
        home.ensure()
        with WriterLock(home):
            remove_partials(home.path)
            with scratch_folder(home.path, "copy") as folder:
                database = folder / self.path.name
                store = await open_store(database, salt=os.urandom, now=now, on_newest=newest.append)
                try:
                    with progress("Copying the tapes") as on_progress:
                        counts = await store.adopt(source, on_progress)
                    with progress("Indexing the copy") as on_progress:
                        indexer = store.build_indexer()
                        await indexer.fill(on_progress, counts.entries)
                        await indexer.aclose()
                finally:
                    await store.aclose()
                audit = await asyncio.to_thread(_audit_file, database, progress)
                _check_copy(self, audit, head)
                self._put_in_place(folder, newest)
        return counts, audit.head

    def _refuse_existing(self) -> None:
        if left := [path for end in _FILES_OF_DATABASE if os.path.lexists(path := Path(f"{self.path}{end}"))]:
            raise ConfigError(f"{left[0]} is there already: name a new folder or file to copy to, or move it away")

    def _put_in_place(self, folder: Path, newest: list[str]) -> None:
        """Delete the indexes of earlier databases, which are derived, and move index and database into place, the database last."""
        sync_tree(folder)
        self._refuse_existing()
        home = Home(self.path.parent)
        if self.path == home.database:
            for end in _FILES_OF_DATABASE:
                for name in (INDEX_FILE, PASSAGES_FILE):
                    home.path.joinpath(f"{name}{end}").unlink(missing_ok=True)
            (folder / INDEX_FILE).rename(home.path / INDEX_FILE)
            home.mark_database(newest[-1] if newest else "")
        (folder / self.path.name).rename(self.path)
        sync(home.path)


def _audit_file(path: Path, progress: Progress) -> DeploymentAudit:
    with progress("Checking the copy") as on_progress, files.read_tapes(path, on_progress) as (_, audit):
        return audit


@dataclass(frozen=True, slots=True)
class ServerTapes:
    """The tapes in a database on a server."""

    url: str

    def __str__(self) -> str:
        from bubbot.stores.postgres.connections import ServerAddress  # here and below: few have a server

        return str(ServerAddress(self.url))

    def __repr__(self) -> str:
        return f"ServerTapes({self})"

    @contextmanager
    def read(self, progress: Progress) -> Iterator[tuple[TapesToCopy, DeploymentAudit]]:
        """See `StorePlace.read`."""
        from bubbot.stores.postgres.copying import read_tapes

        with ExitStack() as stack:
            with progress("Checking the source") as on_progress:
                found = stack.enter_context(read_tapes(self.url, on_progress))
            yield found

    async def adopt(self, source: TapesToCopy, progress: Progress, head: str) -> tuple[CopyCounts, str]:
        """See `StorePlace.adopt`. It is one transaction: a server that goes away meanwhile forgets all of it."""
        from bubbot.stores.postgres.copying import audit_server, refuse_running_bot
        from bubbot.stores.postgres.store import open_store as open_server

        await asyncio.to_thread(refuse_running_bot, self.url)
        store = await open_server(self.url, salt=os.urandom, now=now)
        try:
            with progress("Copying the tapes") as on_progress:
                counts = await store.adopt(source, on_progress)
        finally:
            await store.aclose()
        with progress("Checking the copy") as on_progress:
            audit = await asyncio.to_thread(audit_server, self.url, on_progress)
        _check_copy(self, audit, head)
        return counts, audit.head
