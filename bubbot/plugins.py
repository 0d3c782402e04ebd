"""Plugins: objects that packages offer by name in an entry-point group, such as `bubbot.channels`.

Only `load` imports a plugin.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib import import_module
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from bubbot.errors import ConfigError
from bubbot.ports.text import did_you_mean, replace_controls

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint, EntryPoints

FEATURE_GROUP = "bubbot.features"
"""The group of packages that add features."""
UPGRADE_HINT = ". The plugin was written for an older bubbot: docs/howto/upgrade.md lists the new names."


def list_names(group: str) -> list[str]:
    """Return the names offered in a group, sorted, each once; import none of them."""
    offers = _list_offers(group)
    return sorted(find_entry_points(group).names) if offers is None else sorted({name for name, _ in offers})


def _list_offers(group: str) -> list[tuple[str, str]] | None:
    """Return each name in a group and its target; None if only the standard library can read them.

    That one loads `email` and reads more of every package, which takes 20 milliseconds.
    """
    folders = [_read_offers(folder, _changed_at(folder)) for folder in sys.path]
    return None if None in folders else [offer for offers in folders if offers for offer in offers.get(group, ())]


@lru_cache(maxsize=64)
def _read_offers(folder: str, _changed: int) -> Mapping[str, Sequence[tuple[str, str]]] | None:
    """Read the entry points of all packages in a folder of the import path, by group; None if it is not a folder."""
    try:
        items = [*os.scandir(folder or ".")]
    except NotADirectoryError:
        return None
    except OSError:
        return {}
    offers: dict[str, list[tuple[str, str]]] = {}
    for item in items:
        if item.name.endswith((".dist-info", ".egg-info")):
            with suppress(OSError), open(f"{item.path}/entry_points.txt", "rb") as file:  # noqa: PTH123 - faster
                text = file.read().decode(errors="replace")
                for group, offer in _offers_in(text) if "bubbot" in text else ():  # the groups are all named after it
                    offers.setdefault(group, []).append(offer)
    return offers


def _offers_in(text: str) -> Iterator[tuple[str, tuple[str, str]]]:
    """Yield the groups of a text of entry points, lines `name = value` below `[group]`, with their names and values."""
    group = ""
    for line in text.splitlines():
        name, equals, value = line.partition("=")
        if line.startswith("["):
            group = line.strip().strip("[]")
        elif equals and not line.startswith(("#", ";")):
            yield group, (name.strip(), value.strip())


def describe(group: str) -> dict[str, str]:
    """Return a line about each package of a group, by name; import none of them."""
    points = sorted(find_entry_points(group), key=lambda point: point.name) if list_names(group) else []
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
    # Imported here: commands know of plugins, and few load one.
    from importlib import metadata

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
    values = {value for offered, value in _list_offers(group) or () if offered == name}
    # Without exactly one, `_find` has the words for it.
    value = values.pop() if len(values) == 1 else _find(group, name).value
    module, _, attributes = value.partition("[")[0].strip().partition(":")
    try:
        loaded: Any = import_module(module.strip())
        return attrgetter(attributes.strip())(loaded) if attributes else loaded
    # A plugin is someone else's code and may raise anything while it is imported, sys.exit() included.
    except (Exception, SystemExit) as error:
        point = _find(group, name)
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
