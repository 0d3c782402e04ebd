"""The settings with those of bubbot's own features."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.app.settings import load
from bubbot.errors import ConfigError


def test_a_strategy_that_nobody_has_is_refused_with_its_origin_and_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "config.toml").write_text("[context]\nselector = 'windw'\n")
    with pytest.raises(ConfigError, match=r"config\.toml: \[context\] selector is 'windw', .*did you mean 'window'\?"):
        load(home=tmp_path)


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ("[agents.rosi]\nstrategy = 'windw'", "[agents.rosi] strategy is 'windw', but must be one of auto, "),
        (
            "[agents.rosi]\nmemory = 'zoned'",
            "[agents.rosi] memory is 'zoned', but must be one of none, zones; did you mean 'zones'?",
        ),
        (
            "[agents.rosi]\n[agents.tom]\nnames = ['Tom', 'rosi']",
            "[agents.tom] names has 'rosi', which calls [agents.rosi]; choose another name.",
        ),
        (
            "[agents.rosi]\ntitle = 'Chef'\n[agents.tom]\ntitle = 'CHEF'",
            "[agents.tom] title has 'CHEF', which calls [agents.rosi]; choose another name.",
        ),
        (
            "[bot]\nname = 'Hugo'\n[agents.rosi]\ntitle = 'hugo'",
            "[agents.rosi] title has 'hugo', which calls the bot itself; choose another name.",
        ),
        (
            "[agents.rosi]\nanswers = ['telegram:-1']\n[agents.tom]\nanswers = ['telegram:-1']",
            "[agents.tom] answers has 'telegram:-1', where [agents.rosi] answers; only one agent can answer messages that call nobody.",
        ),
        (
            "[agents.bot]\n",
            "[agents.bot] has a name that cannot be used; it must be another one: 'bot' is the bot itself.",
        ),
        ("[agents.rosi]\ntols = []", "[agents.rosi] tols is not a setting; did you mean 'tools'?"),
    ],
)
def test_what_an_agent_names_has_to_exist_and_names_and_places_are_its_own(
    tmp_path: Path, tables: str, problem: str
) -> None:
    (tmp_path / "config.toml").write_text(tables)
    with pytest.raises(ConfigError) as refused:
        load(home=tmp_path)
    assert problem in str(refused.value)


def test_agents_with_names_of_their_own_are_taken(tmp_path: Path) -> None:
    views = "[memory.views.garden]\nnodes = ['topic garden']\n"
    agents = "[agents.rosi]\nmemory = 'garden'\nstrategy = 'retrieval'\n[agents.tom]\nmemory = 'none'\ntitle = 'Tom'\nnames = ['Tom', 'tom']\n"
    (tmp_path / "config.toml").write_text(views + agents)
    load(home=tmp_path)
