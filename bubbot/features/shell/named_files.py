"""The files of a workspace that a command names, as they are now: a yes to run one of them, also a standing one, is void once it has changed."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from hashlib import file_digest
from pathlib import Path

MAX_HASHED_BYTES = 20_000_000
"""Of a larger file, its size and time stand for its content."""
MAX_WORDS = 500
_WORD = re.compile(r"[^\s;|&<>()'\"`=]+")


def digest_named_files(workspace: Path, command: Sequence[str]) -> Mapping[str, str]:
    """Return the digests of the files of a workspace that the words of a command name, by their paths.

    It follows no link out of the workspace, and blocks: call it in a thread.
    """
    words = dict.fromkeys(word for part in command for word in (part, *_WORD.findall(part)))
    real = workspace.resolve()
    found: dict[str, str] = {}
    for word in list(words)[:MAX_WORDS]:
        try:
            path = (real / word).resolve()
            if path.is_relative_to(real) and (digest := _digest(path)):
                name = path.relative_to(real).as_posix()
                found[name if name.isprintable() else repr(name)] = digest
        except (OSError, ValueError, RuntimeError):  # there is none, or it is no path
            continue
    return dict(sorted(found.items()))


def _digest(path: Path) -> str:
    """Return the digest of a file; empty for anything else, such as a pipe, which would not end."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
    with os.fdopen(os.open(path, flags), "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            return ""
        if status.st_size > MAX_HASHED_BYTES:
            return f"{status.st_size} {status.st_mtime_ns}"
        return file_digest(file, "sha256").hexdigest()
