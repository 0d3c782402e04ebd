"""The texts of `--help` in the language of the bot. Commands give them in English, by which they are found."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property

from bubbot.texts import Texts
from bubbot.texts.catalogue import read_catalogue

AREA = "help"
EXAMPLE = "example: "
"""The beginning of the last lines of a command's help, each of which is a command."""


class HelpTranslator:
    """Translates the help of commands; what nobody has translated stays English, as that of installed packages.

    Attributes:
        texts: the language, which is not English.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    @cached_property
    def _own(self) -> Mapping[str, str]:
        """The translations of texts that only a shell has, by their English."""
        catalogue = read_catalogue(self.texts.package, AREA, self.texts.tag)
        return {entry.singular: catalogue.find(name) for name, entry in catalogue.entries.items()}

    @cached_property
    def _of_chats(self) -> Mapping[str, str]:
        """Those of what chats are told of commands, too."""
        return self.texts.translate_commands()

    def translate(self, text: str) -> str:
        """Translate a text, or a line that was made a sentence."""
        if (found := self._own.get(text)) is not None:
            return found
        if text.startswith(EXAMPLE):
            return self.texts.say("help_example", command=text.removeprefix(EXAMPLE))
        if line := self._own.get(text[:1].lower() + text[1:].removesuffix(".")):
            return self.texts.say("help_sentence", text=line[:1].upper() + line[1:])
        if (found := self._of_chats.get(text)) is not None:
            return found
        sentence = self._of_chats.get(f"{text[:1].upper()}{text[1:]}.")
        return sentence.rstrip(".。") if sentence else text
