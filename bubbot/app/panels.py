"""The panels of the trace page, and the boundary that they read through. No feature is built for them."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module

from bubbot.app.commands import OWN_COMMANDS
from bubbot.app.installed import InstalledFeatures, feature_section
from bubbot.ports.panel import FeaturePanel, Panel
from bubbot.settings.loader import Settings
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.tape.store import TapeStore

OWN_PANELS = (
    "features.conversation", "features.search", "features.memory", "features.schedule", "gateway", "features.approvals", "features.usage", "features.replay",
)  # fmt: skip
"""The packages of bubbot with panels, in the order of the page; each has them in `panels.py` as `PANELS`."""


def load_panels(settings: Settings, installed: InstalledFeatures = InstalledFeatures()) -> tuple[FeaturePanel, ...]:  # noqa: B008 - frozen
    """Load the panels of all features, in the order of the page; those of packages come last."""
    panels = []
    for package in OWN_PANELS:
        own: Sequence[Panel] = import_module(f"bubbot.{package}.panels").PANELS
        name = package.rpartition(".")[2]
        section = OWN_COMMANDS[name].pick(settings) if name in OWN_COMMANDS else None
        panels += [FeaturePanel(name, panel, section) for panel in own]
    for factory in installed.factories:
        section = feature_section(factory, settings)
        panels += [FeaturePanel(factory.name, panel, section) for panel in factory.panels]
    return tuple(panels)


def open_boundary(
    store: TapeStore,
    viewer: Viewer,
    workspace: str,
    panels: Sequence[FeaturePanel],
    installed: InstalledFeatures = InstalledFeatures(),  # noqa: B008 - frozen
) -> TapeBoundary:
    """Put the boundary of a viewer in front of a store that was opened for reading."""
    shared = dict.fromkeys(shared for each in panels for shared in each.panel.shared)
    return TapeBoundary(store, viewer, workspace=workspace, references=installed.references, shared=tuple(shared))
