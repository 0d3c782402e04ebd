"""What refusals taught about models: facts on `bubbot/models`, known to the whole bot."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from bubbot.ports.model import Lesson
from bubbot.records import dataclass
from bubbot.tape.entry import Kind, TapeEntry
from bubbot.tape.events import ModelForgotten, ModelLearned
from bubbot.tape.query import TapeQuery, WholeTape
from bubbot.tape.service import TapeService
from bubbot.tape.view import QueryAnswers

MODELS_TAPE = "bubbot/models"


@dataclass(frozen=True, slots=True)
class LessonsView:
    """What refusals taught and nobody took back, the oldest first."""

    heavy: bool = False

    def queries(self, tape: str) -> tuple[TapeQuery, ...]:
        """Read the facts, through the name index."""
        return (
            TapeQuery(tape, WholeTape(), kinds=(Kind.EVENT,), names=(*ModelLearned.EVENTS, *ModelForgotten.EVENTS)),
        )

    def fold(self, answers: QueryAnswers) -> tuple[Lesson, ...]:
        """Keep the first of equal lessons, and none from before its model was to be asked anew."""
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
    """What refusals taught. See `KnowsLessons`."""

    def __init__(self, tape: TapeService) -> None:
        """Set the tape, `bubbot/models`. Call `load` before the first turn."""
        self._tape = tape
        self._lessons: list[Lesson] = []

    async def load(self) -> None:
        """Read what is known."""
        self._lessons = [*await self._tape.read(LessonsView())]

    def find(self, model: str, server: str) -> Sequence[Lesson]:
        """See `KnowsLessons.find`."""
        return [lesson for lesson in self._lessons if lesson.model == model and lesson.server == server]

    def find_known(self, model: str) -> Sequence[Lesson]:
        """Return what is known of a model at any server."""
        return [lesson for lesson in self._lessons if lesson.model == model]

    def try_out(self, lesson: Lesson) -> None:
        """Let the next requests of the model follow a lesson that is not stored: nobody knows yet whether it helps."""
        self._lessons.append(lesson)

    def drop(self, lessons: Sequence[Lesson]) -> None:
        """Forget lessons that were tried out and did not help."""
        self._lessons = [lesson for lesson in self._lessons if lesson not in lessons]

    async def keep(self, lessons: Sequence[Lesson]) -> Sequence[Lesson]:
        """Store lessons that helped; return those that nobody had stored before."""
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
        """Take back what is known of a model: its next requests have their usual form. Return how much that was."""
        known = self.find_known(model)
        if known:
            await self._tape.append([ModelForgotten(model).to_entry()])
            self.drop(known)
        return len(known)
