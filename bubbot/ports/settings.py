"""Tables of settings: the base class of their models, the types of their fields, and the sentences about wrong values.

A field declares its default, bounds and description once, for errors, the example configuration and the reference.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date, time
from functools import lru_cache
from pathlib import Path
from types import MappingProxyType, NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, TypeAlias, Union, cast, get_args, get_origin
from urllib.parse import urlsplit

from annotated_types import Ge, Gt, Le
from msgspec import Struct
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PrivateAttr,
    SecretStr,
    Strict,
    ValidationError,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticCustomError

from bubbot.errors import ConfigError
from bubbot.formatting import did_you_mean

Keys: TypeAlias = tuple[str, ...]
"""The path of a setting: section and key, or "channels", name and key."""

AUTO_SELECTOR = "auto"
"""The context strategy that depends on the model."""

_USERINFO = re.compile(r"//\S*@")
_TYPE_PHRASES = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    Path: "a path",
    SecretStr: "a secret text",
}
_CONSTRAINTS_WITHOUT_PHRASE = {"lt", "multiple_of", "min_length", "max_length", "pattern"}


def refuse_bool(value: object) -> object:
    """Refuse true and false for a number."""
    if isinstance(value, bool):
        raise ValueError  # noqa: TRY004 - pydantic wants this one; the sentence is made from the field
    return value


def blank_to_none(value: object) -> object:
    """Replace an empty text, which the environment may hold, by None."""
    return None if value == "" else value


def setting_error(predicate: str) -> PydanticCustomError:
    """Build the error of a validator with its own words; `predicate` follows the key and has no full stop.

    Any other `ValueError` of a validator must say what the value must be.
    """
    return PydanticCustomError("predicate", predicate)


def strip_text(value: object) -> object:
    """Strip the space around a text; refuse other values without showing them: they may be passwords."""
    if not isinstance(value, str):
        raise setting_error(f"has to be text, in quotes, and is {type(value).__name__}")
    return value.strip()


def _parse_flag(value: object) -> object:
    word = value.strip().lower() if isinstance(value, str) else value
    return word == "true" if word in ("true", "false") else value


def check_web_address(text: str, schemes: Sequence[str]) -> str:
    """Return the text if it is a web address with one of the schemes; else raise an error that omits it."""
    try:
        parts = urlsplit(text)
        complete = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        complete = False
    if not complete or re.search(r"[\s{}?#]", text):
        raise setting_error(f"has to be a whole web address such as {schemes[-1]}://host/path, without ? and #")
    return text


def web_address(*schemes: str) -> AfterValidator:
    """Build a validator of web addresses with one of the schemes; None passes."""
    return AfterValidator(lambda text: text if text is None else check_web_address(text, schemes))


Whole = Annotated[int, BeforeValidator(refuse_bool)]
Number = Annotated[float, BeforeValidator(refuse_bool)]
Flag = Annotated[bool, Strict(), BeforeValidator(_parse_flag)]
"""True or false, or these words from the environment; no other word."""
Text = Annotated[str, BeforeValidator(strip_text)]
"""A text without the space around it."""
OptionalText = Annotated[str | None, BeforeValidator(blank_to_none), BeforeValidator(strip_text)]
SecretText = Annotated[Text, "secret"]
Id = Annotated[str, "id"]
"""A numeric id as text; the code that uses it checks it."""
OptionalWhole = Annotated[int | None, BeforeValidator(refuse_bool), BeforeValidator(blank_to_none)]


def split_items(value: object) -> object:
    """Split a text from the environment into a list: JSON, or items separated by commas."""
    if not isinstance(value, str):
        return value
    text = value.strip()
    if text.startswith("["):
        try:
            return json.loads(text)
        except (ValueError, RecursionError):
            raise ValueError('a list such as a,b or ["a", "b"]') from None
    return [part.strip() for part in text.split(",") if part.strip()]


def matches(pattern: str, description: str) -> AfterValidator:
    """Build a validator that raises unless the whole text matches; None passes."""

    def check(text: str | None) -> str | None:
        if text is not None and not re.fullmatch(pattern, text):
            raise ValueError(description)
        return text

    return AfterValidator(check)


Name = Annotated[str, matches(r"\S([^\x00-\x1f\x7f]{0,62}\S)?", "a text of one line, 1 to 64 characters")]
Label = Annotated[Name, "label"]
"""The name of a table that people choose."""
Names = Annotated[list[str], BeforeValidator(split_items)]
OptionalNames = Annotated[list[str] | None, BeforeValidator(split_items)]


class SettingsSection(BaseModel):
    """A table of the settings. Its validator is built on first use: few tables are written.

    Attributes:
        renamed_keys: the new key by each old one, which still works.
        named_tables: the tables within it that people name, such as `channels.<name>`.
        table_field: the field that holds the tables which people name directly in the section, as `[agents.NAME]`; empty for
            none. A validator of the section gathers them there.
        needs_restart: a change takes effect at the next start, not at a reload.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True, defer_build=True)
    renamed_keys: ClassVar[Mapping[str, str]] = MappingProxyType({})
    named_tables: ClassVar[Mapping[str, type[SettingsSection]]] = MappingProxyType({})
    table_field: ClassVar[str] = ""
    needs_restart: ClassVar[bool] = False

    @classmethod
    def describe_wrong_value(cls, value: object, expected: str) -> str:
        """Return the predicate of the sentence about a wrong value."""
        return f"is {quote_value(value)}, but must be {expected}."

    @classmethod
    def describe_unknown_key(cls, key: str) -> str:
        """Return the predicate of the sentence about an unknown key. It omits the value, which may be a secret."""
        otherwise = "; docs/reference/config.md lists all settings."
        return f"is not a setting{did_you_mean(key, cls.model_fields, before='; ', otherwise=otherwise)}"

    def derived_secrets(self) -> Iterator[str]:
        """Yield secrets that are parts of values, such as the key in a header."""
        yield from ()


