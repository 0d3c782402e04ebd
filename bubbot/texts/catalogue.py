"""Catalogues of sentences: gettext files that translators edit.

A package keeps `AREA.pot`, the sentences of one area in English, and `LANGUAGE/AREA.po`, their translation. `msgctxt` is
the name by which the code knows a sentence, `msgid` its English, `msgid_plural` its English for any number but one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from gettext import GNUTranslations, NullTranslations
from importlib import import_module
from io import BytesIO
from pathlib import Path
from types import MappingProxyType

from msgspec import Struct

SOURCE_LANGUAGE = "en"
"""The language of the templates."""


class CatalogueEntry(Struct, frozen=True):
    """A sentence in English; `plural` is empty unless the sentence depends on a number."""

    singular: str
    plural: str = ""


class Catalogue(Struct, frozen=True):
    """The sentences of one area in one language.

    Attributes:
        entries: the sentences in English, by name.
        source: the text of the file with their translation, parsed when a sentence is said: few people's languages are met;
            a sentence without one stays English.
    """

    entries: Mapping[str, CatalogueEntry]
    source: str

    def find(self, name: str, count: int = 1) -> str:
        """Return the text of this sentence, in the form for this number. Raise `KeyError` if there is none."""
        entry, translations = self.entries[name], _parse_translation(self.source)
        if entry.plural:
            return translations.npgettext(name, entry.singular, entry.plural, count)
        return translations.pgettext(name, entry.singular)


def list_languages(package: str) -> list[str]:
    """Return the tags of the languages of a package's catalogues."""
    folders = [folder for folder in _folder(package).iterdir() if folder.is_dir()]
    return sorted([SOURCE_LANGUAGE, *(folder.name for folder in folders if any(_stems(folder, ".po")))])


def find_areas(package: str) -> Mapping[str, str]:
    """Return the area of each sentence of a package, by the sentence's name."""
    templates = [file for file in _folder(package).iterdir() if file.name.endswith(".pot")]
    return _find_areas(*((file, *_changed(file)) for file in sorted(templates)))


@lru_cache(maxsize=32)
def _find_areas(*templates: tuple[Path, int, int]) -> Mapping[str, str]:
    areas: dict[str, str] = {}
    for file, *state in templates:
        areas |= dict.fromkeys(_find_names(_read_text(file, *state)), file.stem)
    return MappingProxyType(areas)


@lru_cache(maxsize=128)
def _find_names(template: str) -> list[str]:
    # Not with a pattern, which takes ten times as long for all the templates, and a command says one sentence.
    return [piece.partition('"\n')[0] for piece in f"\n{template}".split('\nmsgctxt "')[1:]]


def read_catalogue(package: str, area: str, language: str) -> Catalogue:
    """Read the sentences of one area from the files of a package, in English if nobody has translated the area."""
    folder = _folder(package)
    translation = folder.joinpath(language, f"{area}.po")
    template = _parse_template(_read(folder.joinpath(f"{area}.pot")))
    return Catalogue(template, _read(translation) if translation.is_file() else "")


@lru_cache(maxsize=256)
def _parse_translation(source: str) -> NullTranslations:
    """Parse a translation, which is empty if there is none, once: it takes 5 ms."""
    if not source:
        return NullTranslations()
    import polib

    return GNUTranslations(BytesIO(polib.pofile(source).to_binary()))


@lru_cache(maxsize=128)
def _parse_template(text: str) -> Mapping[str, CatalogueEntry]:
    """Return the sentences of a template, which is parsed as it is used."""
    return _Template(text)


class _Template(Mapping[str, CatalogueEntry]):
    """The sentences of a template, by name. Each is parsed when it is said: a command says few, and all take 5 ms."""

    def __init__(self, text: str) -> None:
        self._paragraphs = {name: paragraph for paragraph in text.split("\n\n") for name in _find_names(paragraph)}
        self._parsed: dict[str, CatalogueEntry] = {}

    def __getitem__(self, name: str) -> CatalogueEntry:
        if name not in self._parsed:
            import polib

            for entry in polib.pofile(self._paragraphs[name]):
                self._parsed[entry.msgctxt] = CatalogueEntry(entry.msgid, entry.msgid_plural)
        return self._parsed[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._paragraphs)

    def __len__(self) -> int:
        return len(self._paragraphs)


def _folder(package: str) -> Path:
    # Not by `importlib.resources`, which loads what reads packages in zip files.
    return Path(next(iter(import_module(package).__path__)))


def _read(file: Path) -> str:
    return _read_text(file, *_changed(file))


def _changed(file: Path) -> tuple[int, int]:
    """Return when a file was changed, and its size."""
    found = file.stat()
    return found.st_mtime_ns, found.st_size


@lru_cache(maxsize=256)
def _read_text(file: Path, _changed: int, _size: int) -> str:
    """Read a file that was changed last at this time: each once, as every bot of a process asks for the same."""
    return file.read_text(encoding="utf-8")


def _stems(folder: Path, suffix: str) -> Iterator[str]:
    return (file.stem for file in folder.iterdir() if file.name.endswith(suffix))
