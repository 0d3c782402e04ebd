"""The page about watching the bot names every metric there is, and no other."""

from __future__ import annotations

import re

from bubbot.gateway.metrics import Metrics
from tests.docs.pages import ROOT
from tests.unit.gateway.health.test_formatter import FULL

PAGE = (ROOT / "docs" / "howto" / "monitoring.md").read_text(encoding="utf-8")


def test_every_metric_is_on_the_page_and_no_other() -> None:
    told = set(re.findall(r"^# TYPE (bubbot_\w+) ", Metrics().render(FULL, 0).decode(), re.MULTILINE))
    there = {name for name in told if not name.endswith("_created")}
    assert set(re.findall(r"`(bubbot_\w+)`", PAGE)) == there


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    alerts = PAGE.partition("Alerts that are worth having")[2].partition("\n## ")[0]
    asked = {name.removesuffix("_sum") for name in re.findall(r"bubbot_\w+", alerts)}
    assert len(asked) >= 5
    assert asked <= set(re.findall(r"`(bubbot_\w+)`", PAGE))
