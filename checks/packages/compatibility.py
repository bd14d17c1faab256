"""Does each package get the versions of others that it needs?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Libraries, Python, Pytorch
from mgpu.text import counted, listed

from .._reinstall import rebuild
from .._versions import TOGETHER, satisfies, split_requirement

_METADATA = "https://packaging.python.org/en/latest/specifications/core-metadata/"
_REDIRECTS = (12,)  # from this release on, `pynvml` only redirects to nvidia-ml-py


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
    hits = [row for row in TOGETHER if all(satisfies(packages.get(n), spec) for n, spec in row.packages.items())]
    if not hits:
        return Ok(f"no known bad combination ({counted(len(TOGETHER), 'rule')} checked)")
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
            Fix(commands=rebuild(*bad)),
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
        Fix(commands=("pip uninstall -y pynvml", "pip install --force-reinstall --no-deps nvidia-ml-py")),
        {"pynvml": installed, "nvidia-ml-py": packages.get("nvidia-ml-py")},
    )
