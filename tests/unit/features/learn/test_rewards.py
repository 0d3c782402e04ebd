"""Rewards: which judgements count for which turn, and how much."""

from __future__ import annotations

import pytest

from bubbot.features.learn.rewards import add_up, assign_rewards, discount
from bubbot.features.learn.settings import LearnSettings
from bubbot.ports.judgements import Annotator, JudgedTarget, Judgement, Label, TargetKind
from bubbot.runtime.turn_spans import TurnSpan

TURNS = (TurnSpan("a", 1, 10), TurnSpan("b", 11, 20), TurnSpan("c", 25, 30))
ANN = Annotator("human", "1", "tg")


def label(
    score: float | None,
    *span: int,
    name: str = "quality",
    kind: TargetKind = "entry",
    identifier: str = "",
    superseded_by: int = 0,
) -> Label:
    first, last = span[0], span[-1]
    fact = Judgement(JudgedTarget(kind, ((first, last),)), name, score, "", "", ANN, identifier)
    return Label(40, "2026-11-30T00:00:00+00:00", fact, superseded_by)


def values(*labels: Label, **settings: object) -> dict[str, list[float]]:
    found = assign_rewards(labels, TURNS, LearnSettings.model_validate(settings))
    return {turn: [reward.value for reward in rewards] for turn, rewards in found.items()}


def test_a_score_counts_on_the_scale_of_its_name_and_a_reaction_on_its_own() -> None:
    assert values(label(5, 4), label(1, 12), label(3, 30)) == {"a": [1.0], "b": [-1.0], "c": [0.0]}
    assert values(label(-1, 4, identifier="reaction"), label(9, 12)) == {"a": [-1.0], "b": [1.0]}
    assert values(label(0.5, 4, name="tone"), rewards={"tone": -2}, worst=0, best=1) == {"a": [0.0]}
    assert values(label(1, 4, name="tone"), rewards={"tone": -2}, worst=0, best=1) == {"a": [-2.0]}


def test_what_is_wider_than_a_turn_counts_for_its_last_one() -> None:
    assert values(label(5, 2, 15, kind="slice")) == {"b": [1.0]}


@pytest.mark.parametrize(
    "other",
    [
        label(None, 4),
        label(5, 4, name="length"),
        label(5, 4, superseded_by=41),
        label(5, 4, kind="branch"),
        label(5, 22),
        label(5, 31),
        label(5, 2, 31, kind="slice"),
    ],
)
def test_what_says_nothing_of_a_turn_does_not_count(other: Label) -> None:
    assert values(other) == {}


def test_several_of_a_name_count_by_their_mean_and_names_are_added_up() -> None:
    settings = LearnSettings.model_validate({"rewards": {"quality": 1, "tone": 2}})
    found = assign_rewards([label(5, 4), label(1, 4), label(5, 4, name="tone")], TURNS, settings)
    assert add_up(found["a"]) == 2.0
    assert add_up([]) is None


def test_a_later_reward_counts_for_earlier_turns_as_much_as_asked() -> None:
    found = assign_rewards([label(5, 30), label(1, 4)], TURNS, LearnSettings())
    assert discount(found, TURNS, 0.0) == {"a": -1.0, "c": 1.0}
    assert discount(found, TURNS, 0.5) == {"a": -0.75, "b": 0.5, "c": 1.0}


def test_a_scale_without_a_length_is_refused() -> None:
    with pytest.raises(ValueError, match="best has to be above worst"):
        LearnSettings(worst=5, best=5)
