"""The feature: what people allow, and everything about them."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.people.consent import ConsentService
from bubbot.features.people.export import ExportCommands


def people_feature(consents: ConsentService, exports: ExportCommands) -> Feature:
    """Build the record."""
    tools = [*make_tools(ConsentService, lambda: consents), *make_tools(ExportCommands, lambda: exports)]
    return Feature(name="people", tools=tools)
