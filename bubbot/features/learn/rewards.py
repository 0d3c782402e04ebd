"""Rewards: what judgements say of turns, on one scale from -1, bad, to 1, good."""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Mapping, Sequence

from msgspec import Struct

from bubbot.features.learn.settings import LearnSettings
from bubbot.ports.judgements import REACTION, AnnotatorKind, Label, TargetKind
from bubbot.runtime.turn_spans import TurnSpan


class Reward(Struct, frozen=True):
    """What a judgement says of a turn.

    Attributes:
        name: what was judged.
        score: as it was given; None if only a word was.
        value: from -1 to 1, times the weight of the name.
        label: the word; empty without one.
        kind: who judged.
        target: what was judged; what is wider than a turn counts for its last turn.
        entry: the entry of the judgement; a receipt can name it.
    """

    name: str
    score: float | None
    value: float
    label: str
    kind: AnnotatorKind
    target: TargetKind
    entry: int


def assign_rewards(
    labels: Sequence[Label], turns: Sequence[TurnSpan], settings: LearnSettings
) -> dict[str, list[Reward]]:
    """Return the rewards of turns, which are in order, by their ids.

    A judgement counts for the turn in which its target ends. Judgements of names that the settings do not have, without a
    score, of a branch, or no longer in force, do not count.
    """
    starts = [turn.first for turn in turns]
    found: dict[str, list[Reward]] = defaultdict(list)
    for label in labels:
        fact = label.judgement
        weight = settings.rewards.get(fact.name)
        if weight is None or fact.score is None or not label.is_in_force or fact.target.kind == "branch":
            continue
        last = fact.target.entries[-1][1]
        place = bisect_right(starts, last) - 1
        if place < 0 or last > turns[place].last:
            continue
        scale = settings.best - settings.worst
        scaled = fact.score if fact.identifier == REACTION else 2 * (fact.score - settings.worst) / scale - 1
        value = max(-1.0, min(1.0, scaled)) * weight
        reward = Reward(fact.name, fact.score, value, fact.label, fact.annotator.kind, fact.target.kind, label.entry)
        found[turns[place].id].append(reward)
    return found


def add_up(rewards: Sequence[Reward]) -> float | None:
    """Return the mean of the judgements of each name, added up; None without any."""
    if not rewards:
        return None
    by_name: dict[str, list[float]] = defaultdict(list)
    for reward in rewards:
        by_name[reward.name].append(reward.value)
    return sum(sum(values) / len(values) for values in by_name.values())


def discount(rewards: Mapping[str, Sequence[Reward]], turns: Sequence[TurnSpan], factor: float) -> dict[str, float]:
    """Return the reward of each turn with those of later ones, times `factor` for each turn between; only of turns that have any."""
    returns: dict[str, float] = {}
    later: float | None = None
    for turn in reversed(turns):
        own = add_up(rewards.get(turn.id, ()))
        later = later * factor if later is not None and factor else None
        if own is not None:
            later = own + (later or 0.0)
        if later is not None:
            returns[turn.id] = later
    return returns
