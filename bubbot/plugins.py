"""Plugins: objects that packages offer by name in an entry-point group, such as `bubbot.channels`.

Only `load` imports a plugin.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import lru_cache
from importlib import metadata
from importlib.metadata import EntryPoint, EntryPoints
from pathlib import Path
from typing import Any

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean, replace_controls

FEATURE_GROUP = "bubbot.features"
"""The group of packages that add features."""
UPGRADE_HINT = ". The plugin was written for an older bubbot: docs/howto/upgrade.md lists the new names."


def list_names(group: str) -> list[str]:
    """Return the names offered in a group, sorted, each once; import none of them."""
    return sorted(find_entry_points(group).names)


def describe(group: str) -> dict[str, str]:
    """Return a line about each package that offers something in a group, by the name; import none of them."""
    points = sorted(find_entry_points(group), key=lambda point: point.name)
    return {point.name: _summary(point) or f"of the package {_package(point)}" for point in points}


def _summary(point: EntryPoint) -> str:
    if point.dist is None or "Summary" not in point.dist.metadata:
        return ""
    return " ".join(replace_controls(point.dist.metadata["Summary"]).split())


def find_entry_points(group: str) -> EntryPoints:
    """Return the entry points of a group. The installed packages are read once, and again if a folder of them changed."""
    return _select_entry_points(group, tuple((folder, _changed_at(folder)) for folder in sys.path))


@lru_cache(maxsize=16)
def _select_entry_points(group: str, folders: tuple[tuple[str, int], ...]) -> EntryPoints:
    every: Any = _read_entry_points(folders)
    points: EntryPoints = every.select(group=group)
    return points


@lru_cache(maxsize=1)
def _read_entry_points(_folders: tuple[tuple[str, int], ...]) -> object:
    """Read the entry points of every installed package, which takes 10 milliseconds and more.

    Each version of Python returns another class; all have `select`.
    """
    return metadata.entry_points()


def _changed_at(folder: str) -> int:
    try:
        return Path(folder or ".").stat().st_mtime_ns
    except OSError:
        return 0


def load(group: str, name: str) -> Callable[..., Any]:
    """Load the factory that a package offers as `name` in `group`.

    The factory itself may raise any error.

    Raises:
        ConfigError: no package or more than one offers that name, importing it fails, or it is not callable.
    """
    factory = load_object(group, name)
    if not callable(factory):
        label = _label(group, name, _find(group, name))
        raise ConfigError(f"{label} is {type(factory).__name__}, which cannot be called to make one.")
    return factory  # type: ignore[no-any-return]  # entry points are untyped


def load_object(group: str, name: str) -> Any:
    """Load the object that a package offers as `name` in `group`. Raise `ConfigError` as `load` does."""
    point = _find(group, name)
    try:
        return point.load()
    # A plugin is someone else's code and may raise anything while it is imported, sys.exit() included.
    except (Exception, SystemExit) as error:
        hint = UPGRADE_HINT if _misses_our_name(error, point) else ""
        label = _label(group, name, point)
        raise ConfigError(f"{label} could not be loaded: {type(error).__name__}: {error}{hint}") from error


def _label(group: str, name: str, point: EntryPoint) -> str:
    return f"The plugin {name!r} of {group} ({point.value}, from the package {_package(point)})"


def _misses_our_name(error: BaseException, point: EntryPoint) -> bool:
    """Return true if a plugin imports a module or a name that this version of bubbot lacks."""
    name = error.name or "" if isinstance(error, ImportError) else ""
    return name.partition(".")[0] in ("bubbot", "channels") and name != point.module


def _find(group: str, name: str) -> EntryPoint:
    points = {point.value: point for point in find_entry_points(group).select(name=name)}
    if not points:
        offered = list_names(group)
        hint = did_you_mean(name, offered, otherwise=f"there are: {', '.join(offered) or 'none'}.")
        raise ConfigError(f"No plugin {name!r} in {group}: {hint}")
    if len(points) > 1:
        packages = " and ".join(sorted(map(_package, points.values())))
        raise ConfigError(f"The plugin {name!r} of {group} is offered by {packages}: uninstall all but one.")
    return next(iter(points.values()))


def find_package(group: str, name: str) -> str:
    """Return the package that offers a name in a group, or the name if the package has none."""
    packages = [point.dist.name for point in find_entry_points(group).select(name=name) if point.dist]
    return packages[0] if packages else name


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else "?"
