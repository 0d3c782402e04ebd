"""Past-time temporal logic over the events of a run.

A formula is true or false at each event, and looks only at that event and the ones before it:

    Atom(kind, name, …)       this event is of that kind and name, and its values pass the checks
    TracePredicate(test)      the function says so of all events up to this one
    Not, And, Or, Implies     as usual
    Previously(f)             f held at the event before this one; false at the first event
    Formerly(f)               f holds at this event or held at an earlier one
    Within(f, s)              the same, at most s seconds ago
    Since(l, r)               r held at some event, and l at all events after that one
    Count(f, n, s)            f held at n events at least, each of them at most s seconds ago

A bound includes its end: an event exactly s seconds ago is within s seconds. Time does not go back: an event whose time is
earlier than that of the event before it counts as simultaneous.

`Evaluator` keeps for each formula what its operator needs of the past, and no events: the work for an event does not depend
on how many came before, and memory grows only with the events that a bounded `Count` counts. Only `TracePredicate` needs all
events, which are kept if there is one.
"""

from __future__ import annotations

import fnmatch
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from typing import Any, ClassVar, Generic, TypeVar

from msgspec import Struct

from bubbot.features.tasks.facts import EventKind
from bubbot.features.tasks.harness.events import FieldCheck, RunEvent

MAX_CITATIONS = 8
"""How many events a verdict cites at most: the newest."""
Citation = tuple[int, ...]
"""Numbers of events, ascending."""
NO_CITATION: Citation = ()
EVENT_SECONDS = 0.5
"""The CPU time that the checks of all atoms may take at one event; the event loop waits for them."""


class Formula(Struct, frozen=True):
    """What is true or false at an event. Its parts are those fields that are formulas."""

    def parts(self) -> tuple[Formula, ...]:
        """Return the formulas of which this one is made, in the order in which they are evaluated."""
        fields = (getattr(self, name) for name in self.__struct_fields__)
        return tuple(part for field in fields for part in _list_formulas(field))


class Constant(Formula, frozen=True):
    """Holds always or never."""

    is_true: bool


class Atom(Formula, frozen=True):
    """The event is of this kind.

    Attributes:
        kind: None for any.
        name: of the event, where `*` stands for any text; empty for any name.
        node: in which the event happened; empty for any.
        checks: all of them must pass.
    """

    kind: EventKind | None = None
    name: str = ""
    node: str = ""
    checks: tuple[FieldCheck, ...] = ()


class TracePredicate(Formula, frozen=True):
    """A function of all events up to this one, in order. It is called only where a rule needs it."""

    test: Callable[[Sequence[RunEvent]], bool]


class Not(Formula, frozen=True):
    body: Formula


class And(Formula, frozen=True):
    bodies: tuple[Formula, ...]


class Or(Formula, frozen=True):
    bodies: tuple[Formula, ...]


class Implies(Formula, frozen=True):
    condition: Formula
    consequence: Formula


class Previously(Formula, frozen=True):
    body: Formula


class Formerly(Formula, frozen=True):
    body: Formula


class Within(Formula, frozen=True):
    body: Formula
    seconds: float


class Since(Formula, frozen=True):
    """`left` since `right`."""

    left: Formula
    right: Formula


class Count(Formula, frozen=True):
    """At least `number` events; `seconds` None: however long ago."""

    body: Formula
    number: int
    seconds: float | None = None


def walk(formula: Formula) -> Iterator[Formula]:
    """Yield a formula and all that it is made of, each object once."""
    found = {id(formula): formula}
    waiting = [formula]
    while waiting:
        each = waiting.pop()
        yield each
        new = {id(part): part for part in each.parts() if id(part) not in found}
        found |= new
        waiting += new.values()


def merge_citations(*citations: Citation) -> Citation:
    """Return the newest events of several citations."""
    return tuple(sorted({number for each in citations for number in each})[-MAX_CITATIONS:])


