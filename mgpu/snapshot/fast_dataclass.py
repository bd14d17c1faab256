"""How do a hundred frozen dataclasses load in a quarter of the time?

`dataclasses` compiles six methods for every class, which would dominate the import time of `mgpu doctor --quick`. Here
equality, hash, repr and immutability are shared by all classes, and `__init__` is compiled when the first object of a
class is created: a quick doctor creates objects of a quarter of the classes. Type checkers see the standard library's
`dataclass`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")
_NOT_GIVEN = object()

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool) -> Any:
        """Decorate a class like `dataclasses.dataclass(frozen=True)`."""
        assert frozen

        def make(cls: type[T]) -> type[T]:
            for method in (_eq, _hash, _repr, _setattr, _delattr):
                setattr(cls, method.__name__.replace("_", "__", 1) + "__", method)
            cls.__init__ = _lazy_init(cls)
            return dataclasses.dataclass(init=False, eq=False, repr=False)(cls)

        return make


def _lazy_init(cls: Any) -> Callable[..., None]:
    def __init__(self: Any, *args: Any, **keywords: Any) -> None:
        cls.__init__ = _compiled_init(cls)
        cls.__init__(self, *args, **keywords)

    return __init__


def _compiled_init(cls: Any) -> Callable[..., None]:
    """Compile the `__init__` that `dataclasses` would generate, except that it sets all fields in one update."""
    parameters, values = [], []
    names: dict[str, Any] = {"_NOT_GIVEN": _NOT_GIVEN}
    for field in dataclasses.fields(cls):
        name, default, value = field.name, "", field.name
        if field.default is not dataclasses.MISSING:
            default, names[f"_default_{name}"] = f"=_default_{name}", field.default
        elif field.default_factory is not dataclasses.MISSING:
            default, names[f"_make_{name}"] = "=_NOT_GIVEN", field.default_factory
            value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}"
        parameters.append(f"{name}{default}")
        values.append(f"{name}={value}")
    exec(f"def __init__(self, {', '.join(parameters)}):\n    self.__dict__.update({', '.join(values)})", names)
    made: Callable[..., None] = names["__init__"]
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    return made


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{self.__class__.__qualname__}({fields})"


def _setattr(self: Any, name: str, value: object) -> None:
    """Allow a field to be set once, by `__init__`."""
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
