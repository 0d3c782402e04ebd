"""Commands and buttons as people use them: the interaction that the application gets."""

from __future__ import annotations

import uuid

from tests.fakes.discordapi import shapes
from tests.fakes.discordapi.desk import COMMAND, COMPONENT, Desk, Interaction
from tests.fakes.discordapi.errors import Json
from tests.fakes.discordapi.world import Channel, Message, User

USER_OPTION, CHANNEL_OPTION, ROLE_OPTION = 6, 7, 8
KINDS: dict[int, tuple[type, ...]] = {3: (str,), 4: (int,), 5: (bool,), 10: (int, float)}


def _begin(
    desk: Desk, channel: Channel, user: User, kind: int, name: str, source: Message | None = None
) -> Interaction:
    world = desk.world
    token = f"aW50ZXJhY3Rpb246{uuid.uuid4().hex * 3}"
    return Interaction(world.ids.next(), token, user, channel, kind, name, world.clock.now(), source=source)


def slash(desk: Desk, channel: Channel, user: User, command: str, options: dict[str, object]) -> Interaction:
    """Uses a command that the application has registered; `ValueError` for what the client would not let through."""
    first, *deeper = command.removeprefix("/").split()
    registered = {one["name"]: one for one in desk.world.bot.commands if one["type"] == 1}
    if first not in registered:
        raise ValueError(f"there is no command {first}; there are {sorted(registered)}")
    chosen = registered[first]
    data: Json = {"type": 1, "name": first, "id": chosen["id"]}
    place, declared = data, chosen.get("options", [])
    for name in deeper:
        option = next((one for one in declared if one["name"] == name and one["type"] in (1, 2)), None)
        if option is None:
            raise ValueError(f"{first} has no sub-command {name}")
        inner: Json = {"type": option["type"], "name": name}
        place["options"] = [inner]
        place, declared = inner, option.get("options", [])
    resolved: Json = {}
    given = [_option(desk, channel, one, options[one["name"]], resolved) for one in declared if one["name"] in options]
    missing = [one["name"] for one in declared if one.get("required") and one["name"] not in options]
    unknown = set(options) - {one["name"] for one in declared}
    if missing or unknown or any(one["type"] in (1, 2) for one in declared):
        raise ValueError(f"/{command}: missing {missing}, unknown {sorted(unknown)}, or a sub-command is needed")
    if given:
        place["options"] = given
    if resolved:
        data["resolved"] = resolved
    one = _begin(desk, channel, user, COMMAND, " ".join([first, *deeper]))
    desk.world.happened(channel, "service", user.name(), _typed(command, options))
    return desk.begin(one, data)


def _typed(command: str, options: dict[str, object]) -> str:
    words = " ".join(f"{name}:{getattr(value, 'username', value)}" for name, value in options.items())
    return f"used /{command.removeprefix('/')} {words}".rstrip()


def _option(desk: Desk, channel: Channel, declared: Json, value: object, resolved: Json) -> Json:
    kind, name = declared["type"], declared["name"]
    if kind == USER_OPTION and isinstance(value, User):
        resolved.setdefault("users", {})[str(value.id)] = shapes.user(value)
        if channel.guild is not None and value.id in channel.guild.members:
            member = shapes.member(channel.guild.members[value.id], with_user=False)
            resolved.setdefault("members", {})[str(value.id)] = {**member, "permissions": "0"}
        return {"type": kind, "name": name, "value": str(value.id)}
    if kind not in KINDS or not isinstance(value, KINDS[kind]) or (kind != 5 and isinstance(value, bool)):
        raise ValueError(f"{value!r} does not fit the option {name} of type {kind}")
    if isinstance(value, str) and not declared.get("min_length", 0) <= len(value) <= declared.get("max_length", 6000):
        raise ValueError(f"{name} has {len(value)} characters")
    choices = declared.get("choices")
    if choices and value not in [one["value"] for one in choices]:
        raise ValueError(f"{value!r} is no choice of {name}")
    return {"type": kind, "name": name, "value": value}


def press(desk: Desk, channel: Channel, user: User, message: Message, button: str) -> Interaction:
    """Presses a button of a message."""
    labels = {part.get("custom_id"): part["label"] for row in message.components for part in row.get("components", [])}
    if button not in labels:
        raise ValueError(f"the message has no button {button}")
    one = _begin(desk, channel, user, COMPONENT, button, message)
    desk.world.happened(
        channel, "service", user.name(), f"pressed “{labels[button]}” on #{desk.world.number(message.id)}"
    )
    return desk.begin(one, {"component_type": 2, "custom_id": button, "id": 1})
