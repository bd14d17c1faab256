"""For which ranks is a condition of a script true?"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from typing import TypeAlias

from mgpu.snapshot import Guard

Guards: TypeAlias = tuple[Guard, ...]
Split: TypeAlias = tuple[Guards, Guards]  # ranks for which the condition is true, and ranks for which it is false
NOTHING: Split = ((), ())

_MAIN: Split = (("main",), ("not_main",))
_LOCAL_MAIN: Split = (("local_main",), ("some",))
_SINGLE: Split = (("single",), ("distributed",))
SOME: Split = (("some",), ("some",))

# Names that scripts use in conditions (the last part of a dotted name, or all of it).
_LOCAL_NAME = re.compile(
    r"is_local_(?:main|master|first|world)|is_local_rank_zero|local_(?:main|master)_process|is_node_(?:main|master)"
)
_MAIN_NAME = re.compile(
    r"is_(?:global_|world_)?(?:main|master|root|chief|first|primary|rank_?(?:zero|0)|process_zero|world_process_zero)"
    r"|is_(?:main|master)_?(?:process|rank|node|ordinal)|(?:main|master)_process|is_rank_?0|rank_?zero"
    r"|should_(?:save|log)$|is_(?:saver|logger|writer)|on_main|is_global_zero|is_zero_rank|is_leader"
)
_SINGLE_NAME = re.compile(r"(?:is_|use_)?(?:single|one)_(?:gpu|process|device|node)$")
_DISTRIBUTED_NAME = re.compile(
    r"(?:^|[_'\"])(?:distributed|ddp|dist|multi_?gpu|multiprocessing_distributed|is_initialized"
    r"|is_dist_avail_and_initialized|parallel|fsdp|use_distributed)(?:['\"]\])?$|is_initialized\(\)$|is_distributed"
)
_RANK_NAME = re.compile(
    r"(?:^|[._'\"])(?:\w*_)?(?:rank|rank_id|process_index|proc_id|procid|gpu|gpu_id|local_process_index|global_rank)(?:['\"]\])?$"
    r"|(?:get_)?(?:local_|global_|world_)?rank\(\)$|\bLOCAL_RANK\b|\bRANK\b|\bSLURM_PROCID\b|\bSLURM_LOCALID\b"
    r"|get_ordinal\(\)$",
    re.IGNORECASE,
)
_LOCAL_RANK = re.compile(
    r"local_?(?:process_)?(?:rank|index|id)|\bgpu(?:_id)?$|SLURM_LOCALID|node_rank_local", re.IGNORECASE
)
_WORLD_NAME = re.compile(
    r"(?:world_?size|num_processes|n_?gpus|num_gpus|ngpus_per_node|nproc|n_devices|num_devices)(?:['\"]\])?$"
    r"|get_world_size\(\)$|device_count\(\)$|WORLD_SIZE",
    re.IGNORECASE,
)
# Not the number of a process: "tokens_per_rank", "lora_rank" of a matrix.
_OTHER_RANK = re.compile(
    r"(?:^|[._])(?:\w*per_(?:\w+_)?|lora_|low_|num_|max_|min_|full_|svd_|matrix_|adapter_|tensor_)ranks?\b",
    re.IGNORECASE,
)
# An object that exists only in a run with that library.
_LIBRARY_OBJECT = re.compile(r"(?:^|[._])(?:accelerator|fabric|process_group)$", re.MULTILINE)
# Any other name that contains a word for ranks: it is not known for which ranks it is true.
_RANK_WORD = re.compile(r"rank(?!ing)|master|chief|primary|leader|coordinator|main_?proc", re.IGNORECASE)


def merge_guards(guards: Guards, more: Guards) -> Guards:
    """Return both without duplicates, in order."""
    return tuple(dict.fromkeys((*guards, *more))) if more else guards


def classify(test: ast.expr, name_of: Callable[[ast.expr], str], known: Callable[[ast.expr], Split | None]) -> Split:
    """Return the ranks for which `test` is true, and those for which it is false.

    `name_of` returns an expression's resolved name and its source text. `known` returns the condition that a variable
    holds.
    """
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        yes, no = classify(test.operand, name_of, known)
        if not yes and not no and is_rank(name_of(test.operand)):  # `if not rank`
            return _LOCAL_MAIN if _LOCAL_RANK.search(name_of(test.operand)) else _MAIN
        return no, yes
    if isinstance(test, ast.BoolOp):
        parts = [classify(part, name_of, known) for part in test.values]
        return _all_of(parts) if isinstance(test.op, ast.And) else _any_of(parts)
    if isinstance(test, ast.NamedExpr):
        return classify(test.value, name_of, known)
    if (found := known(test)) is not None:
        return found
    if (found := _classify_library_object(test, name_of)) is not None:
        return found
    if isinstance(test, ast.Compare):
        return _classify_comparison(test, name_of, known)
    if isinstance(test, ast.Call) and getattr(test.func, "id", "") in ("bool", "int") and test.args:
        return classify(test.args[0], name_of, known)
    return classify_name(name_of(test))


def _classify_library_object(test: ast.expr, name_of: Callable[[ast.expr], str]) -> Split | None:
    """Return the split of `if accelerator is None`, `if accelerator is not None` and `if accelerator`."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1:
        right = test.comparators[0]
        if isinstance(right, ast.Constant) and right.value is None and _LIBRARY_OBJECT.search(name_of(test.left)):
            return _SINGLE if isinstance(test.ops[0], ast.Is | ast.Eq) else (_SINGLE[1], _SINGLE[0])
    if isinstance(test, ast.Name | ast.Attribute) and _LIBRARY_OBJECT.search(name_of(test)):
        return _SINGLE[1], _SINGLE[0]
    return None


