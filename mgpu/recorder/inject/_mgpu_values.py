"""What did the names on a failed line stand for? Types, shapes, devices, sizes, numbers, and short texts of one word.

Only what can be read without running code of the script or waiting for a GPU: no property, no `__getattr__`, no
`__len__` or `__repr__` of its classes. Of a tensor's values, only the range of integers on the CPU: labels, ids.

Runs with any Python from 3.8 on. It never imports torch.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import linecache
import os
import re
import sys
import tokenize
import types
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, FrameType, TracebackType

    Step = tuple[str, Any]  # ".", a name; or "[", a key

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject import _mgpu_conditions, _mgpu_layers
    from mgpu.recorder.inject._mgpu_counts import described, stored
    from mgpu.recorder.inject._mgpu_own_code import is_of_python, is_of_torch, is_users
else:
    import _mgpu_conditions
    import _mgpu_layers
    from _mgpu_counts import described, stored
    from _mgpu_own_code import is_of_python, is_of_torch, is_users

_MOST_FRAMES, _MOST_NAMES = 3, 8
_MOST_LINES = 12  # of one statement
_MOST_KEYS, _MOST_ITEMS = 8, 3
_LONGEST = 160  # characters of a description
_LARGEST_NUMBER = 1 << 64
_MOST_INTEGERS = 1 << 16  # of a tensor whose range is read
# A path, a setting, a name or a character; not what may be a key: long, of digits and letters.
_WORD = re.compile(r"(?!(?=\S*\d)[\w+=-]{20})(?!\S*\d{7})(?:[\w./+-]{1,60}|\S)\Z")
_HANDLER = os.path.join("torch", "utils", "data", "_utils", "signal_handling.py")  # it interrupts any line
_KEY = re.compile(r"[A-Za-z_][\w.-]{0,40}\Z")  # of a dict: a name that the code has, not data
# A name of a secret; not num_tokens, pad_token_id, num_key_value_heads, nor `key`, which the form of its value decides.
_SECRET = re.compile(
    r"(?i)pass|secret|token(?!s|_?id)|cred|auth|cookie|bearer|jwt|webhook|private|access_key|[a-z]_?keys?(?![a-z_])"
    r"|(?<![a-z])(?:pwd?|pin|sas|pat|salt)(?![a-z])"
)
_NO_VALUES = (types.ModuleType, types.FunctionType, types.BuiltinFunctionType, types.MethodType, type)
_UNPACKED = re.compile(rb"[ )\]]*(?:=(?!=)|in\b)(?P<of>.+)", re.DOTALL)
_OF_TRAINING = (
    "accelerate.optimizer",
    "accelerate.scheduler",
    "accelerate.data_loader",
    "torch.optim.",
    "torch.utils.data.dataloader",
)
_WITH_STATE = ("accelerate.accelerator",)
_LOOKUPS = ("__getattr__", "__getattribute__")  # the user's line says more of a missing attribute
_MISSING = object()


def on_failed_lines(trace: TracebackType | None, kind: str) -> list[list[Any]]:
    """Return [file, line, function, {name: description}, condition] of the innermost frames, the innermost first.

    They are the user's, and a package's if one is within these: not of torch or Python, unless torch's line raised the
    exception, or has what the user's line does not name. `condition`: what held there, in the words of the code; ""
    except on the line that raised it. `kind`: the name of the exception's class.
    """
    own, inner, raised = [], None, None
    while trace is not None:
        file = trace.tb_frame.f_code.co_filename
        if is_users(file):
            own.append(trace)
            inner = None
        elif not is_of_torch(file) and trace.tb_frame.f_code.co_name not in _LOOKUPS:
            inner = trace
        if file.endswith(_HANDLER):
            return []
        raised, trace = trace, trace.tb_next
    condition = _condition(raised, kind) if raised is not None else ""
    below = _below(own[-1]) if own else None
    inner = raised if condition and raised not in own else inner
    own += [one for one in (inner, below[0] if below else None) if one is not None and one not in own]
    found, known = [], set()
    for one in own[: -_MOST_FRAMES - 1 : -1]:
        code = one.tb_frame.f_code
        held = condition if one is raised else ""
        names = below[1] if below is not None and below[0] is one else {}
        failed = "" if names else failed_code(one)
        values = itertools.chain(_values(one.tb_frame, held, of_any=True), _values(one.tb_frame, failed))
        for name, text in itertools.islice(values, _MOST_NAMES):
            if (name, text) not in known:
                known.add((name, text))
                names[name] = text
        if names or held:
            found.append([code.co_filename, one.tb_lineno, code.co_name, names, held])
    return found


def _below(trace: TracebackType) -> tuple[TracebackType, dict[str, str]] | None:
    """Return the entry of torch's layer that failed below a line, and what is said of the layer and its input."""
    with contextlib.suppress(Exception):
        found = _mgpu_layers.below(trace, named(trace.tb_frame, failed_code(trace)))
        if found is not None:
            return found[0], {name: describe(value, name)[:_LONGEST] for name, value in found[1][:_MOST_NAMES]}
    return None


