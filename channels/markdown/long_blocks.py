"""Blocks that read better as a file: long code, and tables that are wide and long."""

from __future__ import annotations

from collections.abc import Collection

from markdown_it.token import Token
from msgspec import Struct

from bubbot.ports.channel import OutboundFile
from bubbot.ports.markdown import parse_tokens, split_fence_info
from channels.markdown.marked_text import clean_text
from channels.markdown.table import PHONE_COLUMNS, count_columns

FILE_SIGN = "📎"
_SUFFIXES = {
    "ada": "adb", "asm": "s", "bash": "sh", "bat": "bat", "c": "c", "c#": "cs", "c++": "cpp", "clojure": "clj",
    "cpp": "cpp", "cs": "cs", "csharp": "cs", "css": "css", "csv": "csv", "dart": "dart", "diff": "diff",
    "dockerfile": "dockerfile", "elixir": "ex", "erlang": "erl", "fish": "fish", "fortran": "f90", "fsharp": "fs",
    "go": "go", "golang": "go", "graphql": "graphql", "groovy": "groovy", "haskell": "hs", "hs": "hs", "html": "html",
    "ini": "ini", "java": "java", "javascript": "js", "jinja": "j2", "js": "js", "json": "json", "jsonc": "jsonc",
    "jsonl": "jsonl", "jsx": "jsx", "julia": "jl", "kotlin": "kt", "kt": "kt", "latex": "tex", "lisp": "lisp",
    "lua": "lua", "makefile": "mk", "markdown": "md", "md": "md", "nix": "nix", "objc": "m", "ocaml": "ml",
    "patch": "patch", "perl": "pl", "php": "php", "powershell": "ps1", "proto": "proto", "ps1": "ps1", "py": "py",
    "python": "py", "python3": "py", "r": "r", "rb": "rb", "rs": "rs", "ruby": "rb", "rust": "rs", "scala": "scala",
    "scheme": "scm", "scss": "scss", "sh": "sh", "shell": "sh", "sql": "sql", "svelte": "svelte", "svg": "svg",
    "swift": "swift", "tex": "tex", "toml": "toml", "ts": "ts", "tsv": "tsv", "tsx": "tsx", "typescript": "ts",
    "vue": "vue", "xml": "xml", "yaml": "yaml", "yml": "yml", "zig": "zig", "zsh": "zsh",
}  # fmt: skip
_MEDIA_TYPES = {
    "csv": "text/csv",
    "html": "text/html",
    "json": "application/json",
    "md": "text/markdown",
    "xml": "application/xml",
}


class LongBlockLimits(Struct, frozen=True):
    """Limits beyond which a block becomes a file. A table has to exceed both of its limits.

    Attributes:
        code_characters: characters of a block of code; 0: no block becomes a file.
        code_lines: lines of a block of code.
        columns: terminal columns of the widest row in a table's source; wide characters take two.
        rows: rows of a table, without its head.
    """

    code_characters: int = 3_000
    code_lines: int = 80
    columns: int = PHONE_COLUMNS
    rows: int = 20


def extract_files(
    source: str, limits: LongBlockLimits | None = None, *, used_names: Collection[str] = ()
) -> tuple[str, tuple[OutboundFile, ...]]:
    """Replace each long block by a short reference; return the Markdown and the files, in order.

    Args:
        source: the Markdown of an answer.
        limits: the limits; None for the default ones.
    """
    limits = limits or LongBlockLimits()
    source = clean_text(source)
    if not limits.code_characters or _is_short(source, limits):
        return source, ()
    lines = source.split("\n")
    output: list[str] = []
    files: list[OutboundFile] = []
    at = 0
    for token in parse_tokens(source, inline=False):
        if not token.map or token.map[0] < at or not _is_long(token, limits):
            continue
        file = _make_file(token, {*used_names, *(other.name for other in files)})
        files.append(file)
        output += [*lines[at : token.map[0]], *_make_reference(token, lines[token.map[0]], file.name)]
        at = token.map[1]
    return "\n".join([*output, *lines[at:]]), tuple(files)


def _is_short(source: str, limits: LongBlockLimits) -> bool:
    """Return true if no block of the source can be long, as in most answers: these need not be parsed for it."""
    if source.count("\n") > min(limits.code_lines, limits.rows):
        return False
    return len(source.replace("\t", "    ")) <= limits.code_characters


def _is_long(token: Token, long: LongBlockLimits) -> bool:
    if token.type in ("fence", "code_block"):
        return len(token.content) > long.code_characters or token.content.count("\n") > long.code_lines
    if token.type != "table_open":
        return False
    rows = token.meta["source"].splitlines()
    return len(rows) - 2 > long.rows and max(map(count_columns, rows)) > long.columns


def _make_file(token: Token, taken: Collection[str]) -> OutboundFile:
    if token.type == "table_open":
        stem, suffix, text = "table", "md", token.meta["source"]
    else:
        language = split_fence_info(token.info)[0].lower()
        stem, suffix, text = "code", _SUFFIXES.get(language, "txt"), token.content
    number = 1
    while any(name.rpartition(".")[0] == f"{stem}-{number}" for name in taken):
        number += 1
    return OutboundFile(f"{stem}-{number}.{suffix}", _MEDIA_TYPES.get(suffix, "text/plain"), text)


def _make_reference(token: Token, line: str, name: str) -> list[str]:
    """Write a separate paragraph in place of the block, inside the block's list or quote."""
    opening = token.markup or (token.meta.get("source") or token.content).partition("\n")[0]
    lead = line[: line.find(opening)] if token.level and opening in line else ""
    if token.type == "code_block":
        lead = lead.rstrip(" \t") + " " if lead.strip() else ""
    between = "".join(char if char == ">" else " " for char in lead).rstrip()
    before = [between] if not lead.strip(" \t>") else []
    rest = split_fence_info(token.info)[1]
    return [*before, f"{lead}{FILE_SIGN} {name}" + (f" ({rest})" if rest else ""), between]
