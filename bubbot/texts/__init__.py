"""The bot's own sentences, for people; no model wrote them.

They are in catalogues, one for each area and language: `schedule.pot` in English, `zh/schedule.po` in Chinese. Texts for
models stay in English, such as `SILENT_MARK` and `OUTCOME_UNKNOWN`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from bubbot.errors import BubbotError, ModelRefused
from bubbot.texts.catalogue import (
    SOURCE_LANGUAGE,
    Catalogue,
    find_areas,
    list_languages,
    read_catalogue,
)

COMMAND_PREFIX = ","
"""What commands begin with in texts of ours, and in a terminal."""
_COMMAND = re.compile(r"(?<![\w,]),((?=[a-z{])[a-z]*(?:\.[a-z]+)*)")

SILENT_MARK = "[SILENT]"
"""The answer with which a model stays silent."""
OUTCOME_UNKNOWN = "outcome unknown: the bot stopped before this call was finished; it may or may not have happened"
"""The result that a model sees for a call without one."""
NOT_RUN = "not run: the turn was cut off before this call began"
"""The result that a model sees for a call that never began."""
DEFECT_IN_ENGLISH = "I could not answer this: something went wrong inside me ({name})."
"""What people are told of a failed turn if the catalogues cannot be read any more."""

TRACE_DIGITS = 8
"""Digits of a turn's id in a message about a failure."""


