"""The schemas in docs/reference/json are those of the results that commands declare."""

from __future__ import annotations

from typing import get_args

import jsonschema
from msgspec import structs

from bubbot.cli.status import StatusReport
from bubbot.gateway.health.snapshot import HealthSnapshot
from tests.docs.json_pages import FOLDER, PAGE, list_keys, results, schema, write_schemas, write_table


def test_the_schemas_are_up_to_date() -> None:
    stored = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert stored == write_schemas(), "run python -m tests.docs.json_pages"


def test_the_table_is_up_to_date() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert page == write_table(page), "run python -m tests.docs.json_pages"


def test_every_schema_is_one_and_every_field_is_explained() -> None:
    keys = list_keys()
    for command, result in results().items():
        made = schema(result, *keys.get(command, ("", "")))
        jsonschema.Draft202012Validator.check_schema(made)
        own = made if command not in keys else made["$defs"][get_args(result)[0].__name__]
        assert [name for name, value in own["properties"].items() if not value.get("description")] == [], command


def test_the_status_has_every_value_of_the_snapshot() -> None:
    snapshot = {*HealthSnapshot.__struct_fields__} - {"reports"}  # each report adds values of its own
    assert snapshot <= {field.name for field in structs.fields(StatusReport)}
