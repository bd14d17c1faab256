"""Which package adds a model type to transformers, and which import needs what a package, a file or the project lacks?

Texts for `_skew_meanings.py`.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException

from . import _version_skew as skew

# Model types that a package registers with transformers when it is imported, and its name on PyPI.
_REGISTERED_BY = {
    "hf_olmo": ("hf_olmo", "ai2-olmo"),
    **dict.fromkeys(("gla", "delta_net", "gated_deltanet", "hgrn2", "rwkv7"), ("fla", "flash-linear-attention")),
}
# A line that reads pickled objects, and functions that do.
_LOADS = re.compile(r"\b(?:c?[Pp]ickle|cloudpickle|dill|joblib|torch|np|numpy|pd|pandas)\.(?:loads?|read_pickle)\(")
_UNPICKLES = re.compile(
    r"^torch/serialization\.py in (?:find_class|_?load|_legacy_load)|^numpy/lib/\S+\.py in (?:load|read_array)|"
    r"^pandas/\S*pickle\S* in |^(?:joblib|dill|cloudpickle)/"
)
_PARTS_OF_LISTED = 4  # torchvision.models.detection.x
_IMPORTS = re.compile(r"(?:from|import) [\w.]+")
_INSTALLED = re.compile(r"site-packages|dist-packages|lib(?:64)?/python\d|\\[Ll]ib\\")
_FROM_FILE = re.compile(r" from '[\w.]+' \((?P<path>[^()\n]+\.py)\)")
_IMPORTING = re.compile(r"Failed to import (?P<package>\w+)[\w.]* because of the following error")


def registered(model: str) -> Meaning | None:
    """Explain a model type that transformers does not have itself; None if no package is known to register it."""
    if model not in _REGISTERED_BY:
        return None
    module, package = _REGISTERED_BY[model]
    return Meaning(
        f"{model} models are not part of transformers: the package {package} adds them when it is imported",
        f"The script must import {module} before it loads the config, the tokenizer or the model. Another release of "
        "transformers does not help.",
        (
            Fix(f"Install {package}.", (shell("pip install {:package}", package),)),
            Fix("Import it in the script, above the line that loads the model.", (python("import {:name}", module),)),
            Fix("Or use a checkpoint that was converted for transformers, if the model has one."),
        ),
    )


def while_importing(module: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a missing module that ended the import of a package which imports its parts only when they are used."""
    found = _IMPORTING.search(raised.message) if raised else None
    if found is None or found["package"] == module.partition(".")[0]:
        return None
    whole, needed = found["package"], module.partition(".")[0]
    both = [skew.distribution(one) for one in (whole, needed)]
    # Packages are released for a torch; another torch would break more than it repairs.
    moved = [skew.requirement_for(one) for one in (whole, needed) if one != "torch"]
    return Meaning(
        f"{both[0]} cannot be imported: the installed {both[1]} has no module {module}",
        f"{both[0]}, or a package that it imports, was written for an older or newer {both[1]} than this one. The "
        "traceback of the first error shows which file imports it.",
        (
            Fix(
                f"Install a {both[1]} and a {both[0]} that were released for each other: upgrade, or take the "
                "versions that one of them names in its documentation.",
                (
                    shell("pip install --upgrade {:package}", moved),
                    shell("pip show {:package}", both),
                    "pip check",
                ),
            ),
        ),
    )


