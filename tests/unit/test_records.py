"""The quick `dataclass`: the same as the standard library's, except for what it compiles."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import subprocess
import sys
from collections.abc import Callable
from dataclasses import FrozenInstanceError, field
from pathlib import Path
from typing import Any, ClassVar, Generic, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from bubbot.records import dataclass, quick_dataclass

FEW_OBJECTS = 8


ROOT = Path(__file__).parents[2]
T = TypeVar("T")
Decorator = Callable[..., Any]


def point(decorate: Decorator) -> Any:
    @decorate(frozen=True, slots=True)
    class Point:
        """A class with a field of each kind."""

        kinds: ClassVar[int] = 2
        x: int
        label: str = "p"
        tags: list[str] = field(default_factory=list, hash=False)
        note: str = field(default="n", compare=False, repr=False)
        made: int = field(default=7, init=False)

        def __post_init__(self) -> None:
            if self.x == 13:
                raise ValueError("unlucky")

    return Point


def many(cls: Any, *args: Any, **kwargs: Any) -> Any:
    """Make so many objects that the class has a constructor of its own."""
    for _ in range(FEW_OBJECTS + 1):
        cls(*args, **kwargs)
    return cls


QUICK, COMPILED, STANDARD = point(quick_dataclass), many(point(quick_dataclass), 1), point(dataclasses.dataclass)


def options(is_frozen: bool, has_slots: bool, is_keyword_only: bool) -> Any:
    """A class with a field of each kind and with other options, by both decorators."""

    def make(decorate: Decorator) -> Any:
        @decorate(frozen=is_frozen, slots=has_slots, kw_only=is_keyword_only)
        class Point:
            """A class."""

            kinds: ClassVar[int] = 2
            x: int
            label: str = field(default="p", kw_only=False)
            tags: list[str] = field(default_factory=list, compare=False)
            made: int = field(default=7, init=False)

        return Point

    return make(quick_dataclass), make(dataclasses.dataclass)


values = st.tuples(st.integers(0, 3), st.sampled_from(["p", "q"]), st.lists(st.sampled_from("ab"), max_size=2))


@dataclass(frozen=True, slots=True)
class Base:
    """A base class."""

    a: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Derived(Base):
    """A class with fields by name alone."""

    b: int = 2
    c: int


@dataclass(frozen=True, slots=True)
class Box(Generic[T]):
    """A generic class with methods of its own."""

    item: T

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box)

    def __hash__(self) -> int:
        return 5

    def __repr__(self) -> str:
        return "a box"


@given(values, values)
def test_two_objects_compare_as_those_of_the_standard_library(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    quick, standard = (QUICK(*one), QUICK(*other)), (STANDARD(*one), STANDARD(*other))
    assert [repr(COMPILED(*values)) for values in (one, other)] == [repr(item) for item in standard]
    assert (quick[0] == quick[1]) is (standard[0] == standard[1])
    assert [hash(item) for item in quick] == [hash(item) for item in standard]
    assert [repr(item) for item in quick] == [repr(item) for item in standard]
    assert dataclasses.asdict(quick[0]) == dataclasses.asdict(standard[0])


@pytest.mark.parametrize("has_slots", [False, True])
@pytest.mark.parametrize("is_frozen", [False, True])
@pytest.mark.parametrize("is_keyword_only", [False, True])
def test_a_class_with_other_options_is_that_of_the_standard_library(
    is_frozen: bool, has_slots: bool, is_keyword_only: bool
) -> None:
    def seen(cls: Any) -> list[Any]:
        made, other = cls(x=1), cls("q", x=1) if is_keyword_only else cls(1, "q")
        results = [repr(made), repr(other), made == other, made == cls(x=1, tags=["a"]), cls.__match_args__]
        results += [[(item.name, item.kw_only) for item in dataclasses.fields(cls)], cls.__doc__, hasattr(cls, "label")]
        for change in (lambda: hash(made), lambda: setattr(made, "x", 3), lambda: setattr(made, "other", 3)):
            try:
                results.append(change())
            except (TypeError, AttributeError) as error:
                # An unknown name of a frozen class with slots is a fault inside the standard library.
                results.append(isinstance(error, FrozenInstanceError) or str(error).partition(":")[0])
        return [
            *results[:-1],
            dataclasses.asdict(made),
            dataclasses.replace(made, label="r").label,
            hasattr(made, "__dict__"),
        ]

    quick, standard = options(is_frozen, has_slots, is_keyword_only)
    assert seen(quick) == seen(standard)
    assert seen(many(quick, x=1)) == seen(standard)


def test_an_object_gets_no_other_attributes() -> None:
    with pytest.raises(FrozenInstanceError, match=r"^cannot assign to field 'other'$"):
        QUICK(1).other = 2


def test_its_parts_are_those_of_the_standard_library() -> None:
    names = [[item.name for item in dataclasses.fields(cls)] for cls in (QUICK, STANDARD)]
    assert names[0] == names[1]
    assert QUICK.__match_args__ == STANDARD.__match_args__
    assert QUICK.__slots__ == STANDARD.__slots__
    assert QUICK(1) != STANDARD(1)
    assert QUICK(1).__eq__(1) is NotImplemented
    assert QUICK(1).tags is not QUICK(1).tags


@pytest.mark.parametrize("cls", [QUICK, COMPILED, STANDARD])
def test_an_object_cannot_be_changed(cls: Any) -> None:
    made = cls(1)
    with pytest.raises(FrozenInstanceError, match=r"^cannot assign to field 'x'$"):
        made.x = 2
    with pytest.raises(FrozenInstanceError, match=r"^cannot delete field 'x'$"):
        del made.x
    assert made == cls(1)


@pytest.mark.parametrize("decorate", [quick_dataclass, dataclasses.dataclass])
@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize(
    ("args", "names", "reason"),
    [
        ((), {}, r"__init__\(\) missing 1 required positional argument: 'x'$"),
        ((1,), {"made": 2}, r"__init__\(\) got an unexpected keyword argument 'made'$"),
        ((1,), {"x": 2}, r"__init__\(\) got multiple values for argument 'x'$"),
        ((1, "a", [], "n", 5), {}, r"__init__\(\) takes from 2 to 5 positional arguments but 6 were given$"),
        ((13,), {}, "^unlucky$"),
    ],
)
def test_wrong_arguments_are_refused(
    decorate: Decorator, is_first: bool, args: tuple[Any, ...], names: dict[str, Any], reason: str
) -> None:
    cls = point(decorate) if is_first else many(point(decorate), 1)
    for _ in range(2):
        with pytest.raises((TypeError, ValueError), match=reason):
            cls(*args, **names)
    assert cls(1).x == 1


@pytest.mark.parametrize("cls", [QUICK, COMPILED, STANDARD])
def test_a_copy_has_other_values(cls: Any) -> None:
    changed = dataclasses.replace(cls(1, tags=["a"]), label="q")
    assert (changed.x, changed.label, changed.tags, changed.made) == (1, "q", ["a"], 7)


def test_a_derived_class_has_the_fields_of_its_base() -> None:
    made = Derived(1, c=3)
    assert (made.a, made.b, made.c) == (1, 2, 3)
    assert repr(made) == "Derived(a=1, b=2, c=3)"
    with pytest.raises(TypeError):
        Derived(1, 2, 3)  # type: ignore[call-arg]


def test_methods_of_the_class_stay() -> None:
    assert Box(1) == Box("a")
    assert repr(Box(1)) == "a box"
    assert hash(Box(1)) == 5


def test_an_object_can_be_copied_and_pickled() -> None:
    made = Derived(1, c=3)
    assert copy.copy(made) == copy.deepcopy(made) == pickle.loads(pickle.dumps(made)) == made


def test_pydantic_validates_it() -> None:
    assert TypeAdapter(Derived).validate_python({"a": "1", "c": 3}) == Derived(1, c=3)


def test_other_options_are_those_of_the_standard_library() -> None:
    class Ordered:
        a: int

    class Plain:
        a: int

    ordered: Any = quick_dataclass(order=True, frozen=True, slots=True)(Ordered)
    plain: Any = quick_dataclass(Plain)
    assert ordered(1) < ordered(2)
    changed = plain(1)
    changed.a = 2
    assert changed == plain(2)


COUNT = """
from __future__ import annotations
import sys
count = 0
def hook(event, args):
    global count
    count += event == "exec"
