"""Which value of the script's own line was wrong, and where does it come from? Texts for `exceptions.py`.

Python's message names the type of the failure, and the line of code the value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable

from mgpu.check import Fix
from mgpu.command_line import python
from mgpu.notebook_cells import without_cells
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import with_article

from ._absent_results import absent_result
from ._array_attributes import lacks_attribute
from ._cached_samples import of_cached_samples
from ._caught_before import consequence_of_caught
from ._cut_samples import cut_within_image
from ._divisions import emptied_length, zero_divisor, zero_share
from ._functions_as_values import function_as_value
from ._known_classes import of_known_class
from ._labels_of_losses import other_shape
from ._lists_as_values import list_as_value
from ._literal_unpacking import unpacked_literal
from ._messages import first_of_empty, short_name
from ._methods_of_datasets import no_method_of_dataset, split_as_sample
from ._missing_gradients import no_gradients
from ._missing_keys import missing_key
from ._missing_settings import missing_in_config
from ._next_items import used_up, without_parameters
from ._opencv import refused_array
from ._optimizer_state import state_of_other_parameters
from ._own_arguments import not_a_size, path_that_is_none
from ._own_calls import given_twice, not_pickled
from ._own_checks import endless_recursion, stopped_by_itself
from ._own_objects import NAME, Meaning, lacks, other_type, too_short
from ._own_processes import other_end_gone
from ._printed_paths import doubled_path, with_path
from ._process_groups import group_not_made
from ._python_errors_in_torch import python_error_in_torch
from ._refused_at_start import refused_at_start
from ._refused_by_frameworks import refused_by_framework
from ._refused_by_programs import refused_by_program
from ._refused_by_python import refused_before_others, refused_by_python
from ._refused_by_tensorflow import refused_by_tensorflow
from ._refused_by_torch import refused_by_torch
from ._refused_inputs import refused_input
from ._refused_tensors import refused_tensor
from ._started_output import printed_at_start
from ._tokenizer_files import without_file
from ._trainer_arguments import wrong_argument
from ._trainer_attributes import gone_from_trainer
from ._uncollated_samples import ended_file, uncollated
from ._unpacked_values import unpacked
from ._values_that_are_none import none_in_package, value_is_none
from ._wrong_calls import call_that_does_not_fit, wrong_call
from ._wrong_kinds import too_large_at_once, wrong_kind

_WORD = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORDS_OF_COMMAND = re.compile(rf"\[(?:(?:{_WORD.pattern})(?:, (?!\]))?)+\]")
_AS_JSON = {
    "Tensor": "value.tolist()",
    "ndarray": "value.tolist()",
    "set": "sorted(value)",
    "datetime": "value.isoformat()",
}
_PRINT = re.compile(r"print\(|\{|format\(")


def explain(one: UncaughtException) -> Meaning | None:
    """Return what the script's line got wrong; None if message and line do not show it."""
    meant = refused_before_others(one) or _by_line(one) or refused_by_python(one)
    return meant and meant._replace(fixes=without_cells(meant.fixes))


def explain_in(log: Log, one: UncaughtException) -> Meaning | None:
    """Return what the script's line got wrong, with what the log shows of the run before it."""
    meant = too_large_at_once(one, log) or split_as_sample(log, one) or of_cached_samples(log, one, explain(one))
    return meant and with_path(consequence_of_caught(meant, one), one)


def _by_line(one: UncaughtException) -> Meaning | None:
    """Return what is known of this message, or what the script's line shows."""
    for kind in _OF_ANY:
        if found := kind(one):
            return found
    if not one.place or not one.raised_in_own_code:
        return None
    if _raised_by_python(one):
        return value_is_none(one) if path_that_is_none(one) else None
    for kind in _OF_OWN:
        if found := kind(one):
            return found
    return None


def _raised_by_python(one: UncaughtException) -> bool:
    """Whether the innermost frame is in Python's own library, so its line is not the script's."""
    return bool(one.code and one.own_lines) and one.code != one.own_code


def _at(one: UncaughtException) -> str:
    return f"{one.place}"


