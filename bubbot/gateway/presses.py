"""Presses of buttons: find the button, check the press, and rewrite the message afterwards."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from msgspec import Struct, structs

from bubbot.formatting import replace_controls
from bubbot.gateway.inbox import press_key
from bubbot.gateway.outbox import Outbox
from bubbot.ports.channel import Button, ButtonPress, ButtonSet, Inbound, MessagePart, Outbound, PressedButton, Role
from bubbot.ports.outbox import OutboxMessage
from bubbot.tape.query import parse_moment

PressRefusal: TypeAlias = Literal["forged", "expired", "foreign", "taken"]
"""Why a press does nothing: no such button, too late, not for this person, or the set was pressed before."""

MAX_EDITED_CHARS = 900
"""Characters of a message that gets a line about the press; a longer one could exceed a platform's limit."""
MAX_WORDS_CHARS = 64
"""Characters of a label or a name in that line."""
_PUNCTUATION = r"([!-/:-@\[-`{-~])"


class FoundButton(Struct, frozen=True):
    """A button that was offered.

    Attributes:
        place: the index of its part with the buttons.
        button: the pressed one.
    """

    intent: OutboxMessage
    place: int
    button_set: ButtonSet
    button: Button

    @property
    def part(self) -> MessagePart:
        """The part with the buttons, as it was sent."""
        return self.intent.parts[self.place]


async def find_button(outbox: Outbox, press: ButtonPress) -> FoundButton | None:
    """Find the button that a press names; None if no message in its chat offers it: then the id was forged.

    If the outbox knows the id of the delivered message, the press must name it. The outbox does not know it if the
    process ended before the receipt.
    """
    key, _, number = press.button.rpartition("/")
    if not (key and number.isascii() and number.isdecimal() and len(number) <= 3):
        return None
    intent = await outbox.find_intent(key)
    if intent is None:
        return None
    for place, part in enumerate(intent.parts):
        buttons = part.buttons
        if buttons is None or buttons.key != key or part.chat != press.chat or int(number) >= len(buttons.buttons):
            continue
        message = await outbox.receipt_of(intent, place)
        if message in (None, press.message):
            return FoundButton(intent, place, buttons, buttons.buttons[int(number)])
    return None


def refuse_press(press: ButtonPress, found: FoundButton | None, role: Role) -> PressRefusal | None:
    """Return the reason to refuse a press of somebody with this role; None if it counts."""
    if found is None:
        return "forged"
    buttons = found.button_set
    if buttons.person not in ("", press.sender.id) or not role.at_least(buttons.role):
        return "foreign"
    sent, pressed = parse_moment(found.intent.date), parse_moment(press.time)
    if sent is not None and pressed is not None and pressed - sent > timedelta(seconds=buttons.lifetime_seconds):
        return "expired"
    return None


def press_inbound(press: ButtonPress, found: FoundButton) -> Inbound:
    """Make the inbound of a press: the command of the button, from the person who pressed it."""
    key, button = found.button_set.key, found.button
    return Inbound(
        press.channel,
        press_key(key),
        press.chat,
        press.sender,
        button.command,
        press.time,
        thread=found.part.thread,
        direct=press.direct,
        space=press.space,
        press=PressedButton(press.external_id, key, press.message, button.label, button.value),
    )


def pressed_part(
    press: ButtonPress, found: FoundButton, split: Callable[[Outbound], Sequence[MessagePart]]
) -> MessagePart:
    """Make the part that replaces the pressed message: without its buttons, and with a line about the choice.

    In a group, and if only owners may press, the line names the person. It is Markdown and split like any message;
    labels and names in it are escaped.
    """
    part = structs.replace(found.part, buttons=None, edits=press.message, reply_to="")
    line = f"✓ {escape_label(found.button.label)}"
    if press.sender.name and (not press.direct or found.button_set.role is Role.OWNER):
        line += f" · {escape_label(press.sender.name)}"
    pieces = split(Outbound(press.channel, press.chat, line))
    if len(part.text) > MAX_EDITED_CHARS or len(pieces) != 1 or len(pieces[0].text) > MAX_EDITED_CHARS:
        return part
    return structs.replace(part, text=f"{part.text}\n\n{pieces[0].text}")


def escape_label(text: str) -> str:
    """Escape a text for one line of Markdown."""
    line = " ".join(replace_controls(text).split())[:MAX_WORDS_CHARS]
    return re.sub(_PUNCTUATION, r"\\\1", line)
