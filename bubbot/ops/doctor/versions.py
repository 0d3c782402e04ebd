"""The versions of libraries: known unsafe ones, and those bubbot was not tested with."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from bubbot.ops.doctor.finding import Finding, shell_quote

MALICIOUS_LITELLM = ("1.82.7", "1.82.8")
SAFE_LITELLM = (1, 83, 7)
SAFE_AIOHTTP = (3, 14, 4)
"""Before this version, requests can be smuggled past a proxy to the port for webhooks: GHSA-mfx4-hv73-q22v (up to 3.14.1),
GHSA-pqxq-w44r-73xw, CVE-2026-111750, PYSEC-2026-4371 (up to 3.14.3, where its parser is the one in Python)."""
PLATFORM_LIBRARIES = ("python-telegram-bot", "discord.py")
"""Libraries of which bubbot uses more than the stable API, so that the version matters."""
_PIP = f"{shell_quote(sys.executable)} -m pip install"


def check_litellm() -> Iterator[Finding]:
    """Check that the installed litellm is safe, by its metadata; do not import it."""
    installed = _installed("litellm")
    if installed is None:
        yield Finding("litellm.absent", "ok", "litellm is not installed; the models of providers need it.")
        return
    fix = f"{_PIP} --upgrade 'litellm>=1.83.7'"
    if installed in MALICIOUS_LITELLM:
        cause = (
            f"litellm {installed} is malicious: it steals secrets. Replace it, and then every key and password that this "
            "machine knew."
        )
        yield Finding("litellm.malicious", "problem", cause, fix)
    elif (numbers := _parse_numbers(installed)) < SAFE_LITELLM:
        cause = f"litellm {installed} has a known hole; 1.83.7 is the first version without it."
        if not numbers:
            cause = f"litellm says that its version is {installed!r}, so nobody can tell whether it is safe."
        yield Finding("litellm.unsafe", "problem", cause, fix)
    else:
        yield Finding("litellm.ok", "ok", f"litellm {installed}, none of the versions known to be unsafe.")


def check_libraries() -> Iterator[Finding]:
    """Check that the platforms' libraries are safe and tested."""
    accepted = []
    for name in PLATFORM_LIBRARIES:
        installed, specifiers = _installed(name), _read_specifiers(name)
        if installed is None or not specifiers:
            continue  # the check of the plugins reports the channel without its library
        if all(_satisfies(installed, specifier) for specifier in specifiers):
            accepted.append(f"{name} {installed}")
        else:
            requirement = ",".join(specifiers)
            cause = f"{name} {installed} is installed, and bubbot was tested with {requirement}: its channel may fail."
            yield Finding("library.untested", "warning", cause, f"{_PIP} {shell_quote(f'{name}{requirement}')}")
    installed = _installed("aiohttp")
    if installed is not None and _parse_numbers(installed) < SAFE_AIOHTTP:
        cause = f"aiohttp {installed} lets requests be smuggled past a proxy to the port for webhooks; 3.14.4 does not."
        yield Finding("aiohttp.unsafe", "warning", cause, f"{_PIP} --upgrade 'aiohttp>=3.14.4'")
    elif installed is not None:
        accepted.append(f"aiohttp {installed}")
    if accepted:
        yield Finding("library.ok", "ok", f"{', '.join(accepted)}.")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _read_specifiers(name: str) -> list[str]:
    """Read the specifiers for a library from bubbot's own metadata, such as `>=22.8` and `<23`."""
    try:
        lines = requires("bubbot") or []
    except PackageNotFoundError:
        return []
    for line in lines:
        match = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)", line)
        if match and re.sub(r"[-_.]+", "-", match[1]).lower() == re.sub(r"[-_.]+", "-", name).lower():
            # The lowest bound first, as people write them.
            return sorted((specifier.strip() for specifier in match[2].split(",") if specifier.strip()), reverse=True)
    return []


def _satisfies(installed: str, specifier: str) -> bool:
    """Return true if a version satisfies a specifier; a specifier in an unknown form accepts every version."""
    match = re.fullmatch(r"(>=|<=|==|~=|<|>)\s*(\d[\d.]*)", specifier)
    if match is None:
        return True
    version_numbers, limit = _parse_numbers(installed), _parse_numbers(match[2])
    match match[1]:
        case ">=":
            return version_numbers >= limit
        case "<=":
            return version_numbers <= limit
        case "==":
            return version_numbers == limit
        case "~=":
            return version_numbers >= limit and version_numbers[: match[2].count(".")] == limit[: match[2].count(".")]
        case "<":
            return version_numbers < limit
    return version_numbers > limit


def _parse_numbers(text: str) -> tuple[int, ...]:
    """Parse the numbers of a version; a pre-release counts as lower than its release."""
    match = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)", text)
    if not match:
        return ()
    last = int(match[3] or 0) - bool(re.match(r"\.?(a|b|rc|dev)", match[4]))
    return (int(match[1]), int(match[2] or 0), last)
