"""A pickle of plain values, read without running anything of it.

Only the operations that torch writes for dicts, lists, tuples, texts and numbers are known; each other one, and with
it every way to call a function, is refused. Keys are texts or whole numbers, so that no key is expensive to hash.
"""

from __future__ import annotations

import pickletools
from collections.abc import Callable
from typing import Any

_MOST_OPERATIONS = 4_000_000
_MOST_KEY = 1 << 62


class NotPlain(ValueError):
    """The pickle has something else than plain values, or is damaged."""


class _Machine:
    """The stack and the memo of a pickle."""

    def __init__(self) -> None:
        self.stack: list[Any] = []
        self.marks: list[int] = []
        self.memo: dict[int, Any] = {}

    def since_mark(self) -> list[Any]:
        """Remove and return what was pushed since the last mark."""
        start = self.marks.pop()
        found = self.stack[start:]
        del self.stack[start:]
        return found

    def pop(self) -> Any:
        """Remove and return the last value."""
        if self.marks and len(self.stack) <= self.marks[-1]:
            raise NotPlain("an operation without a value")
        return self.stack.pop()

    def extend(self, values: list[Any]) -> None:
        """Append to the list on top."""
        if not isinstance(self.stack[-1], list):
            raise NotPlain("not a list")
        self.stack[-1].extend(values)

    def update(self, values: list[Any]) -> None:
        """Set items of the dict on top."""
        if not isinstance(self.stack[-1], dict) or len(values) % 2:
            raise NotPlain("not a dict")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if not isinstance(key, (str, int)) or (isinstance(key, int) and abs(key) > _MOST_KEY):
                raise NotPlain("a key is not a text or a number")
            self.stack[-1][key] = value

    def tuple_of(self, number: int) -> None:
        """Replace the last values by a tuple of them."""
        self.stack.append(tuple([self.pop() for _ in range(number)][::-1]))


_Step = Callable[[_Machine, Any], object]
_VALUES = ["BININT", "BININT1", "BININT2", "LONG1", "BINFLOAT", "BINUNICODE", "SHORT_BINUNICODE", "BINUNICODE8"]
_STEPS: dict[str, _Step] = {
    "PROTO": lambda m, arg: None,
    "FRAME": lambda m, arg: None,
    "MARK": lambda m, arg: m.marks.append(len(m.stack)),
    "NONE": lambda m, arg: m.stack.append(None),
    "NEWTRUE": lambda m, arg: m.stack.append(True),
    "NEWFALSE": lambda m, arg: m.stack.append(False),
    "EMPTY_LIST": lambda m, arg: m.stack.append([]),
    "EMPTY_DICT": lambda m, arg: m.stack.append({}),
    "EMPTY_TUPLE": lambda m, arg: m.stack.append(()),
    "TUPLE": lambda m, arg: m.stack.append(tuple(m.since_mark())),
    "TUPLE1": lambda m, arg: m.tuple_of(1),
    "TUPLE2": lambda m, arg: m.tuple_of(2),
    "TUPLE3": lambda m, arg: m.tuple_of(3),
    "APPEND": lambda m, arg: m.extend([m.pop()]),
    "APPENDS": lambda m, arg: m.extend(m.since_mark()),
    "SETITEM": lambda m, arg: m.update([m.pop(), m.pop()][::-1]),
    "SETITEMS": lambda m, arg: m.update(m.since_mark()),
    "MEMOIZE": lambda m, arg: m.memo.__setitem__(len(m.memo), m.stack[-1]),
    "BINPUT": lambda m, arg: m.memo.__setitem__(arg, m.stack[-1]),
    "LONG_BINPUT": lambda m, arg: m.memo.__setitem__(arg, m.stack[-1]),
    "BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    "LONG_BINGET": lambda m, arg: m.stack.append(m.memo[arg]),
    **dict.fromkeys(_VALUES, lambda m, arg: m.stack.append(arg)),
}


def load(data: bytes) -> Any:
    """Return the value. Raises NotPlain. The caller limits the size; shared values are not copied."""
    machine = _Machine()
    try:
        for number, (operation, argument, _) in enumerate(pickletools.genops(data)):
            if operation.name == "STOP":
                return machine.stack.pop()
            if number > _MOST_OPERATIONS:
                raise NotPlain("too many values")
            step = _STEPS.get(operation.name)
            if step is None:
                raise NotPlain(f"it has the operation {operation.name}")
            step(machine, argument)
    except NotPlain:
        raise
    except (ValueError, IndexError, KeyError, TypeError, OverflowError, UnicodeError) as error:
        raise NotPlain(f"it is damaged: {type(error).__name__}") from None
    raise NotPlain("it does not end")
