"""The evaluations that can be run: files of the home, and suites of the package."""

from __future__ import annotations

import re
from importlib.resources import as_file, files
from pathlib import Path

from bubbot.errors import ValueInvalid
from bubbot.features.judge.evals.spec import EvalSpec, load_spec
from bubbot.formatting import did_you_mean

EVALS_FOLDER = "evals"
"""The folder of evaluations in a home."""
SUITES = ("everyday",)
"""The suites of the package: folders of `suites`, each with a file of its name."""
_NAME = re.compile(r"[\w.-]{1,64}")
"""Of a file; a colon would stand before a setup."""


class EvalLibrary:
    """The evaluations of a home, and the suites of the package. A file of the home takes the place of a suite of its name."""

    def __init__(self, home: Path) -> None:
        self._folder = home / EVALS_FOLDER

    def list_names(self) -> list[str]:
        """List the names, those of the home first."""
        own = (
            sorted(path.stem for path in self._folder.glob("*.toml") if _NAME.fullmatch(path.stem))
            if self._folder.is_dir()
            else []
        )
        return list(dict.fromkeys([*own, *SUITES]))

    def load(self, name: str) -> EvalSpec:
        """Read an evaluation. Raise `SpecInvalid` with all problems, or `ValueInvalid` if there is none of this name."""
        name = name.strip()
        names = self.list_names()
        if name not in names:
            raise ValueInvalid(
                "eval_no_file", eval=name, hint=did_you_mean(name, names, before="; "), names=", ".join(names)
            )
        path = self._folder / f"{name}.toml"
        if path.is_file():
            return load_spec(path)
        with as_file(files("bubbot.features.judge.evals") / "suites" / name) as folder:
            return load_spec(folder / f"{name}.toml")