from {module} import {name} as decorate
class Point:
    "A point."
    x: int
    y: int
sys.addaudithook(hook)
Point = decorate(frozen=True, slots=True)(Point)
created = count
for number in range(100):
    Point(number, 4)
print(created, count)
"""


@pytest.mark.skipif(sys.version_info >= (3, 13), reason="compiles the functions of a class in one go, as slowly")
@pytest.mark.parametrize(
    ("module", "name", "counts"), [("dataclasses", "dataclass", "6 6"), ("bubbot.records", "quick_dataclass", "0 1")]
)
def test_the_standard_library_compiles_six_functions_for_a_class(module: str, name: str, counts: str) -> None:
    """If the first of these fails, look again whether bubbot needs its own (docs/decisions/0027)."""
    code = COUNT.format(module=module, name=name)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == counts


def test_classes_may_be_derived_with_the_standard_decorator() -> None:
    """Adapters in packages derive classes of the channel port."""

    @dataclasses.dataclass(frozen=True)
    class Own(Base):
        """A class of a package."""

        b: int = 2

    own = Own(1)
    assert (own, repr(own).endswith("Own(a=1, b=2)"), dataclasses.replace(own, b=3).b) == (Own(1, 2), True, 3)
    with pytest.raises(FrozenInstanceError):
        own.a = 2  # type: ignore[misc]
    with pytest.raises(TypeError, match="non-frozen"):
        dataclasses.dataclass(type("Odd", (Base,), {}))
