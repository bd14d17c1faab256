"""Which name has no value when a line of the script reads it: is an import missing, `self.`, `global`, or a value?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.notebook_cells import is_cell
from mgpu.snapshot import UncaughtException

from ._messages import short_name
from ._missing_names import not_in_kernel, used_as_data, used_as_value
from ._names_not_set import Answered, unset_name
from ._own_objects import file_of

_UNDEFINED = re.compile(r"name '(?P<name>\w+)' is not defined(?:\. Did you mean: '(?P<like>[\w.]+)')?")
# Names that scripts use without importing them.
# fmt: off
_IMPORTS = {
    "np": "import numpy as np", "pd": "import pandas as pd", "plt": "import matplotlib.pyplot as plt",
    "dist": "import torch.distributed as dist", "nn": "from torch import nn", "F": "import torch.nn.functional as F",
    "DDP": "from torch.nn.parallel import DistributedDataParallel as DDP", "Path": "from pathlib import Path",
    "FSDP": "from torch.distributed.fsdp import FullyShardedDataParallel as FSDP", "tqdm": "from tqdm import tqdm",
    "timedelta": "from datetime import timedelta", "partial": "from functools import partial",
    "DistributedSampler": "from torch.utils.data.distributed import DistributedSampler",
    "DataLoader": "from torch.utils.data import DataLoader", "autocast": "from torch.amp import autocast",
    "Optional": "from typing import Optional", "List": "from typing import List", "Dict": "from typing import Dict",
    "Union": "from typing import Union", "Any": "from typing import Any", "Tuple": "from typing import Tuple",
    "deepcopy": "from copy import deepcopy", "OrderedDict": "from collections import OrderedDict",
    "defaultdict": "from collections import defaultdict", "reduce": "from functools import reduce",
    "reload": "from importlib import reload",
}
_MODULES = frozenset({
    "os", "sys", "json", "math", "time", "random", "logging", "argparse", "re", "copy", "gc", "glob", "shutil",
    "torch", "torchvision", "wandb", "datetime", "functools", "collections", "subprocess", "warnings", "yaml",
    "itertools", "pickle", "socket", "psutil", "transformers", "datasets", "deepspeed",
})
_OF_SAME_NAME = frozenset({"time", "glob", "copy", "random", "datetime", "socket"})  # in the module of that name
_OF_PYTHON_2 = {
    "raw_input": "input", "unicode": "str", "xrange": "range", "basestring": "str", "unichr": "chr",
}
_LITERALS = {"true": "True", "false": "False", "null": "None", "none": "None", "NULL": "None"}
_OF_NOTEBOOKS = frozenset({"get_ipython", "display"})
# fmt: on
_MODULE_NAMES = frozenset({"np", "pd", "plt", "dist", "nn", "F"})
_OF_DATETIME = re.compile(r"(?<![\w.])datetime\.(?:now|today|utcnow|strptime|fromtimestamp|fromisoformat|combine)\b")
_COMPREHENDS = re.compile(r"^if .*[\]})]$|^for .* in .*[\]})]$|\bfor \w+(?:, ?\w+)* in ")
_CAUGHT = frozenset({"e", "ex", "err", "exc", "error", "exception"})


def name_without_value(one: UncaughtException) -> Answered | None:
    """Explain a variable that is not set, or a name that does not exist; None if it is another exception."""
    if name := unset_name(one):
        return _of_unset(one, name)
    if short_name(one.type) == "NameError" and (found := _UNDEFINED.search(one.message)):
        return _of_undefined(one, found["name"], found["like"])
    return None


def _check_file(one: UncaughtException) -> Fix:
    check_it = shell("python -m pyflakes {:path}", file_of(one))
    return Fix("Check the whole file for such names, without a GPU.", ("pip install pyflakes", check_it))


def _of_unset(one: UncaughtException, name: str) -> Answered:
    inside = ' In a comprehension, only the names after "for" exist.' if _COMPREHENDS.search(one.code or "") else ""
    where = (shell("grep -nw {:dotted} {:path}", name, file_of(one)),)
    title = f"a mistake in the script's own code: {one.place} reads {name} before it has a value"
    if name in _MODULES | _MODULE_NAMES or name in _IMPORTS:
        return Answered(
            title,
            f"The function imports or sets {name} itself, in a branch or after this line. Python then takes the name "
            "for a local one in the whole function, so that the import at the top of the file does not count there.",
            (Fix("Remove that import or assignment from the function, or move it to the top of the file.", where),),
        )
    if re.match(rf"{name} ?(?:[-+*/%|&@^]|//|\*\*|<<|>>)= ?|{name} ?= ?[^=]*\b{name}\b", one.code or ""):
        return _of_changed(title, name, one)
    of_except = (
        " The name after `except ... as` is deleted at the end of its block: keep the exception under another name."
        if name in _CAUGHT
        else ""
    )
    return Answered(
        title,
        f"{name} is set elsewhere in the same function, but not on the path that the run took: in a branch, a loop "
        f"or a try that did not run, or after this line. A misspelled name does the same.{of_except}{inside}",
        (
            Fix(f"Set {name} before that line on every path, or use the name that is meant there.", where),
            _check_file(one),
        ),
    )


def _of_changed(title: str, name: str, one: UncaughtException) -> Answered:
    """Explain a variable of the file or of an outer function that the line changes."""
    return Answered(
        title,
        f"The line changes {name}, which makes it a local variable of the function, and it has no value there yet. "
        "Either it is set outside of the function, or the line in the function that sets it did not run.",
        (
            Fix(
                "If it is set at the top of the file, say so at the start of the function.",
                (python("global {:name}", name),),
            ),
            Fix(
                "If it is set in an outer function, say so, or pass it in and return it.",
                (python("nonlocal {:name}", name),),
            ),
            Fix(
                f"Or give {name} its first value in the function, before that line.",
                (shell("grep -nw {:dotted} {:path}", name, file_of(one)),),
            ),
        ),
    )


def _import_of(name: str, line: str | None) -> str | None:
    """Return the import that the line needs for a name."""
    if name in _OF_SAME_NAME and re.search(rf"(?<![\w.]){name}\(", line or ""):
        return python("from {:name} import {:name}", name, name)
    if name == "datetime" and _OF_DATETIME.search(line or ""):
        return "from datetime import datetime"
    if name in _MODULES:
        return python("import {:name}", name)
    return _IMPORTS.get(name)


def _of_undefined(one: UncaughtException, name: str, suggested: str | None) -> Answered:
    module = name in _MODULES | _MODULE_NAMES
    data = module and used_as_data(one.code, name)
    value = module and not data and used_as_value(one.code, name)
    imported = None if data or value else _import_of(name, one.code)
    if known := _of_other_python(one, name):
        return known
    if is_cell(one.place):
        again = Fix("Run the cell with the imports again, or import it in this one.", (imported,)) if imported else None
        return Answered(*not_in_kernel(one, name, suggested, again)[:3])
    if imported:
        return Answered(
            f"a mistake in the script's own code: {one.place} uses {name} without importing it",
            f"When the line ran, its file had no {name}: it is not imported, or only in another function, in a branch "
            "or later.",
            (Fix("Import it at the top of that file.", (imported,)),),
        )
    if suggested and suggested.startswith("self."):
        return Answered(
            f"a mistake in the script's own code: {one.place} uses {name}, and probably {suggested} is meant",
            f"The object has an attribute or a method {name}, and in a method it is read as {suggested}. There is no "
            "variable or function of that name.",
            (Fix(f"Write {suggested}.", (shell("grep -nw {:dotted} {:path}", name, file_of(one)),)), _check_file(one)),
        )
    like = f" Python suggests {suggested}." if suggested else ""
    variable = f" The line uses it as a variable with items, not as the module {name}." if data else ""
    variable = " The line uses it as a variable, not as a module of that name." if value else variable
    return Answered(
        f"a mistake in the script's own code: {one.place} uses {name}, which does not exist there",
        f"The name is misspelled, is defined in another function or file, or its import or definition was removed."
        f"{like}{variable}",
        (Fix("Define or import it.", (shell("grep -rnw --include='*.py' {:dotted} .", name),)), _check_file(one)),
    )


def _of_other_python(one: UncaughtException, name: str) -> Answered | None:
    """Explain a name of Python 2, of JSON or of a notebook, which this Python does not have."""
    if now := _OF_PYTHON_2.get(name):
        return Answered(
            f"the code was written for Python 2: {one.place} uses {name}, which Python 3 calls {now}",
            "Python 3 renamed or removed it. Other lines of the same code can have the same fault.",
            (Fix(f"Write {now}.", (shell("grep -rnw --include='*.py' {:dotted} .", name),)),),
        )
    if (now := _LITERALS.get(name)) and not used_as_data(one.code, name):
        return Answered(
            f"{one.place} reads the name {name}, which Python does not have: probably {now} is meant",
            f"JSON, YAML and other languages write {name}, Python writes {now}. eval() of a text in JSON fails in the "
            "same way.",
            (Fix(f"Write {now}, or read JSON with its own reader.", ("json.loads(text)  # not eval(text)",)),),
        )
    if name in _OF_NOTEBOOKS and not is_cell(one.place):
        return Answered(
            f"{one.place} uses {name}, which exists only in notebooks and IPython",
            "The code was exported or copied from a notebook, and runs as a script here.",
            (
                Fix("Remove what only a notebook has: magics (%...), shell commands (!...), display()."),
                Fix("Or run it with IPython.", (shell("ipython {:path}", file_of(one)),)),
            ),
        )
    if name == "__file__" and is_cell(one.place):
        return Answered(
            f"{one.place} reads __file__, which a notebook's cell does not have",
            "It is the path of a script's file. The code was written for a script.",
            (Fix("Take the current folder, or write the path.", ("root = os.getcwd()",)),),
        )
    return None
