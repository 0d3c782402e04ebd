"""Lessons from refusals of models: facts on `bubbot/models`, for the whole bot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from msgspec import Struct

from bubbot.ports.model import Lesson
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import ModelForgotten, ModelLearned
from bubbot.tape.query import TapeQuery, WholeTape
from bubbot.tape.service import TapeService
from bubbot.tape.view import QueryAnswers

MODELS_TAPE = "bubbot/models"


class LessonsView(Struct, frozen=True):
    """The lessons in force, oldest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        return (
            TapeQuery(tape, WholeTape(), kinds=(Kind.EVENT,), names=(*ModelLearned.EVENTS, *ModelForgotten.EVENTS)),
        )

    def fold(self, answers: QueryAnswers) -> tuple[Lesson, ...]:
        """Keep the first of equal lessons, and none from before its model was forgotten."""
        lessons: dict[tuple[str, str, str], Lesson] = {}
        for entry in answers[0]:
            if entry.name in ModelLearned.EVENTS:
                for lesson in _read_lessons([entry]):
                    lessons.setdefault((lesson.model, lesson.server, lesson.rule), lesson)
            elif forgotten := ModelForgotten.try_of(entry):
                lessons = {key: lesson for key, lesson in lessons.items() if lesson.model != forgotten.model}
        return tuple(lessons.values())


def _read_lessons(entries: Iterable[TapeEntry]) -> list[Lesson]:
    read = [(entry.id, ModelLearned.try_of(entry)) for entry in entries]
    return [Lesson(fact.model, fact.server, fact.rule, (MODELS_TAPE, number)) for number, fact in read if fact]


class ModelLessons:
    """The lessons from refusals. See `KnowsLessons`."""

    def __init__(self, tape: TapeService) -> None:
        """Use the tape `bubbot/models`. Call `load` before the first turn."""
        self._tape = tape
        self._lessons: list[Lesson] = []

    async def load(self) -> None:
        """Read the tape, again if other processes wrote to it. What is being tried out stays."""
        tried = [lesson for lesson in self._lessons if lesson.fact is None]
        self._lessons = [*await self._tape.read(LessonsView()), *tried]

    def find(self, model: str, server: str) -> Sequence[Lesson]:
        return [lesson for lesson in self._lessons if lesson.model == model and lesson.server == server]

    def find_known(self, model: str) -> Sequence[Lesson]:
        """Return the lessons about a model at all servers."""
        return [lesson for lesson in self._lessons if lesson.model == model]

    def try_out(self, lesson: Lesson) -> None:
        """Apply a lesson to the model's next requests without storing it, until it has helped."""
        self._lessons.append(lesson)

    def drop(self, lessons: Sequence[Lesson]) -> None:
        """Forget lessons that were tried without success."""
        self._lessons = [lesson for lesson in self._lessons if lesson not in lessons]

    async def keep(self, lessons: Sequence[Lesson]) -> Sequence[Lesson]:
        """Store lessons that helped; return those that are new."""
        new = [lesson for lesson in lessons if lesson in self._lessons]
        facts: list[TapeEntry] = []
        if new:
            facts = [
                *await self._tape.append([ModelLearned(each.model, each.server, each.rule).to_entry() for each in new])
            ]
        self.drop(new)
        self._lessons += _read_lessons(facts)
        return new

    async def forget(self, model: str) -> int:
        """Revoke the lessons about a model, so that its next requests have their usual form; return how many."""
        known = self.find_known(model)
        if known:
            await self._tape.append([ModelForgotten(model).to_entry()])
            self.drop(known)
        return len(known)
