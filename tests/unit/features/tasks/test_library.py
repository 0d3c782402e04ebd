"""The tasks of a home, for somebody who asks while no bot runs."""

from __future__ import annotations

from pathlib import Path

from bubbot.features.tasks.library import TaskLibrary
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
