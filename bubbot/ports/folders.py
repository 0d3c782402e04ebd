"""The port for folders that programs of a command may read, besides the one of their chat."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TypeAlias

ListFolders: TypeAlias = Callable[[Sequence[str]], Awaitable[Mapping[str, str]]]
"""Return the folders that the texts of a command name and that it may read, by their paths, with the digest of the files of each: a
yes to the command is void once a digest is another one."""


async def list_no_folders(_command: Sequence[str]) -> Mapping[str, str]:
    """Return none; the default."""
    return {}
