"""Which value of the script's own line was wrong, and where does it come from? Texts for `exceptions.py`.

Python's message names the type of the failure, and the line of code the value.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable
from dataclasses import replace

from mgpu.check import Fix
from mgpu.command_line import Code, python
from mgpu.notebook_cells import without_cells
from mgpu.snapshot import Log, UncaughtException

from ._array_attributes import lacks_attribute
from ._cached_samples import of_cached_samples
from ._caught_before import consequence_of_caught
from ._cut_samples import cut_within_image
from ._divisions import emptied_length, zero_divisor, zero_share
from ._followed_values import origin, subscript
from ._functions_as_values import function_as_value
from ._labels_of_losses import other_shape
from ._lists_as_values import list_as_value
from ._literal_unpacking import unpacked_literal
from ._messages import first_of_empty, short_name
from ._methods_of_datasets import no_method_of_dataset, split_as_sample
from ._missing_gradients import no_gradients
from ._missing_settings import missing_in_config
from ._next_items import used_up, without_parameters
from ._opencv import refused_array
from ._optimizer_state import state_of_other_parameters
from ._own_arguments import not_a_size, path_that_is_none
from ._own_calls import given_twice, not_pickled
from ._own_checks import endless_recursion, stopped_by_itself
from ._own_objects import NAME, PLAIN, Meaning, lacks, other_type, too_short
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
from ._table_keys import computed_key, other_literal
from ._tokenizer_files import without_file
from ._trainer_arguments import wrong_argument
from ._trainer_attributes import gone_from_trainer
from ._uncollated_samples import ended_file, uncollated
from ._values_that_are_none import CONFIGS, is_setting, none_in_package, value_is_none
from ._wrong_calls import call_that_does_not_fit, wrong_call
from ._wrong_kinds import too_large_at_once, wrong_kind

_KEYS = tuple(
    re.compile(rf"(?P<of>{PLAIN}(?:\(\))?(?:\[[^\[\]]+\]){{{depth}}})\[(?P<key>[^\[\]]+)\]") for depth in range(4)
)
_BATCHES = re.compile(
    r"(?:^|\.|_)(?:batch|row|sample|item|example|inputs?|features?|record|data|elem|entry|ex|x|b)\w*$"
)
_UNPACK = re.compile(r"^(?:for )?(?P<names>[\w.*\[\]', ]+?)(?: = | in )(?P<value>.+)$")
_OF_DATA = re.compile(r"(?!for ).* = (?:batch|data|samples?|items?)\w*$")
_COUNTS = re.compile(r"\(expected (?:at least )?(?P<wanted>\d+)(?:, got (?P<got>\d+))?\)")
_WORD = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"")
_WORDS_OF_COMMAND = re.compile(rf"\[(?:(?:{_WORD.pattern})(?:, (?!\]))?)+\]")
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
    if not one.place or one.packages[-1:] != ("",):
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


def _print_keys(name: str) -> Code:
    """Return the line that prints the keys of a name, or of what a function without arguments returns."""
    return (
        python("print({:dotted}.keys())", name)
        or python("print({:dotted}().keys())", name.removesuffix("()"))
        or python("print(item.keys())")
    )


def _get(name: str, key: str) -> Code:
    """Return the line that reads a key, as Python's message shows it, with a default."""
    text = python("{:dotted}.get('{:id}', DEFAULT)", name, key.strip("'\"")) or python("section.get(KEY, DEFAULT)")
    return text if key[:1] in "'\"" else python("{:dotted}.get({:number}, DEFAULT)", name, key)


def _missing_key(name: str, key: str, one: UncaughtException, index: str) -> Meaning:
    """Explain a key that a batch, a config or something else does not have; `index`: as the line writes it."""
    if value := _setting_as_key(one, index):
        return _not_in_table(name, key, one, *value)
    printed = Fix("Print what it has, before that line.", (_print_keys(name),))
    of = name.partition("[")[0]
    if _BATCHES.search(of):
        return Meaning(
            f"{name} has no key {key}: the dataset or the collate function does not make it ({_at(one)})",
            "The data has other columns than the script reads: another dataset or split, a renamed column, a collate "
            "function that drops it, or Trainer, which removes the columns that forward() does not name "
            "(remove_unused_columns).",
            (printed, Fix(f"Use the key that the data has, or add {key} where the samples are made.")),
            of_code=False,
        )
    if CONFIGS.search(of):
        return Meaning(
            f"{name} has no key {key}: it is missing in the config ({_at(one)})",
            "The config was written for another version of the script, the section is another one, or the key is "
            "misspelled in one of the two.",
            (Fix(f"Add {key} to the config, or read it with a default.", (_get(name, key),)), printed),
        )
    return Meaning(
        f"{name} has no key {key} ({_at(one)})",
        "What fills it does not make this key: another version of the data or the config, a misspelled name, or a case "
        "that was not added to a table.",
        (printed, Fix(f"Use a key that it has, or add {key} where {name} is made.")),
    )


def _setting_as_key(one: UncaughtException, index: str) -> tuple[str, str] | None:
    """Return the setting that a line looks up in a table, and the place where it is read; None if it is no setting."""
    found = origin(one, index)
    if found is None or not found.own or not re.fullmatch(NAME, found.expression):
        return None
    return (found.expression, found.call.place) if is_setting(found.expression) else None


