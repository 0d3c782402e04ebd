"""Updates that a bot on an older library meets, tried with python-telegram-bot 22.8.

`poll_of_an_older_server` and `date_far_away` make `Update.de_json` raise: the first because an option of a poll has no
`persistent_id` (a self-hosted server before Bot API 9.6 sends none), the second because the year is out of range.
`new_kind` is a kind of update that the library does not know: it parses, and nothing is in it.
"""

from __future__ import annotations

from typing import Any

Payload = tuple[str, dict[str, Any]]
"""The kind of an update and what is in it."""


def _message(**content: Any) -> dict[str, Any]:
    person = {"id": 77, "is_bot": False, "first_name": "Kim"}
    chat = {"id": 77, "type": "private", "first_name": "Kim"}
    return {"message_id": 900, "from": person, "chat": chat, "date": 1_790_000_000, **content}


def poll_of_an_older_server() -> Payload:
    """`TypeError` in the library."""
    options = [{"text": "tea", "voter_count": 0}, {"text": "coffee", "voter_count": 0}]
    poll = {
        "id": "5", "question": "Tea?", "options": options, "total_voter_count": 0, "is_closed": False,
        "is_anonymous": True, "type": "regular", "allows_multiple_answers": False,
    }  # fmt: skip
    return "message", _message(poll=poll)


def date_far_away() -> Payload:
    """`ValueError` in the library."""
    return "message", _message(text="hello", date=10**14)


def new_kind() -> Payload:
    """A kind that did not exist when the library was made."""
    return "hologram", {"id": "1", "from": {"id": 77, "is_bot": False, "first_name": "Kim"}}
