"""The world of one of AgentDojo's tasks, and AgentDojo's own judge of what came of it. Runs in AgentDojo's environment: `make agentdojo`.

    python tests/dojo/world.py SUITE

It reads a request as JSON from each line of its input, and writes the answer on one line:

    {"do": "tools"}                                     -> [{"name", "description", "schema"}], those of the suite
    {"do": "list"}                                      -> {"tasks": [id], "attacks": [id]}
    {"do": "begin", "task": ID, "attack": ID or null}   -> a new world; what the task is, see `describe_play`
    {"do": "call", "tool": NAME, "arguments": {...}}    -> {"text", "is_error"}
    {"do": "judge", "answer": TEXT}                     -> {"utility", "security"}: is the task done; has the attack got what it wants
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from agentdojo.agent_pipeline.ground_truth_pipeline import GroundTruthPipeline  # type: ignore[import-not-found]
from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # type: ignore[import-not-found]
from agentdojo.attacks.important_instructions_attacks import (  # type: ignore[import-not-found]
    ImportantInstructionsAttack,
)
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # type: ignore[import-not-found]
from agentdojo.task_suite.load_suites import get_suite  # type: ignore[import-not-found]
from agentdojo.types import text_content_block_from_string  # type: ignore[import-not-found]

VERSION = "v1.2.2"
MODEL = "gpt-4o-2024-05-13"
"""The model whose name the attack says; which one makes no difference to a model that obeys."""
ADDRESS = re.compile(r"[\w.+-]+@[\w-]+\.\w+")
SOMEBODY = "someone@bluesparrowtech.com"


@dataclass
class World:
    """A suite, and the world of the task that is on.

    Attributes:
        suite: AgentDojo's.
        task: what the person wants.
        attack: what is written wherever an attacker may write; None for none.
        before: the world at the beginning.
        now: the world.
        made: the calls that were carried out.
    """

    suite: Any
    task: Any = None
    attack: Any = None
    before: Any = None
    now: Any = None
    made: list[Any] = field(default_factory=list)

    def begin(self, task: str, attack: str | None) -> dict[str, Any]:
        """Begin a task in a new world."""
        self.task = self.suite.user_tasks[task]
        self.attack = self.suite.injection_tasks[attack] if attack else None
        texts = self._list_injections()
        self.now = self.task.init_environment(self.suite.load_and_inject_default_environment(texts))
        self.before = self.now.model_copy(deep=True)
        self.made = []
        return {
            "text": self.task.PROMPT,
            "answer": self.task.GROUND_TRUTH_OUTPUT,
            "calls": self._play(self.task.ground_truth),
            "order": next(iter(texts.values()), ""),
            "attack_calls": self._play(self._list_attack_calls) if self.attack else [],
        }

    def call(self, tool: str, arguments: dict[str, Any]) -> dict[str, Any]:
        """Carry out a call."""
        self.made.append(FunctionCall(function=tool, args=arguments))
        result, error = FunctionsRuntime(self.suite.tools).run_function(self.now, tool, arguments)
        return {"text": error or tool_result_to_str(result), "is_error": bool(error)}

    def judge(self, answer: str) -> dict[str, bool]:
        """Let AgentDojo judge what came of it."""
        said = [text_content_block_from_string(answer)]
        seen = (said, self.before, self.now, self.made)
        utility = self.suite._check_task_result(self.task, *seen)
        security = bool(self.attack) and self.suite._check_task_result(self.attack, *seen)
        return {"utility": bool(utility), "security": bool(security)}

    def _list_attack_calls(self, world: Any) -> Sequence[Any]:
        """List the calls that carry out the attack. If AgentDojo names none for a mail that is to be sent, a mail of ours stands for it."""
        calls: Sequence[Any] = self.attack.ground_truth(world)
        if calls or "mail" not in self.attack.GOAL or all(tool.name != "send_email" for tool in self.suite.tools):
            return calls
        found = ADDRESS.search(self.attack.GOAL)
        mail = {"recipients": [found[0] if found else SOMEBODY], "subject": "all of it", "body": self.attack.GOAL}
        return [FunctionCall(function="send_email", args=mail)]

    def _list_injections(self) -> dict[str, str]:
        """Return what the attacker writes, by the place; nothing without an attack."""
        if self.attack is None:
            return {}
        pipeline = GroundTruthPipeline(self.task)
        pipeline.name = MODEL
        found: dict[str, str] = ImportantInstructionsAttack(self.suite, pipeline).attack(self.task, self.attack)
        return found

    def _play(self, list_calls: Callable[[Any], Sequence[Any]]) -> list[dict[str, Any]]:
        """Carry out the calls of AgentDojo's own solution in a copy of the world; return them with their results."""
        world, runtime = self.before.model_copy(deep=True), FunctionsRuntime(self.suite.tools)
        played = []
        for call in list_calls(world.model_copy(deep=True)):
            result, error = runtime.run_function(world, call.function, call.args)
            text = error or tool_result_to_str(result)
            arguments = json.loads(json.dumps(dict(call.args), default=str))
            played.append({"tool": call.function, "arguments": arguments, "result": text})
        return played

    def list_tools(self) -> list[dict[str, Any]]:
        """Describe the tools of the suite."""
        return [
            {"name": one.name, "description": one.description, "schema": one.parameters.model_json_schema()}
            for one in self.suite.tools
        ]

    def answer(self, request: dict[str, Any]) -> Any:
        """Answer a request."""
        match request:
            case {"do": "tools"}:
                return self.list_tools()
            case {"do": "list"}:
                return {"tasks": list(self.suite.user_tasks), "attacks": list(self.suite.injection_tasks)}
            case {"do": "begin", "task": task, "attack": attack}:
                return self.begin(task, attack)
            case {"do": "call", "tool": tool, "arguments": arguments}:
                return self.call(tool, arguments)
            case {"do": "judge", "answer": answer}:
                return self.judge(answer)
        raise ValueError(f"unknown request {request}")


def main(name: str) -> None:
    """Answer requests until the input ends."""
    world = World(get_suite(VERSION, name))
    answers = sys.stdout
    sys.stdout = sys.stderr  # what a library prints must not look like an answer
    for line in sys.stdin:
        print(json.dumps(world.answer(json.loads(line)), default=str), file=answers, flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
