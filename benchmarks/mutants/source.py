"""The text of a Python file, by the nodes of its tree."""

from __future__ import annotations

import ast


class Source:
    """One source file, to turn nodes into byte ranges."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        self.data = data
        self.tree = ast.parse(data)
        self._starts = [0]
        for line in data.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def text(self, node: ast.expr | ast.stmt) -> str:
        """Return what stands there."""
        return self.data[self.start(node) : self.end(node)].decode()

    def start(self, node: ast.expr | ast.stmt) -> int:
        """Return the first byte."""
        return self._starts[node.lineno - 1] + node.col_offset

    def end(self, node: ast.expr | ast.stmt) -> int:
        """Return the byte behind it."""
        return self._starts[(node.end_lineno or node.lineno) - 1] + (node.end_col_offset or 0)

    def start_of_line(self, line: int) -> int:
        """Return the first byte of a line, counted from 1."""
        return self._starts[line - 1]
