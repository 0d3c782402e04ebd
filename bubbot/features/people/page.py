"""The readable page of everything about a person: one file that opens anywhere, without a network and without scripts."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, tzinfo
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup
from msgspec import Struct

from bubbot.features.people.record import ExportLine, PersonRecord
from bubbot.formatting import replace_controls
from bubbot.panel import find_template
from bubbot.ports.pages import file_policy
from bubbot.texts import Texts

PACKAGE = "bubbot.features.people"
MAX_PAGE_LINES = 5_000
"""The newest lines of each group that the page shows; the others are in the file of lines."""

_KINDS_OF_CHATS = ("message", "attachment", "answer", "command", "correction", "reaction", "topic")


class LineGroup(Struct, frozen=True):
    """Lines below one heading."""

    title: str
    lines: tuple[ExportLine, ...]


def draw_page(record: PersonRecord, notes: Sequence[str], written: datetime, zone: tzinfo, texts: Texts) -> str:
    """Draw the page. `notes` say what is not in the record."""
    environment = Environment(
        loader=FunctionLoader(_load_template),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    del environment.filters["safe"]  # no template needs it

    def format_date(date: str) -> str:
        try:
            moment = datetime.fromisoformat(date)
        except ValueError:
            return date
        return moment.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S") if moment.tzinfo else date

    environment.filters |= {"plain": replace_controls, "shown": _show_value, "when": format_date}
    environment.globals |= {"say": texts.say, "language": texts.language if texts.is_translated else "en"}
    style = Markup(_load_template("person.css"))  # noqa: S704 - a file of ours
    groups = _group(record.lines, texts)
    cut = sum(len(group.lines) - MAX_PAGE_LINES for group in groups if len(group.lines) > MAX_PAGE_LINES)
    more = [texts.say("person_cut", count=cut)] if cut else []
    return environment.get_template("person.html").render(
        policy=file_policy(style),
        style=style,
        written=written.astimezone(zone).strftime("%Y-%m-%d %H:%M:%S %Z"),
        accounts=texts.say("list_comma").join(":".join(account) for account in record.accounts),
        notes=[*notes, *more],
        groups=[LineGroup(group.title, group.lines[-MAX_PAGE_LINES:]) for group in groups],
    )


def _group(lines: Sequence[ExportLine], texts: Texts) -> list[LineGroup]:
    """Group the lines: those about the person first, then one group for each chat, in the order of the lines."""
    about, chats = dict[str, list[ExportLine]](), dict[str, list[ExportLine]]()
    for line in lines:
        if line.kind not in _KINDS_OF_CHATS and line.why != "wrote":
            about.setdefault(texts.say(f"person_group_{line.kind}"), []).append(line)
        elif line.session:
            chats.setdefault(texts.say("person_group_chat", session=line.session), []).append(line)
        else:
            chats.setdefault(texts.say("person_group_other_chats"), []).append(line)
    return [LineGroup(title, tuple(found)) for title, found in (about | chats).items()]


def _show_value(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return replace_controls(text)


def _load_template(name: str) -> str:
    return find_template(f"{PACKAGE}:{name}").read_text(encoding="utf-8")
