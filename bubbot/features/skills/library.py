"""The folders of skills: where they stand, what has changed, and how a new one is put there."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock

from msgspec import structs

from bubbot.errors import ConfigError, ValueInvalid
from bubbot.features.skills.document import SKILL_FILE, is_skill_name
from bubbot.features.skills.facts import SkillInstalled
from bubbot.features.skills.folder import SkillFolder, list_folders, read_folder, read_stamp
from bubbot.new_files import create_folder, sync_folder

SKILLS_FOLDER = "skills"
"""The folder of skills in a home."""
UNFINISHED = ".new-"
"""The beginning of the name of a folder that is not whole yet; one that is left over is removed."""
MAX_SKILLS = 500
"""Skills of one folder; further ones are not looked at."""


class SkillLibrary:
    """The skills that stand in trusted folders, accepted or not. Its methods block: call them in a thread."""

    def __init__(self, home: Path, folders: Sequence[str] = ()) -> None:
        """Set where skills may stand; nothing is read yet.

        Args:
            home: the home folder.
            folders: further folders.

        Raises:
            ConfigError: one is no whole path, or is not outside the home.
        """
        self._home = home.absolute()
        self.own_root = self._home / SKILLS_FOLDER
        self.roots = (self.own_root, *(self._check_root(folder) for folder in folders))
        self._read: dict[Path, SkillFolder] = {}
        self._lock = Lock()

    def _check_root(self, text: str) -> Path:
        root = Path(os.path.expanduser(text))  # noqa: PTH111 - a user that there is not is no error of it
        if not root.is_absolute():
            raise ConfigError(f"[skills] folders has {text!r}, which is no whole path: write it from / on")
        real, home = Path(os.path.realpath(root)), Path(os.path.realpath(self._home))
        if real.is_relative_to(home) or home.is_relative_to(real):
            raise ConfigError(
                f"[skills] folders has {text!r}, which is in the home or around it: name a folder elsewhere; the one of the home is "
                f"{SKILLS_FOLDER}, and always counts"
            )
        return root

    def find_all(self) -> Mapping[str, Path]:
        """Return the folders of all skills by their names. Of two with one name the first counts. Raise `ConfigError`."""
        found: dict[str, Path] = {}
        for root in self.roots:
            for folder in list_folders(root)[:MAX_SKILLS]:
                found.setdefault(folder.name, folder)
        return found

    def find(self, name: str) -> Path | None:
        """Return the folder of the skill with this name; None if there is none."""
        if not is_skill_name(name):
            return None
        return next((root / name for root in self.roots if os.path.lexists(root / name / SKILL_FILE)), None)

    def is_trusted(self, folder: Path) -> bool:
        """Return true if a folder stands where skills may stand."""
        return folder.parent in self.roots

    def locate(self, fact: SkillInstalled) -> Path:
        """Return the folder that a fact names."""
        return self._home / fact.folder

    def name_folder(self, folder: Path) -> str:
        """Return a folder as facts have it: from the home on if it stands there."""
        return str(folder.relative_to(self._home) if folder.is_relative_to(self._home) else folder)

    def look(self, folder: Path) -> SkillFolder:
        """Return a skill as its files are now, without their contents. They are read only if they seem to have changed.

        Raises:
            ConfigError: it cannot be used.
        """
        known = self._read.get(folder)
        if known is not None and known.stamp == read_stamp(folder):
            return known
        self._read.pop(folder, None)
        self._check_name(folder)
        found = structs.replace(read_folder(folder), contents={})
        if found.is_settled:
            self._read[folder] = found
        return found

    def read(self, folder: Path) -> SkillFolder:
        """Return a skill with the contents of its files. Raise `ConfigError`."""
        self._check_name(folder)
        return read_folder(folder)

    def _check_name(self, folder: Path) -> None:
        if not is_skill_name(folder.name):
            raise ConfigError(
                f"{folder} is no name of a skill: rename it, with small letters, digits and single hyphens, at most 64"
            )

    def copy(self, source: SkillFolder, name: str) -> Path:
        """Put a skill into the home, whole or not at all, and return its folder.

        One with the same files that stands there already, as a process that was killed may have left it, is kept.

        Raises:
            ConfigError: it cannot be written.
            ValueInvalid: there is another one of this name.
        """
        with self._lock:
            return self._copy(source, name)

    def _copy(self, source: SkillFolder, name: str) -> Path:
        folder = self.own_root / name
        for left in self.own_root.glob(f"{UNFINISHED}*"):  # of a process that was killed: all others wait
            shutil.rmtree(left, ignore_errors=True)
        if os.path.lexists(folder):
            if self._has(folder, source):
                return folder
            raise ValueInvalid("skill_exists", name=name)
        try:
            if self.own_root.is_symlink():
                raise ConfigError(f"{self.own_root} is a link: put a folder there")
            self.own_root.mkdir(mode=0o700, exist_ok=True)
            with TemporaryDirectory(prefix=UNFINISHED, dir=self.own_root, ignore_cleanup_errors=True) as scratch:
                whole = Path(scratch) / name
                create_folder(whole, source.contents)
                for program in source.programs:
                    (whole / program).chmod(0o700)
                whole.rename(folder)
            sync_folder(self.own_root)
        except OSError as error:
            raise ConfigError(
                f"the skill cannot be written to {folder} ({error.strerror}): let the bot write there"
            ) from error
        return folder

    def _has(self, folder: Path, source: SkillFolder) -> bool:
        try:
            return self.look(folder).digest == source.digest
        except ConfigError:
            return False

    def remove(self, folder: Path) -> bool:
        """Remove the folder of a skill if it stands in the home; return true if it did. Raise `ConfigError`.

        It goes as a whole: half a skill could be neither used nor replaced.
        """
        self._read.pop(folder, None)
        with self._lock:
            if folder.parent != self.own_root or not os.path.lexists(folder):
                return False
            try:
                with TemporaryDirectory(prefix=UNFINISHED, dir=self.own_root) as scratch:
                    folder.rename(Path(scratch) / folder.name)
            except OSError as error:
                raise ConfigError(f"{folder} cannot be removed ({error.strerror}): remove it by hand") from error
        return True
