"""Was a path empty, a folder where a file is needed, or a file where a folder is?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Fix
from mgpu.command_line import shell
from mgpu.signature import Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._file_call_cases import FOLDER_REMOVED_AS_FILE, RENAMED_ONTO_FILE, RENAMED_ONTO_FOLDER

_PYTHON = "https://docs.python.org/3/library/exceptions.html#os-exceptions"
# The option that the script's line reads: "args.yaml_config", "cfg['data']['path']", "FLAGS.ckpt".
_OPTION = re.compile(
    r"\b(?:args|arg|opts?|cfg|conf|config|params|FLAGS|hparams|self\.(?:args|cfg|config))\.(?P<name>\w+)"
    r"(?![\w(.])|\b(?:args|cfg|config)\[['\"](?P<key>\w+)['\"]\]"
)


def option_read(one: UncaughtException | None) -> str | None:
    """Return the option that the line reads which raised the exception; None without one."""
    for code in reversed(one.own_lines) if one else ():
        if found := _OPTION.search(code):
            return found["name"] or found["key"]
    return None


def _folder(groups: Mapping[str, str], one: UncaughtException | None) -> Meaning | None:
    path, name = groups["path"], option_read(one)
    if name is None:
        return None
    return Meaning(
        f"the option {name} names a folder ({path}), and the script opens it as a file",
        "The value is probably empty or cut off: os.path.abspath('') and a path that ends before its file name are "
        "folders. If the shell builds it from a variable, the variable is not set in this job.",
        (
            Fix(
                f"Check what the job passes as {name}, and pass the file.",
                (shell("--{:name} FILE", name), shell("ls -la {:path}", path)),
            ),
        ),
    )


# fmt: off
ROWS = (
    Row("log_folder_read_as_file", "root", "script",
        r"IsADirectoryError: (?:\[Errno 21\] )?Is a directory: '(?P<path>[^']+)'",
        ("IsADirectoryError: [Errno 21] Is a directory: '/home/ada/run'",),
        "the script opens a folder as if it were a file: {path}",
        "The file name is missing at its end: an option is empty (the path of an empty name is the current folder), or "
        "the option wants a file, and names the folder that holds it.",
        Fix("Pass the file.", ("ls -la {path:path}",)), _PYTHON,
        summary="The script opens a folder as if it were a file.", explain=_folder,
        cases=(RENAMED_ONTO_FOLDER, FOLDER_REMOVED_AS_FILE)),
    Row("log_file_read_as_folder", "root", "script",
        r"NotADirectoryError: \[Errno 20\] Not a directory: '(?P<path>[^']+)'",
        ("NotADirectoryError: [Errno 20] Not a directory: '/data/train.json'",),
        "the script uses a file as if it were a folder: {path}",
        "The option wants a folder (of images, shards, a model), and names one file in it; or an archive was not "
        "unpacked.",
        Fix("Pass the folder.", ("ls -ld {path:path} {path:folder}",)), _PYTHON,
        summary="The script uses a file as if it were a folder.", cases=(RENAMED_ONTO_FILE,)),
    Row("log_path_empty", "root", "script",
        r"FileNotFoundError: \[Errno 2\] No such file or directory: (?:''|\"\"|PosixPath\(''\))",
        ("FileNotFoundError: [Errno 2] No such file or directory: ''",),
        "the script opens a file whose path is empty",
        "An option or a variable of the shell is not set: a misspelled $NAME in a job script becomes an empty text. "
        "os.makedirs(os.path.dirname('model.pt')) fails in the same way: a plain file name has no folder.",
        Fix("Let the job script stop at variables that are not set, and print what it passes.",
            ("set -u", "echo python train.py ...")), _PYTHON),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