def needed_by_package(module: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a module that an installed package imports and that is not installed.

    None if the script imports it, or if a package imports what the run names (Hydra, Ray, a web server).
    """
    package = raised.packages[-1] if raised and raised.packages else ""
    itself = re.match(rf"(?:from|import) {re.escape(module)}\b", (raised.code or "") if raised else "")
    if not package or package == module or not itself:
        return None
    name, wanted = skew.distribution(package), skew.requirement_for(module)
    return Meaning(
        f"a Python module is not installed in this environment: {module}, which {name} imports",
        f"{name} is installed, and {module} is not, or only for another Python. {name} was installed without what it "
        "needs (--no-deps, a copied folder, ~/.local of another environment), or an option that the run uses needs it.",
        (
            Fix(
                "Install it with the Python that runs the script.",
                ("which python", shell("python -m pip install {:package}", wanted), "pip check"),
            ),
        ),
    )


def read_from_a_file(module: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a package's module that an object in a file is of, which the code loads; None if nothing is loaded."""
    package = module.partition(".")[0]
    if raised is None or not skew.is_known(package) or not _reads_objects(raised):
        return None
    dist = skew.distribution(package)
    known = skew.find_module(module)
    newer, old, wanted = "", "", shell("pip install --upgrade {:package}", dist)
    if known and known.added:
        old, wanted = f", older than {known.added},", shell("pip install {:package}", known.requirement)
    if known and known.removed:
        newer, wanted = f" (older than {known.removed})", shell("pip install {:package}", known.requirement)
    if module.startswith("numpy._core"):
        newer = " (2.0 or newer)"
    return Meaning(
        f"a file that the run loads was saved with another {dist}{newer}: its objects are of {module}, which the "
        f"installed {dist}{old} does not have",
        f"{raised.place or raised.library or 'The code'} loads it. A pickled file (.pkl, .npy of objects, .pt, a "
        f"*.cache of labels) names the modules of its objects, and reading it imports them. Nothing is wrong with the "
        f"code that loads it: the file was written in another environment, or this job runs another Python than that "
        "one.",
        (
            Fix(
                f"Run the job with the Python that wrote the file, or install a {dist} that has the module.",
                (
                    "which python",
                    shell("python -c {}", f"import {package} as m; print(m.__version__, m.__file__)"),
                    wanted,
                ),
            ),
            Fix("If it is only a cache, delete it: it is written again. Otherwise create the file again here."),
        ),
    )


def _reads_objects(raised: UncaughtException) -> bool:
    """Whether the exception was raised while a pickled file was read, not by an import in the code."""
    if _IMPORTS.match(raised.code or ""):
        return False
    return bool(_LOADS.search(raised.code or "") or any(_UNPICKLES.search(frame) for frame in raised.frames[-2:]))


def _shows_hidden(path: str) -> tuple[Fix, ...]:
    see = shell("grep -n -A6 'try:' {:path}", path)
    return (Fix("See whether it is imported in a `try`, and print the error there.", (see,)),)


def lacks_in_project(module: str, name: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a name that a file of the project itself does not have, by the path that Python's message shows."""
    found = _FROM_FILE.search(raised.message) if raised else None
    if raised is None or found is None or not raised.raised_in_own_code or skew.is_known(module.partition(".")[0]):
        return None
    path = found["path"]
    if _INSTALLED.search(path) or not raised.place:
        return None
    file = re.split(r"[/\\]", path)[-1]
    folder = path.removesuffix(file) or "."
    at_import = file == "__init__.py"
    quiet = (
        " If the file imports it in a `try`, that import failed, and its error is hidden: a package that is missing or "
        "does not fit." * at_import
    )
    file = f"{module.rpartition('.')[2]}/{file}" if file == "__init__.py" else file
    return Meaning(
        f"{file} has no {name}, which {raised.place} imports: it is a file of the project, not of an installed package",
        f"Python read {path}, and it defined no {name}.{quiet} The name was renamed, removed or moved to another file, "
        f"it is not written or not saved yet, only one of the two files was updated, or another folder of that name "
        f"comes first on Python's path. If {module.partition('.')[0]} is a clone of another repository, it is of "
        "another revision than the script.",
        (
            *(_shows_hidden(path) if at_import else ()),
            Fix(
                "Look for the name, and import it from where it is, or define it.",
                (
                    shell("grep -rnwE --include='*.py' {} .", rf"(def|class) {name}|{name} ="),
                    shell("git log --oneline -S {} -- {:path}", name, path),
                ),
            ),
            Fix(
                f"If {module.partition('.')[0]} is a clone, check out the branch or commit that has it.",
                (
                    shell("git -C {:path} branch -a", folder),
                    shell("git -C {:path} log --all --oneline -S {:name}", folder, name),
                ),
            ),
        ),
    )


def listed_from_another_folder(module: str, raised: UncaughtException | None) -> Meaning | None:
    """Explain a module that mmcv found in a folder of the same short name, and then looks for in torchvision.

    mmcv and mmengine walk through torchvision.models without its prefix, so that Python imports `detection` of sys.path
    to list what is in it: https://github.com/open-mmlab/mmcv/blob/v1.7.2/mmcv/runner/checkpoint.py
    """
    frames = raised.frames if raised else ()
    lists = [place for place, frame in enumerate(frames) if frame.endswith(" in get_torchvision_models")]
    parts = module.split(".")
    if not lists or parts[:2] != ["torchvision", "models"] or len(parts) < _PARTS_OF_LISTED:
        return None
    if any(frame.startswith("torchvision/") for frame in frames[lists[-1] :]):
        return None  # torchvision's own module imports it
    folder, file = parts[2], parts[-1]
    return Meaning(
        f"a folder {folder} of the project, or of another package, has the name of one in torchvision.models: there is "
        f"no module {module}",
        f"To load weights named torchvision:// or modelzoo://, mmcv lists the modules of torchvision.models by their "
        f"short names. Python then finds another folder {folder} first (through the working folder or PYTHONPATH), one "
        f"that has {file}, and mmcv looks for {file} in torchvision. The versions of mmcv and torchvision are not the "
        "reason.",
        (
            Fix(
                f"Find the folder that Python imports as {folder}, and rename it, or keep its parent off the path.",
                (shell("python -c 'import {:name} as m; print(m.__path__)'", folder), "echo $PYTHONPATH"),
            ),
            Fix("Or download the weights, and give the model their file.", ("checkpoint='weights/backbone.pth'",)),
        ),
    )
