"""The probes packages, libraries and pytorch: on this machine, and on planted trees, libraries and tools.

What can be planted for real is: libraries compiled here and loaded through ctypes, PYTHONPATH, LD_LIBRARY_PATH,
LD_PRELOAD, an nvcc that says what it is told, a torch made of a few lines. Each fault is then asked of the check that
must find it.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import importlib.metadata
import os
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from packaging.markers import Marker
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from mgpu import engine
from mgpu.engine import Outcome
from mgpu.probes import LIBRARIES, PACKAGES, PYTORCH, build, libraries, packages, pytorch, runner
from mgpu.snapshot import Snapshot
from tests.checks.facts import facts, gpus
from tests.conftest import CHECKS, missing

QUIET = ("LD_LIBRARY_PATH", "LD_PRELOAD", "PYTHONPATH", "CUDA_HOME", "CUDA_PATH", "CC", "CXX", *libraries._PLUGINS)
NCCL_C = "int ncclGetVersion(int *version) { *version = VERSION; return 0; }"
Compile = Callable[..., Path]


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compile:
    """Compile a few lines of C into a shared library: compiled(path, code, *flags)."""
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang"))), None)
    source = tmp_path_factory.mktemp("c") / "library.c"

    def build_library(path: Path, code: str = "", *flags: str) -> Path:
        if compiler is None:
            missing("no C compiler (cc, gcc, clang) to build libraries with")
        assert compiler is not None
        path.parent.mkdir(parents=True, exist_ok=True)
        source.write_text(code or "int nothing;")
        subprocess.run([compiler, "-shared", "-fPIC", "-w", *flags, "-o", str(path), str(source)], check=True)
        return path

    return build_library


def asked(
    probe: runner.Probe, env: Mapping[str, str | Path] | None = None, *, python: str | None = None
) -> dict[str, Any]:
    """What a probe's child finds in an environment; its gaps are under "gaps"."""
    kept = {name: value for name, value in os.environ.items() if name not in QUIET}
    with mock.patch.dict(os.environ, kept | {name: str(value) for name, value in (env or {}).items()}, clear=True):
        (child,) = runner.run([probe], python=python)
    return child.found | {"gaps": child.gaps}


def answer(check: str, found: Mapping[str, Any], **others: Any) -> Outcome:
    """What a check says of these facts; the rest of the machine is healthy and has four H100s."""
    known = {name: value for name, value in found.items() if name != "gaps"}
    seen = build(known, {})
    assert not seen.gaps, seen.gaps
    (outcome,) = engine.run_check(
        CHECKS[check], Snapshot(**facts(**{name: getattr(seen, name) for name in known} | others))
    )
    return outcome


def fires(check: str, found: Mapping[str, Any], title: str, **others: Any) -> None:
    outcome = answer(check, found, **others)
    assert outcome.problem is not None, outcome.answer
    assert re.search(title, outcome.problem.title), outcome.problem.title


def quiet(check: str, found: Mapping[str, Any], **others: Any) -> None:
    outcome = answer(check, found, **others)
    assert outcome.problem is None, outcome.problem


def install(site: Path, name: str, version: str, *lines: str, **files: str) -> Path:
    """The metadata of a distribution, as pip leaves it; `files` stand beside METADATA."""
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir(parents=True)
    header = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}", *lines]
    (info / "METADATA").write_text("\n".join(header) + "\n\nThe description; it may say\nRequires-Dist: anything==1\n")
    for file, text in files.items():
        (info / f"{file}.json").write_text(text)
    return info


def install_torch(site: Path, version: str = "2.9.1", cuda: str = "13.0", *lines: str) -> Path:
    """A torch that is only files: what the packages probe reads."""
    folder = site / "torch"
    (folder / "lib").mkdir(parents=True)
    (folder / "__init__.py").write_text("")
    (folder / "version.py").write_text(
        f"__version__ = '{version}+cu{cuda.replace('.', '')}'\ncuda = '{cuda}'\nhip = None\n"
    )
    install(site, "torch", version, "Requires-Python: >=3.10", *lines)
    return folder


TORCH = """\
import ctypes, os, types
for path in filter(None, os.environ.get("BRING_IN", "").split(":")):
    ctypes.CDLL(path)
class _Called:
    def __init__(self, answer): self.answer = answer
    def __call__(self, *_):
        if isinstance(self.answer, Exception): raise self.answer
        return self.answer
_All = types.SimpleNamespace
_Yes = _Called(True)
version = _All(cuda="13.0", hip=None)
distributed = _All(is_available=_Yes, is_gloo_available=_Yes, is_nccl_available=_Yes)
cuda = _All(nccl=_All(version=_Called((2, 29, 7))), init=_Called(RuntimeError("no driver")))
backends = _All(cudnn=_All(version=_Called(91002)))
"""


def importable_torch(site: Path, code: str = "") -> Path:
    """A torch that can be imported, and answers what the pytorch probe asks."""
    folder = install_torch(site)
    (folder / "__init__.py").write_text(TORCH + code)
    return folder


def script(path: Path, first: str, *rest: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([first, *rest, ""]))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


# ---- this machine


def test_this_machines_packages_are_those_that_python_knows() -> None:
    found = asked(PACKAGES)
    assert found["gaps"] == {}
    assert build({name: found[name] for name in PACKAGES.brings}, {}).gaps == {}
    for name, version in found["packages"].items():
        assert importlib.metadata.version(name) == version
    assert found["python"]["executable"] == sys.executable
    assert found["python"]["prefix"] == sys.prefix
    assert found["python"]["suffixes"] == importlib.machinery.EXTENSION_SUFFIXES
    for name, lines in found["libraries"]["requires"].items():
        theirs = {re.sub(r"\s", "", line.partition(";")[0]) for line in importlib.metadata.requires(name) or ()}
        ours = [line for line in lines if not line.startswith("python")]
        assert {line.replace("huggingface-hub", "huggingface_hub") for line in ours} <= theirs


def test_this_machine_has_nothing_to_complain_about() -> None:
    found = asked(PACKAGES)
    for check in CHECKS.values():
        if check.area in ("libraries", "packages", "nccl") and set(check.facts) <= found.keys() - {"gaps"}:
            outcome = answer(check.id, found)
            assert outcome.problem is None or outcome.status == "info", (check.id, outcome.problem)


