"""What the doctor finds of files: whether they are on, and roots that cannot be used."""

from __future__ import annotations

import os
from collections.abc import Sequence

from bubbot.errors import ConfigError
from bubbot.features.files.roots import FileRoots
from bubbot.features.files.settings import FileSettings
from bubbot.ports.checks import Check, Finding, HomeReader, edit_command


async def check_roots(home: HomeReader) -> Sequence[Finding]:
    """Report roots that no bot can use, and those that are missing or cannot be read or changed."""
    settings: FileSettings = home.settings
    fix = edit_command(home.config)
    try:
        roots = FileRoots(home.home, settings)
    except ConfigError as error:
        return [Finding("config.files", "problem", str(error), fix)]
    if not settings.enabled:
        return []
    findings = []
    for root in roots.declared:
        wanted = os.R_OK | os.X_OK | (os.W_OK if root.is_writable else 0)
        if not root.path.is_dir():
            findings.append(Finding("files.missing", "warning", f"{root.path} of [tools.files] is no folder.", fix))
        elif not os.access(root.path, wanted):
            able = "read and changed" if root.is_writable else "read"
            cause = f"{root.path} of [tools.files] cannot be {able} by this user."
            findings.append(Finding("files.forbidden", "warning", cause, fix))
    count = len(roots.declared)
    reach = "the workspace of each chat" + (f" and {count} folder{'s' * (count > 1)}" if count else "")
    return [*findings, Finding("files.on", "ok", f"The model may read and change files: {reach}.")]


CHECKS = (Check("the files", check_roots),)
