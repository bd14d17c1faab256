"""Are the installed Python packages compatible, and does PATH start the same ones?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Evidence, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Config, Libraries, Python, Pytorch, Visible
from mgpu.text import counted, listed

from . import _shadowing as shadowing
from ._gpus import usable_count
from ._versions import TOGETHER, Together, satisfies, split_requirement
from ._wording import parse_digits

FAMILY = Family(stops_start="always")
_ACCELERATE = "https://huggingface.co/docs/accelerate/basic_tutorials/install"
_OLDEST = (1, 0)  # the oldest accelerate mgpu supports
_METADATA = "https://packaging.python.org/en/latest/specifications/core-metadata/"
_REDIRECTS = (12,)  # from this release on, `pynvml` only redirects to nvidia-ml-py
_FSDP = "FSDP"


@check(Severity.ERROR, source=_ACCELERATE)
def accelerate_missing(packages: Mapping[str, str], python: Python) -> Answer:
    """The accelerate package is not installed in the interpreter that would run the script.

    Why: mgpu starts runs through accelerate's launcher.
    More: Most scripts import accelerate too.

    Fix: install it.
    """
    if "accelerate" in packages:
        return Ok(f"accelerate {packages['accelerate']}")
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
                shell("pip install --force-reinstall {:package}", list(double)),
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


@check(Severity.WARNING, source=_METADATA, because_of=("torch_missing", "accelerate_missing"))
def requirement_not_met(libraries: Libraries, packages: Mapping[str, str], python: Python) -> Answer:
    """An installed package requires a different version of another package.

    Why: the versions are not compatible: imports fail, or functions behave differently.
    More: pip checks this when it installs a package, but not when a later command changes the other one. torchvision
    with the wrong torch fails with "operator torchvision::nms does not exist", transformers with "huggingface-hub is
    required", torch with the wrong triton with a compiler error.

    Fix: install compatible versions in one command.
    """
    if not libraries.requires:
        return Skip("no package requirements known")
    broken: list[tuple[str, str, str]] = []  # package, requirement, installed version
    checked = 0
    for name, lines in libraries.requires.items():
        if name == "cuda-toolkit":
            continue
        for line in lines:
            target, specifier = split_requirement(line)
            if target.startswith(("nvidia-", "cuda-")) and target != "nvidia-ml-py":
                continue  # torch's own libraries: cuda_wheels_not_as_required
            checked += 1
            if (have := python.version if target == "python" else packages.get(target)) is None:
                broken.append((name, line, "missing"))
            elif satisfies(have, specifier) is False:
                broken.append((name, line, have))
    if not broken:
        return Ok(f"{counted(checked, 'requirement')} of {counted(len(libraries.requires), 'package')} met")
    # In one command, so that pip finds versions that are compatible with all.
    wanted = [line for _, line, _ in broken if not line.startswith("python")] + [name for name, _, _ in broken]
    command = shell("pip install {:package}", list(dict.fromkeys(wanted)))
    return Problem(
        "; ".join(
            f"{name} {packages.get(name, '')} requires {line}, "
            + ("which is missing" if have == "missing" else f"but {have} is installed")
            for name, line, have in broken
        ),
        fix=Fix(commands=(command, "pip check")),
        evidence={f"{name}: {line}": have for name, line, have in broken},
    )


@check(Severity.WARNING, source=_METADATA, because_of=("requirement_not_met",))
def versions_known_bad_together(packages: Mapping[str, str]) -> Answer:
    """Installed versions are known to fail together although their requirements allow them.

    Why: the incompatibility was found after the releases. Depending on the pair, an import fails or an argument is
    rejected.

    Fix: update the package that fixes it.
    """
    return _check_rules(packages, [row for row in TOGETHER if row.when is None], "no known bad combination")


@check(Severity.WARNING, source=_METADATA)
def versions_known_bad_for_config(packages: Mapping[str, str], config: Config) -> Answer:
    """An installed version is known to compute wrong results, or slowly, with the features in this config.

    Why: some releases of DeepSpeed and accelerate have bugs in one strategy only. Nothing fails, but gradients are
    wrong, weights lose precision, or a step takes several times as long.

    Fix: update the package.
    """
    rows = [row for row in TOGETHER if row.when and _uses(config, row.when)]
    return _check_rules(packages, rows, "no known bad version")


def _check_rules(packages: Mapping[str, str], rows: list[Together], well: str) -> Answer:
    hits = [row for row in rows if all(satisfies(packages.get(n), spec) for n, spec in row.packages.items())]
    if not hits:
        return Ok(f"{well} ({counted(len(rows), 'rule')} checked)")
    names = [" with ".join(f"{name} {packages[name]}" for name in row.packages) for row in hits]
    evidence: dict[str, str] = {
        f"{' with '.join(row.packages)} ({', '.join(row.packages.values())})": row.url for row in hits
    }
    return Problem(
        f"{names[0]}: {hits[0].effect}" if len(hits) == 1 else "; ".join(names),
        " ".join(row.effect for row in hits),
        tuple(Fix("Update it.", (row.command,)) for row in hits),
        evidence,
    )


def _uses(config: Config, what: str) -> bool:
    """Return whether the config uses the feature that a rule is about."""
    deepspeed, fsdp = config.values.get("deepspeed_config"), config.values.get("fsdp_config")
    if what in ("zero_2", "zero_1_or_2"):
        stage = str(deepspeed.get("zero_stage", 2)) if isinstance(deepspeed, Mapping) else None
        own_file = isinstance(deepspeed, Mapping) and "deepspeed_config_file" in deepspeed  # its stage is unknown
        stages = ("2",) if what == "zero_2" else ("1", "2")
        return config.distributed_type == "DEEPSPEED" and stage in stages and not own_file
    version = str(fsdp.get("fsdp_version", 1)) if isinstance(fsdp, Mapping) else None
    precision = config.values.get("mixed_precision")
    return config.distributed_type == _FSDP and version == "2" and precision in ("bf16", "fp16")


@check(
    Severity.WARNING,
    source="https://github.com/Dao-AILab/flash-attention/releases",
    because_of=("torch_missing", "torch_is_cpu_build"),
)
def extension_built_for_another_torch(libraries: Libraries, pytorch: Pytorch) -> Answer:
    """A compiled extension was built for another torch or CUDA version.

    Why: its compiled part needs functions that this torch does not have.
    More: flash-attn, mamba and similar extensions are compiled for one torch and one CUDA version, as shown in the
    wheel's name. After an update of torch, importing them fails with "undefined symbol: _ZN3c10...".

    Fix: reinstall it for this torch.
    """
    torch, cuda = version_numbers(pytorch.version)[:2], version_numbers(pytorch.cuda)
    if not libraries.built_with or not torch:
        return Skip("no extension reports what it was built for" if torch else "unknown torch version")
    bad: dict[str, str] = {}
    for name, tag in libraries.built_with.items():
        wanted = re.search(r"torch(\d+)\.(\d+)|(?<![a-z])pt(\d)(\d+)", tag)
        major = re.search(r"cu(\d\d)", tag)
        other_torch = wanted and tuple(int(part) for part in wanted.groups() if part) != torch
        if other_torch or (major and cuda and int(major.group(1)) != cuda[0]):
            bad[name] = tag
    if not bad:
        return Ok(", ".join(f"{name} for {tag}" for name, tag in libraries.built_with.items()))
    return Problem(
        f"{listed(f'{name} is built for {tag}' for name, tag in bad.items())}; torch is {pytorch.version}",
        fix=(
            Fix(
                commands=(
                    shell(
                        "pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir {:package}",
                        list(bad),
                    ),
                )
            ),
            Fix("Or remove it.", (shell("pip uninstall -y {:package}", list(bad)),)),
        ),
        evidence=dict(bad),
        subjects=tuple(bad),
    )


@check(Severity.INFO, source="https://pypi.org/project/pynvml/")
def pynvml_redirector_installed(packages: Mapping[str, str]) -> Answer:
    """The deprecated package `pynvml` is installed, which only redirects to nvidia-ml-py or is an old copy of it.

    Why: torch.cuda imports it, and every rank prints "FutureWarning: The pynvml package is deprecated". Releases before
    12 contain an older module of the same name that lacks functions of current drivers.

    Fix: remove it, and reinstall nvidia-ml-py, which shares the file.
    """
    installed = packages.get("pynvml")
    if installed is None:
        return Ok("not installed")
    old = version_numbers(installed) < _REDIRECTS
    return Problem(
        f"pynvml {installed} is installed {'alongside' if 'nvidia-ml-py' in packages else 'instead of'} nvidia-ml-py",
        "It contains an old module of the same name." if old else "It makes every rank print a deprecation warning.",
        Fix(commands=("pip uninstall -y pynvml", "pip install --force-reinstall nvidia-ml-py")),
        {"pynvml": installed, "nvidia-ml-py": packages.get("nvidia-ml-py")},
    )