class AdapterSettings(SettingsSection):
    """The keys of `[channels.<name>]` that belong to an adapter. An empty value counts as not set.

    Attributes:
        platform: the platform's name for people.
    """

    platform: ClassVar[str]
    _channel: str = PrivateAttr(default="")

    @classmethod
    def read(cls, channel: str, table: Mapping[str, Any]) -> Self:
        """Validate the table of a channel.

        Raises:
            ConfigError: one line for each problem, with the key and the fix and without secrets.
        """
        try:
            return cls.model_validate(dict(table), context={"channel": channel})
        except ValidationError as error:
            raise ConfigError("\n".join(format_errors(error, cls, table, ("channels", channel)))) from None

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, table: dict[str, Any]) -> dict[str, Any]:
        return {
            key: value
            for key, value in table.items()
            if key not in cls.model_fields or (value is not None and value != "")
        }

    def model_post_init(self, context: Any) -> None:
        """Set the channel's name from the context of `read`."""
        if context:
            self._channel = context["channel"]

    @property
    def channel(self) -> str:
        """The configured name of the channel; empty without `read`."""
        return self._channel

    @classmethod
    def describe_wrong_value(cls, value: object, expected: str) -> str:
        """Return the predicate of the sentence about a wrong value."""
        return f"is {quote_value(value)} and has to be {expected}."

    @classmethod
    def describe_unknown_key(cls, key: str) -> str:
        """Return the predicate of the sentence about an unknown key."""
        hint = did_you_mean(key, cls.model_fields, otherwise="docs/reference/config.md lists the keys of a channel.")
        return f"is not a key of a {cls.platform} channel: {hint}"


@lru_cache(maxsize=256)
def nested_sections(model: type[BaseModel]) -> Mapping[str, type[SettingsSection]]:
    """Return the fields of a model that are sections."""
    return MappingProxyType(
        {
            name: field.annotation
            for name, field in model.model_fields.items()
            if isinstance(field.annotation, type) and issubclass(field.annotation, SettingsSection)
        }
    )