class Evaluator:
    """The values of formulas along the events of a run.

    Attributes:
        places: where an evaluation has the value of each formula, in the order in which the formulas came.
        timed: the places of all formulas whose value time alone can change.
        traced: the places of all formulas that read all events.
    """

    def __init__(self, formulas: Iterable[Formula]) -> None:
        self._cells: list[Cell[Any]] = []
        self._known: dict[tuple[Any, ...], int] = {}
        self.places = self._add_all([*formulas])
        self._stateful = [cell for cell in self._cells if cell.is_stateful]
        self.timed = self.find_users(place for place, cell in enumerate(self._cells) if cell.is_timed)
        self.traced = self.find_users(place for place, cell in enumerate(self._cells) if isinstance(cell, _TraceCell))
        self._time = float("-inf")
        self._trace: list[RunEvent] | None = [] if self.traced else None

    def peek(self, event: RunEvent) -> FormulaValues:
        """Evaluate as if this event came next. The evaluation is valid until the next `advance`."""
        return FormulaValues(event, max(event.time, self._time), self._cells, self._trace)

    def prepare(self, at: FormulaValues) -> None:
        """Evaluate all that this event would change, once. Change nothing."""
        # All cells decide before the first changes: what they read still stands for the time before this event.
        if at.changes is None:
            at.changes = [cell.prepare(at) for cell in self._stateful]

    def advance(self, at: FormulaValues) -> None:
        """Let the event of the last `peek` happen."""
        self.prepare(at)
        for cell, change in zip(self._stateful, at.changes or (), strict=True):
            cell.commit(at, change)
        self._time = at.time
        if self._trace is not None:
            self._trace.append(at.event)

    def find_users(self, places: Iterable[int]) -> Set[int]:
        """Return these places and those of all formulas that are made of what is there."""
        if found := {*places}:
            found.update(place for place, cell in enumerate(self._cells) if not found.isdisjoint(cell.places))
        return found

    def _add_all(self, formulas: Sequence[Formula]) -> list[int]:
        """Return the places of the cells of formulas. Equal ones share one; other fields are compared as text, since 1 == True."""
        places: dict[int, int] = {}  # by identity: rules of one scenario share what they are made of

        def add(formula: Formula) -> int:
            if id(formula) not in places:
                parts = [add(part) for part in formula.parts()]
                fields = [getattr(formula, name) for name in formula.__struct_fields__]
                key = type(formula), *parts, repr([each for each in fields if not _list_formulas(each)])
                if key not in self._known:
                    self._known[key] = len(self._cells)
                    self._cells.append(_CELLS[type(formula)](formula, parts))
                places[id(formula)] = self._known[key]
            return places[id(formula)]

        return [add(formula) for formula in formulas]


class FormulaValues:
    """The values of formulas at one event. Each is computed when it is needed, once.

    Attributes:
        undecided: the places of the atoms whose checks took too long; they count as not passed.
        seconds: the CPU time that the checks of atoms have taken.
        changes: see `Evaluator.prepare`; None before.
    """

    __slots__ = ("_cells", "_trace", "_values", "changes", "event", "seconds", "time", "undecided")

    def __init__(self, event: RunEvent, moment: float, cells: list[Cell[Any]], trace: list[RunEvent] | None) -> None:
        self.event = event
        self.time = moment
        self._cells = cells
        self._trace = trace
        self._values: list[bool | None] = [None] * len(cells)
        self.undecided: set[int] = set()
        self.seconds = 0.0
        self.changes: list[Any] | None = None

    @property
    def trace(self) -> list[RunEvent]:
        """All events up to this one."""
        return [*(self._trace or ()), self.event]

    def holds(self, place: int) -> bool:
        """Return the value of the formula at a place."""
        known = self._values[place]
        if known is None:
            try:
                known = self._cells[place].evaluate(self)
            except TimeoutError:
                self.undecided.add(place)
                known = False
            self._values[place] = known
        return known

    def cite(self, place: int) -> Citation:
        """Return the events that decide the value of the formula at a place."""
        return self._cells[place].cite(self)

    def is_final(self, place: int) -> bool:
        """Return true if no later event can change the value of the formula at a place; false if in doubt."""
        return self._cells[place].is_final(self)


F = TypeVar("F", bound=Formula)


