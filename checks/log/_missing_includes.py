"""Which header does a source file not include that declares what a compiler does not know?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

_UNKNOWN = re.compile(
    r"identifier [\"'](?P<a>[\w:]+)[\"'] is undefined|use of undeclared identifier ['\"](?P<b>\w+)['\"]|"
    r"['\"‘](?:std::)?(?P<c>\w+)['\"’] (?:was not declared in this scope|does not name a type|"
    r"has not been declared|is not a member of ['\"‘]std['\"’])|"
    r"namespace \"std\" has no member(?: class)? \"(?P<d>\w+)\""
)
# What the C++ standard's headers declare.
_HEADERS = {
    "cfloat": r"(?:FLT|DBL|LDBL)_(?:MAX|MIN|EPSILON|DIG)",
    "climits": r"U?(?:CHAR|SHRT|INT|LONG|LLONG)_(?:MAX|MIN)|CHAR_BIT",
    "cstdint": r"u?int(?:_fast|_least)?(?:8|16|32|64)_t|u?intptr_t|u?intmax_t|U?INT(?:8|16|32|64)_(?:MAX|MIN)|SIZE_MAX",
    "cstring": r"mem(?:cpy|set|move|cmp)|str(?:len|cmp|ncmp|cpy|ncpy|cat|chr|str)",
    "cstdio": r"f?printf|snprintf|fopen|fclose|stderr",
    "cstdlib": r"malloc|calloc|realloc|free|getenv|EXIT_FAILURE",
    "cassert": r"assert",
    "limits": r"numeric_limits",
    "memory": r"(?:unique|shared|weak)_ptr|make_(?:unique|shared)",
    "functional": r"function|greater|less|bind",
    "stdexcept": r"runtime_error|invalid_argument|out_of_range|logic_error",
    "numeric": r"accumulate|iota|inner_product|partial_sum",
    "optional": r"optional|nullopt",
    "array": r"array",
    "mutex": r"mutex|lock_guard|unique_lock",
    "sstream": r"[io]?stringstream",
}


def explain_include(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain a name of the standard library that a file uses without its header; None for other errors."""
    found = _UNKNOWN.search(groups["what"])
    name = next((one for one in found.groups() if one), "").removeprefix("std::") if found else ""
    header = next((header for header, names in _HEADERS.items() if re.fullmatch(names, name)), None)
    if header is None:
        return None
    file = groups["file"]
    return Meaning(
        f"{file} uses {name} without including the header that declares it (<{header}>)",
        "Older compilers and CUDA releases included that header through another one, newer ones do not any more. The "
        "installed versions need not be changed.",
        (
            Fix(
                "Add the header at the top of the file, and build again. Its repository may have done so since: then "
                "update it.",
                (shell("sed -i.bak {} {:path}", f"1i #include <{header}>", file),),
            ),
        ),
    )
