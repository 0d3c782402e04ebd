"""The laws of the tape by id. Tests claim them with `@pytest.mark.law("T1")`; `unit/test_laws.py` checks both ways."""

from __future__ import annotations

LAWS = {
    "T1": "What is on a tape stays there as it was written; the database itself refuses deletion, change and replacement.",
    "T2": "The ids of a tape are 1, 2, 3 … without a gap; one position orders the entries of all tapes, never goes back and skips nothing.",
    "T3": "A batch is written whole or not at all, on one tape or on several, and success is told after the commit.",
    "T4": "An append that expects another head than the tape has raises a conflict and writes nothing.",
    "T5": "A key stands once on its tape: the same content again changes nothing, other content is a conflict.",
    "T6": "A correction is a new entry that names the one it corrects; the original stays.",
    "T7": "A handoff is one batch: the anchor, then its event, with nothing between them.",
    "T8": "A view never writes; what is derived can be dropped and built again with the same answers.",
    "T9": "One function says what a query means, and every store and every fork answers as it does.",
    "T10": "Context is made of the window; what lies before it appears only when asked for by name.",
    "T11": 'An anchor that says `"window": false`, and any named memory/…, leaves the window where it is.',
    "T12": "Calls and results pair by id, and no context is built that a provider would refuse.",
    "T13": "A fork reads as its parent was, then its delta; forks merge as they finish, references along; a discarded one adds nothing.",
    "T14": "A turn that failed or was interrupted is a fact on the tape, with what it had done by then.",
    "T15": "An entry that cannot be read or was altered is an error naming tape and id; what is unknown passes through.",
    "T16": "A chain of hashes per tape, and one head over all tapes, tell altered, missing and erased entries apart.",
    "T17": "Erasure is asked for, is itself a fact, blanks the content for good, and leaves id, kind, date and key.",
    "T18": "JSON goes in and JSON comes out; nothing on a tape is ever revived as an object.",
    "T19": "An outside effect has a begin on the tape, durable before it starts, which names exactly what runs.",
    "T20": "What may have happened is not done again: the same key, a question, or nobody knows; the record answers.",
    "T21": "No turn waits for a person: what needs a yes is stored, and the turn of the yes runs it as it was stored.",
    "T22": "What is made of entries is as foreign as the most foreign of them; only an owner's fact that names it can vouch for it.",
    "P1": "What is said or kept in one chat appears in another only by a grant that stands; own memory only in direct chats with its person.",
}

PENDING: set[str] = set()
"""Laws of parts that no test claims yet. Whoever claims one takes it out of here; the check insists on it."""
