"""The versions of libraries that bubbot was tested with. Known security holes are the work of `pip-audit`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from packaging.requirements import Requirement
from packaging.version import InvalidVersion, Version

from bubbot.packages import package_command
from bubbot.ports.checks import Finding


def check_libraries() -> Iterator[Finding]:
    """Compare the installed libraries with bubbot's own requirements, by their metadata; import none of them."""
    accepted = 0
    for requirement in _read_requirements():
        installed = _installed(requirement.name)
        if installed is None:
            continue  # the check of the plugins reports the channel or model without its library
        if _is_tested(requirement, installed):
            accepted += 1
            continue
        wanted = ",".join(sorted(map(str, requirement.specifier), reverse=True))  # the lowest bound first
        cause = (
            f"{requirement.name} {installed} is installed, and bubbot was tested with {wanted}: what uses it may fail."
        )
        extras = f"[{','.join(sorted(requirement.extras))}]" if requirement.extras else ""
        fix = shlex.join(package_command("install", f"{requirement.name}{extras}{wanted}"))
        yield Finding("library.untested", "warning", cause, fix)
    if accepted:
        have = "1 library has a version" if accepted == 1 else f"{accepted} libraries have versions"
        yield Finding("library.ok", "ok", f"{have} that bubbot was tested with.")


def _read_requirements() -> list[Requirement]:
    """Read bubbot's requirements from its metadata, without those of its extras."""
    try:
        lines = requires("bubbot") or []
    except PackageNotFoundError:
        return []
    requirements = map(Requirement, lines)
    return [requirement for requirement in requirements if not requirement.marker or requirement.marker.evaluate()]


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _is_tested(requirement: Requirement, installed: str) -> bool:
    try:
        return requirement.specifier.contains(Version(installed), prereleases=True)
    except InvalidVersion:
        return False
