"""The feature: explaining an answer from the tape, without asking a model."""

from __future__ import annotations

from bubbot.feature import Feature
from bubbot.features.why.commands import why_tool
from bubbot.runtime.context.strategy import ContextStrategies
from bubbot.tape.events import KERNEL_REFERENCES
from bubbot.tape.references import ReferenceRegistry


def why_feature(strategies: ContextStrategies, references: ReferenceRegistry = KERNEL_REFERENCES) -> Feature:
    """Build the record; the strategies and the references of entries rebuild requests."""
    return Feature(name="why", tools=(why_tool(strategies, references),))
