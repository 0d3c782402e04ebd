"""The feature: files of a chat's workspace, and of the folders that an owner names."""

from __future__ import annotations

from pathlib import Path

from bubbot.feature import Feature, Kernel
from bubbot.features.files.roots import FileRoots
from bubbot.features.files.settings import FileSettings
from bubbot.settings.loader import Settings


def create(kernel: Kernel, settings: Settings) -> Feature:
    """Build the feature under these settings; a reload builds it again."""
    return files_feature(kernel.home, settings.section(FileSettings))


def files_feature(home: Path, settings: FileSettings) -> Feature:
    """Build the feature; without `enabled` it has nothing. Raise `ConfigError` if a root cannot be used."""
    roots = FileRoots(home, settings)
    if not settings.enabled:
        return Feature(name="files")
    # Imported here: bots without these tools load nothing of them.
    from bubbot.features.files.commands import file_tools
    from bubbot.features.files.service import FileService

    named = [f"{root.path}{'' if root.is_writable else ' (read-only)'}" for root in roots.declared]
    reach = f" and, for owners in direct chats, {', '.join(named)}" if named else ""
    rule = f"Files: relative paths are in the workspace of this chat{reach}. Read a file before you change it."
    return Feature(name="files", tools=file_tools(FileService(roots, settings)), prompt=(rule,))
