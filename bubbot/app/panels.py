"""The panels of the trace page and the boundary through which they read. It builds no features."""

from __future__ import annotations

from collections.abc import Sequence

from bubbot.app.feature_settings import feature_settings
from bubbot.app.installed import InstalledFeatures, feature_section
from bubbot.app.own_features import find_parts
from bubbot.gateway.panels import PANELS as GATEWAY_PANELS
from bubbot.panel import FeaturePanel
from bubbot.settings.loader import Settings
from bubbot.tape.boundary import TapeBoundary, Viewer
from bubbot.tape.store import TapeStore


def load_panels(settings: Settings, installed: InstalledFeatures = InstalledFeatures()) -> tuple[FeaturePanel, ...]:  # noqa: B008 - frozen
    """Load the panels of all features in the order of the page; those of packages come last."""
    panels = [
        FeaturePanel(name, panel, feature_settings(name, settings))
        for name, own in find_parts("panels", "PANELS")
        for panel in own
    ]
    panels += [FeaturePanel("gateway", panel, None) for panel in GATEWAY_PANELS]
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
    """Put the boundary of a viewer in front of a store opened for reading."""
    shared = dict.fromkeys(shared for each in panels for shared in each.panel.shared)
    return TapeBoundary(store, viewer, workspace=workspace, references=installed.references, shared=tuple(shared))
