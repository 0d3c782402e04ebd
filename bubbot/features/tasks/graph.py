"""The graph of a task: which node waits for which. Pure; each question takes time linear in nodes and dependencies."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from graphlib import CycleError, TopologicalSorter

from bubbot.features.tasks.schema import TaskSchema

SUCCEEDED = "succeeded"
"""The state of a node whose children may begin."""


class TaskGraph:
    """The dependencies of a schema.

    Attributes:
        parents: what each node waits for, each once, in the order of the file; unknown nodes among them.
        children: what waits for each node, in the order of the file.
        result: the node whose artifact is the answer of a run: the declared one, else the only one that none waits for;
            empty if there are several, or if it is a gate, which has no artifact.
    """

    def __init__(self, schema: TaskSchema) -> None:
        self.parents: dict[str, tuple[str, ...]] = {
            name: tuple(dict.fromkeys(node.after)) for name, node in schema.nodes.items()
        }
        found: dict[str, list[str]] = {name: [] for name in self.parents}
        for name, parents in self.parents.items():
            for parent in parents:
                if parent in found:
                    found[parent].append(name)
        self.children: dict[str, tuple[str, ...]] = {name: tuple(children) for name, children in found.items()}
        ends = [name for name, children in self.children.items() if not children]
        self.result: str = schema.result or (ends[0] if len(ends) == 1 and not schema.nodes[ends[0]].is_gate else "")

    def list_order(self) -> list[str]:
        """Return the nodes that can begin, each after all its parents, nodes at the same distance in the order of the file.

        Nodes that can't begin are left out: those of a cycle, those with an unknown parent, and all that wait for them.
        """
        sorter = TopologicalSorter(self.parents)
        with suppress(CycleError):  # what is before the cycle can be sorted
            sorter.prepare()
        order: list[str] = []
        while ready := [name for name in sorter.get_ready() if name in self.parents]:
            order += ready
            sorter.done(*ready)
        return order

    def find_cycle(self) -> list[str]:
        """Return a cycle, each node before one that waits for it, the first one again at the end; empty if there is none."""
        try:
            TopologicalSorter(self.parents).prepare()
        except CycleError as error:
            return list(error.args[1])
        return []

    def ready(self, states: Mapping[str, str]) -> list[str]:
        """Return the nodes that can begin now, in the order of the file: not begun, and all parents succeeded.

        Args:
            states: the state of each node that has begun; others are left out.
        """
        return [
            name
            for name, parents in self.parents.items()
            if name not in states and all(states.get(parent) == SUCCEEDED for parent in parents)
        ]

    def descendants(self, node: str) -> set[str]:
        """Return all nodes that wait for a node, at any distance; the node itself only if it is in a cycle."""
        found: set[str] = set()
        front = [node]
        while front:
            new = [child for child in self.children.get(front.pop(), ()) if child not in found]
            found.update(new)
            front += new
        return found
