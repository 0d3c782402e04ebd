"""The folders in which files may be reached, and the paths below them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path, PurePosixPath

from msgspec import Struct

from bubbot.errors import CommandRefused, ConfigError
from bubbot.features.files.settings import FileSettings
from bubbot.ports.channel import workspace_folder
from bubbot.ports.turn import Turn

MAX_PATH_BYTES = 4_000
"""Bytes of a path; Linux takes 4,095."""


class FileRoot(Struct, frozen=True):
    """A folder below which files may be reached.

    Attributes:
        path: where it is.
        is_writable: files in it may be changed.
        is_workspace: it is the chat's own.
    """

    path: Path
    is_writable: bool = True
    is_workspace: bool = False


class FilePath(Struct, frozen=True):
    """A path below a root: its parts are plain names, none of them `..`. No parts: the root itself."""

    root: FileRoot
    parts: tuple[str, ...]

    def __str__(self) -> str:
        """Return it as it is shown and stored: relative to the workspace, or absolute."""
        if self.root.is_workspace:
            return "/".join(self.parts) or "."
        return str(self.root.path.joinpath(*self.parts))


def on_one_line(path: FilePath | str) -> str:
    """Write a path so that nothing in it passes for another line, or for another direction."""
    text = str(path)
    return text if text.isprintable() else repr(text)


class FileRoots:
    """The roots of the settings, and the workspace of each chat.

    Raises `ConfigError` if a root is not absolute, or lies around or inside the home folder, whose files are the bot's.
    """

    def __init__(self, home: Path, settings: FileSettings) -> None:
        self._home = home
        self._roots = [
            *(FileRoot(_parse_root(text, "roots", home)) for text in settings.roots),
            *(FileRoot(_parse_root(text, "read_only", home), is_writable=False) for text in settings.read_only),
        ]
        self._real = {root.path: root.path.resolve() for root in self._roots}

    @property
    def declared(self) -> Sequence[FileRoot]:
        """The roots of the settings."""
        return self._roots

    def workspace(self, session: str) -> FileRoot:
        """Return the workspace of a chat, whether or not it is there."""
        return FileRoot(workspace_folder(self._home, session), is_workspace=True)

    def roots_of(self, turn: Turn) -> list[FileRoot]:
        """List the roots that a turn may reach: in groups, and for all but owners, the workspace alone."""
        declared = self._roots if turn.has_power_over_other_chats else []
        return [self.workspace(turn.session), *declared]

    def resolve(self, turn: Turn, text: str) -> FilePath:
        """Return the path that a text names: relative to the workspace, or absolute.

        Nothing is looked up. The innermost root counts, so that a folder can be read-only within another one.

        Raises:
            CommandRefused: it is no path, or lies below no root; the text names the roots.
        """
        roots = self.roots_of(turn)
        if "\0" in text or len(text.encode(errors="surrogateescape")) > MAX_PATH_BYTES:
            raise CommandRefused("file_path_wrong", path=text[:80])
        path = PurePosixPath(text)
        if ".." in path.parts:
            raise CommandRefused("file_path_up", path=text)
        if text.startswith("~"):
            try:
                path = PurePosixPath(Path(text).expanduser())
            except RuntimeError:  # ~nobody
                raise CommandRefused("file_path_wrong", path=text[:80]) from None
        if not path.is_absolute():
            return FilePath(roots[0], path.parts)
        below = [root for root in roots if path.is_relative_to(root.path)]
        if not below:
            names = ", ".join(str(root.path) for root in roots[1:]) or turn.result_texts.say("file_no_roots")
            raise CommandRefused("file_outside", path=text, roots=names)
        root = max(below, key=lambda root: len(root.path.parts))
        return FilePath(root, path.relative_to(root.path).parts)

    def find_read_only(self, path: FilePath) -> FileRoot | None:
        """Return the read-only root in which a path lies; None if it may be changed.

        A root can be reached by two names, if one is a link. The innermost root counts there, too.
        """
        if path.root not in self._roots:
            return None if path.root.is_writable else path.root
        real = self._real[path.root.path].joinpath(*path.parts)
        around = [root for root in self._roots if real.is_relative_to(self._real[root.path])]
        root = max(around, key=lambda root: (len(self._real[root.path].parts), not root.is_writable))
        return None if root.is_writable else root


def _parse_root(text: str, key: str, home: Path) -> Path:
    try:
        path = Path(text).expanduser()
    except RuntimeError:  # ~nobody
        path = Path(text)
    setting = f"[tools.files] {key} has {text!r}"
    if not path.is_absolute() or ".." in path.parts:
        raise ConfigError(f"{setting}, which must be an absolute path without '..', or begin with ~.")
    real, real_home = path.resolve(), home.resolve()
    if real_home.is_relative_to(real) or real.is_relative_to(real_home):
        raise ConfigError(f"{setting}, but {home} has the bot's own files: name a folder beside it.")
    return path
