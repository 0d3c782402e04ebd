"""The table of declared references, which is generated from the payload models of the events.

`python -m tests.docs.reference_pages` writes it again; `test_events_page.py` checks that it is up to date.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from bubbot.app.events import OWN_REFERENCES
from bubbot.tape.references import EventReferences, declared_references
from tests.docs.pages import ROOT

FORMAT = ROOT / "docs" / "reference" / "tape-format.md"
HEAD = "| on | ids of the same tape | id ranges | tape and id | sessions | people | blobs |\n|---|---|---|---|---|---|---|\n"


def write_references(page: str) -> str:
    """The page with its table as the models have it."""
    before, head, rest = page.partition(HEAD)
    assert head, "the table of references is gone"
    return before + head + "".join(f"{row}\n" for row in _rows()) + "\n" + rest.partition("\n\n")[2]


def _rows() -> Iterator[str]:
    registry = OWN_REFERENCES
    yield _row("every entry", _below("meta", registry.meta))
    yield from (_row(f"`{kind}`", references) for kind, references in registry.kinds.items())
    yield from (_row(f"anchor `{name}`", references) for name, references in registry.anchors.items())
    events = {name: declared_references(model) for name, model in registry.events.items()}
    yield from (_row(f"`{name}`", references) for name, references in events.items() if references != EventReferences())


def _below(root: str, references: EventReferences) -> EventReferences:
    fields: Mapping[str, tuple[str, ...]] = {
        name: getattr(references, name) for name in EventReferences.__struct_fields__
    }
    return EventReferences(**{name: tuple(f"{root}.{path}" for path in paths) for name, paths in fields.items()})


def _row(on: str, references: EventReferences) -> str:
    pairs = ", ".join(
        part for part in (_cell(references.tape_entries), _cell(references.tape_spans, " (ranges)")) if part
    )
    cells = (
        _cell(references.entries),
        _cell(references.spans),
        pairs,
        _cell(references.sessions),
        _cell(references.people),
        _cell(references.blobs),
    )
    return f"| {on} |" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def _cell(paths: Iterable[str], note: str = "") -> str:
    return ", ".join(f"`{path}`{note}" for path in paths)


if __name__ == "__main__":
    FORMAT.write_text(write_references(FORMAT.read_text(encoding="utf-8")), encoding="utf-8")