@dataclass(frozen=True)
class Texts:
    """The sentences in one language. An area is read when its first sentence is said, and kept: pass one object on.

    Attributes:
        language: its tag; `zh-Hans` is `zh`, and untranslated languages are English.
        package: the package whose catalogues hold the sentences.
        command_prefix: what commands begin with where the sentences are read: `,`, or `/` on platforms with commands of
            their own, whose names have no dots.
    """

    language: str = SOURCE_LANGUAGE
    package: str = "bubbot.texts"
    command_prefix: str = COMMAND_PREFIX

    def with_command_prefix(self, prefix: str) -> Texts:
        """Return the same sentences for a place where commands begin with this."""
        return self._variant(self.language, prefix)

    def in_language(self, tag: str) -> Texts:
        """Return the same sentences for a person of this language; these if nobody has translated them into it."""
        language = _primary(tag)
        is_other = language != self.tag and language in self._languages
        return self._variant(language, self.command_prefix) if is_other else self

    def format_commands(self, text: str) -> str:
        """Write the commands in a text of ours, such as `,memory.save`, as they are typed here: `/memory_save`."""
        if self.command_prefix == COMMAND_PREFIX:
            return text
        return _COMMAND.sub(lambda found: self.command_prefix + found[1].replace(".", "_"), text)

    @property
    def tag(self) -> str:
        """The language without its region, as the folder of its catalogues is named."""
        return _primary(self.language)

    @property
    def is_translated(self) -> bool:
        """True if this language is available."""
        return self.tag in self._languages

    @cached_property
    def english(self) -> Texts:
        """The same sentences in English."""
        return self if self._available == SOURCE_LANGUAGE else self._variant(SOURCE_LANGUAGE, COMMAND_PREFIX)

    def read_all(self) -> None:
        """Read every language now, for a process that outlives its files: an upgrade of the package replaces them."""
        for texts in (self, *map(self.in_language, self._languages)):
            for area in set(self._areas.values()):
                texts._read(area)  # noqa: SLF001 - of this class

    def say(self, name: str, /, **values: object) -> str:
        """Return the sentence of this name with the values of its placeholders; an int `count` chooses its form.

        Raise `KeyError` for an unknown sentence and for a missing value.
        """
        catalogue = self._catalogue(name)
        if not catalogue.entries[name].plural:
            return self.format_commands(catalogue.find(name)).format_map(values)
        count = values["count"]
        assert isinstance(count, int)
        return self.format_commands(catalogue.find(name, count)).format_map(values)

    def __contains__(self, name: str) -> bool:
        return name in self._areas

    def say_on(self, surface: str, name: str, /, **values: object) -> str:
        """Return the sentence of this name for a surface, `NAME@SURFACE`, if there is one, else the one for all of them."""
        return self.say(self._on(surface, name), **values)

    def template_on(self, surface: str, name: str) -> str:
        """Return the sentence of `say_on` with its placeholders. Raise `KeyError` for an unknown sentence."""
        name = self._on(surface, name)
        return self.format_commands(self._catalogue(name).find(name))

    def _on(self, surface: str, name: str) -> str:
        return variant if (variant := f"{name}@{surface}") in self._areas else name

    def format_number(self, english: str) -> str:
        """Write a number, such as `1,234.5`, with the marks of this language, which its catalogue shows: `1.234,5`."""
        example = self.say("number_example")
        return english.translate({ord(","): example[1], ord("."): example[5]})

    def format_failure(self, error: BubbotError, turn: str) -> str:
        """Tell people that an error ended the turn with this id."""
        reason = self.reason(error).rstrip(".")
        if isinstance(error, ModelRefused) and error.is_of_request:
            return self.add_trace(self.say("failed_request", reason=reason), turn)
        return self.add_trace(self.say("failed", reason=reason), turn)

    def add_trace(self, sentence: str, turn: str) -> str:
        """Add the turn's trace to a sentence about a failure, to find it in log and tape."""
        return self.say("traced", sentence=sentence, trace=turn[:TRACE_DIGITS])

    def reason(self, error: BubbotError) -> str:
        """Return an error as a reason; in English if nobody has translated its kind."""
        detail = self.format_commands(str(error))
        template = self.format_commands(self._translate(f"error.{error.kind}"))
        return template.format_map({**vars(error), "detail": detail.rstrip(".")}) if template else detail

    def summary(self, tool: str, english: str) -> str:
        """Return the summary of a tool for people."""
        return self.format_commands(self._translate(f"command.{tool}") or english)

    def translate_commands(self) -> Mapping[str, str]:
        """Return the translations of the summaries of all tools and of the meanings of their arguments, by the English."""
        names = [name for name in self._areas if name.startswith(("command.", "meaning."))]
        return {
            catalogue.entries[name].singular: catalogue.find(name)
            for name in names
            for catalogue in (self._catalogue(name),)
        }

    def brief(self, tool: str, english: str) -> str:
        """Return the meaning of a command in a few words."""
        return self._translate(f"brief.{tool}") or english

    def meaning(self, tool: str, argument: str, english: str) -> str:
        """Return what an argument of a tool means; the tools of a feature may share it."""
        for name in (f"meaning.{tool}.{argument}", f"meaning.{tool.partition('.')[0]}.{argument}"):
            # A tool of an installed package may have the name of one of ours, with other arguments.
            if (text := self._translate(name)) and self._catalogue(name).entries[name].singular == english:
                return self.format_commands(text)
        return self.format_commands(english)

    def strategy(self, name: str, english: str) -> str:
        """Return what a context strategy shows."""
        # A strategy of an installed package may have the name of one of ours.
        text = self._translate(f"strategy.{name}")
        is_ours = text and self._catalogue(f"strategy.{name}").entries[f"strategy.{name}"].singular == english
        return text if is_ours else english

    def panel(self, name: str, english: str) -> str:
        """Return the heading of a panel of the trace page; in English for those of installed packages."""
        return self._translate(f"panel.{name}") or english

    def topic(self, topic: str) -> str:
        """Return the heading of a part of the list of commands."""
        return self.say(f"topic.{topic}")

    def role(self, role: str) -> str:
        """Return the name of a role."""
        return self._translate(f"role.{role}") or role

    def status(self, status: str) -> str:
        """Return how a turn or a step of it ended."""
        return self._translate(f"status.{status}") or status

    def _translate(self, name: str) -> str:
        """Return the translation of what is also known in English, or an empty text."""
        if self._available == SOURCE_LANGUAGE or name not in self._areas:
            return ""
        catalogue = self._catalogue(name)
        text = catalogue.find(name)
        return "" if text == catalogue.entries[name].singular else text

    def _variant(self, language: str, prefix: str) -> Texts:
        """Return the sentences in this language with this prefix. One bot has one of each.

        What is read once counts for all with that language: a process may outlive the files.
        """
        if (language, prefix) == (self.language, self.command_prefix):
            return self
        variants = self._variants
        if (language, prefix) not in variants:
            other = variants[language, prefix] = replace(self, language=language, command_prefix=prefix)
            vars(other).update(_areas=self._areas, _languages=self._languages, _variants=variants)
            twins = [texts for (tag, _), texts in variants.items() if tag == language]
            vars(other).update(_catalogues=twins[0]._catalogues)  # noqa: SLF001 - of this class
        return variants[language, prefix]

    @cached_property
    def _available(self) -> str:
        return self.tag if self.is_translated else SOURCE_LANGUAGE

    def _catalogue(self, name: str) -> Catalogue:
        """Return the catalogue with this sentence. Raise `KeyError` if there is none."""
        return self._read(self._areas[name])

    def _read(self, area: str) -> Catalogue:
        """Return the catalogue of an area, which is read once."""
        if area not in self._catalogues:
            self._catalogues[area] = read_catalogue(self.package, area, self._available)
        return self._catalogues[area]

    @cached_property
    def _areas(self) -> Mapping[str, str]:
        """The area of each sentence, by the sentence's name."""
        return find_areas(self.package)

    @cached_property
    def _catalogues(self) -> dict[str, Catalogue]:
        """What was read so far, by area."""
        return {}

    @cached_property
    def _languages(self) -> Sequence[str]:
        """The languages that are available."""
        return list_languages(self.package)

    @cached_property
    def _variants(self) -> dict[tuple[str, str], Texts]:
        """The same sentences in each language and with each prefix that was asked for."""
        return {(self.language, self.command_prefix): self}


def _primary(tag: str) -> str:
    """Return the language of a tag: `zh` of `zh-Hans`."""
    return tag.partition("-")[0].lower()