def test_this_machines_torch_is_asked() -> None:
    import torch

    found = asked(PYTORCH)["torch_runtime"]
    assert build({"torch_runtime": found}, {}).gaps == {}
    assert found["import_error"] is None
    assert found["mapped"] is not None
    if torch.version.cuda is None:
        assert "nccl" not in found["mapped"]
        assert found["device_count"] == 0


def test_another_interpreter_is_examined_without_mgpu() -> None:
    other = next((path for path in ("/usr/bin/python3", "/usr/local/bin/python3") if os.access(path, os.X_OK)), None)
    if other is None or os.path.realpath(other) == os.path.realpath(sys.executable):
        pytest.skip("no other Python here")
    found = asked(PACKAGES, python=other)
    assert found["gaps"] == {}
    assert found["python"]["executable"] == other
    assert found["python"]["environment"] == "system"
    assert "libraries" in found


# ---- distributions and their metadata


def test_requirements_come_from_the_packages_themselves(tmp_path: Path) -> None:
    install_torch(tmp_path, "2.9.1", "12.8",
        'Requires-Dist: nvidia-cublas-cu12==12.8.4.1; platform_system == "Linux"',
        'Requires-Dist: nvidia-nccl-cu12==2.27.5; platform_system == "Windows"',
        'Requires-Dist: triton==3.5.1; platform_system == "Linux" and python_version >= "3.9"',
        'Requires-Dist: numpy>=1.17; extra == "numpy"',
        "Requires-Dist: sympy>=1.13")  # fmt: skip
    install(
        tmp_path, "torchvision", "0.24.0", "Requires-Dist: torch (==2.9.0)", "Requires-Dist: pillow (!=8.3.*,>=5.3.0)"
    )
    install(tmp_path, "trl", "1.0", "Requires-Dist: transformers >=4.56", "Requires-Dist: accelerate@https://x/y.whl")
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    requires = found["libraries"]["requires"]
    assert requires["torch"] == ["python>=3.10", "nvidia-cublas-cu12==12.8.4.1", "triton==3.5.1"]
    assert requires["torchvision"] == ["torch==2.9.0"]
    assert requires["trl"] == ["transformers>=4.56"]
    fires("requirement_not_met", found, r"torch 2.9.1 requires triton==3.5.1, which is missing; torchvision 0.24.0 req")
    fires("cuda_wheels_not_as_required", found, r"nvidia-cublas-cu12 missing \(torch requires ==12.8.4.1\)")


def test_the_libraries_of_cuda_13_are_extras_of_one_package(tmp_path: Path) -> None:
    install_torch(tmp_path, "2.11.0", "13.0", "Requires-Dist: cuda-toolkit[cublas,nvjitlink]==13.0.2")
    install(tmp_path, "cuda-toolkit", "13.0.2",
        "Requires-Dist: nvidia-cublas==13.1.0.3.*; (sys_platform == 'linux' or os_name == 'nt') and extra == 'cublas'",
        "Requires-Dist: nvidia-nvjitlink==13.0.88.*; (sys_platform == 'linux') and extra == 'nvjitlink'",
        "Requires-Dist: nvidia-cufft==12.0.0.61.*; (sys_platform == 'linux') and extra == 'cufft'")  # fmt: skip
    install(tmp_path, "nvidia-cublas", "13.1.0.3")
    install(tmp_path, "nvidia-nvjitlink", "13.0.39")
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    assert found["libraries"]["wheels"] == {
        "cuda-toolkit": "13.0.2", "nvidia-cublas": "13.1.0.3", "nvidia-nvjitlink": "13.0.39",
    }  # fmt: skip
    assert found["libraries"]["requires"]["cuda-toolkit"] == [
        "nvidia-cublas==13.1.0.3.*",
        "nvidia-nvjitlink==13.0.88.*",
    ]
    fires("cuda_wheels_not_as_required", found, r"^nvidia-nvjitlink 13.0.39 \(torch requires ==13.0.88.\*\)$")


@pytest.mark.parametrize(
    "marker",
    [
        'platform_system == "Linux"',
        'platform_system == "Linux" and platform_machine == "x86_64"',
        'platform_system != "Linux" or python_version >= "3.8"',
        "(sys_platform == 'linux' or sys_platform == 'win32') and implementation_name == 'cpython'",
        "sys_platform == 'win32' and python_version >= '3.8' or os_name == 'posix'",
        "os_name == 'posix' or sys_platform == 'win32' and python_version >= '3.8'",
        'python_version < "3.10"',
        'python_version >= "3.9" and python_version < "4"',
        "python_full_version >= '3.8.1'",
        "((python_version > '3'))",
        "python_version == '2.7'",
        'extra == "dev"',
        'platform_system == "Linux" and extra == "dev"',
    ],
)
def test_markers_hold_as_packaging_says(marker: str) -> None:
    assert libraries._holds(marker, frozenset()) == Marker(marker).evaluate({"extra": ""})


@pytest.mark.parametrize(
    "marker", ["platform_release > '5'", "python_version in '3.11 3.12'", "nonsense", "(", "'a' == 'b'"]
)
def test_a_marker_that_cannot_be_read_drops_the_requirement(marker: str) -> None:
    assert libraries._holds(marker, frozenset()) is False


def test_conda_packages_count_too(tmp_path: Path) -> None:
    install_torch(tmp_path)
    (tmp_path / "accelerate-0.34.2-py3.11.egg-info").mkdir()
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    assert found["packages"]["accelerate"] == "0.34.2"
    fires("accelerate_too_old", found, "accelerate 0.34.2")


def test_two_families_of_one_wheel(tmp_path: Path) -> None:
    install_torch(tmp_path, "2.9.1", "13.0")
    for name, version in (
        ("nvidia-cudnn-cu12", "9.10.2.21"),
        ("nvidia-cudnn-cu13", "9.13.0.50"),
        ("nvidia-ml-py", "13"),
    ):
        install(tmp_path, name, version)
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    assert found["libraries"]["wheels"] == {"nvidia-cudnn-cu12": "9.10.2.21", "nvidia-cudnn-cu13": "9.13.0.50"}
    fires("cuda_wheels_overwrite_each_other", found, "nvidia-cudnn-cu12 9.10.2.21 and nvidia-cudnn-cu13")
    fires("cuda_families_mixed", found, "1 NVIDIA wheel for cu12")


