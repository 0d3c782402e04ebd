"""Writes the configuration and its secrets: all or nothing, with backups, and only what loads."""

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
    existing: ExistingConfig,
    text: str,
    secrets: Mapping[Path, str],
    *,
    stamp: str,
    check: Callable[[Path], None],
) -> list[Path]:
    """Write the configuration and its secrets; return the backups made.

    On any error, restore the previous state.

    Args:
        stamp: the time, for the names of backups.
        check: called with the new configuration once the secrets are in place, before it replaces the old one; raises
            `ConfigError` to reject it.

    Raises:
        ConfigError: `check` rejected the configuration, it changed meanwhile, or it cannot be written.
    """
    with ExitStack() as undo:
        try:
            return _write_all(home, existing, text, secrets, stamp=stamp, check=check, undo=undo)
        except OSError as error:
            raise ConfigError(
                f"The configuration could not be written ({error.strerror or error}): "
                "nothing was changed. Free some disk space, or name another folder with --home."
            ) from error


def _write_all(
    home: Home,
    existing: ExistingConfig,
    text: str,
    secrets: Mapping[Path, str],
    *,
    stamp: str,
    check: Callable[[Path], None],
    undo: ExitStack,
) -> list[Path]:
    changed = text != existing.text
    for folder in (home.path, existing.path.parent, *(path.parent for path in secrets)):
        _make_folder(folder, undo)
    # Write new files first: a full disk shows before anything is changed.
    temporary = {path: _write_temporary(path, f"{content}\n".encode(), undo) for path, content in secrets.items()}
    candidate = _write_temporary(existing.path, text.encode(), undo)
    replaced = [path for path in secrets if path.exists()] + (
        [existing.path] if changed and existing.text is not None else []
    )
    backups = {path: _backup(path, stamp, undo) for path in replaced}
    for path, temporary_file in temporary.items():
        undo.callback(_restore_file, path, backups.get(path))
        temporary_file.replace(path)
    check(candidate)
    if (existing.path.read_bytes() if existing.path.exists() else None) != _encode(existing.text):
        raise ConfigError(
            f"{existing.path} was changed by another program meanwhile: nothing was written. Start again."
        )
    # The last step is atomic.
    if changed:
        candidate.replace(existing.path)
    undo.pop_all()
    if not changed:
        candidate.unlink()
    for folder in {path.parent for path in (*secrets, existing.path)}:
        _sync(folder)
    return list(backups.values())


def _encode(text: str | None) -> bytes | None:
    return None if text is None else text.encode()


def _make_folder(folder: Path, undo: ExitStack) -> None:
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700)
        undo.callback(_remove_folder, path)


def _write_temporary(path: Path, data: bytes, undo: ExitStack) -> Path:
    """Write the bytes to a new file in the same folder, on disk and for its owner alone."""
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    undo.callback(Path(name).unlink, missing_ok=True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    return Path(name)


def _backup(path: Path, stamp: str, undo: ExitStack) -> Path:
    """Copy the file; a link would let an edit of one change the other."""
    copy_path = path.with_name(f"{path.name}.{stamp}.bak")
    number = 1
    while copy_path.exists():
        number += 1
        copy_path = path.with_name(f"{path.name}.{stamp}-{number}.bak")
    undo.callback(copy_path.unlink, missing_ok=True)
    with os.fdopen(os.open(copy_path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as copy:
        with path.open("rb") as original:
            shutil.copyfileobj(original, copy)
        copy.flush()
        os.fsync(copy.fileno())
    return copy_path


def _restore_file(path: Path, backup: Path | None) -> None:
    # Rename: on a full disk a copy would fail.
    if backup is None:
        path.unlink(missing_ok=True)
    else:
        backup.replace(path)


def _remove_folder(folder: Path) -> None:
    with suppress(OSError):
        folder.rmdir()


def _sync(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