def describe_type(field: FieldInfo) -> str:
    """Describe the type and bounds of a setting as a phrase; return an empty text for a type without one."""
    kind, options = get_origin(field.annotation), get_args(field.annotation)
    if kind is Literal:
        return f"one of {', '.join(map(str, options))}"
    if kind is dict and isinstance(options[1], type) and issubclass(options[1], SettingsSection):
        return "tables by name" if "label" in get_args(options[0]) else "tables by numeric id"
    if kind is dict and float in get_args(options[1]):
        return "a table of numbers"
    if kind is list and options[0] in (Id, str):
        return "a list of numeric ids" if options[0] == Id else "a list of texts"
    if "secret" in field.metadata:
        return _TYPE_PHRASES[SecretStr]
    is_union = kind in (Union, UnionType)
    types = [option for option in options if option is not NoneType] if is_union else [field.annotation]
    if types == [list[str]]:
        return "a list of texts"
    phrases = [phrase for kind, phrase in _TYPE_PHRASES.items() if kind in types]
    if len(phrases) < len(types):
        return ""
    phrase = " or ".join(phrases)
    for constraint in field.metadata:
        match constraint:
            case Ge(ge=bound):
                phrase += f" from {bound:.12g}"
            case Gt(gt=bound):
                phrase += f" above {bound:.12g}"
            case Le(le=bound):
                phrase += f"{', at most' if 'above' in phrase else ' to'} {bound:.12g}"
    return phrase


def _contains_secret(kind: Any) -> bool:
    """Return true if a type is `SecretStr` or marked "secret", or has such a part."""
    marks = getattr(kind, "__metadata__", ())
    return kind is SecretStr or "secret" in marks or any(map(_contains_secret, get_args(kind)))


def describe_expected(item: ErrorDetails, field: FieldInfo) -> str:
    """Describe the required value: in the validator's words, else by type and bounds, else in pydantic's words."""
    context = item.get("ctx", {})
    phrase = str(context["error"]) if item["type"] == "value_error" else ""
    if not phrase and not _CONSTRAINTS_WITHOUT_PHRASE & context.keys():
        phrase = describe_type(field)
    return phrase or f"another value ({item['msg']})"


def format_errors(
    error: ValidationError,
    model: type[BaseModel],
    table: Mapping[str, Any],
    parent: Keys = (),
    origin: Callable[[Keys], str] = lambda _: "",
) -> list[str]:
    """Return a sentence for each problem: its origin, the setting, the value, and what it must be.

    Args:
        origin: returns the beginning of the sentence by the setting's path.
    """
    items = error.errors(include_url=False)  # one for each type of a union
    return list(dict.fromkeys(_format_error(item, model, table, parent, origin) for item in items))


def _format_error(
    item: ErrorDetails,
    model: type[BaseModel],
    table: Mapping[str, Any],
    parent: Keys,
    origin: Callable[[Keys], str],
) -> str:
    section, found = _find_section(model, tuple(map(str, item["loc"])))
    path = _as_written(model, found)
    if found and found[-1] and found[-1] == getattr(section, "table_field", ""):
        name = (*path, str(item["loc"][len(found)]))
        expected = describe_expected(item, section.model_fields[found[-1]])
        return f"{origin(name)}[{'.'.join(name)}] has a name that cannot be used; it must be {expected}."
    if not path or path[-1] in nested_sections(section):  # from a validator of the whole table
        table_path = (*parent, *path)
        return f"{origin(table_path)}[{'.'.join(table_path)}] {item['msg'].removeprefix('Value error, ')}."
    setting = f"{origin((*parent, *path))}{format_setting((*parent, *path))}"
    if item["type"] == "extra_forbidden":
        return f"{setting} {section.describe_unknown_key(path[-1])}"
    if item["type"] == "predicate":
        return f"{setting} {item['msg']}."
    expected = describe_expected(item, field := section.model_fields[path[-1]])
    if "secret" in field.metadata or _contains_secret(field.annotation):
        return f"{setting} is of the wrong type (the value is not shown), but must be {expected}."
    return f"{setting} {section.describe_wrong_value(_find_value(table, path, item), expected)}"


