"""Is accelerate there, new enough, and the one that PATH would start?"""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.snapshot import Python

from ._knowledge import numbers

_ACCELERATE = "https://huggingface.co/docs/accelerate/basic_tutorials/install"
_OLDEST = (1, 0)  # the oldest accelerate mgpu supports


@check(Severity.ERROR, source=_ACCELERATE)
def accelerate_missing(packages: Mapping[str, str], python: Python) -> Answer:
    """accelerate is not installed in the interpreter that would run the training.

    Why: it is the launcher mgpu hands off to, and most scripts import it.

    Fix: install it.
    """
    if "accelerate" in packages:
        return Ok(f"accelerate {packages['accelerate']}")
    return Problem(
        f"no accelerate in {python.executable}",
        "The launcher is not there.",
        Fix("Install it.", (f"{shlex.quote(python.executable)} -m pip install accelerate",)),
        {"python": python.executable},
    )


@check(Severity.WARNING, source=_ACCELERATE, because_of=("accelerate_missing",))
def accelerate_too_old(packages: Mapping[str, str]) -> Answer:
    """accelerate is older than mgpu supports.

    Why: before 1.0 config keys and launcher options differ from what mgpu writes and checks.

    Fix: update it.
    """
    version = numbers(packages.get("accelerate"))
    if not version:
        return Skip("accelerate is not installed")
    if version < _OLDEST:
        return Problem(
            f"accelerate {packages['accelerate']}, 1.0 or newer wanted",
            "Keys and options of the launcher have changed since.",
            Fix("Update it.", ("pip install --upgrade accelerate",)),
            {"accelerate": packages["accelerate"]},
        )
    return Ok(f"accelerate {packages['accelerate']}")


@check(Severity.INFO, source="https://github.com/huggingface/accelerate (commands/test.py)")
def accelerate_of_another_python(python: Python, packages: Mapping[str, str]) -> Answer:
    """The `accelerate` command on PATH belongs to another interpreter.

    Why: typed by hand, `accelerate launch` would train in an environment with other versions than the one examined
    here. mgpu starts the launcher of its own interpreter.

    Fix: activate the environment, or start it as `python -m accelerate.commands.launch`.
    """
    if python.accelerate_on_path is None:
        return Skip("no accelerate command on PATH")
    if "accelerate" not in packages:
        return Skip("accelerate is not installed here")
    if _folder(python.accelerate_on_path) == _folder(python.executable):
        return Ok("the accelerate on PATH is this interpreter's")
    return Problem(
        f"accelerate on PATH runs {python.accelerate_on_path}",
        f"mgpu examined {python.executable}; a hand-typed `accelerate launch` would use the other one.",
        Fix(
            "Start this interpreter's launcher.",
            (f"{shlex.quote(python.executable)} -m accelerate.commands.launch ...",),
        ),
        {"examined": python.executable, "on_path": python.accelerate_on_path},
    )


def _folder(path: str) -> str:
    return path.rpartition("/")[0]


@check(Severity.INFO, source="https://huggingface.co/docs/accelerate/package_reference/cli")
def accelerate_default_config_left(python: Python) -> Answer:
    """A default accelerate config lies in the Hugging Face cache.

    Why: `accelerate launch` without --config_file reads it, whatever it says and however old it is. mgpu always names
    its own file, so it does no harm here.

    Fix: remove it when nobody needs it.
    """
    if python.accelerate_default_config is None:
        return Ok("no leftover default config")
    return Problem(
        "a default_config.yaml is in the cache",
        "A hand-typed `accelerate launch` would silently use it.",
        Fix("Look at it; move it away if it is a leftover.", (f"cat {shlex.quote(python.accelerate_default_config)}",)),
        {"path": python.accelerate_default_config},
    )
