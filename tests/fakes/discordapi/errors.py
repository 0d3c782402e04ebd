"""Refusals, as Discord words them: an HTTP status, a JSON code, and for forms the errors of each field."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import isfinite
from typing import Any, Literal

from aiohttp import web

from tests.fakes.platform.faults import Effect, Fault

VIA = {"Via": "1.1 google"}
Json = dict[str, Any]
"""One object of the API, as it goes over the wire."""


class Refusal(Exception):
    """A request that is not carried out."""

    def __init__(self, status: int, code: int, message: str, *, errors: Json | None = None, **more: Any) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.errors = errors
        self.more = more

    def body(self) -> Json:
        """What the client reads."""
        body: Json = {"message": self.message, "code": self.code, **self.more}
        return body if self.errors is None else {**body, "errors": self.errors}


def json_response(status: int, body: object, headers: dict[str, str]) -> web.Response:
    """Answer in JSON without a character set: clients of Discord compare the content type to the letter."""
    if body is None:
        return web.Response(status=status, headers=headers)
    return web.Response(status=status, body=json.dumps(body).encode(), headers={**headers, "Content-Type": "application/json"})  # fmt: skip


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """A refusal in the form of the API, such as 500 with code 0 or 403 with code 50013."""

    status: int
    message: str = "Internal Server Error"
    code: int = 0
    effect: Effect = "before"

    def response(self) -> web.Response:
        return json_response(self.status, Refusal(self.status, self.code, self.message).body(), VIA)


@dataclass(frozen=True, slots=True)
class TooMany(Fault):
    """429 with the seconds to wait, as the API says it; `banned` is a block of the network in front of it."""

    retry_after: float
    scope: Literal["user", "global", "shared"] = "user"
    banned: bool = False
    effect: Effect = "before"

    def response(self) -> web.Response:
        headers = {"Retry-After": str(int(self.retry_after) + 1)} if isfinite(self.retry_after) else {}
        if self.banned:
            return web.Response(status=429, text="error code: 1015", headers=headers)
        headers |= {**VIA, "X-RateLimit-Scope": self.scope}
        if self.scope == "global":
            headers["X-RateLimit-Global"] = "true"
        return json_response(429, too_many(self.retry_after, everywhere=self.scope == "global"), headers)


def too_many(wait: float, *, everywhere: bool) -> Json:
    """The body of a 429."""
    return {"message": "You are being rate limited.", "retry_after": round(max(wait, 0.001), 3), "global": everywhere}


UNKNOWN = {
    "channel": 10003,
    "guild": 10004,
    "member": 10007,
    "message": 10008,
    "role": 10011,
    "user": 10013,
    "emoji": 10014,
    "webhook": 10015,
    "interaction": 10062,
}


def unknown(what: str) -> Refusal:
    """404 for something that is not there, or no longer."""
    return Refusal(404, UNKNOWN[what], "Unknown interaction" if what == "interaction" else f"Unknown {what.title()}")


def missing_access() -> Refusal:
    """403: the channel cannot be seen."""
    return Refusal(403, 50001, "Missing Access")


def missing_permissions() -> Refusal:
    """403: the channel can be seen, the act is not allowed."""
    return Refusal(403, 50013, "Missing Permissions")


def empty_message() -> Refusal:
    """400: no text, no file, nothing else to show."""
    return Refusal(400, 50006, "Cannot send an empty message")


def too_large() -> Refusal:
    """413: a file, or the whole request, is over the limit."""
    return Refusal(413, 40005, "Request entity too large")


def invalid_token() -> Refusal:
    """401: the token of an interaction has run out or is wrong."""
    return Refusal(401, 50027, "Invalid Webhook Token")


def form(*found: tuple[str, str, str]) -> Refusal:
    """400 with a nested errors object. Each finding is a path with dots, a code and a message."""
    errors: Json = {}
    for path, code, message in found:
        place = errors
        for step in path.split("."):
            place = place.setdefault(step, {})
        place.setdefault("_errors", []).append({"code": code, "message": message})
    return Refusal(400, 50035, "Invalid Form Body", errors=errors)


def required(path: str) -> tuple[str, str, str]:
    """The finding for a field that has to be there."""
    return path, "BASE_TYPE_REQUIRED", "This field is required"


def no_snowflake(path: str, value: object) -> tuple[str, str, str]:
    """The finding for something that is no id."""
    return path, "NUMBER_TYPE_COERCE", f'Value "{value}" is not snowflake.'
