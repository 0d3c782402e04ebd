"""The page about watching the bot names every metric there is, and no other, and quotes `bubbot status` as it is."""

from __future__ import annotations

import ast
import re

from bubbot.gateway.metrics import Metrics
from tests.docs.pages import ROOT
from tests.unit.gateway.health.test_formatter import FULL

PAGE = (ROOT / "docs" / "howto" / "monitoring.md").read_text(encoding="utf-8")


def test_the_sentences_of_status_are_quoted_as_they_are() -> None:
    source = (ROOT / "bubbot" / "cli" / "status.py").read_text(encoding="utf-8")
    sentences = [
        "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.JoinedStr)
    ] + [node.value for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Constant)]
    listed = PAGE.partition("the first line says what is wrong:")[2].partition("`bubbot status --json`")[0]
    quoted = re.findall(r"^- `(.+?)`", listed, re.MULTILINE)
    assert len(quoted) == 7
    named = [re.sub(r"Process 42|\b5\b|(?<=receives: ).+|(?<=from ).+", "X", sentence) for sentence in quoted]
    assert [one for one in named if not any(str(sentence).startswith(one) for sentence in sentences)] == []


def test_every_metric_is_on_the_page_and_no_other() -> None:
    told = set(re.findall(r"^# TYPE (bubbot_\w+) ", Metrics().render(FULL, 0).decode(), re.MULTILINE))
    there = {name for name in told if not name.endswith("_created")}
    assert set(re.findall(r"`(bubbot_\w+)`", PAGE)) == there


def test_the_alerts_ask_for_metrics_that_there_are() -> None:
    alerts = PAGE.partition("Alerts that are worth having")[2].partition("\n## ")[0]
    asked = {name.removesuffix("_sum") for name in re.findall(r"bubbot_\w+", alerts)}
    assert len(asked) >= 5
    assert asked <= set(re.findall(r"`(bubbot_\w+)`", PAGE))
