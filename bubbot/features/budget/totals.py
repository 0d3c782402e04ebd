"""Totals of budgets in memory and in checkpoints."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from typing import Any, TypeAlias

from bubbot.ports.usage import Reservation, SpentTotal, TotalKey

_Group: TypeAlias = dict[str, list[int]]
"""The numbers of totals (calls, tokens, cost) by name: each call changes ten of them in place."""
_LINES = r"(?:[0-9]+\t[0-9]+\t[0-9]+\t[^\t\n]*\n)+"
"""What a checkpoint may hold: checked at once, decoded later."""


class SpentTotals(MutableMapping[TotalKey, SpentTotal]):
    """What was spent, by scope, name and period. Groups of a checkpoint are decoded when they are first needed.

    A bot with thousands of chats has tens of thousands of totals, and its start needs none of them.
    """

    def __init__(self) -> None:
        self._groups: dict[tuple[str, str], _Group | str] = {}

    def __getitem__(self, key: TotalKey) -> SpentTotal:
        """Return a total. Raise `KeyError` if there is none."""
        return SpentTotal._make(self._open_group(key.scope, key.period)[key.name])

    def __setitem__(self, key: TotalKey, total: SpentTotal) -> None:
        """Replace a total."""
        self._begin_group(key.scope, key.period)[key.name] = list(total)

    def __delitem__(self, key: TotalKey) -> None:
        """Remove a total."""
        del self._open_group(key.scope, key.period)[key.name]

    def __iter__(self) -> Iterator[TotalKey]:
        """Iterate over the keys."""
        for scope, period in list(self._groups):
            for name in self._open_group(scope, period):
                yield TotalKey(scope, name, period)

    def __len__(self) -> int:
        """Count the totals."""
        return sum(group.count("\n") if isinstance(group, str) else len(group) for group in self._groups.values())

    def add_call(self, hold: Reservation) -> None:
        """Add one call to all totals that it counts towards (see `SpentTotal.add_call`)."""
        tokens, cost = hold.tokens, hold.cost_nanousd or 0
        for scope, name in hold.scopes():
            for period in (hold.day, hold.day[:7]):
                key = scope, period
                group = self._groups[key] if key in self._groups else None  # noqa: SIM401 - many calls, for each turn
                if type(group) is not dict:
                    group = self._begin_group(scope, period)
                if name in group:
                    total = group[name]
                    total[0] += 1
                    total[1] += tokens
                    total[2] += cost
                else:
                    group[name] = [1, tokens, cost]

    def keep_periods(self, is_current: Callable[[str], bool]) -> None:
        """Drop the totals of all other periods."""
        self._groups = {key: group for key, group in self._groups.items() if is_current(key[1])}

    def encode(self) -> list[list[str]]:
        """Build what a checkpoint stores: `[scope, period, lines]`, a line for each name with its numbers before it."""
        return [
            [scope, period, group if isinstance(group, str) else _write_lines(group)]
            for (scope, period), group in sorted(self._groups.items())
            if group
        ]

    @classmethod
    def decode(cls, rows: Iterable[Any]) -> SpentTotals:
        """Read what a checkpoint stores, also of version 1 and of older anchors: a row for each total.

        Raises:
            ValueError: a row is neither.
        """
        totals = cls()
        for row in rows:
            if len(row) == 3 and isinstance(row[2], str):
                scope, period, lines = map(str, row)
                if not re.fullmatch(_LINES, lines):
                    raise ValueError(f"the totals of {scope} in {period} are damaged")
                totals._groups[scope, period] = lines
            else:
                totals[TotalKey._make(row[:3])] = SpentTotal._make(map(int, row[3:]))
        return totals

    def _begin_group(self, scope: str, period: str) -> _Group:
        self._groups.setdefault((scope, period), {})
        return self._open_group(scope, period)

    def _open_group(self, scope: str, period: str) -> _Group:
        group = self._groups.get((scope, period), {})
        if isinstance(group, str):
            group = self._groups[scope, period] = dict(map(_read_line, group[:-1].split("\n")))
        return group


def _write_lines(group: _Group) -> str:
    return "".join(
        f"{calls}\t{tokens}\t{cost}\t{_escape(name)}\n" for name, (calls, tokens, cost) in sorted(group.items())
    )


def _read_line(line: str) -> tuple[str, list[int]]:
    calls, tokens, cost, name = line.split("\t")
    return _unescape(name) if "%" in name else name, [int(calls), int(tokens), int(cost)]


def _escape(name: str) -> str:
    """Escape what would end a line or a column, with `%` itself."""
    if name.isprintable() and "%" not in name:
        return name
    return "".join(f"%{ord(char):x};" if char == "%" or not char.isprintable() else char for char in name)


def _unescape(name: str) -> str:
    first, *rest = name.split("%")
    return first + "".join(chr(int(code, 16)) + text for code, _, text in (piece.partition(";") for piece in rest))
