"""Other distributions that install the same top-level package as bubbot."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import packages_distributions

from packaging.utils import canonicalize_name

from bubbot.packages import package_command
from bubbot.ports.checks import Finding

SHARED_PACKAGE = "channels"
"""The top-level package that others install, too: Django Channels does."""


def check_conflicts() -> Iterator[Finding]:
    """Report each other distribution with a top-level `channels`: their files lie in one folder, or one hides the other."""
    owners = {canonicalize_name(name) for name in packages_distributions().get(SHARED_PACKAGE, ())}
    for name in sorted(owners - {"bubbot"}):
        cause = (
            f"The package {name} also installs a top-level {SHARED_PACKAGE}, so its files or those of bubbot are lost: give "
            "bubbot an environment of its own, as uv tool, pipx and install.sh do, or remove the other one from this."
        )
        yield Finding("package.conflict", "problem", cause, shlex.join(package_command("uninstall", name)))
