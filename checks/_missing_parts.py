"""Which package adds a model type to transformers, and which import needs a module that another package lacks?

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
