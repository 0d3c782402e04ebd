"""Refusals, in the words of the real server."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aiohttp import web

from tests.fakes.platform.faults import Effect, Fault

Json = dict[str, Any]
"""One object of the Bot API, as it goes over the wire."""


class Refusal(Exception):
    """A request that is not carried out: the HTTP status, the description and the response parameters."""

    def __init__(self, status: int, description: str, parameters: Json | None = None) -> None:
        super().__init__(description)
        self.status = status
        self.description = description
        self.parameters = parameters

    def body(self) -> Json:
        """What the client reads."""
        body: Json = {"ok": False, "error_code": self.status, "description": self.description}
        return {**body, "parameters": self.parameters} if self.parameters else body

    def response(self) -> web.Response:
        return web.json_response(self.body(), status=self.status)


@dataclass(frozen=True, slots=True)
class Refuse(Fault):
    """A refusal in the form of the API, such as 429 with `retry_after` seconds."""

    status: int
    description: str
    retry_after: int | None = None
    effect: Effect = "before"

    def response(self) -> web.Response:
        parameters = {"retry_after": self.retry_after} if self.retry_after else None
        return Refusal(self.status, self.description, parameters).response()


def bad(description: str, **parameters: Any) -> Refusal:
    """400, with its prefix."""
    return Refusal(400, f"Bad Request: {description}", parameters)


def forbidden(description: str) -> Refusal:
    """403, with its prefix."""
    return Refusal(403, f"Forbidden: {description}")


def conflict(description: str) -> Refusal:
    """409, with its prefix."""
    return Refusal(409, f"Conflict: {description}")


def too_many(seconds: int) -> Refusal:
    """429: the client has to wait for whole seconds."""
    return Refusal(429, f"Too Many Requests: retry after {seconds}", {"retry_after": seconds})
