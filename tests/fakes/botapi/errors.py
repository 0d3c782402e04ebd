"""Refusals, in the words of the real server."""

from __future__ import annotations

from typing import Any

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
