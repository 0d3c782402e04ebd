"""The files of a home that a forgotten person leaves, besides the database."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from bubbot.features.people.words import WordIndex
from bubbot.ports.channel import session_folder
from bubbot.ports.forgetting import ForgottenPerson

FOLDERS = ("exports", "sessions")
"""The folders of a home with files about chats. Backups are only named, and settings belong to the owner."""
MAX_SEARCHED_BYTES = 64 << 20
"""A longer file counts as one that holds everything."""


def forget_files(home: Path, person: ForgottenPerson, words: WordIndex) -> int:
    """Remove the folders of the person's chats, and each file about chats that names them; return how many files.

    A file that is gone already is none.
    """
    count = 0
    for session in person.chats:
        safe = session_folder(home, session).name.rpartition("-")[0]
        for pattern in (f"{safe}-*", f"{safe}_*"):
            for folder in (home / "sessions").glob(pattern):
                count += sum(1 for file in folder.rglob("*") if file.is_file())
                shutil.rmtree(folder, ignore_errors=True)
    for file in _list_files(home):
        if _is_about(file, person, words):
            file.unlink(missing_ok=True)
            count += 1
    return count


def is_in_settings(home: Path, person: ForgottenPerson) -> bool:
    """Return true if the settings of a home list the number of an account: only its owner takes that out."""
    with suppress(OSError):
        text = (home / "config.toml").read_text(encoding="utf-8", errors="replace")
        return any(re.search(rf"(?<![0-9]){re.escape(number)}(?![0-9])", text) for _, number in person.accounts)
    return False


def _list_files(home: Path) -> Iterator[Path]:
    for folder in FOLDERS:
        yield from (file for file in (home / folder).rglob("*") if file.is_file() and not file.is_symlink())


def _is_about(file: Path, person: ForgottenPerson, words: WordIndex) -> bool:
    names = [re.escape(session.replace(":", "_")) for session in person.chats]
    if (
        any(re.search(rf"(?<!\w){name}(?![0-9])", file.name) for name in names)
        or file.stat().st_size > MAX_SEARCHED_BYTES
    ):
        return True
    text = file.read_bytes().decode(errors="replace")
    return person.is_identified_in(text) or person.is_named_in(text) or words.is_in(text)
