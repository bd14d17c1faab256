"""Is accelerate installed, and which interpreter do the commands on PATH start?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Evidence, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Python, Visible
from mgpu.text import counted, listed

from .._gpus import usable_count
from .._wording import parse_digits

_ACCELERATE = "https://huggingface.co/docs/accelerate/basic_tutorials/install"
_OLDEST = (1, 0)  # the oldest accelerate mgpu supports


@check(Severity.ERROR, source=_ACCELERATE)
def accelerate_missing(packages: Mapping[str, str], python: Python) -> Answer:
    """The accelerate package is not installed in the interpreter that would run the script.

    Why: mgpu starts runs through accelerate's launcher.
    More: Most scripts import accelerate too.

    Fix: install it.
    """
    if "accelerate" in packages:
        return Ok(f"accelerate {packages['accelerate']}")
    if python.chosen == "no environment in sight":
        return Skip("no environment in sight")
    return Problem(
        f"no accelerate in {python.executable}",
        fix=Fix(commands=(shell("{:path} -m pip install accelerate", python.executable),)),
        evidence={"python": python.executable},
    )


@check(Severity.WARNING, source=_ACCELERATE, because_of=("accelerate_missing",))
def accelerate_too_old(packages: Mapping[str, str]) -> Answer:
    """The installed accelerate is older than mgpu supports.

    Why: config keys and launcher options have changed since.
    More: Before 1.0 they differ from those that mgpu writes and checks.

    Fix: update it.
    """
    version = version_numbers(packages.get("accelerate"))
    if not version:
        return Skip("accelerate is not installed")
    if version < _OLDEST:
        return Problem(
            f"accelerate {packages['accelerate']}, 1.0 or newer required",
            fix=Fix(commands=("pip install --upgrade accelerate",)),
            evidence={"accelerate": packages["accelerate"]},
        )
    return Ok(f"accelerate {packages['accelerate']}")


@check(Severity.INFO, source="https://github.com/huggingface/accelerate (commands/test.py)")
def accelerate_of_another_python(python: Python, packages: Mapping[str, str]) -> Answer:
    """The `accelerate` command on PATH belongs to another interpreter.

    Why: `accelerate launch` in a shell would run in another environment, with versions other than those checked here.
    mgpu uses the launcher of its own interpreter.

    Fix: start this interpreter's launcher.
    More: Activate the environment, or use `python -m accelerate.commands.launch`.
    """
    if python.accelerate_on_path is None:
        return Skip("no accelerate command on PATH")
    if "accelerate" not in packages:
        return Skip("accelerate is not installed here")
    if _is_same_interpreter(python.accelerate_on_path, python):
        return Ok("the accelerate on PATH is this interpreter's")
    return Problem(
        f"accelerate on PATH runs {python.accelerate_on_path}",
        f"mgpu checked {python.executable}, but `accelerate launch` in a shell would use the other interpreter.",
        Fix(commands=(shell("{:path} -m accelerate.commands.launch ...", python.executable),)),
        {"examined": python.executable, "on_path": python.accelerate_on_path},
    )


def _is_same_interpreter(other: str, python: Python) -> bool:
    """Return whether both names are the same interpreter: python3.11 and python in one directory."""
    return other.rpartition("/")[0] == python.executable.rpartition("/")[0]


@check(Severity.INFO, source="https://huggingface.co/docs/accelerate/package_reference/cli")
def accelerate_default_config_left(python: Python) -> Answer:
    """There is a default accelerate config in the Hugging Face cache.

    Why: `accelerate launch` without --config_file silently uses it.
    More: It is read even if it is old. mgpu always passes its own config, so it is not affected.

    Fix: check its content, and move it away if it is a leftover.
    """
    if python.accelerate_default_config is None:
        return Ok("no leftover default config")
    asks = ", ".join(f"{key} {value}" for key, value in sorted(python.accelerate_default_settings.items()))
    return Problem(
        f"a default_config.yaml is in the cache{': ' if asks else ''}{asks}",
        fix=Fix(commands=(shell("cat {:path}", python.accelerate_default_config),)),
        evidence={"path": python.accelerate_default_config},
    )


@check(Severity.INFO, source="https://huggingface.co/docs/accelerate/package_reference/cli")
def accelerate_default_config_misfits(python: Python, visible: Visible) -> Answer:
    """The default accelerate config starts a different number of ranks than there are GPUs.

    Why: `accelerate launch` without --config_file uses it. mgpu never does.
    More: It was written on another machine, or by confirming the defaults: accelerate's wizard proposes 1 process. Such
    a run leaves GPUs idle, or starts ranks without a GPU.

    Fix: pass your config explicitly, or move the default config away.
    """
    settings, number = python.accelerate_default_settings, usable_count(visible)
    ranks, machines = parse_digits(settings.get("num_processes", "")), parse_digits(settings.get("num_machines", "1"))
    if python.accelerate_default_config is None or not ranks or not number:
        return Skip("no default config, or no GPUs")
    if settings.get("distributed_type") == "MULTI_CPU" or ranks // (machines or 1) == number:
        return Ok(f"{counted(ranks, 'rank')}, {counted(number, 'visible GPU')}")
    path = python.accelerate_default_config
    return Problem(
        f"the default config starts {counted(ranks // (machines or 1), 'rank')} here, {counted(number, 'GPU')} visible",
        fix=Fix(
            commands=(
                "accelerate launch --config_file accelerate.yaml ...",
                shell("mv {:path} {:path}.old", path, path),
            )
        ),
        evidence={"path": python.accelerate_default_config, "ranks": ranks, "visible_gpus": number},
    )


@check(Severity.INFO, source=_ACCELERATE, because_of=("accelerate_missing",))
def accelerate_command_missing(python: Python, packages: Mapping[str, str]) -> Answer:
    """The accelerate package is installed, but no `accelerate` command is on PATH.

    Why: `accelerate launch` in this shell fails with "command not found".
    More: The environment is not active, or its scripts are in ~/.local/bin. A job script with `accelerate launch` fails
    with "accelerate: command not found" (127). mgpu does not need the command.

    Fix: start this interpreter's launcher as a module.
    More: Activate the environment in the job script, or use `python -m accelerate.commands.launch`.
    """
    if "accelerate" not in packages:
        return Skip("accelerate is not installed here")
    if python.accelerate_command or python.accelerate_on_path:
        return Ok(f"accelerate is {python.accelerate_command or 'on PATH'}")
    return Problem(
        "no `accelerate` on PATH",
        fix=Fix(commands=(shell("{:path} -m accelerate.commands.launch ...", python.executable),)),
        evidence={"python": python.executable},
    )


@check(Severity.INFO, source="https://pytorch.org/docs/stable/elastic/run.html")
def python_on_path_is_another(python: Python) -> Answer:
    """`python` or `torchrun` on PATH is a different interpreter than the one checked.

    Why: a script started in a shell, or a job script without activation, runs with other packages: "No module named
    torch", or silently other versions. mgpu starts everything with the interpreter that it checked.

    Fix: activate the environment in every shell and job script, or use the interpreter's full path.
    """
    known = {"python": python.on_path, "torchrun": python.torchrun_on_path}
    found = {name: path for name, path in known.items() if path is not None}
    if not found:
        return Skip("neither python nor torchrun is on PATH, or they are wrappers")
    other = {name: path for name, path in found.items() if not _is_same_interpreter(path, python)}
    if not other:
        return Ok(f"{listed(found)} on PATH {'is' if len(found) == 1 else 'are'} this interpreter's")
    evidence: Evidence = {"examined": python.executable, **other}
    return Problem(
        "; ".join(f"{name} on PATH is {path}" for name, path in other.items()),
        f"mgpu checked {python.executable}, but commands in a shell would use the other interpreter.",
        Fix(commands=(shell("{:path} -m torch.distributed.run ...", python.executable),)),
        evidence,
    )