def _condition(trace: TracebackType, kind: str) -> str:
    """Return what held on the line that raised the exception, if it is in a file of the user or of a package."""
    code = trace.tb_frame.f_code
    if is_of_python(code.co_filename) or code.co_name in _LOOKUPS:
        return ""
    with contextlib.suppress(Exception):  # a file that was removed, or is not Python
        return _mgpu_conditions.of_raise("".join(linecache.getlines(code.co_filename)), trace.tb_lineno, kind)
    return ""


def failed_code(trace: TracebackType) -> str:
    """Return the expression that failed, from Python 3.11 on; before, its first line.

    If values could not be unpacked, that are the names they are for: then what follows these.
    """
    code, lines = trace.tb_frame.f_code, linecache.getlines(trace.tb_frame.f_code.co_filename)
    first, last, begin, end = _position(code, trace.tb_lasti) or (trace.tb_lineno, trace.tb_lineno, None, None)
    part = [line.encode() for line in lines[first - 1 : min(last, first + _MOST_LINES)]]
    if part and begin is not None and end is not None:
        targets = part[0][begin:end] if len(part) == 1 else b""
        if b"," in targets and (source := _UNPACKED.match(part[0], end)):
            return source["of"].decode("utf-8", "replace")
        part[-1] = part[-1][:end] if last < first + _MOST_LINES else part[-1]
        part[0] = part[0][begin:]
    return b"".join(part).decode("utf-8", "replace")


