"""Did the script's own code fail in a way that Python's message and the line of code explain?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Place, Problem, Severity, check
from mgpu.notebook_cells import without_cells
from mgpu.snapshot import Log, UncaughtException

from ._messages import of_own_line, short_name, whole_message
from ._methods_not_defined import without_method
from ._names_not_set import Answered, consequence
from ._opencv import is_unread_image, unopened_images
from ._undefined_names import name_without_value
from .exceptions import unknown_exceptions

_LOADED = r"\w*(?:state_dict|checkpoint|ckpt|chkpt|snapshot|saved|state)\w*"
_SURELY_LOADED = re.compile(r"checkpoint|ckpt|chkpt|snapshot|state_dict|torch\.load")
_LOADS_STATE = re.compile(r"\b(?:torch\.load|load_state_dict|load_checkpoint|load_weights|restore)\(")
_ENTRY = re.compile(rf"\b(?P<of>{_LOADED}|torch\.load\([^)]*\))\[['\"](?P<key>[^'\"]+)['\"]\]")
_LOADS = re.compile(r" in \w*(?:load|resume|restore)\w*$")
_LOADS_TRAINING = re.compile(r" in \w*(?:resume|restore|load_?\w*(?:model|weight|state|check|ckpt|optim))\w*$")


def _of_checkpoint(one: UncaughtException, name: str) -> bool:
    """Whether what the line reads an entry of is a checkpoint: it is called so, or the code loads a training there."""
    if _LOADS_STATE.search(one.code or "") or any(map(_LOADS_TRAINING.search, one.frames[-4:])):
        return True
    return bool(_SURELY_LOADED.search(name)) and any(map(_LOADS.search, one.frames[-4:]))


def _problem(one: UncaughtException, meant: Answered) -> Problem:
    line = f' The line is "{one.code}".' if one.code and not one.code.startswith("raise") else ""
    return Problem(
        meant.title,
        f"{meant.cause}{line}",
        without_cells(meant.fixes),
        {"line": whole_message(one), "exception": one.type, "place": one.place, "rank": one.rank, "at": one.at},
        tuple(f"rank {rank}" for rank in one.ranks),
        Place(one.file, one.line),
    )


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/exceptions.html#NameError",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_name_without_value(log: Log) -> Answer:
    """The script uses a name that has no value: a variable that was not set, or something that was not imported.

    Why: Python looks names up when the line runs. A mistake shows only after everything before that line was done, on
    every rank that runs the line.

    Fix: Set or import the name. A linter finds such names without a GPU.
    """
    for one in unknown_exceptions(log):
        if of_own_line(one) and (meant := consequence(one, log) or name_without_value(one)):
            return _problem(one, meant)
    return Ok(f"no such exception in {log.lines:,} lines")


@check(
    Severity.ERROR,
    source="https://docs.python.org/3/library/exceptions.html#NotImplementedError",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception",),
)
def log_not_implemented(log: Log) -> Answer:
    """The code reached a case for which it has no implementation.

    Why: The line raises NotImplementedError without a message. It marks a value that no branch above it handles (a
    name of a dataset, a model type, a mode), or a method that a subclass has to define.

    Fix: Read the branches above the line. Pass a value that they handle, or add one for yours.
    """
    for one in unknown_exceptions(log):
        where = one.raised_in or one.place
        if short_name(one.type) != "NotImplementedError" or one.message or one.more or not where:
            continue
        return _problem(one, _of_reward(one) or without_method(one) or _of_case(one, where))
    return Ok(f"no such exception in {log.lines:,} lines")


_REWARD = re.compile(r"reward_score|compute_score|reward_f(?:n|unc)|/reward\w*\.py")


def _of_reward(one: UncaughtException) -> Answered | None:
    if not any(_REWARD.search(frame) for frame in one.frames[-2:]):
        return None
    return Answered(
        f"there is no reward function for the data_source of this dataset ({one.library or one.place})",
        "The reward of a sample is chosen by the column data_source of the dataset (openai/gsm8k, ...). The function "
        "has no branch for the name in this dataset, so it raises NotImplementedError without a message.",
        (
            Fix(
                "Give the run a reward function of your own.",
                ("custom_reward_function.path=reward.py custom_reward_function.name=compute_score",),
            ),
            Fix(
                "Or set data_source to a name that has a branch, or add a branch for yours. See which one it has:",
                ("python -c \"import pandas as p; print(p.read_parquet('train.parquet').data_source.unique())\"",),
            ),
        ),
    )


def _of_case(one: UncaughtException, where: str) -> Answered:
    function = where.partition(" in ")[2] or where
    called = f' Your own line is "{one.own_code}" ({one.place}).' if one.own_code and not of_own_line(one) else ""
    return Answered(
        f"{function} has no implementation for what this run asks of it ({one.library or one.place})",
        f"The line raises NotImplementedError without a message: no branch above it handles the value that it got (a "
        f"name, a type, a mode of the config), or a subclass does not define the method.{called}",
        (
            Fix("Read the branches above that line. Pass a value that one of them handles, or add a branch for yours."),
            Fix("If it is an abstract method, define it in your subclass, with exactly this name."),
        ),
    )


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/tutorials/beginner/saving_loading_models.html",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception", "log_framework_failed", "log_packages_do_not_fit"),
)
def log_checkpoint_lacks_entry(log: Log) -> Answer:
    """A checkpoint was loaded, but does not have an entry that the code reads.

    Why: Another program, release or mode saved it (weights only, another framework's format), or it is incomplete. A
    checkpoint that only some ranks saved, or a part that another rank holds, has other entries.

    Fix: Print its entries, and load it with the code that saved it.
    """
    for one in unknown_exceptions(log):
        found = _ENTRY.search(one.code or "") if short_name(one.type) == "KeyError" else None
        if not found or not _of_checkpoint(one, found["of"]):
            continue
        first = re.match(r"KeyError: '?(?P<key>[\w.]+)'?$", one.cause or "")
        keys = f"{first['key']} nor {found['key']}" if first and first["key"] != found["key"] else found["key"]
        neither = "neither " if " nor " in keys else "no "
        return _problem(
            one,
            Answered(
                f"the loaded checkpoint has {neither}{keys}: it is incomplete, or was saved by other code",
                f"{one.library or one.place} reads {found['of']}['{found['key']}']. A checkpoint of another "
                f"framework or "
                "release, one with weights only, or a file of one rank or of another stage has other entries.",
                (
                    Fix(
                        "Print what it has, and compare with what the code expects.",
                        (
                            "python -c \"import torch; print(torch.load('CHECKPOINT', map_location='cpu', "
                            'weights_only=False).keys())"',
                            "ls -la CHECKPOINT_FOLDER",
                        ),
                    ),
                    Fix(
                        "To use only its weights, leave out what resumes the training state, or start from an earlier, "
                        "complete checkpoint."
                    ),
                ),
            ),
        )
    return Ok(f"no such exception in {log.lines:,} lines")


# Libraries that read one file of a dataset: an audio, an image, a video, an archive, an array.
_READERS = re.compile(
    r"^(?:soundfile|audioread|PIL|av|decord|cv2|h5py|zipfile|tarfile|gzip|lzma|bz2|lmdb|imageio|rasterio|nibabel|pydicom"
    r"|torchcodec|webdataset|msgpack|zarr|netCDF4)\b|(?:LibsndfileError|DECORDError|BadZipFile|BadGzipFile|LZMAError"
    r"|UnidentifiedImageError|NoBackendError)$"
)
_CUT_FILE = re.compile(
    r"[Tt]runcated [Ff]ile|file truncated|broken data stream|unrecognized data stream|Unable to (?:synchronously "
    r")?open "
    r"(?:file|object)|Failed to (?:open|decode|load) (?:the )?(?:video|audio|image|file)|Error opening '|Format not "
    r"recognised|moov atom not found|invalid load key|Compressed file ended before|not a (?:gzip|zip) file"
    r"|Invalid data found when processing input|cannot reshape array of size \d+ into shape .*memmap|pickle data was "
    r"trunc"
)
_PATH_IN = re.compile(r"['\"](?P<path>/?[\w.@+-]*/[^'\"]+|[^'\"/\s]+\.\w{2,5})['\"]")


@check(
    Severity.ERROR,
    source="https://docs.pytorch.org/docs/stable/data.html",
    role="root",
    kind="script",
    tags=("precise",),
    same_as=("log_exception", "log_loader_exception", "log_packages_do_not_fit", "log_settings_rejected"),
)
def log_sample_not_readable(log: Log) -> Answer:
    """A file of the dataset could not be read or decoded.

    Why: One file is damaged, cut off, empty or of another format than its name says, or the decoder on this node does
    not support it. The rank that got this sample fails, and the others wait for it.

    Fix: Find the file, and repair or drop it. Let the dataset skip files that cannot be read, and print their names.
    """
    for one in unknown_exceptions(log):
        text = f"{one.message} {one.more or ''}"
        if not (_READERS.search(one.type) or (one.loader and _CUT_FILE.search(text))):
            continue
        if one.type == "cv2.error" and not is_unread_image(text):
            continue
        if meant := unopened_images(one, log):
            return _problem(one, Answered(meant.title, meant.why, meant.fixes))
        named = _PATH_IN.search(text)
        what = f": {named['path']}" if named else ", whose name the message does not have"
        who = "a DataLoader worker" if one.loader else one.place or "the script"
        short = short_name(one.type)
        return _problem(
            one,
            Answered(
                f"{who} could not read a file of the dataset ({short}){what}",
                "The file is damaged, cut off, empty, missing on this node, or of another format than its name says. "
                "Only the rank that got this sample fails; it can happen in any epoch, because the order is random.",
                (
                    Fix(
                        "Let the dataset name the file and skip it: return the next sample instead.",
                        ("try: x = read(path)", "except Exception as e: print('cannot read', path, repr(e))"),
                    ),
                    Fix(
                        "Read all files once, without training, to find them. Zero bytes are the most frequent fault.",
                        ("find DATA_FOLDER -type f -size -1k | head",),
                    ),
                ),
            ),
        )
    return Ok(f"no such exception in {log.lines:,} lines")