def _empty(one: UncaughtException) -> Meaning | None:
    code, short = one.code or "", short_name(one.type)
    name = None
    if short == "ZeroDivisionError":
        if divided := zero_divisor(one):
            return divided
        name = emptied_length(one)
    elif short == "IndexError" and one.message.endswith("index out of range"):
        name = first_of_empty(code)
    elif short == "StopIteration":
        found = re.search(rf"\bnext\(iter\((?P<of>{NAME})\)", code)
        name = found["of"] if found else None
    elif re.search(r"empty (?:sequence|list)|expected a non-empty list", one.message):
        found = re.search(rf"\b(?:max|min|cat|stack|concatenate|mean)\((?P<of>{NAME})(?![\w.(])", code)
        name = found["of"] if found else None
    if name is None:
        return None
    return Meaning(
        f"{name} is empty ({_at(one)})",
        "The line needs at least one item. Usually a folder, a pattern of file names, a filter, a split or (with "
        "several ranks) one rank's share of the data has no samples, or a loop that fills it did not run.",
        (
            Fix(
                f"Print the length of {name}{' on every rank' if one.ranks else ''}, where it is filled.",
                (python("print(len(list({:dotted})))", name),),
            ),
            Fix("Check the path and the filter that it comes from."),
        ),
        of_code=False,
    )


def _not_json(one: UncaughtException) -> Meaning | None:
    found = re.match(r"Object of type (?P<type>\w+) is not JSON serializable", one.message)
    if not found:
        return None
    kind = found["type"]
    number = re.fullmatch(r"(?:float|u?int)\d+|bool_?", kind)
    how = "value.item()" if number else _AS_JSON.get(kind, "str(value)")
    return Meaning(
        f"{with_article(kind)} is written as JSON, which has no such type ({_at(one)})",
        "json.dump accepts numbers, texts, lists and dicts of Python only. Metrics and configs often hold tensors, "
        "numpy values, paths or functions.",
        (Fix("Convert it before, or let json convert what it does not have.", (how, "json.dump(x, f, default=str)")),),
    )


def _printed_none(one: UncaughtException) -> Meaning | None:
    if not one.message.startswith("unsupported format string passed to NoneType") or not _PRINT.search(one.code or ""):
        return None
    names = re.findall(rf"\{{({NAME}):", one.code or "")
    name = names[0] if len(names) == 1 else "a value that the line formats"
    return Meaning(
        f"{name} is None ({_at(one)})",
        "The line gives it a width or a number of digits, which None does not accept. It was not computed: no step or "
        "evaluation ran, or (with several ranks) only rank 0 has it.",
        (Fix("Set it before, or print it without a format.", ("print(value)",)),),
    )


def command(one: UncaughtException) -> Meaning | None:
    """Return what a failed command of the script means; None for any other exception."""
    found = re.match(
        r"Command '?(?P<command>.+?)'? (?:returned non-zero exit status (?P<code>\d+)|died with "
        r"<?(?P<signal>[\w.]+))",
        one.message,
    )
    if short_name(one.type) != "CalledProcessError" or not found:
        return None
    command = _as_typed(found["command"])
    how = f"exit code {found['code']}" if found["code"] else found["signal"]
    return Meaning(
        f"a command that the run starts failed: {command} ({how})",
        f"{one.place or 'The script'} starts it, and stops if it fails. The command prints its own reason, above the "
        "traceback or not at all (capture_output).",
        (
            Fix(f"Run it by itself, in the same environment and folder: {command}"),
            Fix("If only one rank should run it, let the others wait.", ("if accelerator.is_main_process: ...",)),
        ),
    )


def _as_typed(command: str) -> str:
    """Return a command as a shell reads it. subprocess shows one without a shell as a list."""
    if not command.startswith("["):
        return command
    if not _WORDS_OF_COMMAND.fullmatch(command):  # it is cut, or contains paths and other objects
        return re.sub(r"[\[\]',]", "", command)
    words = [found[1:-1] for found in _WORD.findall(command)]
    return shlex.join(re.sub(r"\\(['\"\\])", r"\1", word) for word in words)


_OF_ANY: tuple[Callable[[UncaughtException], Meaning | None], ...] = (
    doubled_path,
    cut_within_image,
    gone_from_trainer,
    wrong_argument,
    refused_by_framework,
    refused_by_tensorflow,
    no_gradients,
    state_of_other_parameters,
    other_shape,
    refused_tensor,
    wrong_kind,
    refused_by_torch,
    python_error_in_torch,
    group_not_made,
    refused_at_start,
    absent_result,
    lacks_attribute,
    uncollated,
    ended_file,
    missing_key,
    wrong_call,
    given_twice,
    call_that_does_not_fit,
    not_pickled,
    _not_json,
    zero_share,
    function_as_value,
    without_parameters,
    refused_array,
    missing_in_config,
    refused_input,
    list_as_value,
    no_method_of_dataset,
    of_known_class,
    lacks,
    other_end_gone,
    refused_by_program,
    without_file,
    none_in_package,
    printed_at_start,
)

_OF_OWN = (
    not_a_size,
    value_is_none,
    unpacked_literal,
    unpacked,
    used_up,
    _empty,
    too_short,
    other_type,
    _printed_none,
    endless_recursion,
    stopped_by_itself,
)
