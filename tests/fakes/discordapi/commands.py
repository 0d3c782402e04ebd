"""Application commands: the whole list at once, checked as the platform checks it."""

from __future__ import annotations

import re

from tests.fakes.discordapi.asked import Asked, Route
from tests.fakes.discordapi.errors import Json, Refusal, form, missing_access, required

Finding = tuple[str, str, str]
CHAT_INPUT, SUBCOMMAND, GROUP = 1, 1, 2
LENGTH = "BASE_TYPE_BAD_LENGTH"
LIMIT = 100
WORD = re.compile(r"[-_'\w\u0900-\u097f\u0e00-\u0e7f]{1,32}")


def _named(name: object, path: str, *, chat: bool) -> list[Finding]:
    if name is None:
        return [required(f"{path}.name")]
    if not 1 <= len(str(name)) <= 32:
        return [(f"{path}.name", LENGTH, "Must be between 1 and 32 in length.")]
    if chat and (not WORD.fullmatch(str(name)) or str(name) != str(name).lower()):
        words = "Command name is invalid" if path.count("options") == 0 else "Option name is invalid"
        return [(f"{path}.name", "APPLICATION_COMMAND_INVALID_NAME", words)]
    return []


def _described(given: Json, path: str) -> list[Finding]:
    words = given.get("description")
    if words is None:
        return [required(f"{path}.description")]
    if not 1 <= len(str(words)) <= 100:
        return [(f"{path}.description", LENGTH, "Must be between 1 and 100 in length.")]
    return []


def _options(given: Json, path: str, depth: int = 0) -> list[Finding]:
    options = given.get("options") or []
    if len(options) > 25:
        return [(f"{path}.options", "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length.")]
    found: list[Finding] = []
    names: set[str] = set()
    optional = False
    for place, option in enumerate(options):
        here = f"{path}.options.{place}"
        kind = option.get("type")
        if kind is None:
            found.append(required(f"{here}.type"))
        elif kind not in range(1, 12):
            found.append((f"{here}.type", "BASE_TYPE_CHOICES", "Value must be one of {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11}."))  # fmt: skip
        elif (kind == GROUP and depth > 0) or (kind == SUBCOMMAND and depth > 1):
            found.append((f"{here}.type", "APPLICATION_COMMAND_OPTIONS_TYPE_INVALID", "Sub-command option type is invalid"))  # fmt: skip
        found += _named(option.get("name"), here, chat=True) + _described(option, here)
        if option.get("name") in names:
            found.append((f"{here}.name", "APPLICATION_COMMAND_OPTIONS_NAME_ALREADY_EXISTS", "Option name already exists"))  # fmt: skip
        names.add(str(option.get("name")))
        if option.get("required") and optional:
            words = "Required options must be placed before non-required options"
            found.append((here, "APPLICATION_COMMAND_OPTIONS_REQUIRED_INVALID", words))
        optional = optional or (not option.get("required") and kind not in (SUBCOMMAND, GROUP))
        if len(option.get("choices") or []) > 25:
            found.append((f"{here}.choices", "BASE_TYPE_MAX_LENGTH", "Must be 25 or fewer in length."))
        found += _options(option, here, depth + 1)
    return found


def _size(given: Json) -> int:
    size = len(str(given.get("name") or "")) + len(str(given.get("description") or ""))
    size += sum(len(str(one.get("name"))) + len(str(one.get("value"))) for one in given.get("choices") or [])
    return size + sum(_size(option) for option in given.get("options") or [])


def check(given: list[Json]) -> None:
    """Refuses a list with every finding in it."""
    found: list[Finding] = []
    seen: set[tuple[object, int]] = set()
    for place, command in enumerate(given):
        path, kind = str(place), int(command.get("type", CHAT_INPUT))
        chat = kind == CHAT_INPUT
        if kind not in (1, 2, 3, 4):
            found.append((f"{path}.type", "BASE_TYPE_CHOICES", "Value must be one of {1, 2, 3, 4}."))
        found += _named(command.get("name"), path, chat=chat)
        if chat:
            found += _described(command, path) + _options(command, path)
        elif command.get("description"):
            words = "Context menu commands cannot have description"
            found.append((f"{path}.description", "APPLICATION_COMMAND_DESCRIPTION_NOT_ALLOWED", words))
        if (command.get("name"), kind) in seen:
            words = "Application command names must be unique"
            found.append((path, "APPLICATION_COMMANDS_DUPLICATE_NAME", words))
        seen.add((command.get("name"), kind))
        if _size(command) > 8000:
            found.append((path, "APPLICATION_COMMAND_TOO_LARGE", "Command exceeds maximum size (8000)"))
    if found:
        raise form(*found)
    if sum(1 for command in given if command.get("type", 1) == CHAT_INPUT) > LIMIT:
        raise Refusal(400, 30032, f"Maximum number of application commands reached ({LIMIT}).")


def _option(given: Json) -> Json:
    return {key: value for key, value in given.items() if value is not None and value is not False and value != []}


def _kept(asked: Asked, given: Json) -> Json:
    """The command as it is stored: an older one of the same name and type keeps its id."""
    kind = int(given.get("type", CHAT_INPUT))
    for old in asked.world.bot.commands:
        if (old["name"], old["type"]) == (given["name"], kind):
            number = old["id"]
            break
    else:
        number = str(asked.world.ids.next())
    shown: Json = {
        "id": number,
        "application_id": str(asked.world.bot.application_id),
        "version": str(asked.world.ids.next()),
        "default_member_permissions": given.get("default_member_permissions"),
        "type": kind,
        "name": given["name"],
        "name_localizations": given.get("name_localizations"),
        "description": given.get("description", ""),
        "description_localizations": given.get("description_localizations"),
        "dm_permission": given.get("dm_permission", True) is not False,
        "contexts": given.get("contexts"),
        "integration_types": given.get("integration_types") or [0],
        "nsfw": bool(given.get("nsfw")),
    }
    options = [_option(option) for option in given.get("options") or []]
    return {**shown, "options": options} if options else shown


def _own(asked: Asked) -> None:
    if asked.id("application") != asked.world.bot.application_id:
        raise missing_access()


def get(asked: Asked) -> list[Json]:
    """The commands there are."""
    _own(asked)
    return asked.world.bot.commands


def put(asked: Asked) -> list[Json]:
    """All commands from now on; what is not in the list goes."""
    _own(asked)
    given = asked.body
    if not isinstance(given, list):
        raise form(("_", "LIST_TYPE_CONVERT", "Only iterables may be used in a ListType"))
    check(given)
    asked.world.bot.commands = [_kept(asked, one) for one in given]
    return asked.world.bot.commands


COMMANDS: dict[str, Route] = {
    "GET /applications/{application}/commands": get,
    "PUT /applications/{application}/commands": put,
}