class Cell(Generic[F]):
    """What an operator keeps of the past for one formula.

    Attributes:
        places: the cells of the formula's parts.
    """

    __slots__ = ("formula", "places")
    is_stateful: ClassVar[bool] = False

    @property
    def is_timed(self) -> bool:
        """True if time alone can change the value."""
        return getattr(self.formula, "seconds", None) is not None

    def __init__(self, formula: F, places: list[int]) -> None:
        self.formula = formula
        self.places = places

    def evaluate(self, at: FormulaValues) -> bool:
        """Return the value at the event, which did not happen yet."""
        raise NotImplementedError

    def cite(self, at: FormulaValues) -> Citation:
        """Return the events that decide the value."""
        return (at.event.number,)

    def is_final(self, _at: FormulaValues) -> bool:
        """Return true if the value stays as it is from this event on, whatever comes; false if in doubt."""
        return False

    def prepare(self, _at: FormulaValues) -> Any:
        """Return what `commit` needs of the parts. Change nothing."""
        return None

    def commit(self, at: FormulaValues, change: Any) -> None:
        """Let the event happen."""


class _ConstantCell(Cell[Constant]):
    __slots__ = ()

    def evaluate(self, _at: FormulaValues) -> bool:
        return self.formula.is_true

    def cite(self, _at: FormulaValues) -> Citation:
        return NO_CITATION

    def is_final(self, _at: FormulaValues) -> bool:
        return True


class _AtomCell(Cell[Atom]):
    __slots__ = ("_kind", "_matches", "_name", "_node", "_tests")

    def __init__(self, formula: Atom, places: list[int]) -> None:
        super().__init__(formula, places)
        self._kind = formula.kind
        self._name = "" if "*" in formula.name else formula.name
        self._matches = re.compile(name_pattern(formula.name)).match if "*" in formula.name else None
        self._node = formula.node
        self._tests = [check.compile() for check in formula.checks]

    def evaluate(self, at: FormulaValues) -> bool:
        event = at.event
        if self._kind is not None and event.kind != self._kind:
            return False
        if self._name and event.name != self._name:
            return False
        if self._node and event.node != self._node:
            return False
        if self._matches is not None and not self._matches(event.name):
            return False
        return not self._tests or self._run_tests(at)

    def _run_tests(self, at: FormulaValues) -> bool:
        """Return true if all checks pass. Raise `TimeoutError` if one takes too long, or those of all atoms together do."""
        if at.seconds > EVENT_SECONDS:
            raise TimeoutError
        started = time.thread_time()
        try:
            return all(test(at.event.values) for test in self._tests)
        finally:
            at.seconds += time.thread_time() - started


class _TraceCell(Cell[TracePredicate]):
    __slots__ = ()

    def evaluate(self, at: FormulaValues) -> bool:
        return bool(self.formula.test(at.trace))


class _NotCell(Cell[Not]):
    __slots__ = ()

    def evaluate(self, at: FormulaValues) -> bool:
        return not at.holds(self.places[0])

    def cite(self, at: FormulaValues) -> Citation:
        return at.cite(self.places[0])

    def is_final(self, at: FormulaValues) -> bool:
        return at.is_final(self.places[0])


class _JunctionCell(Cell[F]):
    """Has the value `decisive` if one part has it.

    One such part is cited; if there is none, all parts are.
    """

    __slots__ = ()
    decisive: ClassVar[bool]

    def evaluate(self, at: FormulaValues) -> bool:
        for place in self.places:
            if at.holds(place) is self.decisive:
                return self.decisive
        return not self.decisive

    def cite(self, at: FormulaValues) -> Citation:
        for place in self.places:
            if at.holds(place) is self.decisive:
                return at.cite(place)
        return merge_citations(*(at.cite(place) for place in self.places))

    def is_final(self, at: FormulaValues) -> bool:
        decisive = [place for place in self.places if at.holds(place) is self.decisive]
        return any(at.is_final(place) for place in decisive) or (
            not decisive and all(at.is_final(place) for place in self.places)
        )


class _AndCell(_JunctionCell[And]):
    __slots__ = ()
    decisive = False


