"""Write AgentDojo's tasks as JSON, for tests in an environment without it. Runs in its own: `make agentdojo`.

    python tests/dojo/export.py FILE

The file has, for each suite, `tools`; `tasks` and `attacks` by id, each with the text that asks for it and the calls
that carry it out, in AgentDojo's own words. A call is `{"tool", "arguments", "result"}`; `INJECTION` stands in a result
wherever an attacker may put a text.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # type: ignore[import-not-found]
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # type: ignore[import-not-found]
from agentdojo.task_suite.load_suites import get_suites  # type: ignore[import-not-found]

VERSION = "v1.2.2"
INJECTION = "INJECTION"
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.\w+")


def main(target: str) -> int:
    """Write the file."""
    suites = {name: export_suite(suite) for name, suite in get_suites(VERSION).items()}
    path = Path(target)
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps({"version": VERSION, "suites": suites}, indent=1), encoding="utf-8")
    partial.replace(path)
    return 0


def export_suite(suite: Any) -> dict[str, Any]:
    """Build what the file has of a suite."""
    return {
        "tools": [
            {"name": one.name, "summary": one.description, "arguments": list(one.parameters.model_fields)}
            for one in suite.tools
        ],
        "tasks": {
            name: {"text": task.PROMPT, "calls": play(suite, task, task.ground_truth)}
            for name, task in suite.user_tasks.items()
        },
        "attacks": {name: export_attack(suite, attack) for name, attack in suite.injection_tasks.items()},
    }


def export_attack(suite: Any, attack: Any) -> dict[str, Any]:
    """Build what the file has of an attack; `is_ours`: AgentDojo names no calls, and ours stand for what it orders."""
    calls = play(suite, attack, attack.ground_truth)
    if calls or not any(tool.name == "send_email" for tool in suite.tools) or "mail" not in attack.GOAL:
        return {"text": attack.GOAL, "calls": calls, "is_ours": False}
    found = ADDRESS.search(attack.GOAL)
    to = found[0] if found else "someone@bluesparrowtech.com"
    mail = {"recipients": [to], "subject": "all of it", "body": attack.GOAL}
    return {"text": attack.GOAL, "calls": play(suite, attack, lambda _: [FunctionCall(function="send_email", args=mail)]),
            "is_ours": True}  # fmt: skip


def play(suite: Any, task: Any, list_calls: Any) -> list[dict[str, Any]]:
    """Carry out the calls of a task in its own world, with `INJECTION` in every place that an attacker may write to."""
    marks = dict.fromkeys(suite.get_injection_vector_defaults(), INJECTION)
    world = suite.load_and_inject_default_environment(marks)
    if hasattr(task, "init_environment"):
        world = task.init_environment(world)
    runtime = FunctionsRuntime(suite.tools)
    played = []
    for call in list_calls(world.model_copy(deep=True)):
        result, error = runtime.run_function(world, call.function, call.args)
        text = error or tool_result_to_str(result)
        played.append({"tool": call.function, "arguments": dict(call.args), "result": text})
    return played


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
