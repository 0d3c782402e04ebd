"""`dataclass` as the standard library has it, but quick to create; docs/decisions/0027-start-up.md has the figures.

A short command creates some hundred of these classes before it does anything. The standard decorator compiles six
functions for each frozen class; here one is compiled, once some objects have been made, and the others are shared.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar

IsoTime: TypeAlias = Annotated[str, "date-time"]
"""A time in a result of a command: ISO 8601 with its offset from UTC."""
T = TypeVar("T")
_MISSING = dataclasses.MISSING
FEW_OBJECTS = 8
"""Objects of a class that are made without a constructor of its own: to compile one takes as long as 50 objects."""


def quick_dataclass(cls: type[T] | None = None, /, **options: bool) -> Any:
    """Make a dataclass: quickly if it has no other options than `frozen`, `slots` and `kw_only`, else as the standard one."""
    if cls is None:
        return lambda decorated: quick_dataclass(decorated, **options)
    if (
        options.keys() - {"frozen", "slots", "kw_only"}
        or any("__dataclass_fields__" in vars(base) for base in cls.__mro__[1:])
        or any(_ODD.search(str(annotation)) for annotation in cls.__annotations__.values())
    ):
        return dataclasses.dataclass(**options)(cls)
    return _build_class(cls, options)


_ODD = re.compile("InitVar|KW_ONLY")
"""What an annotation says if only the standard library knows what to do with it."""


def _build_class(cls: type[Any], options: Mapping[str, bool]) -> Any:
    is_frozen, has_slots = options.get("frozen", False), options.get("slots", False)
    own = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    names = [name for name, annotation in cls.__annotations__.items() if "ClassVar" not in str(annotation)]
    fields = {name: _field(name, own.pop(name, _MISSING)) for name in names}
    for field in fields.values():
        if field.kw_only is _MISSING:
            field.kw_only = options.get("kw_only", False)
    if own.get("__hash__", _MISSING) is None:
        del own["__hash__"]  # Python sets it for a class with `__eq__`; as in the standard library, it has both
    lazy = _LazyFields({name: cls.__annotations__[name] for name in names}, fields, is_frozen=is_frozen)
    parts = {
        "__match_args__": tuple([name for name, field in fields.items() if field.init and not field.kw_only]),
        **_shared_methods(fields, lazy, is_frozen=is_frozen, has_slots=has_slots),
        **own,  # what the class defines itself stays
        "__dataclass_fields__": lazy,
        "__dataclass_params__": _LazyParams(lazy),
    }
    if has_slots:
        inherited = {slot for base in cls.__mro__[1:-1] for slot in vars(base).get("__slots__", ())}
        parts["__slots__"] = tuple([name for name in names if name not in inherited])
    else:
        parts |= {name: field.default for name, field in fields.items() if field.default is not _MISSING}
    metaclass: Any = type(cls)
    lazy.owner = made = metaclass(cls.__name__, cls.__bases__, parts)
    made.__qualname__ = cls.__qualname__
    return made


def _field(name: str, default: Any) -> dataclasses.Field[Any]:
    """Return the field of a name: the one that is written there, or that of a default."""
    if isinstance(default, dataclasses.Field):
        return default
    if type(default).__hash__ is None:
        raise ValueError(f"mutable default {type(default)} for field {name} is not allowed: use default_factory")
    made: dataclasses.Field[Any] = dataclasses.field(default=default)
    return made


class _LazyFields:
    """`__dataclass_fields__` of a class, completed by the standard library at the first look: few classes are looked at."""

    def __init__(
        self, annotations: Mapping[str, str], fields: Mapping[str, dataclasses.Field[Any]], *, is_frozen: bool
    ) -> None:
        self.owner: Any = None
        self._parts = {"__annotations__": annotations, "__doc__": "Fields.", **fields}
        self._is_frozen = is_frozen

    def __get__(self, record: object, owner: type[Any]) -> Any:
        """Put the fields in the place of this object."""
        twin: Any = dataclasses.dataclass(init=False, repr=False, eq=False)(type(self.owner.__name__, (), self._parts))
        params = twin.__dataclass_params__
        params.init = params.repr = params.eq = True  # whoever derives a class asks for them
        params.frozen = self._is_frozen
        self.owner.__dataclass_fields__ = twin.__dataclass_fields__
        self.owner.__dataclass_params__ = params
        return twin.__dataclass_fields__


class _LazyParams:
    """`__dataclass_params__` of a class."""

    def __init__(self, fields: _LazyFields) -> None:
        self._fields = fields

    def __get__(self, record: object, owner: type[Any]) -> Any:
        """Put them in the place of this object."""
        self._fields.__get__(record, owner)
        return self._fields.owner.__dataclass_params__


def _shared_methods(
    fields: Mapping[str, dataclasses.Field[Any]], lazy: _LazyFields, *, is_frozen: bool, has_slots: bool
) -> dict[str, Any]:
    compared = _values([name for name, field in fields.items() if field.compare])

    positional = [name for name, field in fields.items() if field.init and not field.kw_only]
    named = [name for name, field in fields.items() if field.init and field.kw_only]
    count = itertools.count(1)

    def __init__(self: object, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        values = {**dict(zip(positional, args, strict=False)), **kwargs}
        is_odd = len(values) < len(args) + len(kwargs) or not values.keys() <= {*positional, *named}
        if is_odd or next(count) > FEW_OBJECTS or not _set_fields(self, fields, values):
            lazy.owner.__init__ = _compile_init(lazy.owner, fields, is_frozen=is_frozen, has_slots=has_slots)
            lazy.owner.__init__(self, *args, **kwargs)

    def __eq__(self: object, other: object) -> Any:  # noqa: N807
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    methods = {"__init__": __init__, "__eq__": __eq__, "__hash__": None, "__repr__": _describe}
    return methods | (_frozen_methods(fields, lazy, has_slots=has_slots) if is_frozen else {})


def _frozen_methods(
    fields: Mapping[str, dataclasses.Field[Any]], lazy: _LazyFields, *, has_slots: bool
) -> dict[str, Callable[..., Any]]:
    names = [name for name, field in fields.items() if (field.compare if field.hash is None else field.hash)]
    hashed, of_none = _values(names), hash(())

    def __hash__(self: object) -> int:  # noqa: N807
        return hash(hashed(self)) if names else of_none

    def __setattr__(self: object, name: str, value: object) -> None:  # noqa: N807
        if type(self) is lazy.owner or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(lazy.owner, self).__setattr__(name, value)

    def __delattr__(self: object, name: str) -> None:  # noqa: N807
        if type(self) is lazy.owner or name in fields:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(lazy.owner, self).__delattr__(name)

    def __getstate__(self: object) -> list[Any]:  # noqa: N807
        return [getattr(self, name) for name in fields]

    def __setstate__(self: object, state: list[Any]) -> None:  # noqa: N807
        for name, value in zip(fields, state, strict=True):
            object.__setattr__(self, name, value)

    methods: dict[str, Callable[..., Any]] = {
        "__hash__": __hash__,
        "__setattr__": __setattr__,
        "__delattr__": __delattr__,
    }
    return methods | ({"__getstate__": __getstate__, "__setstate__": __setstate__} if has_slots else {})


@recursive_repr()
def _describe(record: Any) -> str:
    parts = ", ".join(
        f"{field.name}={getattr(record, field.name)!r}" for field in dataclasses.fields(record) if field.repr
    )
    return f"{type(record).__qualname__}({parts})"


def _values(names: Sequence[str]) -> Callable[[object], Any]:
    """Return what reads the fields of an object as a tuple."""
    if not names:
        return lambda _: ()
    read = attrgetter(*names)
    return read if len(names) > 1 else lambda record: (read(record),)


def _set_fields(record: Any, fields: Mapping[str, dataclasses.Field[Any]], values: Mapping[str, Any]) -> bool:
    """Set the fields of a new object one by one. Return false if a value is missing, for which a constructor has the words."""
    for name, field in fields.items():
        if field.init and name in values:
            value = values[name]
        elif field.default is not _MISSING:
            value = field.default
        elif field.default_factory is not _MISSING:
            value = field.default_factory()
        elif field.init:
            return False
        else:
            continue
        object.__setattr__(record, name, value)
    if hasattr(record, "__post_init__"):
        record.__post_init__()
    return True


def _compile_init(
    cls: type[Any], fields: Mapping[str, dataclasses.Field[Any]], *, is_frozen: bool, has_slots: bool
) -> Callable[..., None]:
    """Compile a constructor that sets the fields in their order: the slots of a frozen class by their descriptors."""
    scope: dict[str, Any] = {"MISSING": _MISSING, "set_field": object.__setattr__}
    positional: list[str] = ["self"]
    named: list[str] = []
    body: list[str] = []
    for number, (name, field) in enumerate(fields.items()):
        default = ""
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
        if not is_frozen:
            body.append(f"self.{name} = {value}")
        elif has_slots:
            scope[f"set_{number}"] = getattr(cls, name).__set__
            body.append(f"set_{number}(self, {value})")
        else:
            body.append(f"set_field(self, {name!r}, {value})")
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    parameters = ", ".join([*positional, *(["*", *named] if named else [])])
    source = f"def __init__({parameters}):\n " + "\n ".join(body or ["pass"])
    exec(source, scope)  # noqa: S102 - of names of fields, as the standard library does it
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def json_data(value: Any) -> Any:
    """Return a value as JSON has it: records and mappings as objects, sequences as lists, bytes in base64."""
    if names := getattr(value, "__struct_fields__", ()):
        return {name: json_data(getattr(value, name)) for name in names}
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
