"""The versions of libraries: those known to be unsafe, and those bubbot was not tested with."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from bubbot.ops.doctor.finding import Finding, quoted

MALICIOUS = ("1.82.7", "1.82.8")
SAFE_LITELLM = (1, 83, 7)
SAFE_AIOHTTP = (3, 14, 4)
"""Before it, requests can be smuggled past a proxy to the port for webhooks: GHSA-mfx4-hv73-q22v (up to 3.14.1),
GHSA-pqxq-w44r-73xw, CVE-2026-111750, PYSEC-2026-4371 (up to 3.14.3, where its parser is the one in Python)."""
PLATFORMS = ("python-telegram-bot", "discord.py")
"""Libraries that are used beyond what they promise to keep, so that a version matters."""
_PIP = f"{quoted(sys.executable)} -m pip install"


def check_litellm() -> Iterator[Finding]:
    """Whether the litellm that is installed is one to stay away from. Read from its metadata; it is not imported."""
    found = _installed("litellm")
    if found is None:
        yield Finding("litellm.absent", "ok", "litellm is not installed; the models of providers need it.")
        return
    fix = f"{_PIP} --upgrade 'litellm>=1.83.7'"
    if found in MALICIOUS:
        cause = (
            f"litellm {found} is malicious: it steals secrets. Replace it, and then every key and password that this "
            "machine knew."
        )
        yield Finding("litellm.malicious", "problem", cause, fix)
    elif (numbers := _numbers(found)) < SAFE_LITELLM:
        cause = f"litellm {found} has a known hole; 1.83.7 is the first version without it."
        if not numbers:
            cause = f"litellm says that its version is {found!r}, so nobody can tell whether it is safe."
        yield Finding("litellm.unsafe", "problem", cause, fix)
    else:
        yield Finding("litellm.ok", "ok", f"litellm {found}, none of the versions known to be unsafe.")


def check_libraries() -> Iterator[Finding]:
    """Whether the libraries that speak with platforms are those bubbot was tested with, and safe."""
    fine = []
    for name in PLATFORMS:
        found, wanted = _installed(name), _wanted(name)
        if found is None or not wanted:
            continue  # without it its channel does not load, which is told there
        if all(_meets(found, one) for one in wanted):
            fine.append(f"{name} {found}")
        else:
            needed = ",".join(wanted)
            cause = f"{name} {found} is installed, and bubbot was tested with {needed}: its channel may fail."
            yield Finding("library.untested", "warning", cause, f"{_PIP} {quoted(f'{name}{needed}')}")
    found = _installed("aiohttp")
    if found is not None and _numbers(found) < SAFE_AIOHTTP:
        cause = f"aiohttp {found} lets requests be smuggled past a proxy to the port for webhooks; 3.14.4 does not."
        yield Finding("aiohttp.unsafe", "warning", cause, f"{_PIP} --upgrade 'aiohttp>=3.14.4'")
    elif found is not None:
        fine.append(f"aiohttp {found}")
    if fine:
        yield Finding("library.ok", "ok", f"{', '.join(fine)}.")


def _installed(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _wanted(name: str) -> list[str]:
    """What bubbot's own metadata asks of a library, such as `>=22.8` and `<23`."""
    try:
        lines = requires("bubbot") or []
    except PackageNotFoundError:
        return []
    for line in lines:
        found = re.match(r"([\w.-]+)(?:\[[^]]*\])?\s*\(?([^;)]*)", line)
        if found and re.sub(r"[-_.]+", "-", found[1]).lower() == re.sub(r"[-_.]+", "-", name).lower():
            # In the order in which people write them, the lowest first.
            return sorted((one.strip() for one in found[2].split(",") if one.strip()), reverse=True)
    return []


def _meets(found: str, wanted: str) -> bool:
    """Whether a version is in a range; a range in a form that is not among ours is met by every version."""
    compared = re.fullmatch(r"(>=|<=|==|~=|<|>)\s*(\d[\d.]*)", wanted)
    if compared is None:
        return True
    have, limit = _numbers(found), _numbers(compared[2])
    match compared[1]:
        case ">=":
            return have >= limit
        case "<=":
            return have <= limit
        case "==":
            return have == limit
        case "~=":
            return have >= limit and have[: compared[2].count(".")] == limit[: compared[2].count(".")]
        case "<":
            return have < limit
    return have > limit


def _numbers(text: str) -> tuple[int, ...]:
    """The numbers of a version; a pre-release counts as before its release."""
    found = re.match(r"(\d+)(?:\.(\d+))?(?:\.(\d+))?(.*)", text)
    if not found:
        return ()
    last = int(found[3] or 0) - bool(re.match(r"\.?(a|b|rc|dev)", found[4]))
    return (int(found[1]), int(found[2] or 0), last)