def test_extensions_say_what_they_were_built_for(tmp_path: Path) -> None:
    release = "https://github.com/Dao-AILab/flash-attention/releases/download/v2.7.4/flash_attn-2.7.4"
    url = f'{{"url": "{release}%2Bcu12torch2.4cxx11abiFALSE-cp310-cp310-linux_x86_64.whl"}}'
    install(tmp_path, "flash-attn", "2.7.4", direct_url=url)
    install(tmp_path, "torch-scatter", "2.1.2+pt29cu130")
    install(tmp_path, "mamba-ssm", "2.0", direct_url="[")
    install(tmp_path, "causal-conv1d", "1.5", direct_url='{"url": 7}')
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    assert found["libraries"]["built_with"] == {"flash-attn": "cu12torch2.4cxx11abiFALSE", "torch-scatter": "pt29cu130"}
    fires(
        "extension_built_for_another_torch", {"libraries": found["libraries"]}, "^flash-attn is built for cu12torch2.4"
    )


def test_bitsandbytes_and_the_cuda_of_torch(tmp_path: Path) -> None:
    install_torch(tmp_path, "2.9.1", "13.0")
    install(tmp_path, "bitsandbytes", "0.45.5")
    folder = tmp_path / "bitsandbytes"
    folder.mkdir()
    for name in ("libbitsandbytes_cuda118.so", "libbitsandbytes_cuda124.so", "libbitsandbytes_cpu.so"):
        (folder / name).touch()
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    fires("bitsandbytes_lacks_cuda", found, "libraries for CUDA 11.8, 12.4; torch is built for 13.0")
    (folder / "libbitsandbytes_cuda130.so").touch()
    quiet("bitsandbytes_lacks_cuda", asked(PACKAGES, {"PYTHONPATH": tmp_path}))


def test_a_package_hidden_by_another_copy(tmp_path: Path) -> None:
    if sys.prefix == sys.base_prefix:
        pytest.skip("not in a virtual environment")
    install_torch(tmp_path, "2.1.2", "12.1")
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    assert found["libraries"]["twice"]["torch"][0] == str(tmp_path / "torch-2.1.2.dist-info")
    fires("environment_package_hidden", found, f"torch 2.1.2 from {tmp_path}")
    quiet("environment_package_hidden", asked(PACKAGES))


def test_two_versions_recorded_in_one_folder(tmp_path: Path) -> None:
    install_torch(tmp_path, "2.9.1")
    (tmp_path / "torch-2.5.1-py3.11.egg-info").mkdir()
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    fires("package_installed_over_another", found, "torch 2.5.1 and 2.9.1 in one directory")


def test_a_checkout_without_metadata_is_a_copy(tmp_path: Path) -> None:
    install(tmp_path / "site", "accelerate", "1.0.0")
    (tmp_path / "clone" / "accelerate").mkdir(parents=True)
    (tmp_path / "clone" / "accelerate" / "__init__.py").touch()
    (tmp_path / "data" / "datasets").mkdir(parents=True)  # a folder of data is no package
    path = os.pathsep.join(str(tmp_path / name) for name in ("data", "clone", "site"))
    found = asked(PACKAGES, {"PYTHONPATH": path})["libraries"]["twice"]
    assert found["accelerate"][:2] == [
        str(tmp_path / "clone" / "accelerate"), str(tmp_path / "site" / "accelerate-1.0.0.dist-info"),
    ]  # fmt: skip
    assert "datasets" not in found


def test_torch_of_another_python(tmp_path: Path) -> None:
    folder = install_torch(tmp_path)
    (folder / "_C.cpython-39-x86_64-linux-gnu.so").touch()
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    fires("torch_built_for_another_python", found, "compiled for Python 3.9, this is Python")
    (folder / f"_C{importlib.machinery.EXTENSION_SUFFIXES[0]}").touch()
    quiet("torch_built_for_another_python", asked(PACKAGES, {"PYTHONPATH": tmp_path}))


def test_the_users_own_site_in_an_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    site = sys.modules["site"]
    own = tmp_path / "own"
    install(own, "transformers", "4.30.0")
    (tmp_path / "env" / "conda-meta").mkdir(parents=True)
    monkeypatch.setattr(site, "USER_SITE", str(own))
    monkeypatch.setattr(sys, "path", [str(own), *sys.path])
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    monkeypatch.setattr(sys, "base_prefix", str(tmp_path / "env"))
    found = merged(packages.probe())
    assert found["python"]["environment"] == "conda"
    assert found["python"]["user_packages"] == {"transformers": "4.30.0"}
    fires("user_site_mixed_in", found, f"transformers 4.30.0 from {own}")


@pytest.mark.parametrize(
    ("text", "arches"),
    [
        (b"\0sm_75 sm_80 sm_90 compute_90\0", ["sm_75", "sm_80", "sm_90", "compute_90"]),
        (b"x\0sm_\0\0sm_80 nonsense\0sm_90a sm_100\0", ["sm_90a", "sm_100"]),
        (b"\0compute_90\0", ["compute_90"]),
        (b"sm_80 sm_90", None),
        (b"\0sm_80 sm_90", None),
        (b"", None),
    ],
)
def test_the_kernels_of_a_wheel(text: bytes, arches: list[str] | None, tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "libtorch_python.so").write_bytes(text)
    assert packages._arch_list(str(tmp_path)) == arches


def test_the_wheels_kernels_and_the_gpus(tmp_path: Path) -> None:
    folder = install_torch(tmp_path)
    (folder / "lib" / "libtorch_python.so").write_bytes(b"\x7fELF" + b"\0" * 64 + b"\0sm_80 sm_90\0")
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    fires("torch_lacks_gpu_kernels", found, "no kernels for sm_120", gpus=gpus(compute_capability=(12, 0)))
    quiet("torch_lacks_gpu_kernels", found)


