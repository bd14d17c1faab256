"""Did packages fail among themselves, in code that no script of the user's is part of?"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.snapshot import Log, UncaughtException
from mgpu.text import listed

from .. import _package_mistakes as mistakes
from .. import _version_skew as skew
from ._first_of_chain import in_handler
from ._keys_as_attributes import lacking_key
from ._messages import first_of_empty, short_name
from ._refused_by_programs import refused_by_program
from ._refused_inputs import refused_input
from ._trainer_arguments import wrong_argument
from ._values_that_are_none import name_of_none, none_in_package
from .exceptions import has_signature, unknown_exceptions
from .versions_shown import version_in

_WRONG_VALUES = frozenset({"AttributeError", "KeyError", "IndexError", "TypeError"})
_OF_NONE = re.compile(r"'NoneType'|^None$")
# Frames that work on the user's data: what fails there is a column, a sample or a file, not a release.
_OF_DATA = re.compile(r"collat|/data(?:sets?|_utils|loader)?/|dataset|tokeniz|processing_|sampler|template|reward")
# Containers of two kinds, which the package's own code combines.
_MIXED = re.compile(r"unsupported operand type\(s\) for \S+: '(?:list|set|dict|tuple)' and '(?:list|set|dict|tuple)'")
_FIELD = re.compile(r"'[A-Za-z_]\w*'$")
_PASSED = re.compile(r"\badded_cond_kwargs\b")  # of diffusers: the script passes it, or forgot to
_SENTENCE = re.compile(r"(?:\b[A-Za-z][\w'-]* ){3}")
_LOOKS_UP = re.compile(r" in (?:__getitem__|__missing__|__delitem__|pop|_?get\w*|_raise_\w+|drop|reindex)$")
_OWN_KEYS = frozenset({"deepspeed", "accelerate", "megatron", "peft", "transformer_engine", "vllm", "sglang"})
_EVALUATES = re.compile(r"^(?:transformers|trl)/\S+ in (?:evaluate|evaluation_loop|prediction_step)$")
_EXCEPTIONS = ("Error", "Exception")
# Libraries of functions: they work on what the script's own line passes to them.
# fmt: off
_LIBRARIES = frozenset({
    "", "matplotlib", "seaborn", "plotly", "numpy", "pandas", "scipy", "sklearn", "skimage", "PIL", "cv2", "imageio",
    "torchvision", "albumentations", "kornia", "monai", "einops", "torchmetrics", "networkx", "librosa", "soundfile",
    "nltk", "gensim", "spacy", "xgboost", "lightgbm", "statsmodels", "gym", "gymnasium", "torch", "h5py", "trimesh",
    "open3d", "nibabel", "shapely", "geopandas", "rasterio",
})
# fmt: on
_PLAIN = re.compile(
    r"'(?:NoneType|str|int|float|bool|list|tuple|dict|set)' object|unsupported operand|not subscriptable"
)


def with_versions(log: Log, packages: Iterable[str]) -> list[str]:
    """Return the packages as pip names them, with the version if the log shows it: "ms-swift 3.2.1"."""
    return [" ".join(filter(None, (skew.distribution(one), version_in(log, one)))) for one in packages]


def _title(one: UncaughtException, log: Log, packages: tuple[str, ...]) -> str | None:
    """Return what probably is wrong; None if it may as well be the user's settings or data."""
    inner = with_versions(log, packages[:1])[0]
    if mistakes.asserts_its_own_state(one):
        failed = (
            f"a check of {skew.distribution(packages[0])} on its own state failed{mistakes.doing(one)}: {one.message}"
        )
        if packages[1:]:
            return f"{listed(with_versions(log, reversed(packages)))} probably do not fit each other: {failed}"
        return f"probably a mistake in {inner}: {failed}"
    short = short_name(one.type)
    known = mistakes.refuses_in_words(one) or lacking_key(one) or _passed_by_script(one)
    if short not in _WRONG_VALUES or known:
        return None
    if lacks := mistakes.LACKS.match(one.message):
        return _of_attribute(one, log, packages, lacks["owner"], lacks["name"])
    if short == "KeyError" and _looked_up(one):
        return None
    empty = first_of_empty(one.code or "")
    if short == "IndexError" and empty and "out of range" in one.message:
        return f"{inner} got nothing to work on: {empty} is empty ({one.library or one.raised_in})"
    if short == "KeyError" and (_SENTENCE.search(one.message) or refused_by_program(one)):
        return None  # a check of the package, which says what is wrong
    named = short == "KeyError" and _FIELD.match(one.message) and packages[0] not in _OWN_KEYS
    if (
        _depends_on_data(one, log)
        or named
        or _PASSED.search(one.code or "")
        or not (short in ("AttributeError", "KeyError") or _OF_NONE.search(one.message) or _MIXED.search(one.message))
    ):
        return None
    return _in_own_code(one, inner)


def _passed_by_script(one: UncaughtException) -> bool:
    """Whether a library of functions failed on a plain value: it is probably one that the script's line passed."""
    return "" in one.packages and {*one.packages} <= _LIBRARIES and bool(_PLAIN.search(one.message))


def _looked_up(one: UncaughtException) -> bool:
    """Whether a package only looked up what the script's own line, or another package's, asked it for."""
    called = [call.place for call in one.calls if call.package == one.packages[-1]]
    only_there = bool(called) and all(map(_LOOKS_UP.search, called))
    return one.packages[-1] == "pandas" or ("" in one.packages and only_there)


