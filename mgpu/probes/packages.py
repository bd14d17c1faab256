"""Which torch, NCCL and accelerate are installed in an interpreter, without importing any of them?

Runs in a child process in the interpreter of the training: it loads libnccl to ask its version, and a foreign library
may do anything. Versions come from dist-info folders, `torch/version.py` and the libraries themselves, because a wheel
from PyPI does not carry +cu130 in its metadata.
"""

from __future__ import annotations

import ctypes
import glob
import os
import re
import shutil
import sys
from collections.abc import Iterator
from typing import Any

_WANTED = (
    "accelerate", "torch", "transformers", "datasets", "deepspeed", "peft", "trl", "flash_attn", "bitsandbytes",
    "triton", "numpy", "nvidia_ml_py", "pynvml", "torchvision", "torchaudio", "transformer_engine", "torchao",
    "xformers",
)  # fmt: skip


def probe() -> Iterator[dict[str, Any]]:
    """Yield the facts python, packages and pytorch, then nccl (whose library is loaded last: it may crash)."""
    yield {"asking": "the files of the installed packages"}
    versions = _versions()
    torch = _torch(versions)
    yield {"python": _python(), "packages": versions["packages"], "pytorch": torch}
    yield {"asking": "ncclGetVersion"}
    yield {"nccl": _nccl(versions["nccl"], torch)}


def _versions() -> dict[str, dict[str, str]]:
    """Names and versions of installed distributions; a name on two paths counts where Python would find it first."""
    packages: dict[str, str] = {}
    nccl: dict[str, str] = {}
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            if not name.endswith(".dist-info"):
                continue
            distribution, _, version = name.removesuffix(".dist-info").rpartition("-")
            key = distribution.lower().replace("-", "_")
            if key in _WANTED:
                packages.setdefault(key.replace("_", "-"), version)
            elif key.startswith("nvidia_nccl_cu"):
                nccl.setdefault(key.replace("_", "-"), version)
    return {"packages": packages, "nccl": nccl}


def _python() -> dict[str, Any]:
    on_path = shutil.which("python") or shutil.which("python3")
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "on_path": on_path,
        "accelerate_on_path": _interpreter_of(shutil.which("accelerate")),
        "accelerate_default_config": _default_config(),
    }


def _interpreter_of(script: str | None) -> str | None:
    """The interpreter a console script starts: the path in its first line."""
    if script is None:
        return None
    try:
        with open(script, "rb") as file:
            first = file.readline(4096).decode("utf-8", "replace").strip()
            if first == "#!/bin/sh":  # pip and uv write this form when the path is long or has blanks
                first = (
                    "#!" + file.readline(4096).decode("utf-8", "replace").partition("'''exec' ")[2].split(' "$0"')[0]
                )
    except OSError:
        return None
    return first.removeprefix("#!").strip().strip("'\"") or None


def _default_config() -> str | None:
    """The file accelerate reads when nobody names one (commands/config/config_args.py)."""
    cache = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    path = os.path.join(cache, "accelerate", "default_config.yaml")
    return path if os.path.isfile(path) else None


def _torch(versions: dict[str, dict[str, str]]) -> dict[str, Any]:
    """torch by its files: the first `torch/version.py` on sys.path."""
    for folder in sys.path:
        location = os.path.join(folder or ".", "torch")
        text = _read(os.path.join(location, "version.py"))
        if text is None:
            continue
        values = dict(re.findall(r"^(__version__|cuda|hip)\s*(?::[^=\n]*)?=\s*'([^']*)'", text, re.MULTILINE))
        cuda = values.get("cuda")
        return {
            "installed": True,
            "version": values.get("__version__") or versions["packages"].get("torch"),
            "cuda": cuda,
            "hip": values.get("hip"),
            "location": location,
            "arch_list": _arch_list(location) if cuda else None,
            "nccl_required": _nccl_required(folder),
        }
    return {"installed": False}


def _arch_list(location: str) -> list[str] | None:
    """The kernels in the wheel, as torch.cuda.get_arch_list() has them: a NUL-terminated text in libtorch_python.so."""
    import mmap

    try:
        with (
            open(os.path.join(location, "lib", "libtorch_python.so"), "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            found = re.search(rb"\0((?:sm_\d+[a-z]? )*(?:sm|compute)_\d+[a-z]?)\0", data)
            return found.group(1).decode().split() if found else None
    except (OSError, ValueError):
        return None


def _nccl_required(folder: str) -> str | None:
    for path in glob.glob(os.path.join(glob.escape(folder), "torch-*.dist-info", "METADATA")):
        found = re.search(r"^Requires-Dist: (nvidia-nccl-cu\d+==[\w.]+)", _read(path) or "", re.MULTILINE)
        if found:
            return found.group(1)
    return None


def _nccl(wheels: dict[str, str], torch: dict[str, Any]) -> dict[str, Any]:
    """The libnccl files a torch process could load, the winner first: preloaded, then the wheel's (its DT_RPATH wins
    over LD_LIBRARY_PATH), then LD_LIBRARY_PATH, then the system's."""
    candidates = [
        (path, "preload") for path in re.split(r"[ :]", os.environ.get("LD_PRELOAD", "")) if "libnccl" in path
    ]
    if torch.get("cuda"):
        site = os.path.dirname(torch["location"])
        candidates += [(path, "wheel") for path in glob.glob(f"{glob.escape(site)}/nvidia/nccl/lib/libnccl.so.2")]
    for folder in os.environ.get("LD_LIBRARY_PATH", "").split(":"):
        path = os.path.join(folder, "libnccl.so.2")
        if folder and os.path.isfile(path):
            candidates.append((path, "library_path"))
    for folder in ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"):
        if os.path.isfile(f"{folder}/libnccl.so.2"):
            candidates.append((f"{folder}/libnccl.so.2", "system"))
    libraries = [{"path": path, "version": _nccl_version(path), "origin": origin} for path, origin in candidates]
    return {"libraries": libraries, "wheels": wheels, "config_files": _nccl_files()}


def _nccl_version(path: str) -> str | None:
    """What ncclGetVersion answers: 22907 -> 2.29.7 (before 2.9: 2804 -> 2.8.4)."""
    try:
        code = ctypes.c_int()
        if ctypes.CDLL(path).ncclGetVersion(ctypes.byref(code)):
            return None
    except (OSError, AttributeError):
        return None
    number = code.value
    if number < 10000:
        return f"{number // 1000}.{number % 1000 // 100}.{number % 100}"
    return f"{number // 10000}.{number % 10000 // 100}.{number % 100}"


def _nccl_files() -> dict[str, list[str]]:
    """nccl.conf files NCCL reads after the environment: NAME=value lines, # comments (src/misc/param.cc)."""
    found = {}
    for path in (os.environ.get("NCCL_CONF_FILE") or os.path.expanduser("~/.nccl.conf"), "/etc/nccl.conf"):
        text = _read(path)
        if text is not None:
            found[path] = [line.strip() for line in text.splitlines() if "=" in line and not line.startswith("#")]
    return found


def _read(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return None