def test_damaged_trees_are_survived(tmp_path: Path) -> None:
    site = tmp_path / "site"
    for name in (
        ".dist-info",
        "-.dist-info",
        "torch-.dist-info",
        "torch.egg-info",
        "nvidia_.dist-info",
        "\udcff-1.dist-info",
    ):
        (site / name).mkdir(parents=True)
    (site / "transformers-5.0.0.dist-info").touch()
    (site / "peft-0.1.dist-info" / "METADATA").mkdir(parents=True)
    install(site, "accelerate", "1.0").joinpath("METADATA").write_bytes(b"\xff\xfe\0Requires-Dist: torch\n" * 99)
    (site / "trl-1.0.dist-info").symlink_to("nowhere")
    (site / "nvidia").symlink_to("nowhere")
    (site / "bitsandbytes").touch()
    (site / "torch").mkdir()
    (site / "torch" / "version.py").mkdir()
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    path = os.pathsep.join(map(str, (site, loop, tmp_path / "gone", "/proc/self/mem")))
    found = asked(PACKAGES, {"PYTHONPATH": path, "LD_LIBRARY_PATH": path, "CUDA_HOME": str(loop)})
    assert found["gaps"] == {}
    assert build({name: found[name] for name in PACKAGES.brings}, {}).gaps == {}


# ---- what PATH starts


