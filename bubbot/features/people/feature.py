"""The feature: what people allow, and everything about them."""

from __future__ import annotations

from bubbot.command import make_tools
from bubbot.feature import Feature
from bubbot.features.people.consent import ConsentService
from bubbot.features.people.export import EXPORT_TIMEOUT_SECONDS, ExportCommands


def people_feature(consents: ConsentService, exports: ExportCommands) -> Feature:
    """Build the record."""
    export = make_tools(ExportCommands, lambda: exports, people_export={"timeout": EXPORT_TIMEOUT_SECONDS})
    return Feature(name="people", tools=[*make_tools(ConsentService, lambda: consents), *export])
