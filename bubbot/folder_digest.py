"""One digest over the files of a folder, as `sha256sum` computes it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from bubbot.errors import ConfigError

PREFIX = "sha256:"
DIGEST = re.compile(rf"{PREFIX}[0-9a-f]{{64}}")
_IS_PLAIN = re.compile(r"[^\\\n\r\ud800-\udfff]+")


def join_digests(folder: Path, files: Iterable[tuple[str, str]]) -> str:
    """Return the digest over the lines `HASH  NAME` of files, as `sha256sum FILE... | sha256sum` computes it.

    Args:
        folder: of the files, for the error.
        files: their names below the folder and the hex digests of each, in the order of the bytes of their names.

    Raises:
        ConfigError: `sha256sum` writes a name otherwise.
    """
    whole = sha256()
    for name, digest in files:
        if not _IS_PLAIN.fullmatch(name):
            raise ConfigError(
                f"{folder} has the file {name!a}: sha256sum writes such a name otherwise, or it is no UTF-8: rename it"
            )
        whole.update(f"{digest}  ".encode() + os.fsencode(name) + b"\n")
    return f"{PREFIX}{whole.hexdigest()}"
