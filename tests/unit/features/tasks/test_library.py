"""The tasks of a home, for somebody who asks while no bot runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from bubbot.command import Caller
from bubbot.errors import ConfigError, ValueInvalid
from bubbot.features.tasks.library import TaskLibrary
from bubbot.features.tasks.results import NodeReport, RunGraph
from bubbot.features.tasks.sources import DefinitionInvalid
from bubbot.ports.channel import Role

FILES = {
    "task.toml": '[nodes.clean]\nprompt = "Clean up."\ntools = ["file.*"]\n',
    "scripts/rules.feature": "Feature: f\n  Scenario: s\n    When tool {tool} is called\n    Then it is refused\n",
}


def find_problems(home: Path, tool: str) -> list[str]:
    library = TaskLibrary(home, {})
    library.write("cleanup", {path: text.format(tool=tool) for path, text in FILES.items()})
    return [str(each) for each in library.check(library.load("cleanup"), Role.OWNER)]


def test_without_a_bot_a_rule_about_a_tool_of_a_pattern_is_no_dead_step(tmp_path: Path) -> None:
    assert find_problems(tmp_path, "file.edit") == []
    assert find_problems(tmp_path / "all", "file.*") == []


def test_without_a_bot_a_rule_about_a_tool_of_no_node_is_a_dead_step(tmp_path: Path) -> None:
    (problem,) = find_problems(tmp_path, "mail.send")
    assert "The task has no tool 'mail.send'" in problem


def test_the_layer_of_the_home_is_no_link(tmp_path: Path) -> None:
    (tmp_path / "secret.toml").write_text('key = "secret"\n')
    library = TaskLibrary(tmp_path, {})
    library.write("cleanup", {"task.toml": '[nodes.a]\nprompt = "{key}"\n'})
    (tmp_path / "tasks" / "config.toml").symlink_to(tmp_path / "secret.toml")
    with pytest.raises(DefinitionInvalid, match=r"tasks/config\.toml: the file cannot be read"):
        library.load("cleanup")


@pytest.mark.parametrize("is_file", [True, False])
def test_what_is_in_the_way_of_a_new_task_is_named(tmp_path: Path, is_file: bool) -> None:
    if is_file:
        (tmp_path / "tasks").write_text("")
        with pytest.raises(ConfigError, match="cannot be written"):
            TaskLibrary(tmp_path, {}).write("one", {"task.toml": ""})
    else:
        (tmp_path / "tasks").mkdir()
        (tmp_path / "tasks" / "one").symlink_to("nowhere")
        with pytest.raises(ValueInvalid, match="one"):
            TaskLibrary(tmp_path, {}).write("one", {"task.toml": ""})


def test_a_graph_shows_each_step_below_those_that_it_waits_for() -> None:
    nodes = [NodeReport(name, name, "queued", 0, after) for name, after in (("c", ("b",)), ("b", ("a",)), ("a", ()))]
    graph = RunGraph("K3Q7M", "t", "t", "stdin:x", "running", 1, "", tuple(nodes))
    assert graph.describe(Caller()).splitlines()[1:] == ["· a", "  · a → b", "    · b → c"]
