"""Do the Python packages of the training fit together, and are they the ones that PATH would start?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Evidence, Family, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import numbers
from mgpu.snapshot import Config, Libraries, Python, Pytorch, Visible
from mgpu.text import counted, listed

from . import _shadowing as shadowing
from ._gpus import usable_count
from ._versions import TOGETHER, Together, requirement, satisfies
from ._wording import whole

FAMILY = Family(stops_start="always")
_ACCELERATE = "https://huggingface.co/docs/accelerate/basic_tutorials/install"
_OLDEST = (1, 0)  # the oldest accelerate mgpu supports
_METADATA = "https://packaging.python.org/en/latest/specifications/core-metadata/"
_REDIRECTS = (12,)  # the release of `pynvml` from which on it is nothing but a pointer to nvidia-ml-py
_FSDP = "FSDP"


@check(Severity.ERROR, source=_ACCELERATE)
def accelerate_missing(packages: Mapping[str, str], python: Python) -> Answer:
    """accelerate is not installed in the interpreter that would run the training.

    Why: the launcher is not there.
    More: It is the launcher mgpu hands off to, and most scripts import it.

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
    """accelerate is older than mgpu supports.

    Why: keys and options of the launcher have changed since.
    More: Before 1.0 config keys and launcher options differ from what mgpu writes and checks.

    Fix: update it.
    """
    version = numbers(packages.get("accelerate"))
    if not version:
        return Skip("accelerate is not installed")
    if version < _OLDEST:
        return Problem(
            f"accelerate {packages['accelerate']}, 1.0 or newer wanted",
            fix=Fix(commands=("pip install --upgrade accelerate",)),
            evidence={"accelerate": packages["accelerate"]},
        )
    return Ok(f"accelerate {packages['accelerate']}")


@check(Severity.INFO, source="https://github.com/huggingface/accelerate (commands/test.py)")
def accelerate_of_another_python(python: Python, packages: Mapping[str, str]) -> Answer:
    """The `accelerate` command on PATH belongs to another interpreter.

    Why: typed by hand, `accelerate launch` would train in an environment with other versions than the one examined
    here. mgpu starts the launcher of its own interpreter.

    Fix: start this interpreter's launcher.
    More: Activate the environment, or start it as `python -m accelerate.commands.launch`.
    """
    if python.accelerate_on_path is None:
        return Skip("no accelerate command on PATH")
    if "accelerate" not in packages:
        return Skip("accelerate is not installed here")
    if _same(python.accelerate_on_path, python):
        return Ok("the accelerate on PATH is this interpreter's")
    return Problem(
        f"accelerate on PATH runs {python.accelerate_on_path}",
        f"mgpu examined {python.executable}; a hand-typed `accelerate launch` would use the other one.",
        Fix(commands=(shell("{:path} -m accelerate.commands.launch ...", python.executable),)),
        {"examined": python.executable, "on_path": python.accelerate_on_path},
    )


def _same(other: str, python: Python) -> bool:
    """Whether another name stands for this interpreter: python3.11 beside python."""
    return other.rpartition("/")[0] == python.executable.rpartition("/")[0]


