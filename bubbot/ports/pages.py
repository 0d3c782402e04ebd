"""The pages port: the pages that a feature shows to browsers, and their viewers.

The server authenticates viewers and sends answers with headers that allow only scripts from here; a feature only makes
pages. Neither knows the other.
"""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping
from hashlib import sha256
from typing import Protocol

from msgspec import Struct

from bubbot.errors import BubbotError
from bubbot.tape.boundary import Viewer


class PageRequest(Struct, frozen=True):
    """A request for a page, or what a form of a page sends.

    Attributes:
        path: the decoded parts of the path; none for the first page. Untrusted.
        query: the last value of each parameter. Untrusted.
        form: the last value of each field of a form; None: nobody sends one. Untrusted.
    """

    path: tuple[str, ...]
    query: Mapping[str, str]
    viewer: Viewer
    form: Mapping[str, str] | None = None

    def number(self, name: str, default: int | None = None) -> int | None:
        """Return a parameter as a number of at most 18 digits; `default` if it is missing or not one."""
        return parse_number(self.query.get(name, ""), default)


def parse_number(text: str, default: int | None = None) -> int | None:
    """Parse a number of at most 18 digits, which every store can compare; `default` if it is not one."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 19 else default


def file_policy(style: str) -> str:
    """Return the content security policy of a page that is a file: this style, and nothing else."""
    digest = b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


class PageAnswer(Struct, frozen=True):
    """The response to a request.

    Attributes:
        content_type: its media type; texts are UTF-8.
        status: the HTTP status.
        location: the target of a redirect; empty: none.
        filename: the name for a download; empty: the browser shows it.
        policy: its own content security policy, for a download; empty: the server's.
    """

    body: bytes = b""
    content_type: str = "text/html"
    status: int = 200
    location: str = ""
    filename: str = ""
    policy: str = ""


class LoginForm(Struct, frozen=True):
    """The content of the page that asks for a token.

    Attributes:
        next_path: the path to open afterwards.
        is_wrong: the given token was wrong or has expired.
    """

    next_path: str = "/"
    is_wrong: bool = False


class Pages(Protocol):
    """The pages of a feature."""

    def find_asset(self, name: str) -> PageAnswer | None:
        """Return a public file, such as the style sheet; None if unknown."""
        ...

    def ask_for_token(self, form: LoginForm) -> PageAnswer:
        """Return the page that asks for a token."""
        ...

    def show_error(self, error: BubbotError, status: int) -> PageAnswer:
        """Return the page about an error."""
        ...

    async def answer(self, request: PageRequest) -> PageAnswer:
        """Return a page, or do what a form asks for and return where to go then.

        Raises:
            AccessError: the viewer may not see the page, or may not do that.
            EntryNotFound: there is no such page, or it has no form.
        """
        ...
