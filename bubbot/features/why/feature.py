"""The feature: explaining an answer from the tape, without asking a model."""

from __future__ import annotations

from bubbot.feature import Feature
from bubbot.features.why.commands import session_why


def why_feature() -> Feature:
    """Build the record."""
    return Feature(name="why", tools=(session_why,))
