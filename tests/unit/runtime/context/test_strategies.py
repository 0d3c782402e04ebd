"""Context strategies by name, and requests that were recorded with one."""

from __future__ import annotations

import pytest

from bubbot.app.strategies import OWN_STRATEGIES, SELECTORS
from bubbot.errors import ConfigError
from bubbot.runtime.context.strategy import ContextInput, ContextStrategies, ContextStrategy, ModelContext
from bubbot.runtime.context.view import ContextView
from bubbot.tape.anchor import anchor
from bubbot.tape.entry import event


def nothing(source: ContextInput) -> ModelContext:
    return ModelContext(())


def having(version: int) -> ContextStrategies:
    return OWN_STRATEGIES.extend(["nothing"], lambda name: ContextStrategy(name, nothing, version))


def test_ours_are_found_by_the_names_that_the_settings_use() -> None:
    assert SELECTORS == ("window", "messages", "full", "from:<anchor>", "compact", "summary", "retrieval")
    for selector in ("window", "messages", "full", "from:phase/one", "compact", "summary", "retrieval"):
        assert OWN_STRATEGIES.find(selector).matches(selector)


@pytest.mark.parametrize("selector", ["", "from", "from:", "from:<anchor>", "window:x", "windw"])
def test_other_names_are_refused(selector: str) -> None:
    with pytest.raises(ConfigError, match="it has to be one of window"):
        OWN_STRATEGIES.find(selector)


def test_the_record_names_the_strategy_and_its_version() -> None:
    recorded = ContextView("nothing", strategies=having(3)).as_json()
    assert (recorded["selector"], recorded["strategy_version"]) == ("nothing", 3)
    assert ContextView.from_json(recorded, having(3)).strategy.version == 3


def test_another_version_or_none_cannot_rebuild_it() -> None:
    recorded = ContextView("nothing", strategies=having(3)).as_json()
    with pytest.raises(ConfigError, match="by version 3 of the context strategy 'nothing'; installed is version 4"):
        ContextView.from_json(recorded, having(4))
    with pytest.raises(ConfigError, match=r"strategy 'nothing' \(version 3\), which cannot be used here"):
        ContextView.from_json(recorded)


def test_a_record_from_before_strategies_had_versions_is_of_the_first() -> None:
    recorded = dict(ContextView().as_json())
    del recorded["strategy_version"]
    assert ContextView.from_json(recorded) == ContextView()


def test_a_reading_starts_where_the_newest_event_of_the_window_itself_says() -> None:
    strategy = OWN_STRATEGIES.find("compact")
    opening = [anchor("session/start", {"owner": "human"}).with_id(5)]
    own, of_subtask = event("context/cut", {"from": 9}), event("context/cut", {"from": 20}, fork="fork-1")
    assert strategy.find_start(opening, [of_subtask.with_id(30), own.with_id(12)]) == 9
    assert strategy.find_start(opening, [of_subtask.with_id(30)]) is None
    assert strategy.find_start(opening, [own.with_id(4)]) is None  # of the window before
    assert strategy.find_start([], [own.with_id(12)]) is None
    for start in (3, 12, 40, "9", None):
        assert strategy.find_start(opening, [event("context/cut", {"from": start}).with_id(12)]) is None