def _find_section(model: type[BaseModel], location: Keys, end: int = 1) -> tuple[type[SettingsSection], Keys]:
    """Return the section and the path of a setting, without the position inside its value."""
    field = model.model_fields.get(location[end - 1]) if location else None
    if field is not None:
        has_names = get_origin(field.annotation) is dict
        inner = get_args(field.annotation)[1] if has_names else field.annotation
        deeper = location[: end + has_names + 1]
        is_inside = len(deeper) > end + has_names and deeper[-1] != "[key]"
        if is_inside and isinstance(inner, type) and issubclass(inner, SettingsSection):
            return _find_section(inner, location, len(deeper))
    return cast("type[SettingsSection]", model), location[:end]


def _as_written(model: type[BaseModel], path: Keys) -> Keys:
    """Return the path of a setting without the fields that gather tables: people do not write them."""
    written: list[str] = []
    current: Any = model
    for key in path:
        field = current.model_fields.get(key) if hasattr(current, "model_fields") else None
        if field is None or key != getattr(current, "table_field", ""):
            written.append(key)
        current = None if field is None else field.annotation
    return tuple(written)


def _find_value(table: Mapping[str, Any], path: Keys, item: ErrorDetails) -> object:
    """Return the value of a setting as written; the error's value if a validator changed the tables."""
    value: object = table
    for key in path:
        if not isinstance(value, Mapping) or key not in value:
            return item["input"]
        value = value[key]
    return value


class SettingValue(Struct, frozen=True):
    """A setting as it holds now.

    Attributes:
        key: its name, such as `tools.shell.enabled`.
        value: its value; a secret is not shown.
        origin: `file`, `environment` or `default`.
    """

    key: str
    value: Any
    origin: str

    @property
    def text(self) -> str:
        """The value for people: a text unchanged, a list separated by commas."""
        if isinstance(self.value, list):
            return ", ".join(map(str, self.value))
        if self.value is None or isinstance(self.value, str):
            return self.value or ""
        return quote_value(self.value)

    @property
    def line(self) -> str:
        """The setting on a line, with its origin if it is not the file."""
        return f"{self.key} = {self.text}{'' if self.origin == 'file' else f'  # {self.origin}'}"


class EditsSettings(Protocol):
    """Reads and changes the settings of a home, one at a time. A method that raises `ConfigError` has changed nothing."""

    def list_values(self) -> list[SettingValue]:
        """List the settings that differ from the default, in the order of the reference."""
        ...

    def read(self, name: str) -> SettingValue:
        """Return one setting."""
        ...

    def set(self, name: str, text: str) -> None:
        """Write a setting as it was typed."""
        ...

    def unset(self, name: str) -> None:
        """Remove a setting from the file."""
        ...

    def find_override(self, name: str) -> str:
        """Return the environment variable that overrides the file; empty if none does."""
        ...


class ReloadResult(Struct, frozen=True):
    """The effect of a reload.

    Attributes:
        now: keys that apply now.
        later: keys that wait for the next start.
        begun: started or restarted channels.
        ended: ended channels.
    """

    now: tuple[str, ...] = ()
    later: tuple[str, ...] = ()
    begun: tuple[str, ...] = ()
    ended: tuple[str, ...] = ()


class ChangesSettings(Protocol):
    """Changes the settings of a running bot."""

    def edit(self) -> EditsSettings:
        """Read the current file."""
        ...

    async def reload(self) -> ReloadResult:
        """Apply the current file. Raise `ConfigError` if it is unusable: the bot keeps the old settings."""
        ...


def quote_value(value: object) -> str:
    """Format a value for a sentence: at most 80 characters, without the user and password of a web address."""
    if isinstance(value, bool):
        return str(value).lower()
    text = str(value) if isinstance(value, date | time) else _USERINFO.sub("//***@", repr(value))
    return text if len(text) <= 80 else f"{text[:80]}..."


def format_setting(path: Keys) -> str:
    """Format a setting as people write it, `[section] key`."""
    return f"[{'.'.join(path[:-1])}] {path[-1]}"
