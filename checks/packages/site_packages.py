"""Do packages from outside the environment hide its own?"""

from __future__ import annotations

import re

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Libraries, Python
from mgpu.text import counted, listed

from .. import _shadowing as shadowing


@check(
    Severity.WARNING,
    source="https://docs.python.org/3/using/cmdline.html#envvar-PYTHONNOUSERSITE",
    because_of=("torch_built_for_another_python",),
)
def environment_package_hidden(libraries: Libraries, python: Python) -> Answer:
    """A package from outside the environment hides another version in the environment.

    Why: PYTHONPATH, and in conda environments the user's ~/.local, take precedence over the environment's packages. The
    version that pip shows is not the one that runs, and mixing compiled parts of two versions in one process crashes.

    Fix: exclude it, in the job script too.
    More: Unset PYTHONPATH, set PYTHONNOUSERSITE=1, or uninstall the other copy.
    """
    if python.environment is None or python.prefix is None:
        return Skip("unknown kind of environment")
    if python.environment == "system":
        return Skip("no virtual environment")
    inside = f"{python.prefix.rstrip('/')}/"
    hidden: dict[str, tuple[str, str]] = {}
    for name, (first, *others) in ((name, copies) for name, copies in libraries.twice.items() if copies):
        own = next((copy for copy in others if copy.startswith(inside)), None)
        if (
            not first.startswith(inside)
            and own
            and (_recorded_version(first) is None or _recorded_version(first) != _recorded_version(own))
        ):
            hidden[name] = (first, own)
    if not hidden:
        return Ok(f"{counted(len(libraries.twice), 'package')} in several places, none hides the environment's")
    user = python.user_site is not None and any(copy.startswith(python.user_site) for copy, _ in hidden.values())
    used = [f"{name} {_recorded_version(copy) or '?'} from {_parent(copy)}" for name, (copy, _) in hidden.items()]
    missed = [f"{name} {_recorded_version(own) or '?'}" for name, (_, own) in hidden.items()]
    return Problem(
        "; ".join(used),
        f"It takes precedence over the environment's {listed(missed)}.",
        Fix(commands=("export PYTHONNOUSERSITE=1",) if user else ("echo $PYTHONPATH", "unset PYTHONPATH")),
        {name: f"{copy} before {own}" for name, (copy, own) in hidden.items()},
        tuple(hidden),
    )


@check(Severity.WARNING, source="https://packaging.python.org/en/latest/specifications/recording-installed-packages/")
def package_installed_over_another(libraries: Libraries) -> Answer:
    """Two versions of one package are recorded in the same directory.

    Why: files of both versions are mixed in one directory.
    More: Conda and pip, or an interrupted upgrade, overwrote each other's files. Which version Python reports depends
    on the order of the directory, and mismatched compiled parts crash.

    Fix: uninstall until pip reports that it is not installed, then install it once.
    """
    double: dict[str, list[str]] = {}
    for name, copies in libraries.twice.items():
        for folder in dict.fromkeys(_parent(copy) for copy in copies):
            versions = {v for copy in copies if _parent(copy) == folder and (v := _recorded_version(copy)) is not None}
            if len(versions) > 1:
                double[name] = sorted(versions, key=version_numbers)
    if not double:
        return Ok("no package is recorded twice in one directory")
    return Problem(
        "; ".join(f"{name} {listed(versions)} in one directory" for name, versions in double.items()),
        fix=Fix(
            commands=(
                shell("pip uninstall -y {:package}", list(double)),
                shell("pip install --force-reinstall --no-deps {:package}", list(double)),
                "pip check",
            )
        ),
        evidence={name: ", ".join(versions) for name, versions in double.items()},
        subjects=tuple(double),
    )


def _parent(copy: str) -> str:
    return copy.rpartition("/")[0]


def _recorded_version(copy: str) -> str | None:
    """Return the version in a path: /x/site-packages/torch-2.9.1.dist-info -> 2.9.1; None without metadata."""
    found = re.search(r"/[^/-]+-([^/-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$", copy)
    return found.group(1) if found else None


@check(Severity.INFO, source="https://docs.python.org/3/library/site.html", because_of=("environment_package_hidden",))
def user_site_mixed_in(python: Python) -> Answer:
    """Packages from the user's ~/.local are used inside an environment.

    Why: they were installed for another environment or Python build and take precedence over the environment's. They
    work until one side is updated, and are missing on a machine with another home directory.

    Fix: exclude ~/.local, then install missing packages into the environment.
    """
    if python.environment is None:
        return Skip("unknown kind of environment")
    if python.environment == "system" or python.user_site is None:
        return Ok("the user's packages are not mixed into an environment")
    if not python.user_packages:
        return Ok(f"no training packages in {python.user_site}")
    names = [f"{name} {version}" for name, version in sorted(python.user_packages.items())]
    return Problem(
        f"{listed(names)} from {python.user_site}",
        f"The {python.environment} environment {python.prefix} searches this directory first.",
        Fix(commands=("export PYTHONNOUSERSITE=1",)),
        dict(python.user_packages),
    )


@check(Severity.WARNING, source=shadowing.SYS_PATH)
def module_shadowed_here(libraries: Libraries) -> Answer:
    """A file or package in the current directory has the name of a module that training imports.

    Why: a script's directory is first on its sys.path; with `python -m` it is the current directory. Your `random.py`
    or `torch/` is then imported instead of the real module: "partially initialized module" or "has no attribute" errors
    from inside torch, in every rank.

    Fix: rename it.
    """
    if not libraries.shadowed:
        return Ok("no file or directory here shadows a module")
    return shadowing.shadowing_problem(
        libraries.shadowed,
        "Scripts in this directory, modules started here with `python -m`, and even torch import it instead of the "
        "real module.",
    )
