"""Diagnostics of features without a running bot: their health, read from the tapes, and their checks."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from msgspec import Struct, structs

from bubbot import plugins
from bubbot.app.feature_settings import feature_settings
from bubbot.app.own_features import find_parts
from bubbot.plugins import FEATURE_GROUP
from bubbot.ports.checks import Check, HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.server.protocol import decode, encode
from bubbot.settings.loader import Settings

log = logging.getLogger(__name__)

PACKAGE_TIMEOUT_SECONDS = 10.0
"""Seconds for a check or the health of an installed feature."""


class Diagnostics(Struct, frozen=True):
    """The diagnostics of one feature.

    Attributes:
        name: the feature.
        pick: picks its settings from those of the bot.
        health: reports its health; None if it has no report.
        package: the package that offers the feature; empty for bubbot's own.
    """

    name: str
    pick: Callable[[Settings], Any] = lambda _: None
    health: Callable[[HomeReader, HealthContext], Awaitable[FeatureHealth]] | None = None
    checks: Sequence[Check] = ()
    package: str = ""


def _list_own(module: str, name: str) -> list[tuple[str, Callable[[Settings], Any], Any]]:
    return [(feature, partial(feature_settings, feature), part) for feature, part in find_parts(module, name)]


def list_checks() -> list[Diagnostics]:
    """Return the features with checks in the order of their findings: bubbot's own, then loadable installed ones."""
    # Imported here: `bubbot status` runs no checks.
    from bubbot.gateway.quarantine import QUARANTINE_CHECKS

    own = [Diagnostics(name, pick, checks=checks) for name, pick, checks in _list_own("checks", "CHECKS")]
    return [Diagnostics("quarantine", checks=QUARANTINE_CHECKS), *own, *_installed_diagnostics()]


def _installed_diagnostics() -> list[Diagnostics]:
    if not plugins.list_names(FEATURE_GROUP):
        return []
    # Imported here: few homes have features of packages.
    from bubbot.app.installed import feature_section, load_features

    return [
        Diagnostics(
            factory.name,
            partial(feature_section, factory),
            factory.health,
            factory.checks,
            plugins.find_package(FEATURE_GROUP, factory.name),
        )
        for factory in load_features().factories
    ]


async def read_health(home: HomeReader, settings: Settings, context: HealthContext) -> tuple[FeatureHealth, ...]:
    """Return the health of all features while no bot runs. Raise a `StoreError` if the tapes are unreadable."""
    reports = []
    own = [Diagnostics(name, pick, health) for name, pick, health in _list_own("health", "read_health")]
    for diagnostics in (*own, *_installed_diagnostics()):
        if diagnostics.health is None:
            continue
        reader = structs.replace(home, settings=diagnostics.pick(settings))
        if not diagnostics.package:
            reports.append(await diagnostics.health(reader, context))
            continue
        try:
            async with asyncio.timeout(PACKAGE_TIMEOUT_SECONDS):
                reports.append(check_health(await diagnostics.health(reader, context)))
        except Exception as error:  # noqa: BLE001 - a package is someone else's code
            reports.append(failed_health(diagnostics.name, error))
    return tuple(reports)


def check_health(report: object) -> FeatureHealth:
    """Return the report of a package's feature if it can be encoded. Raise an error with the reason otherwise."""
    if not isinstance(report, FeatureHealth):
        raise TypeError(f"it is {type(report).__name__}, not a FeatureHealth")
    return decode(json.loads(json.dumps(encode(report))), FeatureHealth)


def failed_health(name: str, error: Exception) -> FeatureHealth:
    """Log that a package's feature failed to report its health; return a report that says so."""
    log.warning(
        "feature health check failed: %s: %s: %s",
        name,
        type(error).__name__,
        error,
        exc_info=error,
        extra={"action": "health.defect"},
    )
    return FeatureHealth(name=name, trouble=f"The feature {name} cannot report its health ({type(error).__name__}).")