def _not_in_table(table: str, key: str, one: UncaughtException, setting: str, place: str) -> Meaning:
    """Explain the value of a setting for which a table of the code has no entry."""
    passed = f" {place} passes it on." if place != one.place else ""
    return Meaning(
        f"{setting} is {key}, and {table} has no entry of that name ({_at(one)})",
        f"{table} has an entry for each name that the code knows: a model, a data set, a loss, a kind of task. This "
        f"run's setting is not one of them: it is misspelled, of another version of the code, or its entry is added by "
        f"a module that was not imported.{passed}",
        (
            Fix("Print the names that it has, before that line.", (_print_keys(table),)),
            Fix(f"Set {setting} to one of them, or add an entry for {key}."),
        ),
    )


def _key(one: UncaughtException) -> Meaning | None:
    if short_name(one.type) != "KeyError" or not one.message:
        return None
    key = one.message
    if (one.raised_in or "").startswith("pandas/"):
        return Meaning(
            f"the table has no column {key} ({_at(one)})",
            "The file has other columns than the script reads: another version of the data, a space or capital letters "
            "in the header, another separator, or a column that an earlier line removed or renamed.",
            (Fix("Print the columns before that line.", ("print(df.columns.tolist())", "head -n 2 FILE")),),
        )
    own = one.packages[-1:] == ("",)
    code = (one.code if own and not _raised_by_python(one) else one.own_code) or ""
    if own and code == one.code and (marked := subscript(one)) and not other_literal(marked[1], key):
        return _missing_key(marked[0], key, one, marked[1])
    read = [match for depth in _KEYS for match in depth.finditer(code)]
    found = [match for match in read if match["key"].strip("'\"") == key.strip("'\"")]
    if own and not found:
        if computed := computed_key(one, code):
            return computed
        found = [match for match in _KEYS[0].finditer(code) if not other_literal(match["key"], key)]
    reads = own or (one.raised_in or "").endswith((" in __getitem__", " in pop", " in __missing__"))
    if len(found) != 1 or not reads:
        return None
    return _missing_key(found[0]["of"], key, one, found[0]["key"].strip())


def _unpacked(one: UncaughtException) -> Meaning | None:
    if "values to unpack" not in one.message or not (found := _UNPACK.match(one.code or "")):
        return None
    counts = _COUNTS.search(one.message)
    value, names = found["value"].partition("  #")[0].rstrip(": "), found["names"].strip()
    wanted = counts["wanted"] if counts else str(names.count(",") + 1)
    got = counts["got"] if counts and counts["got"] else ("fewer" if "not enough" in one.message else "more")
    plural = "" if got == "1" else "s"
    if (one.code or "").startswith("for "):
        return _unpacked_items(value, f"{got} part{plural}, and the loop at {one.place} expects {wanted} ({names})")
    return Meaning(
        f"{value} gives {got} value{plural}, and {_at(one)} expects {wanted} ({names})",
        "What is on the right returns another number of values than the names on the left: a model or a dataset of "
        "another version, an option that adds or removes an output (return_dict, a mask, lengths), or a batch that was "
        "not collated.",
        (
            Fix(
                f"Keep what {value} gives in one variable (out), print it, and take that many values.",
                ("print(type(out), len(out))",),
            ),
            Fix("Outputs of transformers are objects: read them by name.", ("out = model(**batch); loss = out.loss",)),
        ),
    )


def unpacked_batch(one: UncaughtException) -> Meaning | None:
    """Return what a line means that takes a batch apart, also in a package: the data has another form."""
    one = replace(one, place=one.raised_in)  # not the script's call
    return _unpacked(one) if _OF_DATA.match(one.code or "") else None


def _unpacked_items(value: str, numbers: str) -> Meaning:
    """Explain a loop over items that have another number of parts than the names in front of `in`."""
    return Meaning(
        f"an item of {value} has {numbers}",
        "What fills it adds items of another form: another version of the data set or of a file, a function that "
        "returns one value more or less, or single items that lack a field.",
        (
            Fix(
                "Print the first item, and take as many parts as it has.",
                (python("print(next(iter({:dotted})))", value),),
            ),
            Fix(
                "If only some differ, compare the lengths of all of them.",
                (python("print({{len(x) for x in {:dotted}}})", value),),
            ),
        ),
    )


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
        "The line needs at least one item. Usually a folder, a pattern of file names, a filter, a split or a rank's "
        "share of the data has no samples, or a loop that fills it did not run.",
        (
            Fix(
                f"Print the length of {name} on every rank, where it is filled.",
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
    how = {"Tensor": "value.tolist()", "ndarray": "value.tolist()", "PosixPath": "str(value)"}.get(
        found["type"], "float(value)"
    )
    return Meaning(
        f"a {found['type']} is written as JSON, which has no such type ({_at(one)})",
        "json.dump accepts numbers, texts, lists and dicts of Python only. Metrics and configs often hold tensors, "
        "numpy values or paths.",
        (Fix("Convert it before, or let json convert what it does not have.", (how, "json.dump(x, f, default=str)")),),
    )


def _printed_none(one: UncaughtException) -> Meaning | None:
    if not one.message.startswith("unsupported format string passed to NoneType") or not _PRINT.search(one.code or ""):
        return None
    names = re.findall(rf"\{{({NAME}):", one.code or "")
    name = names[0] if len(names) == 1 else "a value that the line formats"
    return Meaning(
        f"{name} is None ({_at(one)})",
        "The line formats it as a number. It was not computed: no step or evaluation ran, or only rank 0 has it.",
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
    lacks_attribute,
    uncollated,
    ended_file,
    _key,
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
    _unpacked,
    used_up,
    _empty,
    too_short,
    other_type,
    _printed_none,
    endless_recursion,
    stopped_by_itself,
)