def _position(code: CodeType, instruction: int) -> tuple[int, int, int | None, int | None] | None:
    """Return first and last line of an instruction's expression, and where it begins and ends in these, in bytes."""
    positions = getattr(code, "co_positions", None)
    if positions is None:
        return None
    first, last, begin, end = next(itertools.islice(positions(), instruction // 2, None), (None, None, None, None))
    return None if first is None or last is None else (first, last, begin, end)


def _values(frame: FrameType, code: str, *, of_any: bool = False) -> Iterator[tuple[str, str]]:
    """Yield the names in code, as it writes them, and what is said of each; `of_any`: at least its class."""
    seen = set()
    for shown, value in named(frame, code):
        text = describe(value, shown) or (
            type(value).__name__ if of_any and type(value).__module__ not in _WITH_STATE else ""
        )
        if text and shown not in seen and shown not in ("self", "cls"):
            seen.add(shown)
            yield shown, text[:_LONGEST]


def named(frame: FrameType, code: str) -> Iterator[tuple[str, Any]]:
    """Yield the names in code, as it writes them, and their values."""
    for name, steps in chains(code):
        value = frame.f_locals.get(name, _MISSING)
        if value is _MISSING:
            value = frame.f_globals.get(name, _MISSING)
        if value is not _MISSING and not isinstance(value, _NO_VALUES):
            yield follow(name, value, steps)


def follow(name: str, value: Any, steps: list[Step]) -> tuple[str, Any]:
    """Return the last value of `name.a["b"].c` that can be read, and how the code calls it; methods do not count."""
    for kind, part in steps:
        further = _attribute(value, part) if kind == "." else _item(value, part)
        if further is _MISSING or isinstance(further, _NO_VALUES):
            break
        value = further
        name += f".{part}" if kind == "." else f"[{part!r}]"
    return name, value


def chains(code: str) -> list[tuple[str, list[Step]]]:
    """Return the names in an expression, each with the attributes and constant items that the code takes of it."""
    tokens: list[tokenize.TokenInfo] = []
    with contextlib.suppress(tokenize.TokenError, SyntaxError):  # a part of a statement
        tokens.extend(tokenize.generate_tokens(io.StringIO(code).readline))
    found: list[tuple[str, list[Step]]] = []
    at = 0
    while at < len(tokens):
        if tokens[at].type != tokenize.NAME or (at and tokens[at - 1].string == "."):
            at += 1
            continue
        name, steps, at = tokens[at].string, [], at + 1
        while at + 1 < len(tokens):
            follows = [one.string for one in tokens[at : at + 3]]
            if follows[0] == "." and tokens[at + 1].type == tokenize.NAME:
                steps.append((".", follows[1]))
                at += 2
            elif follows[0] == "[" and follows[2:] == ["]"] and (key := _constant(tokens[at + 1])) is not None:
                steps.append(("[", key))
                at += 3
            else:
                break
        if tokens[at : at + 1] and tokens[at].string == "=" and not steps:
            continue  # a keyword of a call, or what the line assigns to
        found.append((name, steps))
    return found


def _constant(token: tokenize.TokenInfo) -> Any:
    if token.type == tokenize.NUMBER and token.string.isdigit():
        return int(token.string)
    text = token.string
    plain = token.type == tokenize.STRING and len(text) > 1 and text[0] == text[-1] and "\\" not in text
    return text[1:-1] if plain and text[0] in "\"'" and text[:3] != text[0] * 3 else None


def _attribute(value: Any, name: str) -> Any:
    """Return an attribute that is stored, without running code for it."""
    own = stored(value)
    if name in own:
        return own[name]
    if name == "grad" and _is_leaf(value):
        return value.grad
    for kind in ("_parameters", "_buffers", "_modules"):  # of nn.Module
        group = own.get(kind)
        if isinstance(group, dict) and name in group:
            return dict.__getitem__(group, name)
    return _of_accelerate(value, name)


def _of_accelerate(value: Any, name: str) -> Any:
    """Return what an Accelerator keeps in its state and gives as a property: process_index, num_processes, device."""
    state = stored(value).get("state") if type(value).__module__ in _WITH_STATE else None
    return stored(state).get(name, _MISSING)


def _is_leaf(value: Any) -> bool:
    """Whether it is a tensor of torch itself, whose gradient can be read without a warning."""
    torch = sys.modules.get("torch")
    return torch is not None and type(value) in (torch.Tensor, torch.nn.Parameter) and value.is_leaf


def _item(value: Any, key: Any) -> Any:
    if isinstance(value, dict):
        return dict.get(value, key, _MISSING) if isinstance(key, (str, int)) else _MISSING
    if type(value) in (list, tuple):
        return value[key] if isinstance(key, int) and key < len(value) else _MISSING
    data = stored(value).get("data")  # of UserDict: BatchEncoding, BatchFeature
    return dict.get(data, key, _MISSING) if type(data) is dict else _MISSING


def describe(value: Any, name: str, *, words: bool = True) -> str:
    """Return what is said of a value: "float32 [8, 512] on cuda:0", "None", "list of 3". "": nothing.

    `words`: whether a text of one word is shown.
    """
    kind = type(value)
    if value is None or kind is bool:
        return str(value)
    if kind in (int, float):
        if _SECRET.search(name) or (kind is int and abs(value) > _LARGEST_NUMBER):
            return kind.__name__
        return repr(value)
    if kind is str and words and _WORD.match(value) and not _SECRET.search(name):
        return repr(value)
    if kind in (str, bytes):
        return f"{kind.__name__}, length {len(value)}" if value else f"an empty {kind.__name__}"
    if isinstance(value, _NO_VALUES):
        return ""
    with contextlib.suppress(Exception):  # of a tensor that has no storage yet
        found = _of_tensor(value) or _of_module(value) or described(value) or _of_container(value, name)
        return found or _of_training(kind)
    return ""


def _of_training(kind: type) -> str:
    """Return the class of an optimizer, a schedule or a loader: a name may stand for another one than it says."""
    return kind.__name__ if kind.__module__.startswith(_OF_TRAINING) else ""


def _of_tensor(value: Any) -> str:
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and isinstance(value, (torch.device, torch.dtype)):
        return str(value)
    if torch is not None and isinstance(value, torch.Tensor):
        known = type(value).__name__
        prefix = "" if known in ("Tensor", "Parameter") else f"{known} "
        with getattr(torch._C, "DisableTorchFunctionSubclass", contextlib.nullcontext)():
            return f"{prefix}{str(value.dtype)[6:]} {list(value.shape)} on {value.device}{_range(torch, value)}"
    if numpy is not None and type(value) in (numpy.ndarray, numpy.memmap):
        return f"{type(value).__name__} {value.dtype} {list(value.shape)}"
    return ""


def _range(torch: Any, value: Any) -> str:
    """Return ", from 0 to 9" for a tensor of integers on the CPU."""
    whole = value.dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
    here = type(value) is torch.Tensor and value.device.type == "cpu" and value.layout == torch.strided
    if not whole or not here or not 0 < value.numel() <= _MOST_INTEGERS:
        return ""
    least, most = (one.item() for one in torch.aminmax(value))
    return f", all {least}" if least == most else f", from {least} to {most}"


def _of_module(value: Any) -> str:
    own = stored(value)
    if not all(isinstance(own.get(kind), dict) for kind in ("_parameters", "_modules")):
        return ""
    kind = type(value)
    of_torch = kind.__module__.startswith("torch.nn.")
    name = f"{kind.__name__}({value.extra_repr()})" if of_torch and not own["_modules"] else kind.__name__
    first = _first_parameter(own)
    return name if first is None else f"{name}, {str(first.dtype)[6:]} on {first.device}"


def _first_parameter(own: dict[str, Any], depth: int = 0) -> Any:
    for one in own["_parameters"].values():
        if one is not None:
            return one
    for inner in own["_modules"].values() if depth < 20 else ():
        parts = stored(inner)
        if isinstance(parts.get("_parameters"), dict) and isinstance(parts.get("_modules"), dict):
            found = _first_parameter(parts, depth + 1)
            if found is not None:
                return found
    return None


def _of_container(value: Any, name: str) -> str:
    kind = type(value)
    if kind in (list, tuple, set, frozenset):
        if not value:
            return f"an empty {kind.__name__}"
        inner = [_short(one, name) for one in itertools.islice(value, _MOST_ITEMS)] if kind in (list, tuple) else []
        more = ", ..." if len(value) > len(inner) > 0 else ""
        return f"{kind.__name__} of {len(value)}{': ' if inner else ''}{', '.join(inner)}{more}"
    data = value if isinstance(value, dict) else stored(value).get("data")
    if not isinstance(data, dict):
        return ""
    size = dict.__len__(data)
    if not size:
        return f"an empty {kind.__name__}"
    keys = list(itertools.islice(dict.__iter__(data), _MOST_KEYS))
    if not all(type(key) is str and _KEY.match(key) for key in keys):
        return f"{kind.__name__} of {size}"
    more = f" and {size - len(keys)} more" if size > len(keys) else ""
    return f"{kind.__name__} with {', '.join(keys)}{more}"


def _short(value: Any, name: str) -> str:
    """Return the description of an item, without its own items, and without the content of a text."""
    kind = type(value)
    nested = kind in (list, tuple, dict)
    return f"{kind.__name__} of {len(value)}" if nested else describe(value, name, words=False) or kind.__name__
