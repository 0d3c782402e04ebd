"""The arguments of the commands about people."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from bubbot.arguments.fields import Args
from bubbot.errors import ValueInvalid
from bubbot.identity import is_id
from bubbot.ports.people import Account, Purpose


class ConsentArgs(Args, frozen=True):
    """A purpose, and an answer."""

    purpose: Annotated[
        Purpose | None,
        Meta(description="training, evaluation or sharing; empty: show what you allow"),
    ] = None
    answer: Annotated[
        Literal["yes", "no"] | None, Meta(description="yes: you allow it; no: you do not, from now on")
    ] = None


class ConsentsArgs(Args, frozen=True):
    """Whose answers to list."""

    person: Annotated[str, Meta(description="an account such as telegram:42 (default: everybody)", max_length=200)] = ""


class ExportPersonArgs(Args, frozen=True):
    """A person, and where to write."""

    person: Annotated[str, Meta(description="an account of the person, such as telegram:42", max_length=200)]
    target: Annotated[
        str,
        Meta(description="a new folder; or a new file: .jsonl for the lines, .html for the page", max_length=4_000),
    ]


def parse_account(text: str) -> Account:
    """Return the account that a text such as `telegram:42` names. Raise `ValueInvalid`."""
    channel, _, number = text.strip().rpartition(":")
    if not channel or not is_id(number):
        raise ValueInvalid("account_invalid", person=repr(text))
    return channel, number