def merged(yields: Iterator[dict[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for part in yields:
        found |= part
    found.pop("asking", None)
    return found


def test_launchers_of_another_interpreter(tmp_path: Path) -> None:
    other = next((path for path in ("/usr/bin/python3", "/bin/python3") if os.path.exists(path)), "/usr/bin/python3")
    script(tmp_path / "accelerate", f"#!{other}")
    script(tmp_path / "torchrun", f"#!{other}")
    found = asked(PACKAGES, {"PATH": tmp_path})
    assert found["python"]["accelerate_on_path"] == found["python"]["torchrun_on_path"] == other
    assert found["python"]["on_path"] is None
    fires("accelerate_of_another_python", found, f"accelerate on PATH runs {other}")
    fires("python_on_path_is_another", found, f"torchrun on PATH is {other}")


def test_no_accelerate_on_path(tmp_path: Path) -> None:
    found = asked(PACKAGES, {"PATH": tmp_path})
    fires("accelerate_command_missing", found, "no `accelerate` on PATH")
    quiet("accelerate_of_another_python", found)


@pytest.mark.parametrize(
    ("lines", "interpreter"),
    [
        (("#!/x/bin/python3.12",), "/x/bin/python3.12"),
        (("#!/x/bin/python -sE",), "/x/bin/python -sE"),
        (("#!/bin/sh", '\'\'\'exec\' "/a b/bin/python" "$0" "$@"'), "/a b/bin/python"),
        (("#!/bin/sh", "'''exec' /a/bin/python3 \"$0\" \"$@\""), "/a/bin/python3"),
        (("#!/usr/bin/env bash", "exec pyenv"), None),
        (("#!/bin/bash",), None),
        (("\x7fELF",), None),
        (("",), None),
    ],
)
def test_the_interpreter_of_a_script(lines: tuple[str, ...], interpreter: str | None, tmp_path: Path) -> None:
    assert packages._interpreter_of(str(script(tmp_path / "accelerate", *lines))) == interpreter


def test_the_interpreter_of_env_is_the_one_on_path(tmp_path: Path) -> None:
    python = script(tmp_path / "python3", "#!/bin/sh")
    with mock.patch.dict(os.environ, {"PATH": str(tmp_path)}):
        assert packages._interpreter_of(str(script(tmp_path / "accelerate", "#!/usr/bin/env python3"))) == str(python)
    assert packages._interpreter_of(str(tmp_path / "gone")) is None


def test_other_names_of_this_interpreter_are_not_others(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(os.path.dirname(sys.executable))
    assert packages._canonical_interpreter(str(tmp_path / "link" / os.path.basename(sys.executable))) == sys.executable
    assert packages._canonical_interpreter(str(script(tmp_path / "shim", "#!/bin/sh"))) is None
    assert packages._canonical_interpreter("/gone/python") == "/gone/python"
    assert packages._canonical_interpreter(None) is None


# ---- files of one's own in the current directory


def test_a_file_that_hides_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("random.py", "torch.py", "train.py", "os.py", "utils.py"):
        (tmp_path / name).touch()
    (tmp_path / "numpy").mkdir()  # a folder without __init__.py hides nothing
    for package in ("accelerate", "xformers"):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text("raise SystemExit('this was executed')")
    found = asked(PACKAGES)
    assert found["libraries"]["shadowed"] == {
        "random": str(tmp_path / "random.py"), "torch": str(tmp_path / "torch.py"),
        "accelerate": str(tmp_path / "accelerate"),  # there is no xformers here that could be hidden
    }  # fmt: skip
    fires("module_shadowed_here", found, "random.py, torch.py and accelerate/ shadow")


def test_a_packages_own_checkout_hides_nothing(tmp_path: Path) -> None:
    (tmp_path / "einops.py").touch()
    (tmp_path / "queue.py").touch()
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "einops"\n')
    assert set(libraries.find_shadowed(str(tmp_path))) == {"queue"}
    standard = os.path.dirname(os.__file__)
    assert libraries.find_shadowed(standard) == {}
    assert libraries.find_shadowed(str(tmp_path / "gone")) == {}


# ---- libraries that are loaded


def test_the_files_of_nccl_are_read_as_it_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blanks stay, and HOME means nothing to it: the user database does (src/misc/param.cc)."""
    (tmp_path / ".nccl.conf").write_text("NCCL_DEBUG=INFO\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("NCCL_CONF_FILE", raising=False)
    assert str(tmp_path / ".nccl.conf") not in packages._nccl_files()
    named = tmp_path / "named.conf"
    named.write_text("# a comment\nNCCL_ALGO =Ring \n NCCL_PROTO=LL\nno value\n")
    monkeypatch.setenv("NCCL_CONF_FILE", str(named))
    assert packages._nccl_files()[str(named)] == ["NCCL_ALGO =Ring ", " NCCL_PROTO=LL"]


def test_a_preloaded_nccl_is_asked_itself(compiled: Compile, tmp_path: Path) -> None:
    site = tmp_path / "site"
    install_torch(site, "2.9.1", "13.0", "Requires-Dist: nvidia-nccl-cu13==2.29.7")
    install(site, "nvidia-nccl-cu13", "2.29.7")
    wheel = compiled(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2", NCCL_C, "-DVERSION=22907")
    found = asked(PACKAGES, {"PYTHONPATH": site})
    assert [(one["path"], one["version"]) for one in found["nccl"]["libraries"]][:1] == [(str(wheel), "2.29.7")]
    quiet("nccl_not_the_wheels", found)
    old = compiled(tmp_path / "old" / "libnccl.so.2", NCCL_C, "-DVERSION=22105")
    found = asked(PACKAGES, {"PYTHONPATH": site, "LD_PRELOAD": old})
    fires("nccl_not_the_wheels", found, "LD_PRELOAD loads NCCL 2.21.5 instead of the wheel's 2.29.7")
    assert found["libraries"]["found"][0]["origin"] == "preload"
    quiet("preload_hooks_ranks", found)


def test_the_nccl_of_an_image_is_not_the_one_of_a_wheel_beside_it(compiled: Compile, tmp_path: Path) -> None:
    """NVIDIA's image, and pip brought an NCCL for another package: torch pins none, and does not look there."""
    site, system = tmp_path / "site", tmp_path / "lib"
    install_torch(site)
    install(site, "nvidia-nccl-cu12", "2.28.3")
    compiled(site / "nvidia" / "nccl" / "lib" / "libnccl.so.2", NCCL_C, "-DVERSION=22803")
    own = compiled(system / "libnccl.so.2", NCCL_C, "-DVERSION=22707")
    found = asked(PACKAGES, {"PYTHONPATH": site, "LD_LIBRARY_PATH": system})
    assert found["nccl"]["libraries"][0] == {"path": str(own), "version": "2.27.7", "origin": "library_path"}
    quiet("nccl_not_the_wheels", found)


def outside_venv() -> str:
    """An interpreter that has none of the packages of these tests' environment."""
    if sys.prefix == sys.base_prefix:
        pytest.skip("not in a virtual environment")
    return str(getattr(sys, "_base_executable"))  # noqa: B009


FINDER = """\
import importlib.util, sys
class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        return importlib.util.spec_from_file_location(name, {sources!r}) if name == "torch" else None
sys.meta_path.append(Finder)
"""


def test_a_torch_whose_sources_an_import_hook_knows(tmp_path: Path) -> None:
    """`pip install -e` of a checkout: the metadata lies in site-packages, the package nowhere on sys.path."""
    site, sources = tmp_path / "site", tmp_path / "pytorch"
    folder = install_torch(sources, "2.10.0a0+git1a2b3c4", "12.8")
    (folder / "__init__.py").write_text("raise RuntimeError('the probe imports nothing')")
    install(site, "torch", "2.10.0a0+git1a2b3c4")
    (site / "sitecustomize.py").write_text(FINDER.format(sources=str(folder / "__init__.py")))
    found = asked(PACKAGES, {"PYTHONPATH": site}, python=outside_venv())
    assert found["pytorch"]["location"] == str(folder)
    assert found["pytorch"]["cuda"] == "12.8"
    quiet("torch_missing", found)


@pytest.mark.parametrize("metadata", [True, False])
def test_an_accelerate_that_is_a_checkout(metadata: bool, tmp_path: Path) -> None:
    """`setup.py develop` leaves metadata without a version in its name; PYTHONPATH alone leaves none."""
    (tmp_path / "accelerate").mkdir()
    (tmp_path / "accelerate" / "__init__.py").write_text('__version__ = "1.16.0.dev0"\n')
    if metadata:
        (tmp_path / "accelerate.egg-info").mkdir()
        (tmp_path / "accelerate.egg-info" / "PKG-INFO").write_text("Name: accelerate\nVersion: 1.16.0.dev0\n")
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path}, python=outside_venv())
    assert found["packages"]["accelerate"] == "1.16.0.dev0"
    quiet("accelerate_missing", found)


def test_an_nccl_wheel_that_was_overwritten(compiled: Compile, tmp_path: Path) -> None:
    install_torch(tmp_path, "2.9.1", "13.0", "Requires-Dist: nvidia-nccl-cu13==2.29.7")
    for name, version in (("nvidia-nccl-cu12", "2.21.5"), ("nvidia-nccl-cu13", "2.29.7")):
        install(tmp_path, name, version)
    compiled(tmp_path / "nvidia" / "nccl" / "lib" / "libnccl.so.2", NCCL_C, "-DVERSION=22105")
    found = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    assert found["nccl"]["libraries"][0]["version"] == "2.21.5"
    fires("nccl_wheels_mixed", found, "nvidia-nccl-cu12 2.21.5 and nvidia-nccl-cu13 2.29.7")


@pytest.mark.parametrize(("code", "version"), [("2804", "2.8.4"), ("21805", "2.18.5"), ("23007", "2.30.7")])
def test_the_numbers_of_nccl(code: str, version: str, compiled: Compile, tmp_path: Path) -> None:
    path = str(compiled(tmp_path / "libnccl.so.2", NCCL_C, f"-DVERSION={code}"))
    assert packages._nccl_version(path) == pytorch._nccl_version(path) == version


def test_an_nccl_that_cannot_be_asked(compiled: Compile, tmp_path: Path) -> None:
    garbage = tmp_path / "garbage.so"
    garbage.write_bytes(b"\x7fELF nothing of the kind")
    silent = compiled(tmp_path / "silent.so", "int other;")
    failing = compiled(tmp_path / "failing.so", "int ncclGetVersion(int *v) { return 1; }")
    for path in (garbage, silent, failing, tmp_path / "gone.so"):
        assert packages._nccl_version(str(path)) is None
        assert pytorch._nccl_version(str(path)) is None


def test_the_nccl_torch_really_loads(compiled: Compile, tmp_path: Path) -> None:
    importable_torch(tmp_path)
    old = compiled(tmp_path / "old" / "libnccl.so.2", NCCL_C, "-DVERSION=22105")
    found = asked(PYTORCH, {"PYTHONPATH": tmp_path, "BRING_IN": old})
    runtime = found["torch_runtime"]
    assert runtime["mapped"] == {"nccl": str(old)}
    assert runtime["nccl_version"] == "2.29.7"
    assert runtime["nccl_loaded_version"] == "2.21.5"
    assert runtime["cudnn_version"] == "9.10.2"
    fires("nccl_loaded_is_another", found, "NCCL 2.21.5 is loaded, torch was compiled with 2.29.7")
    new = compiled(tmp_path / "new" / "libnccl.so.2", NCCL_C, "-DVERSION=22907")
    quiet("nccl_loaded_is_another", asked(PYTORCH, {"PYTHONPATH": tmp_path, "BRING_IN": new}))


def test_a_preloaded_nccl_is_the_one_torch_runs_with(compiled: Compile, tmp_path: Path) -> None:
    importable_torch(tmp_path)
    old = compiled(tmp_path / "old" / "libnccl.so.2", NCCL_C, "-DVERSION=22105")
    found = asked(PYTORCH, {"PYTHONPATH": tmp_path, "LD_PRELOAD": old})
    fires("nccl_loaded_is_another", found, "NCCL 2.21.5 is loaded")


def test_a_cuda_library_from_elsewhere(compiled: Compile, tmp_path: Path) -> None:
    site = tmp_path / "site"
    importable_torch(site)
    (site / "torch-2.9.1.dist-info" / "METADATA").write_text("Requires-Dist: nvidia-nccl-cu13==2.29.7\n")
    wheel = compiled(site / "nvidia" / "cu13" / "lib" / "libcudart.so.13")
    foreign = compiled(tmp_path / "cuda" / "lib64" / "libcudart.so.13")
    stack = asked(PACKAGES, {"PYTHONPATH": site})
    found = stack | asked(PYTORCH, {"PYTHONPATH": site, "BRING_IN": foreign})
    fires("torch_maps_foreign_library", found, f"torch loaded {foreign}")
    quiet("torch_maps_foreign_library", stack | asked(PYTORCH, {"PYTHONPATH": site, "BRING_IN": wheel}))


def test_a_cudnn_that_torch_refuses(tmp_path: Path) -> None:
    importable_torch(
        tmp_path, "backends.cudnn.version = _Called(RuntimeError('cuDNN version incompatibility: old\\nmore'))\n"
    )
    found = asked(PYTORCH, {"PYTHONPATH": tmp_path})
    fires("cudnn_refused_by_torch", found, "^cuDNN version incompatibility: old$")


def test_torch_that_dies_of_a_signal_is_named(tmp_path: Path) -> None:
    folder = install_torch(tmp_path)
    (folder / "__init__.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSEGV)\n")
    stack = asked(PACKAGES, {"PYTHONPATH": tmp_path})
    found = stack | asked(PYTORCH, {"PYTHONPATH": tmp_path})
    fires("torch_import_fails", found, "the process was killed by SIGSEGV during `import torch`")


EXTENSION = f"flash_attn_2_cuda{importlib.machinery.EXTENSION_SUFFIXES[0]}"


def test_an_extension_of_another_torch(compiled: Compile, tmp_path: Path) -> None:
    importable_torch(tmp_path)
    compiled(tmp_path / EXTENSION, "extern void _ZN3c105ErrorC2Ev(void); void use(void) { _ZN3c105ErrorC2Ev(); }")
    compiled(tmp_path / "torchvision" / "_C.so")
    found = asked(PYTORCH, {"PYTHONPATH": tmp_path})
    assert found["torch_runtime"]["extensions"]["torchvision"] == ""
    fires("extension_does_not_load", found, "flash_attn cannot be loaded: .*undefined symbol: _ZN3c105ErrorC2Ev")


def test_an_extension_that_crashes_costs_nothing_else(compiled: Compile, tmp_path: Path) -> None:
    importable_torch(tmp_path)
    crash = "#include <signal.h>\n__attribute__((constructor)) static void start(void) { raise(SIGSEGV); }"
    compiled(tmp_path / EXTENSION, crash)
    found = asked(PYTORCH, {"PYTHONPATH": tmp_path})
    assert found["torch_runtime"]["gloo_available"] is True
    fires("extension_does_not_load", found, "flash_attn cannot be loaded: the process died while loading it")


# ---- the driver's libraries


def test_a_stub_that_is_found_first(compiled: Compile, tmp_path: Path) -> None:
    compiled(tmp_path / "stubs" / "libcuda.so")
    (tmp_path / "stubs" / "libcuda.so.1").symlink_to("libcuda.so")
    found = asked(PACKAGES, {"LD_LIBRARY_PATH": tmp_path / "stubs"})
    fires("libcuda_is_stub", found, "stubs/libcuda.so is a stub")
    quiet("libcuda_not_the_drivers", found)


def test_a_libcuda_of_another_driver(compiled: Compile, tmp_path: Path) -> None:
    compiled(tmp_path / "lib" / "libcuda.so.550.54.14")
    (tmp_path / "lib" / "libcuda.so.1").symlink_to("libcuda.so.550.54.14")
    found = asked(PACKAGES, {"LD_LIBRARY_PATH": tmp_path / "lib"})
    cuda = next(one for one in found["libraries"]["found"] if one["name"] == "cuda")
    assert cuda == {
        "name": "cuda", "path": str(tmp_path / "lib" / "libcuda.so.550.54.14"), "origin": "library_path",
        "version": "550.54.14", "loads": True, "error": None,
    }  # fmt: skip
    fires("libcuda_not_the_drivers", found, "libcuda is 550.54.14, the driver 580.65.06")
    quiet("libcuda_is_stub", found)


@pytest.mark.parametrize("folder", ["cuda-12.4/compat", "cuda/compat/lib", "cuda-compat"])
def test_a_compatibility_library(folder: str, compiled: Compile, tmp_path: Path) -> None:
    compiled(tmp_path / folder / "libcuda.so.590.44.01")
    (tmp_path / folder / "libcuda.so.1").symlink_to("libcuda.so.590.44.01")
    found = asked(PACKAGES, {"LD_LIBRARY_PATH": tmp_path / folder})
    fires("cuda_compat_active", found, "cuda-compat 590.44.01 over driver 580.65.06")
    fires("cuda_compat_on_geforce", found, "GeForce", gpus=gpus(name="NVIDIA GeForce RTX 4090"))
    quiet("libcuda_not_the_drivers", found)


def test_a_libcuda_that_crashes_costs_itself_only(compiled: Compile, tmp_path: Path) -> None:
    crash = "#include <stdlib.h>\n__attribute__((constructor)) static void start(void) { abort(); }"
    compiled(tmp_path / "libcuda.so.1", crash)
    found = asked(PACKAGES, {"LD_LIBRARY_PATH": tmp_path})
    cuda = next(one for one in found["libraries"]["found"] if one["name"] == "cuda")
    assert (cuda["loads"], cuda["error"]) == (False, "the process died while loading it")
    assert found["packages"] and found["libraries"]["requires"]


# ---- the loader's path


def test_an_older_library_on_library_path(tmp_path: Path) -> None:
    site, system = tmp_path / "site", tmp_path / "cuda-12.1" / "lib64"
    install_torch(site, "2.5.1", "12.4", "Requires-Dist: nvidia-nccl-cu12==2.21.5")
    install(site, "nvidia-nvjitlink-cu12", "12.4.127")
    for folder in (site / "nvidia" / "nvjitlink" / "lib", system):
        folder.mkdir(parents=True)
    (site / "nvidia" / "nvjitlink" / "lib" / "libnvJitLink.so.12").touch()
    for name, soname in (
        ("libnvJitLink.so.12.1.105", "libnvJitLink.so.12"),
        ("libcudart.so.12.1.105", "libcudart.so.12"),
    ):
        (system / name).touch()
        (system / soname).symlink_to(name)
    found = asked(PACKAGES, {"PYTHONPATH": site, "LD_LIBRARY_PATH": f"/nowhere::{system}"})
    named = {one["path"]: one["version"] for one in found["libraries"]["found"] if one["origin"] == "library_path"}
    assert named == {
        f"{system}/libcudart.so.12": "12.1.105", f"{system}/libnvJitLink.so.12": "12.1.105",
    }  # fmt: skip
    fires("library_path_shadows_wheels", found, "libnvJitLink.so.12 is 12.1.105, torch's wheel 12.4.127")


def test_what_is_preloaded(tmp_path: Path) -> None:
    file = tmp_path / "ld.so.preload"
    file.write_text(f"# a site's own\n{tmp_path}/libmonitor.so /gone/libtcmalloc.so.4\n")
    (tmp_path / "libmonitor.so").touch()
    with mock.patch.dict(os.environ, {"LD_PRELOAD": "libjemalloc.so.2"}):
        found = merged(libraries.probe([], str(tmp_path), str(file)))
    preloaded = {one["path"]: one["loads"] for one in found["libraries"]["found"] if one["origin"] == "preload"}
    assert preloaded == {"libjemalloc.so.2": None, f"{tmp_path}/libmonitor.so": True, "/gone/libtcmalloc.so.4": False}
    fires("preload_hooks_ranks", found, r"libmonitor.so, /gone/libtcmalloc.so.4 \(does not exist\)")


# ---- NCCL's plugins


def test_a_plugin_that_cannot_be_loaded(tmp_path: Path) -> None:
    broken = tmp_path / "libnccl-tuner-mine.so"
    broken.write_text("not a library")
    found = asked(PACKAGES, {"NCCL_NET_PLUGIN": "nosuch", "NCCL_TUNER_PLUGIN": broken})
    named = {one["name"]: one for one in found["libraries"]["found"] if one["name"].startswith("nccl-")}
    assert {name: one["loads"] for name, one in named.items()} == {"nccl-net": False, "nccl-tuner": False}
    fires("nccl_plugin_not_loadable", found, "nccl-net plugin nosuch and nccl-tuner plugin .* cannot be loaded")


def test_plugins_that_are_found_as_nccl_finds_them(compiled: Compile, tmp_path: Path) -> None:
    compiled(tmp_path / "libnccl-net-mine.so")
    whole = compiled(tmp_path / "other" / "libnccl-tuner.so")
    env: dict[str, str | Path] = {
        "LD_LIBRARY_PATH": tmp_path,
        "NCCL_NET_PLUGIN": "mine,none",
        "NCCL_TUNER_PLUGIN": whole,
    }
    found = asked(PACKAGES, env)
    named = {one["path"]: one["loads"] for one in found["libraries"]["found"] if one["name"].startswith("nccl-")}
    assert named == {str(tmp_path / "libnccl-net-mine.so"): True, str(whole): True}
    quiet("nccl_plugin_not_loadable", found)


def test_a_plugin_may_need_torchs_cuda_runtime(compiled: Compile, tmp_path: Path) -> None:
    folder = tmp_path / "site" / "nvidia" / "cuda_runtime" / "lib"
    compiled(folder / "libcudart.so.12", "int cudaOne;", "-Wl,-soname,libcudart.so.12")
    plugin = compiled(
        tmp_path / "libnccl-net.so", "extern int cudaOne; int use(void) { return cudaOne; }", f"-L{folder}",
        "-Wl,--no-as-needed", "-l:libcudart.so.12",
    )  # fmt: skip
    quiet("nccl_plugin_not_loadable", asked(PACKAGES, {"PYTHONPATH": tmp_path / "site", "NCCL_NET_PLUGIN": plugin}))
    alone = asked(PACKAGES, {"NCCL_TUNER_PLUGIN": plugin})
    fires("nccl_plugin_not_loadable", alone, "nccl-tuner")


# ---- tools that compile


def test_nvcc_says_its_version(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "nvcc", "#!/bin/sh", "echo 'Cuda compilation tools, release 12.6, V12.6.85'")
    install(tmp_path / "site", "deepspeed", "0.16.3")
    env = {"CUDA_HOME": tmp_path, "PYTHONPATH": tmp_path / "site"}
    found = asked(PACKAGES, env)
    assert (found["libraries"]["nvcc"], found["libraries"]["nvcc_path"]) == ("12.6", str(tmp_path / "bin" / "nvcc"))
    stack = {"libraries": found["libraries"], "packages": found["packages"]}
    fires("deepspeed_refuses_nvcc", stack, "nvcc is 12.6, torch is built for CUDA 13.0")
    fires("nvcc_of_another_cuda", stack, "nvcc is 12.6")
    (tmp_path / "version.json").write_text('{"cuda_nvcc": {"version": "13.0.88"}}')  # a whole toolkit has this file
    assert asked(PACKAGES, env)["libraries"]["nvcc"] == "13.0"


def test_nvcc_on_path_newer_than_the_driver(tmp_path: Path) -> None:
    script(tmp_path / "bin" / "nvcc", "#!/bin/sh", "echo 'Cuda compilation tools, release 13.2, V13.2.1'")
    found = asked(PACKAGES, {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}"})
    assert found["libraries"]["cuda_home"] == str(tmp_path)
    fires("nvcc_newer_than_driver", found, "nvcc is 13.2, the driver supports CUDA up to 13.0")


def test_deepspeed_without_a_toolkit(tmp_path: Path) -> None:
    install_torch(tmp_path)
    install(tmp_path, "deepspeed", "0.18.9")
    found = asked(PACKAGES, {"CUDA_HOME": tmp_path / "gone", "PATH": tmp_path, "PYTHONPATH": tmp_path})
    assert found["libraries"]["cuda_home"] == str(tmp_path / "gone")
    fires("deepspeed_cannot_compile", found, "deepspeed 0.18.9 without nvcc, a C\\+\\+ compiler and ninja")


@pytest.mark.parametrize("lines", [("#!/bin/sh", "exec sleep 60"), ("#!/gone",), ("garbage",), ("#!/bin/sh", "exit 3")])
def test_an_nvcc_that_does_not_answer(lines: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nvcc = script(tmp_path / "bin" / "nvcc", *lines)
    (tmp_path / "version.json").write_text('{"cuda_nvcc": 7')
    monkeypatch.setattr(libraries, "_NVCC_S", 0.3)
    began = time.monotonic()
    assert libraries._nvcc_version(str(tmp_path), str(nvcc)) is None
    assert time.monotonic() - began < 10


def test_compilers_by_name(tmp_path: Path) -> None:
    real = script(tmp_path / "x86_64-linux-gnu-g++-13", "#!/bin/sh")
    (tmp_path / "c++").symlink_to(real)
    script(tmp_path / "mine", "#!/bin/sh")
    with mock.patch.dict(os.environ, {"PATH": str(tmp_path)}):
        assert libraries._compiler(None, "c++", "g++") == "13"
        assert libraries._compiler("mine -O2", "c++") == "unknown"
        assert libraries._compiler("gone", "c++") is None
        assert libraries._compiler(" ", "clang") is None


# ---- versions


@pytest.fixture(scope="module")
def versions() -> ModuleType:
    return importlib.import_module("mgpu.checks._versions")


NUMBERS = st.lists(st.integers(0, 30), min_size=1, max_size=4).map(lambda parts: ".".join(map(str, parts)))
ENDS = st.sampled_from(["", "a1", "b2", "rc1", "rc", ".post1", "-1", ".dev0", "a1.dev3", ".post2.dev1", "rc2.post1"])
LOCALS = st.sampled_from(["", "+cu130", "+cpu", "+145a3a7bda.nv25.10"])
VERSIONS = st.tuples(NUMBERS, ENDS, LOCALS).map("".join)
SPECIFIERS = st.tuples(st.sampled_from(["==", "!=", "<=", ">=", "<", ">"]), NUMBERS).map("".join)


@settings(deadline=None)
@given(VERSIONS, VERSIONS)
def test_versions_are_ordered_as_packaging_orders_them(one: str, other: str) -> None:
    ours = importlib.import_module("mgpu.checks._versions")
    theirs = [Version(re.sub(r"\+.*", "", text)) for text in (one, other)]
    assert (ours.parse_version(one) < ours.parse_version(other)) == (theirs[0] < theirs[1])
    assert (ours.parse_version(one) == ours.parse_version(other)) == (theirs[0] == theirs[1])


@settings(deadline=None)
@given(NUMBERS, LOCALS, SPECIFIERS)
def test_specifiers_are_met_as_packaging_says(version: str, local: str, specifier: str) -> None:
    ours = importlib.import_module("mgpu.checks._versions")
    assert ours.satisfies(version + local, specifier) == SpecifierSet(specifier).contains(
        Version(version + local).public
    )


@pytest.mark.parametrize(
    ("installed", "specifier", "met"),
    [
        ("2.9.1+cu130", "==2.9.1", True),
        ("2.9.0", "==2.9", True),
        ("13.0.88", "==13.0.88.*", True),
        ("13.1.0.3", "==13.1.0.3.*", True),
        ("13.0.89", "==13.0.88.*", False),
        ("3.1", "!=3.1.*", False),
        ("3.8.2", "~=3.8.0", True),
        ("3.9.0", "~=3.8.0", False),
        ("0.34.0", ">=0.34.0,<1.0", True),
        ("1.0.0", ">=0.34.0,<1.0", False),
        ("2.9.0a0+145a3a7bda.nv25.10", ">=2.9", True),
        ("2.9.0a0+145a3a7bda.nv25.10", "==2.9.0", True),
        ("4.57.0.dev0", ">=4.57", True),
        ("5.0.0rc1", "<5", False),
        ("1.10.0", ">1.9", True),
        ("2.0", "===2.0", True),
        ("git-main", ">=1", None),
        (None, ">=1", None),
        ("1.0", "about 1", None),
        ("1.0", ">=one", None),
        ("1.0", ">=1.*", None),
    ],
)
def test_specifiers_as_people_mean_them(
    installed: str | None, specifier: str, met: bool | None, versions: ModuleType
) -> None:
    assert versions.satisfies(installed, specifier) is met


def test_every_known_fault_has_a_source_and_ranges_that_can_be_read(versions: ModuleType) -> None:
    for row in versions.TOGETHER:
        assert row.url.startswith("https://github.com/") and row.effect.endswith(".")
        for specifier in row.packages.values():
            assert versions.satisfies("99999", specifier) is not None


# ---- speed


def test_the_child_answers_quickly() -> None:
    """Not a benchmark: only that nothing in it takes seconds."""
    began = time.monotonic()
    asked(replace(PACKAGES, then=(LIBRARIES,)))
    assert time.monotonic() - began < 15
