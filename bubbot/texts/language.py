"""What a language consists of."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

Forms: TypeAlias = Mapping[str, str]
"""A sentence that depends on a number: its forms by the words that `Language.form` gives; `other` is always there."""
Sentence: TypeAlias = str | Forms
"""Placeholders stand in braces, as `str.format` takes them. The number that chooses a form is called `count`."""


@dataclass(frozen=True, slots=True)
class Language:
    """One language as data.

    `form` says which form goes with a number. `sentences` are by name. `reasons` tell errors by their kind; they may
    use `{detail}`, which is the error in English, and what the error carries. `summaries` tell what a command does, by
    the name of its tool, and `roles` what a role is called. What is in neither of the last three is told in English.
    """

    form: Callable[[int], str]
    sentences: Mapping[str, Sentence]
    reasons: Mapping[str, str] = field(default_factory=dict)
    summaries: Mapping[str, str] = field(default_factory=dict)
    roles: Mapping[str, str] = field(default_factory=dict)
