"""The decision: whether a call of a model runs, needs a yes, or is refused, and what that rests on.

One pure function over facts: no clock, no I/O, no model. `RULES` is the table of the design, one row for each kind of
effect and one column for each kind of caller.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

from msgspec import Struct

from bubbot.ports.channel import Role
from bubbot.ports.turn import EntryRef
from bubbot.tape.provenance import Source
from bubbot.tool import Effect, EffectKind, Power


class Verdict(StrEnum):
    """What happens to a call, from the most permissive on.

    `run`: it runs. `confirm`: the person for whom the turn runs has to say yes. `ask`: somebody with the role that may
    allow it has to say yes. `refuse`: it does not run, and nobody is asked.
    """

    RUN = "run"
    CONFIRM = "confirm"
    ASK = "ask"
    REFUSE = "refuse"

    def stricter(self, other: Verdict) -> Verdict:
        """Return the verdict of the two that allows less."""
        return max(self, other, key=_VERDICTS.index)


_VERDICTS = list(Verdict)


class Place(StrEnum):
    """Where a call comes from: what people wrote in a direct chat or a group, a job, or a sub-task."""

    DIRECT = "direct"
    GROUP = "group"
    JOB = "job"
    SUBTASK = "subtask"

    @property
    def has_nobody(self) -> bool:
        """True if nobody is there who could be asked."""
        return self in (Place.JOB, Place.SUBTASK)


class EffectRow(StrEnum):
    """A row of the table: the kind of an effect."""

    READS_OWN = "reads_own"
    READS_PEOPLE = "reads_people"
    READS_WORLD = "reads_world"
    READS_COMPOSED = "reads_composed"
    INSIDE = "inside"
    JOBS = "jobs"
    STOP_JOBS = "stop_jobs"
    FOLDERS = "folders"
    MEMORY = "memory"
    ADMINISTRATION = "administration"
    SANDBOXED = "sandboxed"
    OUTSIDE = "outside"


class CallerColumn(StrEnum):
    """A column of the table."""

    OWNER = "owner"
    TAINTED = "tainted"
    MEMBER = "member"
    NOBODY = "nobody"


class Rule(StrEnum):
    """What a cell of the table says.

    `grant_…`: the call runs if a grant covers it; `exact_…`: if a grant names exactly what it acts on. The rest of the word
    is the verdict without such a grant. `budget_or_ask`: the call runs in a clean turn; in a tainted one it runs by an exact
    grant, or while the window has revealed at most `MAX_BITS`.
    """

    RUN = "run"
    CONFIRM = "confirm"
    CONFIRM_IF_TAINTED = "confirm_if_tainted"
    ASK = "ask"
    REFUSE = "refuse"
    GRANT_OR_ASK = "grant_or_ask"
    EXACT_OR_ASK = "exact_or_ask"
    GRANT_OR_REFUSE = "grant_or_refuse"
    BUDGET_OR_ASK = "budget_or_ask"


MAX_BITS = 16.0
"""The most bits that reads without a yes may reveal in a tainted window, by their choice among shown addresses and words."""


RULES: Mapping[EffectRow, Mapping[CallerColumn, Rule]] = MappingProxyType(
    {
        row: MappingProxyType(dict(zip(CallerColumn, rules, strict=True)))
        for row, rules in {
            #                         owner              tainted            member                   nobody is there
            EffectRow.READS_OWN: (Rule.RUN, Rule.RUN, Rule.RUN, Rule.RUN),
            EffectRow.READS_PEOPLE: (Rule.RUN, Rule.RUN, Rule.RUN, Rule.RUN),
            EffectRow.READS_WORLD: (Rule.RUN, Rule.BUDGET_OR_ASK, Rule.BUDGET_OR_ASK, Rule.GRANT_OR_REFUSE),
            EffectRow.READS_COMPOSED: (Rule.RUN, Rule.EXACT_OR_ASK, Rule.ASK, Rule.GRANT_OR_REFUSE),
            EffectRow.INSIDE: (Rule.RUN, Rule.RUN, Rule.RUN, Rule.RUN),
            EffectRow.JOBS: (Rule.RUN, Rule.CONFIRM, Rule.CONFIRM_IF_TAINTED, Rule.RUN),
            EffectRow.STOP_JOBS: (Rule.RUN, Rule.CONFIRM, Rule.CONFIRM, Rule.REFUSE),
            EffectRow.FOLDERS: (Rule.RUN, Rule.EXACT_OR_ASK, Rule.REFUSE, Rule.GRANT_OR_REFUSE),
            EffectRow.MEMORY: (Rule.CONFIRM, Rule.CONFIRM, Rule.CONFIRM, Rule.REFUSE),
            EffectRow.ADMINISTRATION: (Rule.CONFIRM, Rule.ASK, Rule.REFUSE, Rule.REFUSE),
            EffectRow.SANDBOXED: (Rule.GRANT_OR_ASK, Rule.EXACT_OR_ASK, Rule.REFUSE, Rule.GRANT_OR_REFUSE),
            EffectRow.OUTSIDE: (Rule.GRANT_OR_ASK, Rule.EXACT_OR_ASK, Rule.REFUSE, Rule.GRANT_OR_REFUSE),
        }.items()
    }
)
"""The table. `decide` checks first that the role may use the tool; a tool that reads another chat checks its grant itself."""


class MatchedGrant(Struct, frozen=True):
    """A grant that covers a call.

    Attributes:
        id: of its fact; 0 for what a job was allowed.
        is_exact: it names exactly what the call acts on, not a folder around it or a whole tool.
    """

    id: int
    is_exact: bool


class CallFacts(Struct, frozen=True):
    """What a decision rests on.

    Attributes:
        effect: of the call.
        role: of the person for whom the turn runs.
        tool_role: the least role that may use the tool.
        place: where the call comes from.
        is_composed: the call reads an address that stood in nothing the model was shown.
        quote: the entry in which that address stood; None without one.
        cost: the bits that the choice of the address, of a query's words and of other values reveals; 0 in a clean turn.
        spent: the bits that earlier calls of the window revealed without a yes.
        is_opened: the turn continues after a yes that opened the domain of this call's address.
        world: an entry with words from anywhere that the model was shown; None if there was none.
        people: an entry with words of somebody who is no owner, for the least of their roles; None if there was none.
        grant: the best grant for the call; None without one.
        was_used: an interrupted attempt of the turn used the tool to act outside, so that it may have happened.
        may_park: a call of a job or a sub-task without a grant waits for a yes instead of being refused.
    """

    effect: Effect
    role: Role
    place: Place
    tool_role: Role = Role.MEMBER
    is_composed: bool = False
    quote: EntryRef | None = None
    cost: float = 0.0
    spent: float = 0.0
    is_opened: bool = False
    world: EntryRef | None = None
    people: tuple[EntryRef, Role] | None = None
    grant: MatchedGrant | None = None
    was_used: bool = False
    may_park: bool = False

    @property
    def is_within_budget(self) -> bool:
        """True if the call reveals nothing, its domain is opened, or the window stays within `MAX_BITS`."""
        return not self.cost or self.is_opened or self.spent + self.cost <= MAX_BITS


class Decision(Struct, frozen=True):
    """What happens to a call, and why.

    Attributes:
        verdict: what happens.
        row: the kind of its effect.
        callers: the columns that were looked at.
        tainted_by: the entries that make the turn tainted for this call.
        grant: the fact of the grant under which it runs; None if it needed none, 0 for what a job was allowed.
    """

    verdict: Verdict
    row: EffectRow
    callers: tuple[CallerColumn, ...]
    tainted_by: tuple[EntryRef, ...] = ()
    grant: int | None = None


def decide(facts: CallFacts) -> Decision:
    """Decide about a call. More taint, a lesser role or fewer grants never allow more."""
    row = find_row(facts.effect, is_composed=facts.is_composed)
    tainted_by = _find_taint(facts, row)
    if not facts.role.at_least(facts.tool_role) or facts.role is Role.STRANGER:
        return Decision(Verdict.REFUSE, row, (CallerColumn.MEMBER,), tainted_by)
    asker = _asker_column(facts.role, is_tainted=bool(tainted_by))
    verdict, grant = _apply(RULES[row][asker], facts, is_tainted=bool(tainted_by))
    callers: tuple[CallerColumn, ...] = (asker,)
    if facts.place.has_nobody:
        callers, verdict, grant = _decide_alone(facts, row, asker, verdict, is_tainted=bool(tainted_by))
    elif row is EffectRow.ADMINISTRATION and facts.place is Place.GROUP:
        verdict = Verdict.REFUSE  # others read along and speak to the model: an owner does that in a direct chat
    if facts.was_used and verdict is Verdict.RUN and facts.effect.kind is EffectKind.OUTSIDE:
        verdict = Verdict.ASK
        if facts.place.has_nobody and not facts.may_park:
            verdict = Verdict.REFUSE
    fact = grant.id if grant is not None and verdict is Verdict.RUN else None
    return Decision(verdict, row, callers, tainted_by, fact)


def find_row(effect: Effect, *, is_composed: bool) -> EffectRow:
    """Return the row of an effect."""
    match effect.kind:
        case EffectKind.READ:
            if not effect.has_network or effect.source is Source.OWN:
                return EffectRow.READS_OWN
            if effect.source is Source.PEOPLE:
                return EffectRow.READS_PEOPLE
            return EffectRow.READS_COMPOSED if is_composed else EffectRow.READS_WORLD
        case EffectKind.INSIDE:
            return _POWER_ROWS[effect.power]
    return EffectRow.OUTSIDE if effect.has_network else EffectRow.SANDBOXED


_POWER_ROWS = {
    Power.NONE: EffectRow.INSIDE,
    Power.JOBS: EffectRow.JOBS,
    Power.STOP_JOBS: EffectRow.STOP_JOBS,
    Power.FOLDERS: EffectRow.FOLDERS,
    Power.MEMORY: EffectRow.MEMORY,
    Power.ADMINISTRATION: EffectRow.ADMINISTRATION,
}


def _find_taint(facts: CallFacts, row: EffectRow) -> tuple[EntryRef, ...]:
    """List what taints the call: words from anywhere, and words of people whose own role would not let it run."""
    found = [] if facts.world is None else [facts.world]
    if facts.people is not None:
        entry, role = facts.people
        rule = RULES[row][CallerColumn.OWNER if role is Role.OWNER else CallerColumn.MEMBER]
        is_allowed = role.at_least(facts.tool_role) and rule not in (Rule.ASK, Rule.REFUSE)
        if role is Role.STRANGER or not is_allowed:
            found.append(entry)
    return tuple(found)


def _asker_column(role: Role, *, is_tainted: bool) -> CallerColumn:
    if role is not Role.OWNER:
        return CallerColumn.MEMBER
    return CallerColumn.TAINTED if is_tainted else CallerColumn.OWNER


def _decide_alone(
    facts: CallFacts, row: EffectRow, asker: CallerColumn, of_asker: Verdict, *, is_tainted: bool
) -> tuple[tuple[CallerColumn, ...], Verdict, MatchedGrant | None]:
    """Decide for a job or a sub-task, where nobody can answer.

    A sub-task, and a job of a person who is not an owner, get the stricter verdict of that person and of the column
    `NOBODY`. A job of an owner gets the latter alone: its grants were decided when it was added, whatever it reads.
    """
    verdict, grant = _apply(RULES[row][CallerColumn.NOBODY], facts, is_tainted=is_tainted)
    callers: tuple[CallerColumn, ...] = (CallerColumn.NOBODY,)
    if facts.place is Place.SUBTASK or facts.role is not Role.OWNER:
        callers, verdict = (asker, CallerColumn.NOBODY), verdict.stricter(of_asker)
    if verdict in (Verdict.RUN, Verdict.REFUSE) and not (verdict is Verdict.REFUSE and facts.may_park):
        return callers, verdict, grant
    could_ask = of_asker is not Verdict.REFUSE and row is not EffectRow.ADMINISTRATION
    return callers, Verdict.ASK if facts.may_park and could_ask else Verdict.REFUSE, None


def _apply(rule: Rule, facts: CallFacts, *, is_tainted: bool) -> tuple[Verdict, MatchedGrant | None]:
    """Return what a cell says, and the grant if it rests on it."""
    grant = facts.grant
    exact = grant if grant is not None and grant.is_exact else None
    match rule:
        case Rule.RUN:
            return Verdict.RUN, None
        case Rule.CONFIRM:
            return Verdict.CONFIRM, None
        case Rule.CONFIRM_IF_TAINTED:
            return (Verdict.CONFIRM if is_tainted else Verdict.RUN), None
        case Rule.ASK:
            return Verdict.ASK, None
        case Rule.REFUSE:
            return Verdict.REFUSE, None
        case Rule.EXACT_OR_ASK:
            return (Verdict.RUN, exact) if exact is not None else (Verdict.ASK, None)
        case Rule.BUDGET_OR_ASK:
            if is_tainted and exact is not None:
                return Verdict.RUN, exact
            return (Verdict.RUN if not is_tainted or facts.is_within_budget else Verdict.ASK), None
        case Rule.GRANT_OR_ASK:
            return (Verdict.RUN, grant) if grant is not None else (Verdict.ASK, None)
        case Rule.GRANT_OR_REFUSE:
            return (Verdict.RUN, grant) if grant is not None else (Verdict.REFUSE, None)
