"""Other distributions that install the same top-level package as bubbot."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from importlib.metadata import Distribution, distributions

from packaging.utils import canonicalize_name

from bubbot.packages import package_command
from bubbot.ports.checks import Finding

SHARED_PACKAGE = "channels"
"""The top-level package that others install, too: Django Channels does."""
_RECORD_LINE = re.compile(rf'^"?{SHARED_PACKAGE}(/.*)?\.py"?,', re.MULTILINE)
"""A module of that package in the list of the installed files."""


def check_conflicts() -> Iterator[Finding]:
    """Report each other distribution with a top-level `channels`: their files lie in one folder, or one hides the other."""
    owners = {canonicalize_name(package.name) for package in distributions() if _installs_package(package)}
    for name in sorted(owners - {"bubbot"}):
        cause = (
            f"The package {name} also installs a top-level {SHARED_PACKAGE}, so its files or those of bubbot are lost: give "
            "bubbot an environment of its own, as uv tool, pipx and install.sh do, or remove the other one from this."
        )
        yield Finding("package.conflict", "problem", cause, shlex.join(package_command("uninstall", name)))


def _installs_package(package: Distribution) -> bool:
    # Not with `packages_distributions`, which makes a path of each installed file: that took half of `bubbot doctor`.
    if names := (package.read_text("top_level.txt") or "").split():
        return SHARED_PACKAGE in names
    return _RECORD_LINE.search(package.read_text("RECORD") or "") is not None
