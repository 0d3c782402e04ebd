"""The pages port: what a feature shows to browsers, and how it names who looks.

The server checks who asks, and sends the answers with headers that let nothing run but what comes from here; a feature
only makes pages. Neither knows the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from bubbot.errors import BubbotError
from bubbot.records import dataclass
from bubbot.tape.boundary import Viewer


@dataclass(frozen=True, slots=True)
class PageRequest:
    """What somebody wants to see.

    Attributes:
        path: the parts of the path, decoded; none for the first page. Foreign: anything may stand in it.
        query: the last value of each parameter. Foreign, too.
        viewer: who looks.
    """

    path: tuple[str, ...]
    query: Mapping[str, str]
    viewer: Viewer

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a parameter as a number of at most 18 digits; `default` if it is missing or none."""
        return parse_number(self.query.get(name, ""), default)


def parse_number(text: str, default: int | None = None) -> int | None:
    """Return a text as a number of at most 18 digits, which every store can compare; `default` if it is none."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


@dataclass(frozen=True, slots=True)
class PageAnswer:
    """What is sent.

    Attributes:
        body: the content.
        content_type: its media type; texts are UTF-8.
        status: of HTTP.
        location: where to look instead; empty: nowhere.
        filename: the name under which a browser stores it; empty: it shows it.
        policy: a content security policy of its own, for a file that is stored; empty: that of the server.
    """

    body: bytes = b""
    content_type: str = "text/html"
    status: int = 200
    location: str = ""
    filename: str = ""
    policy: str = ""


@dataclass(frozen=True, slots=True)
class LoginForm:
    """What the page for a token says.

    Attributes:
        next_path: where to go afterwards.
        is_wrong: a token was given, and it was wrong or is over.
    """

    next_path: str = "/"
    is_wrong: bool = False


class Pages(Protocol):
    """The pages of a feature."""

    def find_asset(self, name: str) -> PageAnswer | None:
        """Return a file that everybody may have, such as the style; None if there is none."""
        ...

    def ask_for_token(self, form: LoginForm) -> PageAnswer:
        """Return the page that asks for a token."""
        ...

    def show_error(self, error: BubbotError, status: int) -> PageAnswer:
        """Return the page that tells an error."""
        ...

    async def answer(self, request: PageRequest) -> PageAnswer:
        """Return a page. Raise `AccessError` for what the viewer may not see, `EntryNotFound` for what is not there."""
        ...
