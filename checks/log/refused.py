"""Did an installed package reject the settings it was given, in its own words?"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.command_line import shell
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import listed

from .. import _conditions as conditions
from .. import _option_relations as relations
from .. import _package_mistakes as mistakes
from .. import _version_skew as skew
from . import _refused_values as values
from ._messages import short_name, whole_message
from .exceptions import has_signature

_TYPES = frozenset({"ValueError", "AssertionError", "NotImplementedError", "RuntimeError", "TypeError", "Exception"})
_OWN_TYPES = re.compile(r"(?:Config\w*|Validation|Setting\w*|Argument\w*|Incompatible\w*|Unsupported\w*)(?:Error)?$")


class _Validator(NamedTuple):
    """The part of a package that checks settings before training."""

    where: str  # searched in `UncaughtException.raised_in`
    who: str
    what: str
    fix: str


# fmt: off
_VALIDATORS = (
    _Validator(r"^megatron/training/\w*arguments\.py|^megatron/training/initialize\.py|^megatron/core/\S*config\w*\.py"
               r"|^megatron/core/parallel_state\.py",
               "Megatron", "the combination of arguments",
               "Change the arguments that the message names (--tensor-model-parallel-size and so on)."),
    _Validator(r"^megatron/bridge/\S*config\w*\.py", "Megatron-Bridge", "its config",
               "Change the fields that the message names."),
    _Validator(r"^deepspeed/runtime/(?:\w+/)?(?:\w*config\w*|lr_schedules)\.py"
               r"|^deepspeed/\S+ in _(?:do\w*(?:check|assertion)|batch_assertion|configure\w*|initialize_params)",
               "DeepSpeed", "its config", "Change the keys that the message names in the DeepSpeed JSON file."),
    _Validator(r"^deepspeed/launcher/", "DeepSpeed's launcher", "its options or host file",
               "Change the option or the line of the host file that the message names."),
    _Validator(r"^deepspeed/elasticity/", "DeepSpeed's elasticity", "its config",
               "Change the elasticity section of the DeepSpeed JSON file, or turn it off."),
    _Validator(r"^torchtitan/(?:config\w*|distributed/parallel_dims|config/\w+)\b", "torchtitan", "its config",
               "Change the fields that the message names in the job's config."),
    _Validator(r"^torch/distributed/(?:device_mesh|fsdp/\S*init\w*|fsdp/_fully_shard/\w+|tensor/parallel/\S+)\.py",
               "torch", "how the model or the mesh is set up", "Change the call that the traceback shows."),
    _Validator(r"^transformer_engine/", "Transformer Engine", "the inputs or the settings of a layer",
               "Change the setting that the message names, or use another implementation of the layer."),
)
# fmt: on
_OF_SETTINGS = re.compile(
    r"/\S*(?:config|argument|args|param_dims|options|validat)\w*\.py in "
    r"|\.py in (?:__post_init__|_?validate\w*|_?check_\w*|_?verify\w*|parse_args\w*|_?sanity_check\w*|"
    r"(?:model_)?post_init|_?ensure_\w*)$"
)
_NOT_INSTALLED = re.compile(
    r"\bpip3? install\b|\b(?:is|are) not installed\b|\b[Pp]lease install\b|\bnot found\. Install"
)
# What a message says that pip should install, as `pip install -U X`. Addresses are only shown in the message itself.
_TO_INSTALL = re.compile(
    r"\bpip3? install (?P<options>(?:(?:-U|--upgrade|-q|--no-cache-dir|--no-build-isolation) )*)"
    r"(?P<packages>['\"]?[A-Za-z][\w.\[\],<>=!~*-]*['\"]?(?: ['\"]?[\w.\[\],<>=!~*-]+['\"]?)*(?=`)|"
    r"['\"]?[A-Za-z][\w.\[\],<>=!~*-]*)(?![\w:/@+])"
)
# Python's own refusals of a call. The code that checks settings is then at fault, or a package of another version.
_OF_CALL = re.compile(r"^[\w.<>]+\(\) (?:missing \d+ required |takes \S+ positional |got multiple values for )")
_LEAST_WORDS = 3  # a message that says what is wrong


def _validator(one: UncaughtException) -> _Validator | None:
    """Return which package rejected what, if the exception was raised by code that checks settings."""
    where = one.raised_in or ""
    if short_name(one.type) == "TypeError" and _OF_CALL.search(one.message):
        return None
    if mistakes.asserts_its_own_state(one):
        return None
    for known in _VALIDATORS:
        if re.search(known.where, where):
            of_kernel = where.startswith("transformer_engine/") and one.type == "RuntimeError"  # CUDA, cuBLAS, cuDNN
            return None if of_kernel else known
    package = one.packages[-1] if one.packages else ""
    if not package or package in ("torch", "pydantic", "numpy"):
        return None
    if not _OF_SETTINGS.search(where) and not conditions.of_settings(one.message):
        return None
    return _Validator(
        "",
        skew.distribution(package),
        "the settings that the run gives it",
        "Change the setting that the message names.",
    )


def _said(one: UncaughtException) -> bool:
    """Whether the exception says what is wrong, in words or by the assertion that failed, and no table knows it."""
    short = short_name(one.type)
    in_words = len(one.message.split()) >= _LEAST_WORDS or conditions.of_settings(one.message)
    return (
        (short in _TYPES or bool(_OWN_TYPES.search(short))) and in_words and not has_signature(one) and not one.caught
    )


_OF_VERSION = re.compile(r"\bversion \d[\w.]* or (?:higher|newer|later|above)|requires? \S+ ?>=? ?\d", re.I)


def _newer(one: UncaughtException) -> Fix | None:
    """Return the fix for a package that requires a newer version of something; None if the message is not about one."""
    if not _OF_VERSION.search(one.message):
        return None
    return Fix("Install the version that the message requires, or turn off the feature that needs it.", ("pip check",))


def _of_condition(found: _Validator, failed: conditions.Condition | None) -> Fix | None:
    """Return which settings to change for a condition without a message, as the command line names them."""
    if failed is None or not failed.settings:
        return None
    names = [f"--{name.replace('_', '-')}" if found.who == "Megatron" else name for name in failed.settings]
    return Fix(f"Change {listed(names)}, so that the condition is true.")


def _unexplained(log: Log) -> Iterator[UncaughtException]:
    """Yield the exceptions up to the first that a table knows: what follows that one can be its consequence."""
    for one in log.raised:
        if has_signature(one) and not one.caught:
            return
        yield one


def _problem(one: UncaughtException, title: str, cause: str, *fixes: Fix) -> Problem:
    return Problem(
        title,
        cause,
        fixes,
        {
            "line": whole_message(one),
            "exception": one.type,
            "raised_in": one.raised_in,
            "place": one.place,
            "rank": one.rank,
            "at": one.at,
        },
        tuple(f"rank {rank}" for rank in one.ranks),
        Place(one.file, one.line),
    )


@check(
    Severity.ERROR,
    source="https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception", "log_packages_do_not_fit"),
)
def log_settings_rejected(log: Log) -> Answer:
    """A package rejected the settings it was given.

    Why: Frameworks check their settings before training starts. The message names the settings that are invalid, or
    that contradict each other or the number of ranks.

    Fix: Change the settings that the message names.
    """
    for one in _unexplained(log):
        if not _said(one) or (found := _validator(one)) is None:
            continue
        if meant := values.explain(one, found.who):
            return _problem(one, meant.title, meant.why, *meant.fixes)
        failed = conditions.explain(one.message)
        asserted = f' The message is only its condition: "{one.message}".' if failed else ""
        return _problem(
            one,
            f"{found.who} rejects {found.what}: {failed.text if failed else one.message}",
            f"The check is in {one.raised_in}. It is about the settings and the software, not about one rank or GPU."
            f"{asserted}",
            _newer(one) or relations.fix_of(one.message) or _of_condition(found, failed) or Fix(found.fix),
        )
    return Ok(f"no settings were rejected in {log.lines:,} lines")


@check(
    Severity.ERROR,
    source="https://packaging.python.org/en/latest/tutorials/installing-packages/",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception", "log_settings_rejected", "log_packages_do_not_fit"),
)
def log_package_wanted(log: Log) -> Answer:
    """A package needs another package that is not installed, and its message says which.

    Why: The package is optional. It is needed only for the option, the model or the optimizer of this run.

    Fix: Install it in the environment of the ranks, or turn off the option that needs it.
    """
    for one in _unexplained(log):
        short = short_name(one.type)
        said = _said(one) or (short in ("ImportError", "ModuleNotFoundError") and not one.signatures and not one.caught)
        if said and _NOT_INSTALLED.search(one.message):
            return _problem(
                one,
                f"a package that this run needs is not installed: {one.message}",
                f"It is optional, and needed for an option of this run. The check is in {one.raised_in or one.place}.",
                Fix(
                    "Install it into the Python that the ranks use, or turn off the option that needs it.",
                    (*_to_install(one), "which python", "pip check"),
                ),
            )
    return Ok(f"no such message in {log.lines:,} lines")


def _to_install(one: UncaughtException) -> tuple[str, ...]:
    """Return the command that the message gives for pip, for the Python that runs here."""
    if not (found := _TO_INSTALL.search(f"{one.message} {one.more or ''}")):
        return ()
    upgrade = "--upgrade " if re.search(r"-U|--upgrade", found["options"]) else ""
    build = "--no-build-isolation " if "isolation" in found["options"] else ""
    packages = [word.strip("'\"").rstrip(".,-") for word in found["packages"].split()]
    command = shell(f"python -m pip install {upgrade}{build}{{:package}}", packages)
    return (command,) if command else ()


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/os.html#os.environ",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_environment_variable_missing(log: Log) -> Answer:
    """The script, or a package, reads an environment variable that is not set.

    Why: Variables set in a shell do not reach ranks on other nodes, in containers, under sudo, or in Slurm jobs with
    --export=NONE. Other launchers and frameworks set other variables.

    Fix: Set it where the ranks start, or read it with a default.
    """
    for one in _unexplained(log):
        if one.raised_in != "os.environ" or one.type != "KeyError" or one.signatures or one.caught:
            continue
        name = one.message.strip("'\"")
        readers = [skew.distribution(package) for package in one.packages if package]
        return _problem(
            one,
            f"the environment variable {name} is not set",
            f"{readers[-1] if readers else 'The script'} reads it without a default. Variables of a shell do not reach "
            "ranks on other nodes, in containers, under sudo, or in Slurm jobs with --export=NONE.",
            Fix(
                "Set it where the ranks start, or read it with a default.",
                (shell("export {:name}=VALUE", name), "mgpu launch --dry-run train.py"),
            ),
        )
    return Ok(f"no environment variable was missing in {log.lines:,} lines")
