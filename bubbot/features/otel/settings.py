"""`[otel]` of the settings."""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BeforeValidator, Field, SecretStr

from bubbot.ports.settings import Number, SettingsSection, blank_to_none, check_web_address, setting_error, web_address

TRACES_PATH = "/v1/traces"
ANNOTATIONS_PATH = "/v1/span_annotations"
AUTO, OFF = "auto", "off"
HEADER_NAME_CHARS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_")


def parse_headers(text: str) -> dict[str, str]:
    """Parse `name=value` pairs, separated by commas or lines. Raise `ValueError` without quoting anything of them."""
    headers = {}
    for pair in text.replace("\n", ",").split(","):
        name, equals, value = (part.strip() for part in pair.partition("="))
        if not pair.strip():
            continue
        if not equals or not name or set(name) - HEADER_NAME_CHARS or not value or not value.isprintable():
            raise ValueError("pairs such as authorization=Bearer KEY, separated by commas")
        headers[name] = value
    return headers


def _check_endpoint(endpoint: str | None) -> str | None:
    if endpoint is not None and "@" in endpoint:
        raise setting_error("has a user or a password in it (the value is not shown): [otel] headers is for keys")
    return endpoint


def _check_annotations(annotations: str) -> str:
    if annotations in (AUTO, OFF):
        return annotations
    _check_endpoint(annotations)
    return check_web_address(annotations, ("http", "https"))


def _check_headers(headers: SecretStr | None) -> SecretStr | None:
    if headers is not None:
        try:
            parse_headers(headers.get_secret_value())
        except ValueError as error:
            raise setting_error(f"has to be {error} (the value is not shown)") from None
    return headers


class OtelSettings(SettingsSection):
    """`[otel]`: where turns are sent to as traces, and how much of what was said goes along."""

    endpoint: Annotated[
        str | None, web_address("http", "https"), AfterValidator(_check_endpoint), BeforeValidator(blank_to_none)
    ] = Field(
        default=None,
        description="The web address of an OTLP receiver over HTTP; `/v1/traces` is added if the address does not end so. "
        "Not set: nothing is sent.",
        examples=["http://127.0.0.1:6006"],
    )
    headers: Annotated[SecretStr | None, AfterValidator(_check_headers), BeforeValidator(blank_to_none)] = Field(
        default=None,
        description="Headers for the receiver, such as its key: `authorization=Bearer KEY`, several separated by commas.",
    )
    content: Literal["off", "redacted", "full"] = Field(
        default="off",
        description="`off`: names, times, tokens and costs, but nothing that anybody wrote; `redacted`: also messages, "
        "arguments, results and what models were shown, without the secrets of the bot, and with pseudonyms for chats and people, inside texts, too; "
        "`full`: all of it as it is.",
    )
    annotations: Annotated[str, AfterValidator(_check_annotations)] = Field(
        default=AUTO,
        description="Where judgements of answers go as annotations of spans: `auto`, to the receiver of spans if it is Phoenix; "
        "`off`, nowhere; or the web address of Phoenix, if spans reach it by another way.",
    )
    annotations_headers: Annotated[SecretStr | None, AfterValidator(_check_headers), BeforeValidator(blank_to_none)] = (
        Field(
            default=None,
            description="Headers for the address in annotations, as in headers. Not set: those of headers, if host and port are the "
            "same; else none.",
        )
    )
    traceparent: Literal["off", "near", "all"] = Field(
        default="off",
        description="Which servers of models get the span of a call in the header `traceparent`, so that their own spans stand "
        "below it: `off`, none; `near`, those on this machine and at private addresses; `all`, every provider.",
    )
    service: Annotated[str, Field(min_length=1, max_length=100)] = Field(
        default="bubbot", description="The name of this bot at the receiver, `service.name`."
    )
    timeout: Number = Field(
        default=10.0, gt=0, le=600, description="Seconds until the receiver has answered a request."
    )

    @property
    def url(self) -> str:
        """The address that spans are sent to; empty if nothing is sent."""
        base = (self.endpoint or "").rstrip("/")
        return base if not base or base.endswith(TRACES_PATH) else base + TRACES_PATH

    @property
    def annotations_url(self) -> str:
        """The address that judgements are sent to; empty if none are sent."""
        if not self.url or self.annotations == OFF:
            return ""
        base = self.url.removesuffix(TRACES_PATH) if self.annotations == AUTO else self.annotations.rstrip("/")
        return base if base.endswith(ANNOTATIONS_PATH) else base + ANNOTATIONS_PATH

    @property
    def names_spans(self) -> bool:
        """True if servers of models are told of spans, and spans are sent."""
        return bool(self.url) and self.traceparent != OFF

    def read_headers(self) -> dict[str, str]:
        """Return the headers by name."""
        return parse_headers(self.headers.get_secret_value()) if self.headers else {}

    def read_annotations_headers(self) -> dict[str, str]:
        """Return the headers for judgements by name: a key for one host is sent to no other."""
        if self.annotations_headers is not None:
            return parse_headers(self.annotations_headers.get_secret_value())
        return self.read_headers() if urlsplit(self.annotations_url)[:2] == urlsplit(self.url)[:2] else {}

    def derived_secrets(self) -> Iterator[str]:
        """Yield the value of each header, and its last word: the scheme before it is no secret."""
        for value in (*self.read_headers().values(), *self.read_annotations_headers().values()):
            yield value
            yield value.rpartition(" ")[2]


SECTIONS: Mapping[str, type[SettingsSection]] = MappingProxyType({"otel": OtelSettings})
"""The section of the feature in config.toml."""
