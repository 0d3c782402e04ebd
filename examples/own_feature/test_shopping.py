"""The shopping list, on a tape in memory: `pytest test_shopping.py`."""

from shopping import ADDED, BOUGHT, Item, ListView  # type: ignore[import-not-found]  # not installed where types are checked


def test_what_was_bought_is_no_longer_on_the_list() -> None:
    added = [Item(name).to_entry(ADDED) for name in ("milk", "bread")]
    assert list(ListView().fold([[*added, Item("milk", 1).to_entry(BOUGHT)]])) == ["bread"]
