"""What features tell of a home without a bot: their health, from the tapes, and their checks for the doctor."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from bubbot import plugins
from bubbot.app.budget import budget_settings
from bubbot.features.budget.health import read_budget_health
from bubbot.features.files.settings import FileSettings
from bubbot.features.otel.settings import OtelSettings
from bubbot.features.otel.state import read_otel_health
from bubbot.features.schedule.health import read_schedule_health
from bubbot.features.schedule.settings import ScheduleSettings
from bubbot.features.shell.settings import ShellSettings
from bubbot.features.web.settings import WebSettings
from bubbot.plugins import FEATURE_GROUP
from bubbot.ports.checks import Check, HomeReader
from bubbot.ports.health import FeatureHealth, HealthContext
from bubbot.records import dataclass
from bubbot.server.protocol import decode, encode
from bubbot.settings.loader import Settings

log = logging.getLogger(__name__)

PACKAGE_TIMEOUT_SECONDS = 10.0
"""The time for a check, or for the health, of an installed feature."""


@dataclass(frozen=True, slots=True)
class Diagnostics:
    """What one feature tells.

    Attributes:
        name: that of the feature.
        pick: takes its settings from those of the bot.
        health: reports its health; None if it reports none.
        checks: its checks.
        package: the package that offers the feature; empty if it is one of bubbot's own.
    """

    name: str
    pick: Callable[[Settings], Any] = lambda _: None
    health: Callable[[HomeReader, HealthContext], Awaitable[FeatureHealth]] | None = None
    checks: Sequence[Check] = ()
    package: str = ""


OWN_HEALTH = (
    Diagnostics("schedule", lambda settings: settings.section(ScheduleSettings), read_schedule_health),
    Diagnostics("budget", budget_settings, read_budget_health),
    Diagnostics("otel", lambda settings: settings.section(OtelSettings), read_otel_health),
)
"""The features of bubbot that report their health, in the order of their reports."""


def list_checks() -> list[Diagnostics]:
    """Return the features with checks, in the order of their findings: bubbot's own, and installed ones that can be loaded."""
    # Imported here: `bubbot status` runs no checks.
    from bubbot.features.access.checks import ACCESS_CHECKS
    from bubbot.features.budget.checks import BUDGET_CHECKS
    from bubbot.features.conversation.checks import CONVERSATION_CHECKS
    from bubbot.features.files.checks import FILE_CHECKS
    from bubbot.features.otel.checks import OTEL_CHECKS
    from bubbot.features.schedule.checks import SCHEDULE_CHECKS
    from bubbot.features.shell.checks import SHELL_CHECKS
    from bubbot.features.trace.checks import TRACE_CHECKS
    from bubbot.features.web.checks import WEB_CHECKS
    from bubbot.gateway.quarantine import QUARANTINE_CHECKS

    return [
        Diagnostics("schedule", lambda settings: settings.section(ScheduleSettings), checks=SCHEDULE_CHECKS),
        Diagnostics("access", checks=ACCESS_CHECKS),
        Diagnostics("quarantine", checks=QUARANTINE_CHECKS),
        Diagnostics("conversation", checks=CONVERSATION_CHECKS),
        Diagnostics("files", lambda settings: settings.section(FileSettings), checks=FILE_CHECKS),
        Diagnostics("budget", budget_settings, checks=BUDGET_CHECKS),
        Diagnostics("web", lambda settings: settings.section(WebSettings), checks=WEB_CHECKS),
        Diagnostics("shell", lambda settings: settings.section(ShellSettings), checks=SHELL_CHECKS),
        Diagnostics("trace", lambda settings: settings.trace, checks=TRACE_CHECKS),
        Diagnostics("otel", lambda settings: settings.section(OtelSettings), checks=OTEL_CHECKS),
        *_installed_diagnostics(),
    ]


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
    """Return the health of every feature while no bot runs. Raise a `StoreError` if the tapes cannot be read."""
    reports = []
    for diagnostics in (*OWN_HEALTH, *_installed_diagnostics()):
        if diagnostics.health is None:
            continue
        reader = replace(home, settings=diagnostics.pick(settings))
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
    """Return the report of a package's feature, if it can be sent and printed. Raise an error that says why not."""
    if not isinstance(report, FeatureHealth):
        raise TypeError(f"it is {type(report).__name__}, not a FeatureHealth")
    return decode(json.loads(json.dumps(encode(report))), FeatureHealth)


def failed_health(name: str, error: Exception) -> FeatureHealth:
    """Log that a package's feature failed to report its health, and return a report that says so."""
    log.warning(
        "feature health check failed: %s: %s: %s",
        name,
        type(error).__name__,
        error,
        exc_info=error,
        extra={"action": "health.defect"},
    )
    return FeatureHealth(name=name, trouble=f"The feature {name} cannot report its health ({type(error).__name__}).")
