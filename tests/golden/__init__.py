"""What the product stored and showed when it was recorded, compared with what it stores and shows now.

What people, shells, clients and models see: `surfaces.py`. What the product stores, byte for byte:

`python -m tests.golden facts` plays the scenario of `scenario.py` with the whole bot in a new home, and prints what
differs from the files in `tests/data/golden/`. With `--write` it replaces the files: do that only when the scenario
grows, and look at the difference. The clock, the ids and the random bytes of the run are fixed; milliseconds that really
passed are recorded as 0.

- `events.json`: `events` has for each event the texts of its stored payloads, one of each shape; `unrecorded` has the
  other declared events, and why each is not recorded.
- `checkpoints.json`: the text of a checkpoint of each projection, over each tape that it reads.
- `changes.toml`: the intended changes since. Recorded values stay as they are: old homes hold them. A change has the
  `name` of an event, or of a projection and its tape, the new `value` (all texts of the event, or the text of the
  checkpoint) and the `reason`; the comparison takes this value instead.
"""
