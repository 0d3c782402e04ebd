"""The bot's own sentences, for people; no model wrote them.

The languages are data: `en.py` and `zh.py`, one entry for each sentence. Texts for models stay in English, such as
`SILENT_MARK` and `OUTCOME_UNKNOWN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from bubbot.errors import BubbotError
from bubbot.texts.en import ENGLISH
from bubbot.texts.language import Language
from bubbot.texts.zh import CHINESE

LANGUAGES: Mapping[str, Language] = MappingProxyType({"en": ENGLISH, "zh": CHINESE})
"""The available languages, by tag."""

SILENT_MARK = "[SILENT]"
"""The answer with which a model stays silent."""
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"
"""The result that a model sees for a call without one."""

TRACE_DIGITS = 8
"""Digits of a turn's id in a message about a failure."""


@dataclass(frozen=True, slots=True)
class Texts:
    """The sentences in one language, by its tag; `zh-Hans` is `zh`, and untranslated languages are English."""

    language: str = "en"

    @property
    def is_translated(self) -> bool:
        """True if this language is available."""
        return self._tag in LANGUAGES

    def say(self, name: str, /, **values: object) -> str:
        """Return the sentence of this name with the values of its placeholders; an int `count` chooses its form.

        Raise `KeyError` for an unknown sentence and for a missing value.
        """
        language = self._language
        sentence = language.sentences[name]
        if not isinstance(sentence, str):
            count = values["count"]
            assert isinstance(count, int)
            sentence = sentence.get(language.form(count), sentence["other"])
        return sentence.format_map(values)

    def format_failure(self, error: BubbotError, turn: str) -> str:
        """Tell people that an error ended the turn with this id."""
        return self.add_trace(self.say("failed", reason=self.reason(error).rstrip(".")), turn)

    def add_trace(self, sentence: str, turn: str) -> str:
        """Add the turn's trace to a sentence about a failure, to find it in log and tape."""
        return self.say("traced", sentence=sentence, trace=turn[:TRACE_DIGITS])

    def reason(self, error: BubbotError) -> str:
        """Return an error as a reason; in English if the language has no text for its kind."""
        template = self._language.reasons.get(error.kind)
        detail = str(error)
        return detail if template is None else template.format_map({**vars(error), "detail": detail.rstrip(".")})

    def summary(self, tool: str, english: str) -> str:
        """Return the summary of a tool for people."""
        return self._language.summaries.get(tool, english)

    def role(self, role: str) -> str:
        """Return the name of a role."""
        return self._language.roles.get(role, role)

    @property
    def _tag(self) -> str:
        return self.language.partition("-")[0].lower()

    @property
    def _language(self) -> Language:
        return LANGUAGES.get(self._tag, ENGLISH)
