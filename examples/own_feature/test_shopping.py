"""The shopping list, on a tape in memory: `pytest test_shopping.py`."""

from shopping import ADDED, BOUGHT, ListView  # type: ignore[import-not-found]  # not installed where types are checked

from bubbot.tape.entry import event


def test_what_was_bought_is_no_longer_on_the_list() -> None:
    facts = [event(ADDED, {"item": item}) for item in ("milk", "bread")] + [event(BOUGHT, {"item": "milk"})]
    assert list(ListView().fold([facts])) == ["bread"]
