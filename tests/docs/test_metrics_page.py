"""The page about watching the bot names every metric there is, and no other, and quotes `bubbot status` as it is."""

from __future__ import annotations

import re
from pathlib import Path

from bubbot.app.bot import open_app
from bubbot.gateway.metrics import Metrics
from bubbot.home import Home
from bubbot.settings.loader import ModelSettings, Settings
from bubbot.texts.catalogue import read_catalogue
from tests.docs.pages import ROOT
from tests.unit.gateway.health.test_formatter import FULL

PAGE = (ROOT / "docs" / "howto" / "monitoring.md").read_text(encoding="utf-8")


def test_the_sentences_of_status_are_quoted_as_they_are() -> None:
    entries = read_catalogue("bubbot.texts", "verdict", "en").entries.values()
    sentences = [re.sub(r"\{[^}]*\}", "X", entry.singular) for entry in entries]
    listed = PAGE.partition("with what\nis wrong:")[2].partition("`bubbot status --json`")[0]
    quoted = re.findall(r"^- `(.+?)`", listed, re.MULTILINE)
    assert len(quoted) == 8
    named = [
        re.sub(r"Process 42|\b5\b|(?<=received from ).+|(?<=comes from )\S+|(?<=since )….*", "X", sentence)
        for sentence in quoted
    ]
    assert [one for one in named if not any(sentence.startswith(one) for sentence in sentences)] == []


async def test_every_metric_is_on_the_page_and_no_other(tmp_path: Path) -> None:
    settings = Settings(model=ModelSettings(name="scripted"))
    async with open_app(settings, Home(tmp_path), channel_settings={"write": lambda _: None}) as app:
        declared = app.features.metrics
    page = Metrics(declared).render(FULL, 0).decode()
    told = re.findall(r"^# TYPE (bubbot_\w+) ", page, re.MULTILINE)
    assert len(told) == len(set(told))
    shown = {name.removesuffix("_total") for name in told}
    assert {spec.name for spec in declared} <= shown, "names are unique, else one is left out"
    assert set(re.findall(r"`(bubbot_\w+)`", PAGE)) == {name for name in told if not name.endswith("_created")}


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    alerts = PAGE.partition("Alerts that are worth having")[2].partition("\n## ")[0]
    asked = {name.removesuffix("_sum") for name in re.findall(r"bubbot_\w+", alerts)}
    assert len(asked) >= 5
    assert asked <= set(re.findall(r"`(bubbot_\w+)`", PAGE))
