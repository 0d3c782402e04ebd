"""A module of the standard library that is loaded when something in it is used, and not when a library imports it."""

from __future__ import annotations

import importlib
import sys
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


class DeferredModule(ModuleType):
    """Stands in for a submodule of a package until one of its functions is called, or another name is looked up.

    Attributes:
        functions: the names that can be imported from it without loading it.
    """

    def __init__(self, name: str, functions: tuple[str, ...]) -> None:
        super().__init__(name)
        # `find_spec` and `from … import` ask for these.
        self.__spec__ = spec = PathFinder.find_spec(name, sys.modules[name.rpartition(".")[0]].__path__)
        self.__path__ = (spec and spec.submodule_search_locations) or []
        for function in functions:
            setattr(
                self, function, lambda *args, _name=function, **kwargs: getattr(self._load(), _name)(*args, **kwargs)
            )

    def __getattr__(self, name: str) -> Any:
        return getattr(self._load(), name)

    def _load(self) -> ModuleType:
        if sys.modules.get(self.__name__) is self:
            del sys.modules[self.__name__]
        return importlib.import_module(self.__name__)


def defer_metadata() -> None:
    """Let libraries import `importlib.metadata` without loading it.

    pydantic imports it with its first model, for plugins that are disabled here; it loads all of `email`, and takes 4 % of
    a short command.
    """
    if "importlib.metadata" not in sys.modules:
        deferred: Any = DeferredModule("importlib.metadata", ("entry_points",))
        sys.modules["importlib.metadata"] = importlib.metadata = deferred
