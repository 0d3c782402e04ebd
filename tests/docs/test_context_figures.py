"""The figures of the page about contexts show what requests have now."""

from __future__ import annotations

import pytest

from bubbot.app.strategies import OWN_STRATEGIES
from tests.docs.context_figures import FIGURE, PAGES, SIGNS, figures, replace_figures


@pytest.fixture(scope="module")
def drawn() -> dict[str, str]:
    return figures()


def test_the_figures_are_up_to_date(drawn: dict[str, str]) -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        assert replace_figures(text, drawn) == text, "`python -m tests.docs.context_figures` writes them again"


def test_every_strategy_has_one(drawn: dict[str, str]) -> None:
    for page in PAGES:
        names = [found[2] for found in FIGURE.finditer(page.read_text(encoding="utf-8"))]
        assert sorted(names) == sorted(item.name for item in OWN_STRATEGIES.own) == sorted(drawn)


def test_they_show_what_tells_the_strategies_apart(drawn: dict[str, str]) -> None:
    signs = {name: set(figure.splitlines()[1]) for name, figure in drawn.items()}
    assert SIGNS["pointer"] in signs["compact"]
    assert SIGNS["evidence"] in signs["retrieval"]
    assert SIGNS["pointer"] not in signs["window"]
