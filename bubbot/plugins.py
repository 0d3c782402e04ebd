"""Plugins: objects that packages offer by name in an entry-point group, such as `bubbot.channels`.

Nothing of a plugin is imported before it is asked for by name.
"""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from bubbot.errors import ConfigError


def names(group: str) -> list[str]:
    """The names offered in a group, sorted, each once; imports none of them."""
    return sorted(entry_points(group=group).names)


def load(group: str, name: str) -> Callable[..., Any]:
    """The factory a package offers as `name` in `group`.

    Raises `ConfigError` where no package or more than one offers that name, where importing it fails in any way,
    and where it is nothing that can be called. What the factory itself raises is the caller's.
    """
    point = _find(group, name)
    where = f"The plugin {name!r} of {group} ({point.value}, from the package {_package(point)})"
    try:
        factory = point.load()
    # A plugin is someone else's code and may raise anything while it is imported, sys.exit() included.
    except (Exception, SystemExit) as error:
        raise ConfigError(f"{where} could not be loaded: {type(error).__name__}: {error}") from error
    if not callable(factory):
        raise ConfigError(f"{where} is {type(factory).__name__}, which cannot be called to make one.")
    return factory  # type: ignore[no-any-return]  # entry points are untyped


def _find(group: str, name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=group, name=name)}
    if not found:
        known = names(group)
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are: {', '.join(known) or 'none'}."
        raise ConfigError(f"No plugin {name!r} in {group}: {hint}")
    if len(found) > 1:
        packages = " and ".join(sorted(map(_package, found.values())))
        raise ConfigError(f"The plugin {name!r} of {group} is offered by {packages}: uninstall all but one.")
    return next(iter(found.values()))


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "?"