def asks_environment(test: ast.expr) -> bool:
    """Whether a condition asks for a variable of the environment: both branches may be for several ranks."""
    one_test = isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.In | ast.NotIn)
    return one_test and ast.unparse(test).endswith("environ")


def _all_of(parts: list[Split]) -> Split:
    yes = tuple(dict.fromkeys(guard for part, _ in parts for guard in part))
    if len([part for part in parts if part != NOTHING]) == len(parts) == 1:
        return parts[0]
    return yes, ("some",) if yes else ()


def _any_of(parts: list[Split]) -> Split:
    if any(part == NOTHING for part in parts):  # `if rank == 0 or debug`
        return SOME if any(part != NOTHING for part in parts) else NOTHING
    kinds = {guard for yes, _ in parts for guard in yes}
    if kinds <= {"main", "single"} and "main" in kinds:
        return _MAIN
    if kinds <= {"main", "local_main", "single"} and "local_main" in kinds:
        return _LOCAL_MAIN
    if kinds == {"single"}:
        return _SINGLE
    if kinds == {"distributed"}:
        return ("distributed",), ("single",)
    return SOME


def is_rank(text: str) -> bool:
    """Whether one of these names, a name per line, is that of the number of a process."""
    return any(_RANK_NAME.search(part) and not _OTHER_RANK.search(part) for part in text.split("\n"))


def _is_world(text: str) -> bool:
    return any(_WORLD_NAME.search(part) for part in text.split("\n"))


def _classify_comparison(
    test: ast.Compare, name_of: Callable[[ast.expr], str], known: Callable[[ast.expr], Split | None]
) -> Split:
    if len(test.ops) != 1:
        return SOME if is_rank(name_of(test.left)) else NOTHING
    left, right, operator = test.left, test.comparators[0], test.ops[0]
    if isinstance(left, ast.Constant) and isinstance(operator, ast.Eq | ast.NotEq):
        left, right = right, left
    if isinstance(right, ast.Constant) and isinstance(right.value, bool) and isinstance(operator, ast.Eq | ast.Is):
        yes, no = classify(left, name_of, known)
        return (yes, no) if right.value else (no, yes)
    text = name_of(left)
    value = _integer(right)
    modulo = isinstance(left, ast.BinOp) and isinstance(left.op, ast.Mod) and is_rank(name_of(left.left))
    if modulo or (is_rank(text) and not _is_world(text)):
        zero = (isinstance(operator, ast.Eq) and value == 0) or (isinstance(operator, ast.Lt) and value == 1)
        zero = zero or (isinstance(operator, ast.LtE) and value == 0)
        zero = zero or (isinstance(operator, ast.In) and _only_first(right))
        other = (isinstance(operator, ast.NotEq) and value == 0) or (isinstance(operator, ast.Gt) and value == 0)
        other = other or (isinstance(operator, ast.GtE) and value == 1)
        other = other or (isinstance(operator, ast.NotIn) and _only_first(right))
        if isinstance(operator, ast.Eq | ast.Is) and value in (-1, None) and _is_none_or_minus(right):
            return _SINGLE  # local_rank == -1, args.gpu is None: common conditions for "not distributed"
        if isinstance(operator, ast.NotEq | ast.IsNot) and value in (-1, None) and _is_none_or_minus(right):
            return ("distributed",), ("single",)
        local = modulo or bool(_LOCAL_RANK.search(text))
        if zero or other:
            yes, no = _LOCAL_MAIN if local else _MAIN
            return (yes, no) if zero else (no, yes)
        return SOME
    if _is_world(text):
        many = (isinstance(operator, ast.Gt) and value == 1) or (isinstance(operator, ast.GtE) and value == 2)
        many = many or (isinstance(operator, ast.NotEq) and value == 1)
        one = (isinstance(operator, ast.Eq) and value == 1) or (isinstance(operator, ast.LtE) and value == 1)
        one = one or (isinstance(operator, ast.Lt) and value == 2)
        return (("distributed",), ("single",)) if many else _SINGLE if one else NOTHING
    return SOME if is_rank(name_of(right)) else NOTHING


def classify_name(text: str) -> Split:
    """Return the ranks for which a value with one of these names is true; a name per line."""
    for part in text.split("\n"):
        name = part.removesuffix("()").rpartition(".")[2]
        if _LOCAL_NAME.search(name):
            return _LOCAL_MAIN
        if _MAIN_NAME.search(name):
            return _MAIN
        if _SINGLE_NAME.search(name):
            return _SINGLE
        if _DISTRIBUTED_NAME.search(name) or _DISTRIBUTED_NAME.search(part):
            return ("distributed",), ("single",)
    if is_rank(text):  # `if rank:`
        return ("not_main",), ("main",)
    return SOME if _RANK_WORD.search(_OTHER_RANK.sub("", text)) else NOTHING


def _integer(node: ast.expr) -> int | None:
    """Return the integer value of a constant; None for anything else."""
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        value = _integer(node.operand)
        return None if value is None else -value
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.lstrip("-").isdigit():
        return int(node.value)  # os.environ["RANK"] == "0"
    return node.value if isinstance(node, ast.Constant) and type(node.value) is int else None


def _is_none_or_minus(node: ast.expr) -> bool:
    return _integer(node) == -1 or (isinstance(node, ast.Constant) and node.value is None)


def _only_first(node: ast.expr) -> bool:
    """Whether a collection contains only rank 0: [-1, 0], (0,), {0, None}."""
    if not isinstance(node, ast.List | ast.Tuple | ast.Set):
        return False
    values = [_integer(item) for item in node.elts]
    return 0 in values and set(values) <= {-1, 0, None}
