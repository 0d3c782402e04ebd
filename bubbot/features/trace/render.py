"""Templates: how a page becomes HTML. Every value is escaped; a name that a template lacks is an error."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, tzinfo
from functools import cached_property
from importlib.resources import files
from typing import Any
from urllib.parse import quote, urlencode

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from bubbot.features.trace.entries import describe_entry, excerpt_arguments, excerpt_result
from bubbot.features.trace.markdown import draw_markdown
from bubbot.features.trace.request import compare_lines
from bubbot.features.trace.words import reveal
from bubbot.formatting import format_bytes
from bubbot.panel import find_template
from bubbot.tape.entry import timestamp
from bubbot.texts import Texts

PACKAGE = "bubbot.features.trace"
STATIC_TYPES = {"trace.css": "text/css", "trace.js": "text/javascript"}


class PageRenderer:
    """Renders templates in one language and time zone."""

    def __init__(self, texts: Texts, zone: tzinfo) -> None:
        self.texts = texts
        self._zone = zone

    def render(self, template: str, **values: Any) -> bytes:
        """Render a template."""
        return self._environment.get_template(template).render(values).encode()

    @cached_property
    def _environment(self) -> Environment:
        environment = Environment(
            loader=FunctionLoader(_load_template),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            auto_reload=False,
        )
        del environment.filters["safe"]  # no template needs it
        environment.filters.update(
            reveal=reveal,
            say=self.texts.say,
            timestamp=timestamp,
            markdown=draw_markdown,
            seconds=_format_seconds,
            size=format_bytes,
            money=_format_money,
            count=self._format_count,
            row=describe_entry,
            call_arguments=excerpt_arguments,
            call_result=excerpt_result,
        )
        environment.globals.update(
            say=self.texts.say,
            status=self.texts.status,
            language=self.texts.language if self.texts.is_translated else "en",
            when=self._format_date,
            compare_lines=compare_lines,
            url=url,
        )
        return environment

    def read_static(self, name: str) -> bytes:
        """Read a file of the style or the scripts."""
        return (files(PACKAGE) / "static" / name).read_bytes()

    @cached_property
    def style(self) -> Markup:
        """The style, for a file that holds it: it has nothing in it that ends an element."""
        return Markup(self.read_static("trace.css").decode())  # noqa: S704 - a file of ours

    def _format_count(self, value: float) -> str:
        return self.texts.format_number(f"{value:,.0f}" if float(value).is_integer() else f"{value:,}")

    def _format_date(self, date: str) -> str:
        """Write a time in the zone of the deployment; as it is if it is none."""
        try:
            moment = datetime.fromisoformat(date)
        except ValueError:
            return date
        return moment.astimezone(self._zone).strftime("%Y-%m-%d %H:%M:%S") if moment.tzinfo else date


def _load_template(name: str) -> str:
    """Read a template of the page by the name of its file, or one of a panel."""
    return find_template(name if ":" in name else f"{PACKAGE}:{name}").read_text(encoding="utf-8")


def url(*parts: object, **query: object) -> str:
    """Write an address on this server, of foreign parts too; parameters that are None or empty are left out."""
    path = "/" + "/".join(quote(str(part), safe="") for part in parts)
    given = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", 0)}
    return f"{path}?{urlencode(_texts(given))}" if given else path


def _texts(values: Mapping[str, object]) -> dict[str, str]:
    return {name: str(value) for name, value in values.items()}


def _format_money(value: float | None) -> str:
    return "" if value is None else f"${value:.6f}".rstrip("0").rstrip(".")


def _format_seconds(value: float) -> str:
    return f"{value:.2f}" if value < 1 else f"{value:.1f}" if value < 10 else f"{value:,.0f}"
