"""The config of a task: business rules in layers, each value with the layer it comes from."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct

from bubbot.features.tasks.sources import DefinitionInvalid, list_words
from bubbot.formatting import did_you_mean, show_value
from bubbot.json_schema import find_non_json, is_too_deep
from bubbot.tape.entry import canonical, encode
from bubbot.toml_tables import Problem, find_oversize

PRODUCT, HOME, TASK, RUN = "product", "home", "task", "run"
"""The layers, in this order: a later one replaces values of the earlier ones."""
MAX_CONFIG_BYTES = 65_536
"""The largest config, all layers together, as JSON."""
MAX_FILLED_CHARS = 200_000
"""The longest prompt or question with the values of the config."""
_KEY = re.compile(r"[A-Za-z0-9_-]+")
_KEY_FORM = "letters, digits, _ and -"
_PLACEHOLDER = re.compile(r"\{\{(?P<literal>[A-Za-z0-9_.-]+)\}\}|\{(?P<key>[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*)\}")


class ConfigValue(Struct, frozen=True):
    """A value of the config, and the layer that set it.

    Attributes:
        value: a JSON value that is not an object, except for objects within lists.
        origin: `product`, `home`, `task` or `run`.
    """

    value: Any
    origin: str


def layer_config(layers: Sequence[tuple[str, Mapping[str, Any]]]) -> dict[str, ConfigValue]:
    """Merge layers, the weakest first, each an origin and its tables; return the values by dotted key, in order of appearance.

    Tables merge; scalars and lists replace.

    Raises:
        DefinitionInvalid: with all problems: a scalar over a table or the reverse, a key or a value that cannot be used, or a
            config that is too large.
    """
    return _merge({}, layers)


def override_config(config: Mapping[str, ConfigValue], words: Sequence[str]) -> dict[str, ConfigValue]:
    """Return the config with what the words `KEY=VALUE` of one run set. Raise `DefinitionInvalid` with all problems.

    A value is read as TOML if it is a TOML value with a place in JSON, else it is a text.
    """
    return _merge(config, parse_overrides(words, config))


def parse_overrides(words: Sequence[str], known: Collection[str]) -> list[tuple[str, Mapping[str, Any]]]:
    """Read words `KEY=VALUE` into layers of one value each. Raise `DefinitionInvalid` with all problems.

    Args:
        words: as they are typed; of two with the same key the last one counts.
        known: the dotted keys that the layers below have.
    """
    problems: list[Problem] = []
    layers: list[tuple[str, Mapping[str, Any]]] = []
    for word in words:
        key, separator, text = word.partition("=")
        key = key.strip()
        if not separator or not key:
            problems.append(Problem("with", f"{show_value(word)} is not KEY=VALUE"))
            continue
        value = _read_value(text.strip())
        unknown = [each for each in _list_keys(key, value) if each not in known and not _is_table(each, known)]
        problems += [Problem(f"with {show_value(each)}", _explain_unknown(each, known)) for each in unknown]
        for name in reversed(key.split(".")):
            value = {name: value}
        layers.append((RUN, value))
    if problems:
        raise DefinitionInvalid(problems)
    return layers


def _explain_unknown(key: str, known: Collection[str]) -> str:
    hint = did_you_mean(key, known, otherwise=f"; there are: {list_words(known)}", before="; ")
    return f"no layer of the config has this key{hint}"


def find_placeholders(text: str) -> list[str]:
    """Return the dotted keys that a prompt or question names as `{key}`, each once, in order; `{{key}}` is no placeholder."""
    return list(dict.fromkeys(match["key"] for match in _PLACEHOLDER.finditer(text) if match["key"]))


def fill_placeholders(text: str, config: Mapping[str, ConfigValue]) -> str:
    """Put values of the config in place of `{key}`, lists as JSON, and `{key}` for `{{key}}`; leave unknown keys as they are.

    Raises:
        DefinitionInvalid: the text would have more than `MAX_FILLED_CHARS` characters.
    """
    values = {key: config[key].value for key in find_placeholders(text) if key in config}
    words = {key: value if isinstance(value, str) else encode(value) for key, value in values.items()}
    size = len(text) + sum(len(words.get(match["key"], "")) for match in _PLACEHOLDER.finditer(text))
    if size > MAX_FILLED_CHARS:
        message = f"with the values of the config it has {size} characters, and may have {MAX_FILLED_CHARS}: shorten it"
        raise DefinitionInvalid([Problem("config", message)])

    def fill(match: re.Match[str]) -> str:
        return f"{{{match['literal']}}}" if match["literal"] else words.get(match["key"], match[0])

    return _PLACEHOLDER.sub(fill, text)


def _merge(
    config: Mapping[str, ConfigValue], layers: Sequence[tuple[str, Mapping[str, Any]]]
) -> dict[str, ConfigValue]:
    merging = _Merging(config)
    for origin, tables in layers:
        if is_too_deep(tables):
            merging.problems.append(Problem("config", f"the tables of {origin} are nested too deep: make them flatter"))
        else:
            merging.add(origin, tables, "")
    if not merging.problems:
        size = len(canonical({key: each.value for key, each in merging.values.items()}).encode())
        if size > MAX_CONFIG_BYTES:
            message = f"it has {size} bytes as JSON, and may have {MAX_CONFIG_BYTES}: shorten it"
            merging.problems.append(Problem("config", message))
    if merging.problems:
        raise DefinitionInvalid(merging.problems)
    return merging.values


class _Merging:
    """A config while layers are merged into it."""

    def __init__(self, config: Mapping[str, ConfigValue]) -> None:
        self.values = dict(config)
        self.problems: list[Problem] = []
        self._tables: dict[str, str] = {}
        for key, each in config.items():
            for parent in _list_parents(key):
                self._tables.setdefault(parent, each.origin)

    def add(self, origin: str, tables: Mapping[str, Any], prefix: str) -> None:
        """Merge what stands below a prefix, which is empty or ends with a dot."""
        for name, value in tables.items():
            key = f"{prefix}{name}"
            if not _KEY.fullmatch(name):
                self._report(prefix, f"{origin} has the key {show_value(name)}: a key has only {_KEY_FORM}")
            elif isinstance(value, Mapping):
                if key in self.values:
                    self._report(
                        key, f"it is a table in {origin}, and a value in {self.values[key].origin}: keep one form"
                    )
                    continue
                self._tables.setdefault(key, origin)
                self.add(origin, value, f"{key}.")
            elif key in self._tables:
                self._report(key, f"it is a value in {origin}, and a table in {self._tables[key]}: keep one form")
            elif reason := find_non_json(value):
                self._report(key, f"the value in {origin} {reason}")
            else:
                self.values[key] = ConfigValue(value, origin)

    def _report(self, key: str, message: str) -> None:
        self.problems.append(Problem(f"config.{key}".rstrip("."), message))


def _read_value(text: str) -> Any:
    import tomlkit  # most runs override nothing
    from tomlkit.exceptions import TOMLKitError

    if find_oversize(text):
        return text
    try:
        value = tomlkit.value(text).unwrap()
    except (TOMLKitError, ValueError, RecursionError):
        return text
    return text if is_too_deep(value) or find_non_json(value) else value


def _list_keys(key: str, value: Any) -> list[str]:
    """Return the keys that a value at a key sets: those of its items for a table."""
    if not isinstance(value, Mapping):
        return [key]
    return [each for name, inner in value.items() for each in _list_keys(f"{key}.{name}", inner)]


def _is_table(key: str, known: Collection[str]) -> bool:
    """Return true for a key that has others below it: to set it is refused with the origins of both, when it is merged."""
    return any(each.startswith(f"{key}.") for each in known)


def _list_parents(key: str) -> list[str]:
    names = key.split(".")
    return [".".join(names[:count]) for count in range(1, len(names))]
