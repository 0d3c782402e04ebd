"""The decision about a call: each cell of the design's table, and that less trust never allows more."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from bubbot.features.approvals.decision import (
    CallerColumn,
    CallFacts,
    Decision,
    EffectRow,
    MatchedGrant,
    Place,
    Verdict,
    decide,
    find_row,
)
from bubbot.ports.channel import Role
from bubbot.tape.provenance import Source
from bubbot.tool import Effect, EffectKind, Power, Repeat

WORLD = ("chat", 7)
MEMBER_WORDS = (("chat", 8), Role.MEMBER)
OWN = Effect(EffectKind.READ, Source.OWN)
PEOPLE = Effect(EffectKind.READ, Source.PEOPLE)
SEARCH = Effect(EffectKind.READ, Source.WORLD)
STORED = Effect(EffectKind.READ, Source.WORLD, has_network=False)
INSIDE = Effect(EffectKind.INSIDE)
JOBS = Effect(EffectKind.INSIDE, power=Power.JOBS)
STOPS = Effect(EffectKind.INSIDE, power=Power.STOP_JOBS)
FOLDERS = Effect(EffectKind.INSIDE, power=Power.FOLDERS)
MEMORY = Effect(EffectKind.INSIDE, power=Power.MEMORY)
POWER = Effect(EffectKind.INSIDE, power=Power.ADMINISTRATION)
SANDBOXED = Effect(EffectKind.OUTSIDE, has_network=False)
NETWORK = Effect(EffectKind.OUTSIDE, once=Repeat.KEY)

COLUMNS = ("owner", "owner, tainted", "member", "job", "job, granted")
TABLE = {
    "read own": (OWN, False, "run", "run", "run", "run", "run"),
    "read people": (PEOPLE, False, "run", "run", "run", "run", "run"),
    "read what is stored here": (STORED, False, "run", "run", "run", "run", "run"),
    "search, or an address that was shown": (SEARCH, False, "run", "run", "run", "refuse", "run"),
    "an address that the model composed": (SEARCH, True, "run", "ask", "ask", "refuse", "run"),
    "inside": (INSIDE, False, "run", "run", "run", "run", "run"),
    "jobs of the own chat": (JOBS, False, "run", "confirm", "run", "run", "run"),
    "removing, pausing, editing jobs": (STOPS, False, "run", "confirm", "confirm", "refuse", "refuse"),
    "a person's folder": (FOLDERS, False, "run", "ask", "refuse", "refuse", "run"),
    "clearing memory": (MEMORY, False, "confirm", "confirm", "confirm", "refuse", "refuse"),
    "access, config, other chats' jobs": (POWER, False, "confirm", "ask", "refuse", "refuse", "refuse"),
    "outside, sandboxed": (SANDBOXED, False, "ask", "ask", "refuse", "refuse", "run"),
    "outside with network": (NETWORK, False, "ask", "ask", "refuse", "refuse", "run"),
}
"""DESIGN.md §10: what happens without a standing grant; in the last column with one of the job."""


def cell(name: str, column: str) -> Verdict:
    effect, composed = TABLE[name][:2]
    facts = CallFacts(
        effect,
        Role.MEMBER if column == "member" else Role.OWNER,
        Place.JOB if column.startswith("job") else Place.DIRECT,
        is_composed=composed,
        world=WORLD if "tainted" in column else None,
        grant=MatchedGrant(0, is_exact=False) if "granted" in column else None,
    )
    return decide(facts).verdict


@pytest.mark.parametrize("column", COLUMNS)
@pytest.mark.parametrize("name", TABLE)
def test_a_cell_of_the_table_says_what_the_design_says(name: str, column: str) -> None:
    assert cell(name, column) == TABLE[name][2 + COLUMNS.index(column)]


GRANTED = {
    ("outside, sandboxed", "owner", "covering"): "run",
    ("outside, sandboxed", "tainted", "covering"): "ask",
    ("outside, sandboxed", "tainted", "exact"): "run",
    ("outside, sandboxed", "member", "exact"): "refuse",
    ("outside with network", "owner", "covering"): "run",
    ("outside with network", "tainted", "covering"): "ask",
    ("outside with network", "tainted", "exact"): "run",
    ("outside with network", "member", "exact"): "refuse",
    ("an address that the model composed", "tainted", "covering"): "ask",
    ("an address that the model composed", "tainted", "exact"): "run",
    ("an address that the model composed", "member", "exact"): "ask",
    ("a person's folder", "tainted", "covering"): "ask",
    ("a person's folder", "tainted", "exact"): "run",
    ("clearing memory", "owner", "exact"): "confirm",
    ("access, config, other chats' jobs", "owner", "exact"): "confirm",
}


@pytest.mark.parametrize("case", GRANTED)
def test_a_grant_lets_run_what_it_covers_and_from_a_tainted_turn_only_what_it_names(case: tuple[str, str, str]) -> None:
    name, caller, kind = case
    effect, composed = TABLE[name][:2]
    facts = CallFacts(
        effect,
        Role.MEMBER if caller == "member" else Role.OWNER,
        Place.DIRECT,
        is_composed=composed,
        world=WORLD if caller == "tainted" else None,
        grant=MatchedGrant(12, is_exact=kind == "exact"),
    )
    found = decide(facts)
    assert found.verdict == GRANTED[case]
    assert found.grant == (12 if found.verdict is Verdict.RUN else None)


class TestTaint:
    def test_words_of_a_member_taint_what_a_member_may_not_do(self) -> None:
        facts = CallFacts(NETWORK, Role.OWNER, Place.GROUP, people=MEMBER_WORDS, grant=MatchedGrant(3, is_exact=False))
        assert decide(facts) == Decision(
            Verdict.ASK, EffectRow.OUTSIDE, (CallerColumn.TAINTED,), (MEMBER_WORDS[0],), None
        )

    def test_words_of_a_member_do_not_taint_what_a_member_may_do(self) -> None:
        assert decide(CallFacts(JOBS, Role.OWNER, Place.GROUP, people=MEMBER_WORDS)).verdict is Verdict.RUN

    def test_a_tool_for_admins_is_tainted_by_words_of_members(self) -> None:
        facts = CallFacts(JOBS, Role.OWNER, Place.GROUP, Role.ADMIN, people=MEMBER_WORDS)
        assert decide(facts).verdict is Verdict.CONFIRM

    def test_words_of_strangers_taint_whatever_a_call_does_that_asks(self) -> None:
        facts = CallFacts(JOBS, Role.OWNER, Place.DIRECT, people=(WORLD, Role.STRANGER))
        assert decide(facts).tainted_by == (WORLD,)


class TestChoices:
    @pytest.mark.parametrize("role", [Role.OWNER, Role.MEMBER])
    @pytest.mark.parametrize(
        ("spent", "changes", "verdict"),
        [
            (11.0, {}, "run"),
            (11.1, {}, "ask"),
            (16.0, {"cost": 0.0}, "run"),
            (16.0, {"world": None}, "run"),
            (16.0, {"is_opened": True}, "run"),
            (16.0, {"grant": MatchedGrant(3, is_exact=True)}, "run"),
            (16.0, {"grant": MatchedGrant(3, is_exact=False)}, "ask"),
        ],
    )
    def test_a_tainted_turn_reads_what_was_shown_while_its_choices_tell_little(
        self, role: Role, spent: float, changes: dict[str, object], verdict: str
    ) -> None:
        facts = CallFacts(SEARCH, role, Place.DIRECT, world=WORLD, cost=5.0, spent=spent)
        assert decide(changed(facts, **changes)).verdict == verdict


class TestPlaces:
    def test_an_owner_gives_powers_in_a_direct_chat_only(self) -> None:
        assert decide(CallFacts(POWER, Role.OWNER, Place.GROUP)).verdict is Verdict.REFUSE

    def test_an_admin_has_the_column_of_members(self) -> None:
        assert decide(CallFacts(NETWORK, Role.ADMIN, Place.DIRECT)).verdict is Verdict.REFUSE

    def test_a_stranger_and_a_lesser_role_than_the_tool_wants_are_refused(self) -> None:
        assert decide(CallFacts(OWN, Role.STRANGER, Place.DIRECT)).verdict is Verdict.REFUSE
        assert decide(CallFacts(OWN, Role.MEMBER, Place.DIRECT, Role.ADMIN)).verdict is Verdict.REFUSE

    def test_a_job_of_a_member_may_not_do_what_a_member_may_not(self) -> None:
        facts = CallFacts(NETWORK, Role.MEMBER, Place.JOB, grant=MatchedGrant(0, is_exact=True), may_park=True)
        assert decide(facts).verdict is Verdict.REFUSE

    def test_a_sub_task_inherits_the_taint_of_its_turn(self) -> None:
        clean = CallFacts(NETWORK, Role.OWNER, Place.SUBTASK, grant=MatchedGrant(5, is_exact=False))
        tainted = CallFacts(NETWORK, Role.OWNER, Place.SUBTASK, grant=MatchedGrant(5, is_exact=False), world=WORLD)
        assert [decide(clean).verdict, decide(tainted).verdict] == [Verdict.RUN, Verdict.REFUSE]

    @pytest.mark.parametrize(
        ("effect", "verdict"),
        [(NETWORK, Verdict.ASK), (SEARCH, Verdict.ASK), (MEMORY, Verdict.ASK), (POWER, Verdict.REFUSE)],
    )
    def test_what_is_refused_for_want_of_a_person_is_asked_by_choice(self, effect: Effect, verdict: Verdict) -> None:
        assert decide(CallFacts(effect, Role.OWNER, Place.JOB, may_park=True)).verdict is verdict
        assert decide(CallFacts(effect, Role.OWNER, Place.JOB)).verdict is Verdict.REFUSE


class TestRepeats:
    def test_another_call_of_a_tool_that_was_cut_off_asks_whatever_its_grant(self) -> None:
        facts = CallFacts(NETWORK, Role.OWNER, Place.DIRECT, grant=MatchedGrant(4, is_exact=True), was_used=True)
        assert decide(facts).verdict is Verdict.ASK

    def test_in_a_job_it_is_refused(self) -> None:
        facts = CallFacts(NETWORK, Role.OWNER, Place.JOB, grant=MatchedGrant(0, is_exact=True), was_used=True)
        assert decide(facts).verdict is Verdict.REFUSE


EFFECTS = st.builds(
    Effect,
    kind=st.sampled_from(EffectKind),
    source=st.sampled_from(Source),
    has_network=st.booleans(),
    power=st.sampled_from(Power),
)
GRANTS = st.none() | st.builds(MatchedGrant, st.just(9), st.booleans())
FACTS = st.builds(
    CallFacts,
    EFFECTS,
    st.sampled_from(Role),
    st.sampled_from(Place),
    st.sampled_from([Role.MEMBER, Role.ADMIN, Role.OWNER]),
    is_composed=st.booleans(),
    world=st.none() | st.just(WORLD),
    people=st.none() | st.tuples(st.just(("chat", 8)), st.sampled_from([Role.STRANGER, Role.MEMBER, Role.ADMIN])),
    grant=GRANTS,
    was_used=st.booleans(),
    may_park=st.booleans(),
    cost=st.sampled_from([0.0, 1.0, 7.5, 16.0, 17.0]),
    spent=st.sampled_from([0.0, 1.0, 9.0, 16.0, 40.0]),
    is_opened=st.booleans(),
)


def strictness(facts: CallFacts) -> int:
    return list(Verdict).index(decide(facts).verdict)


def changed(facts: CallFacts, **changes: object) -> CallFacts:
    return structs.replace(facts, **changes)


class TestLessTrustNeverAllowsMore:
    @given(facts=FACTS)
    def test_more_taint(self, facts: CallFacts) -> None:
        assert strictness(changed(facts, world=WORLD)) >= strictness(facts)
        worst = (("chat", 8), Role.STRANGER)
        assert strictness(changed(facts, people=worst)) >= strictness(facts)
        assert strictness(changed(facts, is_composed=True)) >= strictness(changed(facts, is_composed=False))

    @given(facts=FACTS, role=st.sampled_from(Role))
    def test_a_lesser_role(self, facts: CallFacts, role: Role) -> None:
        lesser = min(role, facts.role, key=list(Role).index)
        assert strictness(changed(facts, role=lesser)) >= strictness(facts)

    @given(facts=FACTS)
    def test_no_grant(self, facts: CallFacts) -> None:
        assert strictness(changed(facts, grant=None)) >= strictness(facts)
        if facts.grant is not None:
            covering = changed(facts, grant=MatchedGrant(9, is_exact=False))
            assert strictness(covering) >= strictness(changed(facts, grant=MatchedGrant(9, is_exact=True)))

    @given(facts=FACTS)
    def test_nobody_there(self, facts: CallFacts) -> None:
        alone = strictness(changed(facts, place=Place.SUBTASK))
        assert alone >= strictness(changed(facts, place=Place.DIRECT)) or decide(facts).row is EffectRow.JOBS

    @given(facts=FACTS, more=st.sampled_from([0.5, 8.0, 16.5]))
    def test_more_told(self, facts: CallFacts, more: float) -> None:
        assert strictness(changed(facts, spent=facts.spent + more)) >= strictness(facts)
        assert strictness(changed(facts, cost=facts.cost + more)) >= strictness(facts)
        assert strictness(changed(facts, is_opened=False)) >= strictness(changed(facts, is_opened=True))

    @given(facts=FACTS)
    def test_a_repeat(self, facts: CallFacts) -> None:
        assert strictness(changed(facts, was_used=True)) >= strictness(changed(facts, was_used=False))

    @given(facts=FACTS)
    def test_nothing_acts_outside_without_an_owner_and_a_yes_or_a_grant(self, facts: CallFacts) -> None:
        if facts.effect.kind is EffectKind.OUTSIDE and decide(facts).verdict is Verdict.RUN:
            assert facts.role is Role.OWNER
            assert facts.grant is not None


@given(effect=EFFECTS, composed=st.booleans())
def test_every_effect_has_a_row(effect: Effect, composed: bool) -> None:
    assert isinstance(find_row(effect, is_composed=composed), EffectRow)