@check(Severity.INFO, source="https://huggingface.co/docs/accelerate/package_reference/cli")
def accelerate_default_config_left(python: Python) -> Answer:
    """A default accelerate config lies in the Hugging Face cache.

    Why: a hand-typed `accelerate launch` would silently use it.
    More: `accelerate launch` without --config_file reads it, whatever it says and however old it is. mgpu always names
    its own file, so it does no harm here.

    Fix: look at it; move it away if it is a leftover.
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
    """The default accelerate config starts another number of ranks than there are GPUs.

    Why: `accelerate launch` without --config_file reads it. mgpu never does.
    More: It was answered on another machine, or with Enter: accelerate's wizard proposes 1 process. A hand-typed
    `accelerate launch` leaves GPUs idle, or starts ranks that have none.

    Fix: name the config, or move that one away.
    """
    settings, number = python.accelerate_default_settings, usable_count(visible)
    ranks, machines = whole(settings.get("num_processes", "")), whole(settings.get("num_machines", "1"))
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
    """accelerate is installed, and no `accelerate` command is on PATH.

    Why: `accelerate launch` in a shell like this one: command not found.
    More: The environment is not active, or its scripts went to ~/.local/bin. A job script that says `accelerate launch`
    ends with "accelerate: command not found" (127). mgpu does not need the command.

    Fix: start this interpreter's launcher by its module.
    More: Activate the environment in the job script, or start it as `python -m accelerate.commands.launch`.
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
    """`python` or `torchrun` on PATH is another interpreter than the one examined.

    Why: a script typed by hand, or a job script without activation, runs with other packages: "No module named torch",
    or other versions without a word. mgpu starts everything with the interpreter it examined.

    Fix: activate the environment in every shell and job script, or name the interpreter.
    """
    known = {"python": python.on_path, "torchrun": python.torchrun_on_path}
    found = {name: path for name, path in known.items() if path is not None}
    if not found:
        return Skip("neither python nor torchrun is on PATH, or they are wrappers")
    other = {name: path for name, path in found.items() if not _same(path, python)}
    if not other:
        return Ok(f"{listed(found)} on PATH {'is' if len(found) == 1 else 'are'} of this interpreter")
    evidence: Evidence = {"examined": python.executable, **other}
    return Problem(
        "; ".join(f"{name} on PATH is {path}" for name, path in other.items()),
        f"mgpu examined {python.executable}; what is typed by hand would run with the other one.",
        Fix(commands=(shell("{:path} -m torch.distributed.run ...", python.executable),)),
        evidence,
    )


@check(
    Severity.WARNING,
    source="https://docs.python.org/3/using/cmdline.html#envvar-PYTHONNOUSERSITE",
    because_of=("torch_built_for_another_python",),
)
def environment_package_hidden(libraries: Libraries, python: Python) -> Answer:
    """A package of the environment is hidden by another version from outside it.

    Why: PYTHONPATH, and in conda environments the user's own ~/.local, come before the environment's packages. The
    version that pip shows is not the one that runs; compiled parts of two versions in one process crash.

    Fix: keep it out, in the job script too.
    More: Keep the outside out: unset PYTHONPATH, PYTHONNOUSERSITE=1, or uninstall the other copy.
    """
    if python.environment is None or python.prefix is None:
        return Skip("what kind of environment this is, is not known")
    if python.environment == "system":
        return Skip("no virtual environment")
    inside = f"{python.prefix.rstrip('/')}/"
    hidden: dict[str, tuple[str, str]] = {}
    for name, (first, *others) in ((name, copies) for name, copies in libraries.twice.items() if copies):
        own = next((copy for copy in others if copy.startswith(inside)), None)
        if (
            not first.startswith(inside)
            and own
            and (_told_version(first) is None or _told_version(first) != _told_version(own))
        ):
            hidden[name] = (first, own)
    if not hidden:
        return Ok(f"{counted(len(libraries.twice), 'package')} in several places, none of the environment's hidden")
    user = python.user_site is not None and any(copy.startswith(python.user_site) for copy, _ in hidden.values())
    used = [f"{name} {_told_version(copy) or '?'} from {_parent(copy)}" for name, (copy, _) in hidden.items()]
    missed = [f"{name} {_told_version(own) or '?'}" for name, (_, own) in hidden.items()]
    return Problem(
        "; ".join(used),
        f"It comes before the environment's {listed(missed)}.",
        Fix(commands=("export PYTHONNOUSERSITE=1",) if user else ("echo $PYTHONPATH", "unset PYTHONPATH")),
        {name: f"{copy} before {own}" for name, (copy, own) in hidden.items()},
        tuple(hidden),
    )


