"""The hash chain: what an audit makes of entries as they are stored."""

from __future__ import annotations

import json
from collections.abc import Sequence
from hashlib import sha256

import pytest
from msgspec import structs

from bubbot.tape.chain import (
    GENESIS,
    StoredLink,
    TapeEnd,
    audit,
    chain_value,
    content_digest,
    deployment_head,
    older_head,
)


def chained(*payloads: str) -> list[StoredLink]:
    """Stored entries with these payloads, as an honest store writes them."""
    links: list[StoredLink] = []
    previous = GENESIS
    for place, payload in enumerate(payloads, 1):
        salt = bytes([place]) * 16
        digest = content_digest(salt, payload, "{}")
        previous = chain_value(previous, entry_id=place, kind="message", date="", key=None, digest=digest)
        links.append(StoredLink(place, "message", "", None, payload, "{}", salt, digest, previous))
    return links


def found(links: Sequence[StoredLink]) -> list[tuple[int, str]]:
    return [(finding.id, finding.problem) for finding in audit("tape", links)]


def erased(stored: StoredLink, fact: int | None = 9) -> StoredLink:
    return structs.replace(stored, payload=None, meta=None, salt=None, fact=fact)


HONEST = chained("a", "b", "c", "d")


@pytest.mark.law("T16")
def test_an_honest_tape_has_no_findings() -> None:
    assert found(HONEST) == []
    assert found([]) == []


@pytest.mark.law("T16")
def test_every_field_of_an_entry_is_covered() -> None:
    second = HONEST[1]
    altered = [
        structs.replace(second, kind="system"),
        structs.replace(second, date="2026"),
        structs.replace(second, key="k"),
        structs.replace(second, payload="B"),
        structs.replace(second, meta="[]"),
        structs.replace(second, salt=bytes(16)),
        structs.replace(second, digest=bytes(32)),
        structs.replace(second, chain=bytes(32)),
    ]
    assert [(2, "altered") in found([HONEST[0], entry, *HONEST[2:]]) for entry in altered] == [True] * len(altered)


@pytest.mark.law("T16")
def test_altered_content_is_one_finding_and_does_not_taint_what_follows() -> None:
    assert found([HONEST[0], structs.replace(HONEST[1], payload="B"), *HONEST[2:]]) == [(2, "altered")]


@pytest.mark.law("T16")
@pytest.mark.parametrize(
    ("kept", "findings"),
    [
        ([1, 2, 3], [(1, "missing")]),
        ([0, 2, 3], [(2, "missing")]),
        ([0, 3], [(2, "missing")]),
        ([1, 3], [(1, "missing"), (3, "missing")]),
        ([0, 1, 2], []),
    ],
)
def test_removed_entries_are_missing_but_for_the_last(kept: list[int], findings: list[tuple[int, str]]) -> None:
    assert found([HONEST[place] for place in kept]) == findings


@pytest.mark.law("T16")
def test_a_gap_says_which_entries_are_missing() -> None:
    assert [finding.detail for finding in audit("tape", [HONEST[1], HONEST[3]])] == [
        "entries 1 are missing",
        "entries 3 are missing",
    ]
    assert [finding.detail for finding in audit("tape", [HONEST[0], HONEST[3]])] == ["entries 2 to 3 are missing"]


@pytest.mark.law("T16", "T17")
def test_an_erased_entry_is_erased_and_leaves_the_chain_whole() -> None:
    assert found([HONEST[0], erased(HONEST[1]), *HONEST[2:]]) == [(2, "erased")]


@pytest.mark.law("T16", "T17")
def test_content_that_is_gone_without_a_fact_is_altered() -> None:
    assert found([erased(HONEST[0], fact=None), *HONEST[1:]]) == [(1, "altered")]


@pytest.mark.law("T16")
def test_an_exchange_of_two_contents_is_altered_twice() -> None:
    first, second = HONEST[0], HONEST[1]
    exchanged = [
        structs.replace(first, payload=second.payload),
        structs.replace(second, payload=first.payload),
        *HONEST[2:],
    ]
    assert found(exchanged) == [(1, "altered"), (2, "altered")]


@pytest.mark.law("T16")
def test_salted_digests_of_equal_texts_differ() -> None:
    assert content_digest(bytes(16), "yes", "{}") != content_digest(b"1" * 16, "yes", "{}")


@pytest.mark.law("T16")
def test_what_belongs_to_the_payload_cannot_be_moved_to_meta() -> None:
    assert content_digest(b"", '{"a":1}', "{}") != content_digest(b"", "{}", '{"a":1}')
    assert content_digest(b"", "ab", "c") != content_digest(b"", "a", "bc")


@pytest.mark.law("T15")
def test_bytes_that_are_no_text_have_a_digest_too() -> None:
    assert content_digest(b"", "\udcff", "") != content_digest(b"", "\udcfe", "")


@pytest.mark.law("T16")
def test_the_link_tells_its_fields_apart() -> None:
    links = {
        chain_value(GENESIS, entry_id=entry_id, kind=kind, date=date, key=key, digest=bytes(32))
        for entry_id, kind, date, key in [(1, "a", "", None), (1, "", "a", None), (1, "", "", "a"), (11, "", "", None)]
    }
    links.add(chain_value(bytes([1]) * 32, entry_id=1, kind="a", date="", key=None, digest=bytes(32)))
    assert len(links) == 5


@pytest.mark.law("T16")
@pytest.mark.parametrize("text", ["", "event", '"\\/', "\n\t\x00\x7f", "é日本\u2028", "\U0001f642", "\udcff"])
def test_the_link_is_a_hash_of_a_json_list(text: str) -> None:
    """Stored chains depend on its exact bytes."""
    for key in (None, text):
        fields = json.dumps([7, text, text, key, bytes(32).hex()], ensure_ascii=False, separators=(",", ":"))
        expected = sha256(GENESIS + fields.encode(errors="surrogateescape")).digest()
        assert chain_value(GENESIS, entry_id=7, kind=text, date=text, key=key, digest=bytes(32)) == expected


@pytest.mark.law("T16")
def test_a_key_of_no_text_is_not_no_key() -> None:
    kept = {"entry_id": 1, "kind": "a", "date": "", "digest": bytes(32)}
    assert chain_value(GENESIS, key="", **kept) != chain_value(GENESIS, key=None, **kept)  # type: ignore[arg-type]  # one dict of all


@pytest.mark.law("T16")
def test_the_deployment_head_starts_with_its_position_and_covers_every_tape() -> None:
    first, second = TapeEnd(1, "one", 4, HONEST[3].chain), TapeEnd(2, "two", 1, HONEST[0].chain)
    told = deployment_head(5, [first, second])
    assert told.startswith("5:")
    others = [[first], [structs.replace(first, id=3), second], [first, structs.replace(second, chain=bytes(32))]]
    exchanged = [structs.replace(first, name="two"), structs.replace(second, name="one")]
    assert told not in [deployment_head(5, other) for other in [*others, exchanged]]
    assert told == deployment_head(5, [structs.replace(second, number=7), first])


@pytest.mark.law("T16")
def test_the_older_form_of_the_deployment_head_covers_numbers_and_no_names() -> None:
    ends = [TapeEnd(1, "one", 4, HONEST[3].chain), TapeEnd(2, "two", 1, HONEST[0].chain)]
    text = f"1:4:{HONEST[3].chain.hex()}\n2:1:{HONEST[0].chain.hex()}\n"
    assert older_head(5, ends) == f"5:{sha256(text.encode()).hexdigest()}"
