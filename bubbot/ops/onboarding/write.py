"""Writes the configuration and its secrets: all of it or nothing, nothing without a backup, nothing that does not load."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from pathlib import Path

from bubbot.errors import ConfigError
from bubbot.home import Home
from bubbot.ops.onboarding.existing import ExistingConfig


def write(
    home: Home,
    present: ExistingConfig,
    text: str,
    secrets: Mapping[Path, str],
    *,
    stamp: str,
    check: Callable[[Path], None],
) -> list[Path]:
    """Writes `text` to the configuration and each of the `secrets` to its file; gives the backups it made.

    `stamp`: the time, for the names of backups. `check` is given the new configuration before it takes its place, with
    the secrets in theirs, and raises `ConfigError` where it is not fit. Raises `ConfigError`; then, and where anything
    else ends it, everything is as it was.
    """
    with ExitStack() as undone:
        try:
            return _written(home, present, text, secrets, stamp=stamp, check=check, undo=undone)
        except OSError as error:
            raise ConfigError(
                f"The configuration could not be written ({error.strerror or error}): "
                "nothing was changed. Free some room or name another folder with --home."
            ) from error


def _written(
    home: Home,
    present: ExistingConfig,
    text: str,
    secrets: Mapping[Path, str],
    *,
    stamp: str,
    check: Callable[[Path], None],
    undo: ExitStack,
) -> list[Path]:
    changed = text != present.text
    for folder in (home.path, present.path.parent, *(path.parent for path in secrets)):
        _make_folder(folder, undo)
    # All that takes room first: a full disk is found before anything is changed.
    fresh = {path: _beside(path, f"{content}\n".encode(), undo) for path, content in secrets.items()}
    candidate = _beside(present.path, text.encode(), undo)
    old = [path for path in secrets if path.exists()] + ([present.path] if changed and present.text is not None else [])
    backups = {path: _backup(path, stamp, undo) for path in old}
    for path, new in fresh.items():
        undo.callback(_put_back, path, backups.get(path))
        new.replace(path)
    check(candidate)
    if (present.path.read_bytes() if present.path.exists() else None) != _bytes(present.text):
        raise ConfigError(f"{present.path} was changed by somebody else meanwhile: nothing was written. Begin again.")
    # What follows is the last step, which happens or does not.
    if changed:
        candidate.replace(present.path)
    undo.pop_all()
    if not changed:
        candidate.unlink()
    for folder in {path.parent for path in (*secrets, present.path)}:
        _sync(folder)
    return list(backups.values())


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _make_folder(folder: Path, undo: ExitStack) -> None:
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700)
        undo.callback(_remove_folder, one)


def _beside(path: Path, data: bytes, undo: ExitStack) -> Path:
    """A new file with these bytes in the same folder, on disk and for its owner alone."""
    number, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    undo.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(number, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


def _backup(path: Path, stamp: str, undo: ExitStack) -> Path:
    """A copy of its own, not a link: who edits the one must not change the other."""
    wanted = path.with_name(f"{path.name}.{stamp}.bak")
    number = 1
    while wanted.exists():
        number += 1
        wanted = path.with_name(f"{path.name}.{stamp}-{number}.bak")
    undo.callback(wanted.unlink, missing_ok=True)
    with os.fdopen(os.open(wanted, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
        with path.open("rb") as original:
            shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())
    return wanted


def _put_back(path: Path, backup: Path | None) -> None:
    # By its name: on a full disk nothing could be copied.
    if backup is None:
        path.unlink(missing_ok=True)
    else:
        backup.replace(path)


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _sync(folder: Path) -> None:
    number = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
