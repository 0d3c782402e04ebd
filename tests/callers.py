"""Who calls a command, in tests, and what a refusal says."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bubbot.command import Caller, Surface, explain
from bubbot.errors import CommandRefused, ConfigError
from bubbot.texts import Texts


def by(giver: str, pressed_value: str = "") -> Caller:
    """Return the caller of this id, `terminal` or `channel:id`, who may call every command; the service decides the rest."""
    return Caller(id=giver, has_confirmed=True, pressed_value=pressed_value)


@contextmanager
def refused(match: str = "") -> Iterator[None]:
    """Expect that a command is refused with a sentence in English that has this pattern in it."""
    with pytest.raises((CommandRefused, ConfigError)) as caught:
        yield
    error = caught.value
    text = explain(error, "it", Texts(), Surface.SHELL) if isinstance(error, CommandRefused) else str(error)
    assert re.search(match, text), text