class _OrCell(_JunctionCell[Or]):
    __slots__ = ()
    decisive = True


class _ImpliesCell(Cell[Implies]):
    __slots__ = ()

    def evaluate(self, at: FormulaValues) -> bool:
        condition, consequence = self.places
        return not at.holds(condition) or at.holds(consequence)

    def cite(self, at: FormulaValues) -> Citation:
        condition, consequence = self.places
        if not at.holds(condition):
            return at.cite(condition)
        return merge_citations(at.cite(condition), at.cite(consequence))

    def is_final(self, at: FormulaValues) -> bool:
        condition, consequence = self.places
        if not at.holds(condition):
            return at.is_final(condition)
        return at.is_final(consequence) and (at.holds(consequence) or at.is_final(condition))


class _PreviouslyCell(Cell[Previously]):
    __slots__ = ("_citation", "_is_true")
    is_stateful = True

    def __init__(self, formula: Previously, places: list[int]) -> None:
        super().__init__(formula, places)
        self._is_true = False
        self._citation = NO_CITATION

    def evaluate(self, _at: FormulaValues) -> bool:
        return self._is_true

    def cite(self, _at: FormulaValues) -> Citation:
        return self._citation

    def prepare(self, at: FormulaValues) -> tuple[bool, Citation]:
        return at.holds(self.places[0]), at.cite(self.places[0])

    def commit(self, _at: FormulaValues, change: tuple[bool, Citation]) -> None:
        self._is_true, self._citation = change


class _FormerlyCell(Cell[Formerly]):
    """Keeps the citation of the first time."""

    __slots__ = ("_witness",)
    is_stateful = True

    def __init__(self, formula: Formerly, places: list[int]) -> None:
        super().__init__(formula, places)
        self._witness: Citation | None = None

    def evaluate(self, at: FormulaValues) -> bool:
        return self._witness is not None or at.holds(self.places[0])

    def cite(self, at: FormulaValues) -> Citation:
        if self._witness is not None:
            return self._witness
        return at.cite(self.places[0]) if at.holds(self.places[0]) else NO_CITATION

    def is_final(self, at: FormulaValues) -> bool:
        return self.evaluate(at)

    def prepare(self, at: FormulaValues) -> Citation | None:
        return self.cite(at) if self.evaluate(at) else None

    def commit(self, _at: FormulaValues, change: Citation | None) -> None:
        self._witness = change


class _WithinCell(Cell[Within]):
    """Keeps the last time; it is cited even if it is too long ago."""

    __slots__ = ("_citation", "_time")
    is_stateful = True

    def __init__(self, formula: Within, places: list[int]) -> None:
        super().__init__(formula, places)
        self._time: float | None = None
        self._citation = NO_CITATION

    def evaluate(self, at: FormulaValues) -> bool:
        is_recent = self._time is not None and at.time - self._time <= self.formula.seconds
        return is_recent or at.holds(self.places[0])

    def cite(self, at: FormulaValues) -> Citation:
        return at.cite(self.places[0]) if at.holds(self.places[0]) else self._citation

    def prepare(self, at: FormulaValues) -> Citation | None:
        return at.cite(self.places[0]) if at.holds(self.places[0]) else None

    def commit(self, at: FormulaValues, change: Citation | None) -> None:
        if change is not None:
            self._time, self._citation = at.time, change


class _SinceState(Struct, frozen=True):
    """What `Since` needs of the past.

    Attributes:
        anchor: the citation of the first event at which the right side held, and since which the left one did; None if there
            is none.
        breaker: the citation of the last event at which neither side held.
    """

    anchor: Citation | None = None
    breaker: Citation = NO_CITATION


