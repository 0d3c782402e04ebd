"""Provenance: whose words an entry is made of."""

from __future__ import annotations

from enum import StrEnum


class Source(StrEnum):
    """Whose words something is made of, from the least foreign on.

    `own`: those of owners, and the bot's own sentences. `people`: those of others who may speak. `world`: anything else,
    such as pages, files and tapes from outside, strangers, and forwarded messages.
    """

    OWN = "own"
    PEOPLE = "people"
    WORLD = "world"
