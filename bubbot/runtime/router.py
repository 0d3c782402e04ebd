"""The input router: what is a command, what is for the model, and what an answer really says."""

from __future__ import annotations

import re
from dataclasses import dataclass

from bubbot.texts import SILENT_MARK

COMMAND_PREFIX = ","
OVERTAKING = (",stop", ",status")
"""Commands that do not wait for the turn under way, and that nothing stops."""

THOUGHT_OPENS = re.compile(r"<(think|thinking|reasoning)>", re.IGNORECASE)
_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class RoutedAnswer:
    """What the model's text means for people: to be delivered, kept silent, or (empty) a failure."""

    text: str
    silent: bool = False
    empty: bool = False


def is_command(text: str) -> bool:
    """Whether a person's message is a command: one line that starts with a comma."""
    return text.lstrip().startswith(COMMAND_PREFIX)


def is_overtaking(text: str) -> bool:
    """Return true for a command that does not wait for the turn under way."""
    return text.strip() in OVERTAKING


def route_assistant(text: str) -> RoutedAnswer:
    """Strips leaked reasoning and recognises `[SILENT]`. The text is never executed, whatever it begins with."""
    said = _THOUGHT.sub("", text).strip()
    if said == SILENT_MARK:
        return RoutedAnswer("", silent=True)
    return RoutedAnswer(said, empty=not said)
