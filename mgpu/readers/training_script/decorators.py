"""What does a decorator mean for its function: on which ranks does it run, and may a library call it?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence

from mgpu.readers.training_script.rank_conditions import Guards

# fmt: off
# Decorators that run a function only on some ranks.
RANKS_OF: dict[str, Guards] = {
    "on_main_process": ("main",), "rank_zero_only": ("main",), "main_process_only": ("main",), "master_only": ("main",),
    "on_local_main_process": ("local_main",), "on_last_process": ("some",), "on_process": ("some",),
}
# fmt: on
# Decorators that do not register a function with a library that could call it.
INERT = re.compile(
    r"staticmethod|classmethod|property|.*\.(?:setter|getter|deleter|no_grad|inference_mode|wraps|lru_cache|cache|record"
    r"|abstractmethod|compile|autocast|overload|script|dynamo\.disable|custom_fwd|custom_bwd|on_\w*process|rank_zero_only)"
    r"|no_grad|inference_mode|wraps|lru_cache|cache|record|abstractmethod|overload|\w*(?:master|main|rank|timed?r?)\w*"
    r"|(?:dataclasses\.)?dataclass|(?:contextlib\.)?contextmanager"
)


def are_registering(decorators: Sequence[ast.expr], resolve: Callable[[ast.expr], str | None]) -> bool:
    """Whether one of these decorators may pass its function or class to a library that uses it."""
    names = [(resolve(one) or "?").removesuffix("()") for one in decorators]
    return not all(INERT.fullmatch(name) for name in names)