class _SinceCell(Cell[Since]):
    __slots__ = ("_state",)
    is_stateful = True

    def __init__(self, formula: Since, places: list[int]) -> None:
        super().__init__(formula, places)
        self._state = _SinceState()

    def evaluate(self, at: FormulaValues) -> bool:
        left, right = self.places
        return at.holds(right) or (self._state.anchor is not None and at.holds(left))

    def cite(self, at: FormulaValues) -> Citation:
        state = self.prepare(at)
        return state.breaker if state.anchor is None else state.anchor

    def prepare(self, at: FormulaValues) -> _SinceState:
        left, right = self.places
        state = self._state
        if not at.holds(left):
            state = _SinceState(breaker=state.breaker if at.holds(right) else at.cite(left))
        if not at.holds(right):
            return state
        # Any anchor decides; the first is what has waited longest.
        return state if state.anchor is not None else _SinceState(at.cite(right), state.breaker)

    def commit(self, _at: FormulaValues, change: _SinceState) -> None:
        self._state = change


class _CountCell(Cell[Count]):
    """Keeps how often the body held, and the newest of those events."""

    __slots__ = ("_newest", "_total")
    is_stateful = True

    def __init__(self, formula: Count, places: list[int]) -> None:
        super().__init__(formula, places)
        self._total = 0
        self._newest: deque[int] = deque(maxlen=MAX_CITATIONS)

    def evaluate(self, at: FormulaValues) -> bool:
        return self._total >= self.formula.number or (self._total + at.holds(self.places[0]) >= self.formula.number)

    def cite(self, at: FormulaValues) -> Citation:
        return merge_citations(tuple(self._newest), (at.event.number,) if at.holds(self.places[0]) else NO_CITATION)

    def is_final(self, at: FormulaValues) -> bool:
        return self.evaluate(at)

    def prepare(self, at: FormulaValues) -> int:
        return int(at.holds(self.places[0]))

    def commit(self, at: FormulaValues, change: int) -> None:
        if change:
            self._total += 1
            self._newest.append(at.event.number)


class _RecentCountCell(Cell[Count]):
    """Keeps the events at which the body held, as long as they count, and no more of them than are needed."""

    __slots__ = ("_newest",)
    is_stateful = True

    def __init__(self, formula: Count, places: list[int]) -> None:
        super().__init__(formula, places)
        self._newest: deque[tuple[float, int]] = deque(maxlen=max(formula.number, 1))

    def evaluate(self, at: FormulaValues) -> bool:
        needed = self.formula.number
        if needed > 0 and at.holds(self.places[0]):
            needed -= 1
        if needed <= 0:
            return True
        return len(self._newest) >= needed and self._is_recent(at, self._newest[-needed][0])

    def cite(self, at: FormulaValues) -> Citation:
        recent = tuple(number for time, number in list(self._newest)[-MAX_CITATIONS:] if self._is_recent(at, time))
        return merge_citations(recent, (at.event.number,) if at.holds(self.places[0]) else NO_CITATION)

    def prepare(self, at: FormulaValues) -> int:
        return int(at.holds(self.places[0]))

    def commit(self, at: FormulaValues, change: int) -> None:
        while self._newest and not self._is_recent(at, self._newest[0][0]):
            self._newest.popleft()
        if change:
            self._newest.append((at.time, at.event.number))

    def _is_recent(self, at: FormulaValues, time: float) -> bool:
        return self.formula.seconds is None or at.time - time <= self.formula.seconds


def _make_count_cell(formula: Count, places: list[int]) -> Cell[Count]:
    return (_CountCell if formula.seconds is None else _RecentCountCell)(formula, places)


_CELLS: dict[type[Formula], Callable[[Any, list[int]], Cell[Any]]] = {
    Constant: _ConstantCell,
    Atom: _AtomCell,
    TracePredicate: _TraceCell,
    Not: _NotCell,
    And: _AndCell,
    Or: _OrCell,
    Implies: _ImpliesCell,
    Previously: _PreviouslyCell,
    Formerly: _FormerlyCell,
    Within: _WithinCell,
    Since: _SinceCell,
    Count: _make_count_cell,
}


def name_pattern(name: str) -> str:
    """Return the regular expression of a whole name, in which `*` stands for any text; to match it takes linear time."""
    return fnmatch.translate(re.sub(r"([?\[])", r"[\1]", name))


def _list_formulas(field: object) -> tuple[Formula, ...]:
    if isinstance(field, Formula):
        return (field,)
    return tuple(each for each in field if isinstance(each, Formula)) if isinstance(field, tuple) else ()
