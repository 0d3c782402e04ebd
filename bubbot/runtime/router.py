"""The input router: which messages are commands, which go to the model, and what a model's text means."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bubbot.texts import SILENT_MARK

COMMAND_PREFIX = ","
OVERTAKING_COMMANDS = (",stop", ",status")
"""Commands that do not wait for the running turn, and that nothing stops."""

THOUGHT_OPENS = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RoutedAnswer:
    """The meaning of a model's text for people.

    Attributes:
        text: the text to deliver.
        silent: the model chose to say nothing.
        empty: there is no text, which is a failure.
    """

    text: str
    silent: bool = False
    empty: bool = False


def is_command(text: str) -> bool:
    """Return true if a message is a command: one line that starts with a comma."""
    return text.lstrip().startswith(COMMAND_PREFIX)


def is_overtaking(text: str) -> bool:
    """Return true for a command that does not wait for the running turn."""
    return text.strip() in OVERTAKING_COMMANDS


def route_assistant(text: str) -> RoutedAnswer:
    """Strip leaked reasoning and detect `[SILENT]`; the text is never executed, whatever it begins with."""
    visible = _THOUGHT.sub("", text).strip()
    if visible == SILENT_MARK:
        return RoutedAnswer("", silent=True)
    return RoutedAnswer(visible, empty=not visible)
