"""`dataclass` as the standard library has it, but quick to create; docs/decisions/0027-start-up.md has the figures.

A short command creates some hundred of these classes before it does anything. The standard decorator compiles six
functions for each frozen class; here one is compiled, when the first object is made, and the others are shared.
"""

from __future__ import annotations

import dataclasses
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

IsoTime: TypeAlias = Annotated[str, "date-time"]
"""A time in a result of a command: ISO 8601 with its offset from UTC."""
T = TypeVar("T")
_MISSING = dataclasses.MISSING


def quick_dataclass(cls: type[T] | None = None, /, **options: bool) -> Any:
    """Make a dataclass: quickly with `frozen=True, slots=True`, and perhaps `kw_only`, else as the standard one."""
    if cls is None:
        return lambda decorated: quick_dataclass(decorated, **options)
    is_quick = options.get("frozen") and options.get("slots") and not options.keys() - {"frozen", "slots", "kw_only"}
    if not is_quick or any(dataclasses.is_dataclass(base) for base in cls.__mro__[1:]):
        return dataclasses.dataclass(**options)(cls)
    if cls.__doc__ is None:
        cls.__doc__ = cls.__name__  # otherwise the standard library inspects the signature for one
    own = dict(vars(cls))
    made = dataclasses.dataclass(init=False, repr=False, eq=False, slots=True, kw_only=options.get("kw_only", False))(
        cls
    )
    for name, method in _shared_methods(made).items():
        # As in the standard library, what the class defines itself stays. Python sets the hash of a class with `__eq__`.
        if name not in own or (name == "__hash__" and own[name] is None):
            setattr(made, name, method)
    params: Any = made.__dataclass_params__  # type: ignore[attr-defined]
    params.init = params.repr = params.eq = params.frozen = True  # whoever derives a class asks for them
    return made


def _shared_methods(cls: type[Any]) -> dict[str, Callable[..., Any]]:
    fields = dataclasses.fields(cls)
    compared = _values(tuple(field.name for field in fields if field.compare))
    hashed = _values(tuple(field.name for field in fields if (field.compare if field.hash is None else field.hash)))
    names = frozenset(field.name for field in fields)

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        cls.__init__ = _compile_init(cls)
        cls.__init__(self, *args, **kwargs)

    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self))

    @recursive_repr()
    def __repr__(self: object) -> str:  # noqa: N807
        parts = ", ".join(f"{field.name}={getattr(self, field.name)!r}" for field in fields if field.repr)
        return f"{self.__class__.__qualname__}({parts})"

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(cls, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is cls or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(cls, self).__delattr__(name)

    def __getstate__(self: object) -> list[Any]:  # noqa: N807
        return [getattr(self, field.name) for field in fields]

    def __setstate__(self: object, state: list[Any]) -> None:  # noqa: N807
        for field, value in zip(fields, state, strict=True):
            object.__setattr__(self, field.name, value)

    return {
        method.__name__: method
        for method in (
            __init__, __eq__, __hash__, __repr__, __setattr__, __delattr__, __getstate__, __setstate__,
        )
    }  # fmt: skip


def _values(names: tuple[str, ...]) -> Callable[[object], Any]:
    """Return what reads the fields of an object as a tuple."""
    if not names:
        return lambda _: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda record: (read(record),)


def _compile_init(cls: type[Any]) -> Callable[..., None]:
    """Compile a constructor that sets each slot by its descriptor, in the order of the fields."""
    scope: dict[str, Any] = {"MISSING": _MISSING}
    positional: list[str] = ["self"]
    named: list[str] = []
    body: list[str] = []
    for number, field in enumerate(dataclasses.fields(cls)):
        name, default = field.name, ""
        scope[f"set_{number}"] = getattr(cls, name).__set__
        value = name
        if field.default is not _MISSING:
            scope[f"default_{number}"] = field.default
            default = f"=default_{number}"
            value = name if field.init else f"default_{number}"
        elif field.default_factory is not _MISSING:
            scope[f"factory_{number}"] = field.default_factory
            default = "=MISSING"
            value = f"factory_{number}() if {name} is MISSING else {name}" if field.init else f"factory_{number}()"
        elif not field.init:
            continue
        if field.init:
            (named if field.kw_only else positional).append(f"{name}{default}")
        body.append(f"set_{number}(self, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    source = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(source, scope)  # noqa: S102 - of names of fields, as the standard library does it
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def json_data(value: Any) -> Any:
    """Return a value as JSON has it: dataclasses and mappings as objects, sequences as lists, bytes in base64."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: json_data(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, bytes):
        return b64encode(value).decode()
    if isinstance(value, Mapping):
        return {key: json_data(inner) for key, inner in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return [json_data(inner) for inner in value]
    return value


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass  # noqa: PLC0414 - others import it from here
else:
    dataclass = quick_dataclass
