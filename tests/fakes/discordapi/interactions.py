"""Answers to interactions: the first one, and what the token of an interaction allows after it."""

from __future__ import annotations

from tests.fakes.discordapi import posting
from tests.fakes.discordapi.asked import Asked, Route
from tests.fakes.discordapi.desk import COMMAND, EPHEMERAL, LOADING, Interaction
from tests.fakes.discordapi.errors import Json, Refusal, form, invalid_token, unknown
from tests.fakes.discordapi.messages import changes_of, mentions_of, parts_of, shown
from tests.fakes.discordapi.world import Message


def _interaction(asked: Asked) -> Interaction:
    one = asked.site.desk.open.get(asked.path["token"])
    if one is None or one.id != asked.id("interaction"):
        raise unknown("interaction")
    if one.acknowledged:
        raise Refusal(400, 40060, "Interaction has already been acknowledged.")
    if asked.site.desk.late(one):
        raise unknown("interaction")
    return one


def callback(asked: Asked) -> object:
    """The first answer to an interaction."""
    one, given = _interaction(asked), asked.json
    kind, data = given.get("type"), given.get("data") or {}
    kinds = (4, 5) if one.kind == COMMAND else (4, 5, 6, 7)
    if kind not in kinds:
        words = f"Value must be one of {{{', '.join(map(str, kinds))}}}."
        raise form(("type", "BASE_TYPE_CHOICES", words))
    desk, flags = asked.site.desk, int(data.get("flags") or 0) & (1 << 2 | EPHEMERAL)
    if kind == 4:
        one.response = desk.show(one, parts_of(asked, one.channel, data), flags, first=True)
    elif kind == 5:
        one.response = desk.show(one, {}, flags | LOADING, first=True)
    elif one.source is not None:
        one.response = one.source
        if kind == 7:
            posting.edit(asked.world, one.source, **changes_of(asked, one.source, data))
    one.acknowledged, one.state = True, "deferred" if kind == 5 else "answered"
    asked.world.changed.set()
    if asked.query.get("with_response", "").lower() not in ("true", "1"):
        return None
    return _outcome(asked, one, kind)


def _outcome(asked: Asked, one: Interaction, kind: object) -> Json:
    told: Json = {"id": str(one.id), "type": one.kind}
    answer: Json = {"interaction": told}
    if one.response is not None:
        told |= {
            "response_message_id": str(one.response.id),
            "response_message_loading": bool(one.response.flags & LOADING),
            "response_message_ephemeral": one.response.ephemeral,
            "channel_id": str(one.channel.id),
        }
        if one.channel.guild is not None:
            told["guild_id"] = str(one.channel.guild.id)
        if kind in (4, 7):  # what is deferred has no message yet
            answer["resource"] = {"type": kind, "message": shown(asked, one.response)}
    return answer


def _webhook(asked: Asked) -> Interaction:
    """The interaction of a webhook address: its token is all that is needed, as long as it lives."""
    if asked.id("webhook") != asked.world.bot.application_id:
        raise unknown("webhook")
    one = asked.site.desk.open.get(asked.path["token"])
    if one is None:
        raise invalid_token()
    if asked.world.clock.now() > one.made + asked.site.desk.lifetime:
        raise invalid_token()
    if not one.acknowledged:
        raise unknown("webhook")
    return one


def _message(asked: Asked, one: Interaction) -> Message:
    if asked.path["message"] == "@original":
        found = one.response
    else:
        number = asked.id("message")
        found = next((each for each in [one.response, *one.followups] if each is not None and each.id == number), None)
    if found is None or found.id not in one.channel.messages:
        raise unknown("message")
    return found


def get(asked: Asked) -> Json:
    """The first answer, or a further one."""
    return shown(asked, _message(asked, _webhook(asked)))


def change(asked: Asked) -> Json:
    """Edits an answer; of a deferred one it is the answer itself."""
    one, given = _webhook(asked), asked.json
    message = _message(asked, one)
    changes = changes_of(asked, message, given)
    if message is one.response:
        message.flags &= ~LOADING
        one.state = "answered"
    posting.edit(asked.world, message, allowed=mentions_of(given), **changes)
    one.saw.append(posting.describe(asked.world, message))
    return shown(asked, message)


def remove(asked: Asked) -> None:
    """Deletes an answer."""
    one = _webhook(asked)
    message = _message(asked, one)
    posting.delete(asked.world, one.channel, [message.id])
    if message is one.response:
        one.state = "answered"


def follow(asked: Asked) -> Json | None:
    """A further answer; after a deferral the first of them is the answer itself."""
    one, given = _webhook(asked), asked.json
    parts = parts_of(asked, one.channel, given)
    if one.deferred and one.response is not None:
        message = one.response
        message.flags &= ~LOADING
        one.state = "answered"
        posting.edit(asked.world, message, **parts)
        one.saw.append(posting.describe(asked.world, message))
        return shown(asked, message)
    flags = int(given.get("flags") or 0) & (1 << 2 | EPHEMERAL)
    message = asked.site.desk.show(one, parts, flags, first=False)
    one.followups.append(message)
    return shown(asked, message)


_ONE = "/webhooks/{webhook}/{token}/messages/{message}"
INTERACTIONS: dict[str, Route] = {
    "POST /interactions/{interaction}/{token}/callback": callback,
    "POST /webhooks/{webhook}/{token}": follow,
    f"GET {_ONE}": get,
    f"PATCH {_ONE}": change,
    f"DELETE {_ONE}": remove,
}
"""Routes that need no token of the bot."""
