"""The dashboard asks for metrics that the bot really exposes, by labels that they have, and for all it should show."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from bubbot.app.bot import open_app
from bubbot.gateway.metrics import Metrics
from bubbot.home import Home
from bubbot.settings.loader import ModelSettings, Settings
from tests.docs.pages import ROOT
from tests.unit.gateway.health.test_formatter import FULL

DASHBOARD: dict[str, Any] = json.loads((ROOT / "docs" / "grafana.json").read_text(encoding="utf-8"))
CHARTS = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
TARGETS = [target for panel in CHARTS for target in panel["targets"]]
ASKED = re.compile(r"\b((?:bubbot|process)_\w+)(?=\{|,)")
OF_PROMETHEUS = {"job", "le"}
"""Labels that are not the bot's own."""


async def _exposed(home: Path) -> dict[str, set[str]]:
    """The samples of `/metrics` as a collector reads them, by name, with their labels."""
    settings = Settings(model=ModelSettings(name="scripted"))
    async with open_app(settings, Home(home), channel_settings={"write": lambda _: None}) as app:
        metrics = Metrics(app.features.metrics)
        metrics.attach(app.channel_runtimes.values(), app.turn_services.activity, None)
    page = metrics.render(FULL, 0).decode()
    declared = re.findall(r"^# TYPE (\w+) (\w+)", page, re.MULTILINE)
    found: dict[str, set[str]] = {name: set() for name, kind in declared if kind != "histogram"}
    for name, labels in re.findall(r"^(\w+)(?:\{(.*)\})? ", page, re.MULTILINE):
        found.setdefault(name, set()).update(re.findall(r'(\w+)="', labels))
    return found


async def test_every_chart_asks_for_metrics_that_there_are(tmp_path: Path) -> None:
    exposed = await _exposed(tmp_path)
    assert len(TARGETS) > 30
    for target in TARGETS:
        names = ASKED.findall(target["expr"])
        assert names, target["expr"]
        assert [name for name in names if name not in exposed] == [], target["expr"]


async def test_its_labels_are_those_of_its_metrics(tmp_path: Path) -> None:
    exposed = await _exposed(tmp_path)
    for target in TARGETS:
        labels = {label for name in ASKED.findall(target["expr"]) for label in exposed[name]} | OF_PROMETHEUS
        grouped = {one.strip() for by in re.findall(r"by \(([^)]*)\)", target["expr"]) for one in by.split(",")}
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        wanted = set(re.findall(r"(\w+)=~?\"", target["expr"])) | grouped | shown
        # A counter that nobody has counted yet has no series, so that its labels are not in the page.
        unknown = {name for name in ASKED.findall(target["expr"]) if not exposed[name]}
        assert wanted <= labels or unknown, (target["expr"], wanted - labels)


async def test_no_metric_of_the_bot_is_missing(tmp_path: Path) -> None:
    asked = {name for target in TARGETS for name in ASKED.findall(target["expr"])}
    whole = {re.sub(r"_(bucket|sum|count)$", "", name) for name in asked}
    bases = {re.sub(r"_(bucket|sum|count)$", "", name) for name in await _exposed(tmp_path)}
    assert {name for name in bases if name.startswith("bubbot_") and not name.endswith("_created")} <= whole | asked


def test_it_can_be_imported_anywhere() -> None:
    sources = {json.dumps(each["datasource"]) for each in [*CHARTS, *TARGETS]}
    assert sources == {json.dumps({"type": "prometheus", "uid": "${datasource}"})}
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(numbers) == len(set(numbers))
    assert {one["name"] for one in DASHBOARD["templating"]["list"]} == {"datasource", "job"}