def _depends_on_data(one: UncaughtException, log: Log) -> bool:
    """Whether it was raised while data was handled, or by one rank only, which is not the main one."""
    ranks = {
        rank for other in log.raised if (other.type, other.message) == (one.type, one.message) for rank in other.ranks
    }
    alone = len(ranks) == 1 and len(log.ranks) > 1 and 0 not in ranks
    return alone or one.loader or any(_OF_DATA.search(frame) for frame in one.frames[-4:])


def _in_own_code(one: UncaughtException, inner: str) -> str:
    failed = f"{short_name(one.type)}: {one.message}"
    if _OF_NONE.search(one.message) and not one.type.endswith("KeyError"):
        name = name_of_none(one, one.code or "")
        called = name is not None and f"{name}(" in (one.code or "") and "not callable" not in one.message
        which = f"{name}(), which returned None" if called else f"{name}, which is None"
        value = which if name else "a value that is None"
        return f"{inner} failed in its own code{mistakes.doing(one)}, on {value}: {failed}"
    return (
        f"{inner} failed in its own code{mistakes.doing(one)}, probably a mistake of this release or of its "
        f"combination with the other packages: {failed}"
    )


def _of_attribute(one: UncaughtException, log: Log, packages: tuple[str, ...], owner: str, name: str) -> str | None:
    """Return what is wrong if packages among themselves read an attribute that an object does not have."""
    inner = with_versions(log, mistakes.innermost(one)[:1])[0]
    if owner.endswith(_EXCEPTIONS):
        return f"{inner} took an exception for a result: the real failure is the {owner} before this"
    if owner == "NoneType":
        given = one.packages == ("", "transformers")  # the script calls a model: it may have passed None
        return None if given or _depends_on_data(one, log) else _in_own_code(one, inner)
    if mistakes.reads_its_own_attribute(one, name):
        return f"probably a mistake in {inner}: its class {owner} reads its own attribute {name}, which was never set"
    if packages[1:]:
        both = listed(with_versions(log, reversed(packages)))
        return f"{both} probably do not fit each other: {owner} has no {name}"
    if "" in one.packages and not mistakes.package_of_class(owner):
        return None  # possibly a class of the script's own
    return _in_own_code(one, inner)


def _cause(one: UncaughtException) -> str:
    when = ", in an evaluation" if _evaluates(one) else ""
    where = f"It was raised in {one.library or one.raised_in}{when}, and no code of a script is between these calls."
    if one.type.endswith("IndexError"):
        return f"{where} The list that it was given, or what it computed from it, has no elements."
    if _OF_NONE.search(one.message):
        return (
            f"{where} An option is not set, another package (also torch) returns nothing here in its installed "
            "version, or this release has a mistake for this combination of options."
        )
    return (
        f"{where} The release has a mistake for this combination of options, or the packages (also torch) were not "
        "tested together in these versions."
    )


def _evaluates(one: UncaughtException) -> bool:
    return any(_EVALUATES.search(frame) for frame in one.frames)


def _without_evaluation(one: UncaughtException) -> tuple[Fix, ...]:
    if not _evaluates(one):
        return ()
    return (
        Fix(
            "It failed in an evaluation: train without it until then, and evaluate a checkpoint later.",
            ("TrainingArguments(eval_strategy='no')",),
            kind="stopgap",
            caveat="The best checkpoint is not kept, and nothing shows whether the model still improves.",
        ),
    )


def _resume(one: UncaughtException) -> tuple[Fix, ...]:
    if not mistakes.doing(one).endswith("checkpoint"):
        return ()
    return (Fix("If the run need not continue exactly: load the weights without the optimizer's state."),)


def _hidden(one: UncaughtException) -> tuple[Fix, ...]:
    """Return what to look for first, if the exception only is a consequence of empty input or of another exception."""
    if one.type.endswith("IndexError"):
        return (
            Fix(
                "Check what the caller passes: a dataset split, an evaluator, a batch or a folder without samples, or "
                "a filter that removed all. Newer releases may accept empty input."
            ),
        )
    lacks = mistakes.LACKS.match(one.message)
    if lacks and lacks["owner"].endswith(_EXCEPTIONS):
        return (Fix(f"Find that {lacks['owner']} further up, in the log of the process that it belongs to."),)
    return ()


@check(
    Severity.ERROR,
    source="https://github.com/modelscope/ms-swift/issues/3500",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception", "log_packages_do_not_fit", "log_settings_rejected"),
)
def log_framework_failed(log: Log) -> Answer:
    """A package failed in its own code, called by another package, with none of the script's code between them.

    Why: It reads something that it, or the package that called it, should have set. It is a mistake in this release, or
    the two packages were not tested together.

    Fix: Install another release of the outer package, with the versions that its requirements name.
    """
    explained = min((one.line for one in log.raised if has_signature(one) and not one.caught), default=None)
    for one in unknown_exceptions(log):
        packages = mistakes.to_move(one)
        if explained is not None and explained < one.line and len(log.files) == 1:
            continue  # probably a consequence
        if one.signatures or not packages or not mistakes.within_packages(one) or in_handler(one):
            continue
        if refused_input(one) or none_in_package(one) or wrong_argument(one):
            continue  # what the script passes
        title = _title(one, log, packages)
        if title is None:
            continue
        return Problem(
            title,
            _cause(one),
            (
                *_hidden(one),
                *mistakes.fixes(*packages, beside="torch" in one.packages),
                *_resume(one),
                *_without_evaluation(one),
            ),
            {"exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
            tuple(f"rank {rank}" for rank in one.ranks),
            Place(one.file, one.line),
        )
    return Ok(f"no such exception in {log.lines:,} lines")
