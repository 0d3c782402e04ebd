"""What discord.py declares of Discord's messages, in the sources of its types, and messages made of that."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import discord

_TYPES = Path(discord.__file__).parent / "types"


@cache
def _module(name: str) -> ast.Module:
    return ast.parse((_TYPES / f"{name}.py").read_text(encoding="utf-8"))


def declared_fields(module: str, kind: str) -> frozenset[str]:
    """The keys of a declared object, with those of the objects it is derived from in the same file."""
    for node in _module(module).body:
        if isinstance(node, ast.ClassDef) and node.name == kind:
            own = {
                part.target.id
                for part in node.body
                if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name)
            }
            bases = [base.id for base in node.bases if isinstance(base, ast.Name) and base.id != "TypedDict"]
            return frozenset(own).union(*(declared_fields(module, base) for base in bases))
    raise LookupError(f"discord.types.{module} declares no {kind}")


def declared_values(module: str, name: str) -> frozenset[object]:
    """The values of a declared `Literal`."""
    for node in _module(module).body:
        if isinstance(node, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in node.targets):
            return frozenset(part.value for part in ast.walk(node.value) if isinstance(part, ast.Constant))
    raise LookupError(f"discord.types.{module} declares no {name}")
