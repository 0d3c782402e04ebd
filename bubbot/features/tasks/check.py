"""What is wrong with a definition before anything runs: its graph, and what its nodes name that is not there."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase

from bubbot.features.tasks.config import fill_placeholders, find_placeholders
from bubbot.features.tasks.definition import TaskDefinition
from bubbot.features.tasks.graph import TaskGraph
from bubbot.features.tasks.schema import TaskNode
from bubbot.features.tasks.sources import DefinitionInvalid, list_words
from bubbot.formatting import did_you_mean
from bubbot.ports.channel import Role
from bubbot.toml_tables import Problem

_OF_MODELS = ("agent", "model", "strategy", "tools", "allow", "artifact")
"""Keys that say nothing of a gate."""
_OF_GATES = ("by", "hours")


def check_definition(
    definition: TaskDefinition,
    *,
    tools: Mapping[str, Role],
    role: Role,
    agents: Collection[str],
    harness_problems: Sequence[Problem] = (),
) -> list[Problem]:
    """Return everything that is wrong with a task for a person of a role: what keeps it from running first, then warnings.

    Args:
        definition: the task.
        tools: the tools that nodes can use, each with the least role that may use it.
        role: of the person who would run it.
        agents: the names of the agents that nodes can name.
        harness_problems: what was found in the scripts; an error if the scripts can't be read, a warning if a step can never
            fire.
    """
    checker = _Checker(definition, tools, role, agents)
    problems = [*checker.find_problems(), *harness_problems]
    return sorted(dict.fromkeys(problems), key=lambda problem: problem.is_warning)


class _Checker:
    """Checks one definition for one person."""

    def __init__(
        self,
        definition: TaskDefinition,
        tools: Mapping[str, Role],
        role: Role,
        agents: Collection[str],
    ) -> None:
        self._schema = definition.schema
        self._nodes = definition.schema.nodes
        self._config = definition.config
        self._graph = TaskGraph(definition.schema)
        self._tools = tools
        self._role = role
        self._agents = agents

    def find_problems(self) -> Iterator[Problem]:
        """Yield problems, those of the whole task first, then by node in the order of the file."""
        needed = Role(self._schema.role)
        if not self._role.at_least(needed):
            yield Problem(
                "role", f"only {needed.value}s may run the task, and this is checked for a {self._role.value}"
            )
        yield from self._check_result()
        cycle = self._graph.find_cycle()
        if cycle:
            loop = " → ".join(cycle if len(cycle) <= 12 else [*cycle[:10], "…", cycle[-1]])
            yield Problem(
                f"nodes.{cycle[0]}.after",
                f"nodes wait for each other in a loop, {loop}: remove one of these dependencies",
            )
        reachable = {*self._graph.list_order()}
        for name, node in self._nodes.items():
            yield from self._check_parents(name, node, reachable, cycle)
            yield from self._check_gate(name, node) if node.is_gate else self._check_turn(name, node)
            yield from self._check_placeholders(name, node)

    def _check_result(self) -> Iterator[Problem]:
        result = self._schema.result
        if not result:
            return
        if result not in self._nodes:
            yield Problem("result", f"{result!r} is not a node{self._hint_node(result)}")
        elif self._nodes[result].is_gate:
            yield Problem("result", f"{result!r} is a gate, which has no artifact: name a node with a prompt")

    def _check_parents(
        self, name: str, node: TaskNode, reachable: Collection[str], cycle: Collection[str]
    ) -> Iterator[Problem]:
        where = f"nodes.{name}.after"
        unknown = [parent for parent in self._graph.parents[name] if parent not in self._nodes]
        for parent in unknown:
            yield Problem(where, f"{parent!r} is not a node{self._hint_node(parent)}")
        if len(self._graph.parents[name]) < len(node.after):
            yield Problem(where, "it names a node twice: remove one of them", is_warning=True)
        if name not in reachable and name not in cycle and not unknown:
            stuck = [parent for parent in self._graph.parents[name] if parent not in reachable]
            message = f"the node is unreachable: it waits for {list_words(stuck)}, which can never begin"
            yield Problem(where, message)
        readers = [child for child in self._graph.children[name] if "artifacts" in self._nodes[child].shown]
        if readers and not node.is_gate and node.artifact is None:
            message = f"missing contract: {list_words(readers)} will read any text that it writes; add a JSON Schema"
            yield Problem(f"nodes.{name}.artifact", message, is_warning=True)

    def _check_turn(self, name: str, node: TaskNode) -> Iterator[Problem]:
        """Check a node with a prompt."""
        if node.agent and node.agent not in self._agents:
            there_are = f"; there are: {list_words(sorted(self._agents))}"
            hint = did_you_mean(node.agent, self._agents, otherwise=there_are, before="; ")
            yield Problem(f"nodes.{name}.agent", f"{node.agent!r} is not an agent{hint}")
        for pattern in node.tools:
            yield from self._check_tool(f"nodes.{name}.tools", pattern)
        yield from self._check_allowed(name, node)
        for field in _changed(node, _OF_GATES):
            message = "only a gate has it, and this node has a prompt: remove it"
            yield Problem(f"nodes.{name}.{field}", message, is_warning=True)

    def _check_tool(self, where: str, pattern: str) -> Iterator[Problem]:
        matching = [tool for tool in self._tools if fnmatchcase(tool, pattern)]
        if not matching:
            yield Problem(where, f"{pattern!r} names no tool{did_you_mean(pattern, self._tools, before='; ')}")
        elif not any(self._role.at_least(self._tools[tool]) for tool in matching):
            least = next(role for role in Role if any(self._tools[tool] is role for tool in matching))
            yield Problem(where, f"a {self._role.value} may not use {pattern!r}, which needs the role {least.value}")

    def _check_gate(self, name: str, node: TaskNode) -> Iterator[Problem]:
        if node.prompt:
            yield Problem(
                f"nodes.{name}.prompt", "people answer a gate, and no model is asked: remove prompt or confirm"
            )
        for field in _changed(node, _OF_MODELS):
            yield Problem(f"nodes.{name}.{field}", f"people answer a gate, so it has no {field}: remove it")
        if node.by == "owner" and not self._role.at_least(Role.OWNER):
            waiting = self._graph.children[name]
            message = f"only an owner can answer, and a {self._role.value} who runs the task cannot"
            if waiting:
                message += f": {list_words(waiting)} will wait for an owner"
            yield Problem(f"nodes.{name}.by", message, is_warning=True)

    def _check_allowed(self, name: str, node: TaskNode) -> Iterator[Problem]:
        for place, text in enumerate(node.allow):
            tool = text.partition(":")[0]
            if not any(fnmatchcase(tool, pattern) for pattern in node.tools):
                hint = did_you_mean(tool, node.tools, otherwise=f"; it may use: {list_words(node.tools)}", before="; ")
                yield Problem(f"nodes.{name}.allow[{place}]", f"the node may not use {tool}{hint}")

    def _check_placeholders(self, name: str, node: TaskNode) -> Iterator[Problem]:
        for field, text in (("prompt", node.prompt), ("confirm", node.confirm)):
            for key in find_placeholders(text):
                if key in self._config:
                    continue
                if any(each.startswith(f"{key}.") for each in self._config):
                    message = f"{{{key}}} stands for a table of the config: name one of its keys"
                else:
                    hint = did_you_mean(
                        key, self._config, otherwise=f"; for the words {{{key}}} write {{{{{key}}}}}", before="; "
                    )
                    message = f"{{{key}}} names no key of the config{hint}"
                yield Problem(f"nodes.{name}.{field}", message)
            try:
                fill_placeholders(text, self._config)
            except DefinitionInvalid as error:
                yield Problem(f"nodes.{name}.{field}", error.problems[0].message)

    def _hint_node(self, name: str) -> str:
        return did_you_mean(name, self._nodes, otherwise=f"; there are: {list_words(self._nodes)}", before="; ")


def _changed(node: TaskNode, names: Collection[str]) -> list[str]:
    """Return which of these fields of a node differ from their default."""
    default = TaskNode()
    return [name for name in names if getattr(node, name) != getattr(default, name)]