@check(Severity.WARNING, source="https://packaging.python.org/en/latest/specifications/recording-installed-packages/")
def package_installed_over_another(libraries: Libraries) -> Answer:
    """Two versions of one package are recorded in the same folder.

    Why: they share one folder: files of both versions are mixed.
    More: Conda and pip, or an upgrade that was interrupted, wrote over each other. Files of both are there; which
    version Python reports depends on the order of the folder, and compiled parts crash when they do not fit each other.

    Fix: uninstall until pip says that it is not installed, then install it once.
    """
    double: dict[str, list[str]] = {}
    for name, copies in libraries.twice.items():
        for folder in dict.fromkeys(_parent(copy) for copy in copies):
            versions = {v for copy in copies if _parent(copy) == folder and (v := _told_version(copy)) is not None}
            if len(versions) > 1:
                double[name] = sorted(versions, key=numbers)
    if not double:
        return Ok("no package is recorded twice in one folder")
    return Problem(
        "; ".join(f"{name} {listed(versions)} in one folder" for name, versions in double.items()),
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


def _told_version(copy: str) -> str | None:
    """/x/site-packages/torch-2.9.1.dist-info -> 2.9.1; None for a folder without metadata."""
    found = re.search(r"/[^/-]+-([^/-]+)(?:-py[\d.]+)?\.(?:dist|egg)-info$", copy)
    return found.group(1) if found else None


@check(Severity.INFO, source="https://docs.python.org/3/library/site.html", because_of=("environment_package_hidden",))
def user_site_mixed_in(python: Python) -> Answer:
    """Packages from the user's own ~/.local are used inside an environment.

    Why: they were installed for another environment or Python build, and come before the environment's own. They work
    until one of both sides is updated; on another machine, with another home folder, they are missing.

    Fix: keep it out, and install into the environment what is then missing.
    """
    if python.environment is None:
        return Skip("what kind of environment this is, is not known")
    if python.environment == "system" or python.user_site is None:
        return Ok("the user's own packages are not mixed into an environment")
    if not python.user_packages:
        return Ok(f"nothing of the training's in {python.user_site}")
    names = [f"{name} {version}" for name, version in sorted(python.user_packages.items())]
    return Problem(
        f"{listed(names)} from {python.user_site}",
        f"The {python.environment} environment {python.prefix} looks there first.",
        Fix(commands=("export PYTHONNOUSERSITE=1",)),
        dict(python.user_packages),
    )


@check(Severity.WARNING, source=shadowing.SYS_PATH)
def module_shadowed_here(libraries: Libraries) -> Answer:
    """A file or package in the current directory has the name of a module that training imports.

    Why: the folder of a script comes first on its sys.path, under `python -m` the current directory. `random.py` or
    `torch/` of yours is then imported instead of the real one: "partially initialized module", "has no attribute", in
    every rank, from the middle of torch.

    Fix: give it another name.
    """
    if not libraries.shadowed:
        return Ok("no file or folder here hides a module")
    return shadowing.problem(
        libraries.shadowed,
        "A script in this folder, and whatever `python -m` starts here, imports that instead of the module; so does "
        "everything that torch imports.",
    )


@check(Severity.WARNING, source=_METADATA, because_of=("torch_missing", "accelerate_missing"))
def requirement_not_met(libraries: Libraries, packages: Mapping[str, str], python: Python) -> Answer:
    """An installed package asks for another version of a package than the one installed.

    Why: the packages were not made for each other: imports fail, or functions behave otherwise.
    More: pip checks this when it installs, and not when another command changes the other package. torchvision with
    another torch ends in "operator torchvision::nms does not exist", transformers in "huggingface-hub is required",
    torch with another triton in a compiler error.

    Fix: install versions that suit each other, in one command.
    """
    if not libraries.requires:
        return Skip("no package's requirements are known")
    broken: list[tuple[str, str, str]] = []  # who asks, for what, what is there
    asked = 0
    for name, lines in libraries.requires.items():
        if name == "cuda-toolkit":
            continue
        for line in lines:
            target, specifier = requirement(line)
            if target.startswith(("nvidia-", "cuda-")) and target != "nvidia-ml-py":
                continue  # torch's own libraries: cuda_wheels_not_as_required
            asked += 1
            have = python.version if target == "python" else packages.get(target)
            if have is None:
                broken.append((name, line, "missing"))
            elif satisfies(have, specifier) is False:
                broken.append((name, line, have))
    if not broken:
        return Ok(f"{counted(asked, 'requirement')} of {counted(len(libraries.requires), 'package')} met")
    # Asked for together, so that pip finds versions that suit all.
    wanted = [line for _, line, _ in broken if not line.startswith("python")] + [name for name, _, _ in broken]
    command = shell("pip install {:package}", list(dict.fromkeys(wanted)))
    return Problem(
        "; ".join(f"{name} {packages.get(name, '')} asks for {line}, {have} is there" for name, line, have in broken),
        fix=Fix(commands=(command, "pip check")),
        evidence={f"{name}: {line}": have for name, line, have in broken},
    )


@check(Severity.WARNING, source=_METADATA, because_of=("requirement_not_met",))
def versions_known_bad_together(packages: Mapping[str, str]) -> Answer:
    """Installed versions are known to fail together, though their requirements allow them.

    Why: what broke was noticed after the releases. Each pair has its own end: an import that fails, an argument that
    the other does not know.

    Fix: update the one that mends it.
    """
    return _known_bad(packages, [row for row in TOGETHER if row.when is None], "no known pair")


@check(Severity.WARNING, source=_METADATA)
def versions_known_bad_for_config(packages: Mapping[str, str], config: Config) -> Answer:
    """An installed version is known to compute wrongly or slowly with what this config asks for.

    Why: releases of DeepSpeed and accelerate had faults in one strategy only. Nothing fails: gradients are wrong,
    weights lose precision, or a step takes several times as long.

    Fix: update the package.
    """
    return _known_bad(packages, [row for row in TOGETHER if row.when and _asks_for(config, row.when)], "nothing known")


def _known_bad(packages: Mapping[str, str], rows: list[Together], well: str) -> Answer:
    hits = [row for row in rows if all(satisfies(packages.get(n), spec) for n, spec in row.packages.items())]
    if not hits:
        return Ok(f"{well} among {counted(len(rows), 'sourced rule')}")
    names = [" with ".join(f"{name} {packages[name]}" for name in row.packages) for row in hits]
    evidence: dict[str, str] = {
        f"{' with '.join(row.packages)} ({spec})": row.url
        for row in hits
        for spec in [", ".join(row.packages.values())]
    }
    return Problem(
        f"{names[0]}: {hits[0].effect}" if len(hits) == 1 else "; ".join(names),
        " ".join(row.effect for row in hits),
        tuple(Fix("Update it.", (row.command,)) for row in hits),
        evidence,
    )


def _asks_for(config: Config, what: str) -> bool:
    """Whether the config is of the kind a rule is about."""
    deepspeed, fsdp = config.values.get("deepspeed_config"), config.values.get("fsdp_config")
    if what in ("zero_2", "zero_1_or_2"):
        stage = str(deepspeed.get("zero_stage", 2)) if isinstance(deepspeed, Mapping) else None
        own_file = isinstance(deepspeed, Mapping) and "deepspeed_config_file" in deepspeed  # its stage is not known
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
    """A compiled extension came in a wheel for another torch or CUDA.

    Why: its compiled part looks for functions that this torch does not have.
    More: flash-attn, mamba and their like are compiled for one torch and one CUDA, and the wheel's name says which.
    After an update of torch they end with "undefined symbol: _ZN3c10..." when they are imported.

    Fix: install it again for this torch.
    """
    torch, cuda = numbers(pytorch.version)[:2], numbers(pytorch.cuda)
    if not libraries.built_with or not torch:
        return Skip("no extension tells what it was built for" if torch else "torch's version is not known")
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
    """The package `pynvml` is installed, which is only a pointer to nvidia-ml-py, or an old copy of it.

    Why: torch.cuda imports the module; every rank prints "FutureWarning: The pynvml package is deprecated". A release
    before 12 brings its own, older module under the same name, which misses functions of today's driver.

    Fix: remove it; put nvidia-ml-py back, which shares the file.
    """
    installed = packages.get("pynvml")
    if installed is None:
        return Ok("not installed")
    old = numbers(installed) < _REDIRECTS
    return Problem(
        f"pynvml {installed} {'beside' if 'nvidia-ml-py' in packages else 'instead of'} nvidia-ml-py",
        "It brings an old module of the same name."
        if old
        else "Every rank prints a deprecation warning because of it.",
        Fix(commands=("pip uninstall -y pynvml", "pip install --force-reinstall nvidia-ml-py")),
        {"pynvml": installed, "nvidia-ml-py": packages.get("nvidia-ml-py")},
    )
