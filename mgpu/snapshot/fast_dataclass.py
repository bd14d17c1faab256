"""How do sixty frozen dataclasses load in a quarter of the time?

`dataclasses` compiles six methods anew for every class, which is most of what importing the facts would cost a quick
doctor. Here only `__init__` is made for each class; equality, hash, text and the refusal to change are written once.
Type checkers see the standard library's `dataclass`, so that nothing is lost on them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, TypeVar

T = TypeVar("T")

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:

    def dataclass(*, frozen: bool) -> Any:
        """As `dataclasses.dataclass(frozen=True)`."""
        assert frozen

        def make(cls: type[T]) -> type[T]:
            for method in (_eq, _hash, _repr, _setattr, _delattr):
                setattr(cls, method.__name__.replace("_", "__", 1) + "__", method)
            return dataclasses.dataclass(eq=False, repr=False)(cls)

        return make


def _values(self: Any) -> tuple[Any, ...]:
    return tuple(getattr(self, name) for name in self.__dataclass_fields__)


def _eq(self: Any, other: object) -> Any:
    if other.__class__ is not self.__class__:
        return NotImplemented
    return _values(self) == _values(other)


def _hash(self: Any) -> int:
    return hash(_values(self))


def _repr(self: Any) -> str:
    told = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__dataclass_fields__)
    return f"{self.__class__.__qualname__}({told})"


def _setattr(self: Any, name: str, value: object) -> None:
    """`__init__` sets each field once; after that nothing changes."""
    if name in self.__dict__ or name not in self.__dataclass_fields__:
        raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
    self.__dict__[name] = value


def _delattr(self: Any, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
