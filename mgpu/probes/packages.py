"""Which torch, NCCL and accelerate are installed in an interpreter, without importing any of them?

Runs in a child process in the training run's interpreter, because it loads libnccl to query its version, and a foreign
library can hang or crash. Versions come from dist-info folders, `torch/version.py` and the libraries themselves,
because the metadata of a wheel from PyPI does not include +cu130.
"""

from __future__ import annotations

import ctypes
import glob
import os
import pwd
import re
import shutil
import stat
import sys
from collections.abc import Iterator, Sequence
from typing import Any

_MOST_BYTES = 4 << 20  # of a METADATA or a version file; the longest have 0.3 MiB
_MOST_NCCL = 64 << 10  # of an nccl.conf: NCCL has some 200 variables
# fmt: off
_WANTED = (
    "accelerate", "torch", "transformers", "datasets", "deepspeed", "peft", "trl", "flash_attn", "bitsandbytes",
    "triton", "numpy", "nvidia_ml_py", "pynvml", "torchvision", "torchaudio", "transformer_engine", "torchao",
    "xformers", "huggingface_hub", "tokenizers", "safetensors", "diffusers", "lightning", "pytorch_lightning", "vllm",
    "liger_kernel", "causal_conv1d", "mamba_ssm", "apex", "ninja", "ms_amp",
)
# fmt: on


def probe() -> Iterator[dict[str, Any]]:
    """Yield the facts python, packages and pytorch, then nccl (last, because loading its library can crash)."""
    yield {"asking": "files of the installed packages"}
    versions = _versions()
    torch = _torch(versions)
    yield {"python": _python(versions), "packages": versions["packages"], "pytorch": torch}
    yield {"asking": "ncclGetVersion"}
    yield {"nccl": _nccl(versions["nccl"], torch)}


def _versions() -> dict[str, dict[str, str]]:
    """Return names and versions of installed distributions; of several copies, the first on sys.path.

    `user`: the ones in the user's site-packages.
    """
    packages: dict[str, str] = {}
    nccl: dict[str, str] = {}
    user: dict[str, str] = {}
    user_site = _user_site()
    for folder in sys.path:
        try:
            names = os.listdir(folder or ".")
        except OSError:
            continue
        for name in names:
            distribution, _, version = _distribution(name)
            unversioned = bool(version) and not distribution  # accelerate.egg-info next to the sources of a checkout
            key = (version if unversioned else distribution).lower().replace("-", "_").replace(".", "_")
            if key in _WANTED:
                version = _in_metadata(os.path.join(folder, name, "PKG-INFO")) if unversioned else version
                packages.setdefault(key.replace("_", "-"), version)
                if folder == user_site:
                    user[key.replace("_", "-")] = version
            elif key.startswith("nvidia_nccl_cu"):
                nccl.setdefault(key.replace("_", "-"), version)
    if "accelerate" not in packages and (sources := _source_version("accelerate")) is not None:
        packages["accelerate"] = sources
    return {"packages": packages, "nccl": nccl, "user": user}


def _in_metadata(path: str) -> str:
    found = re.search(r"^Version:\s*(\S+)", _read(path) or "", re.MULTILINE)
    return found.group(1) if found else ""


def _source_version(package: str) -> str | None:
    """Return the version of a package that is importable but not installed: a checkout on PYTHONPATH."""
    for folder in sys.path:
        text = _read(os.path.join(folder or ".", package, "__init__.py"))
        if text is not None:
            found = re.search(r"^__version__\s*=\s*[\"']([^\"']+)", text, re.MULTILINE)
            return found.group(1) if found else ""
    return None


def _distribution(name: str) -> tuple[str, str, str]:
    """Split `torch-2.9.1.dist-info` (pip) or `torch-2.5.1-py3.11.egg-info` (conda) into name, dash and version."""
    if name.endswith(".dist-info"):
        return name[: -len(".dist-info")].rpartition("-")
    if name.endswith(".egg-info"):
        return re.sub(r"-py\d[\d.]*$", "", name[: -len(".egg-info")]).rpartition("-")
    return "", "", ""


def _python(versions: dict[str, dict[str, str]]) -> dict[str, Any]:
    accelerate, torchrun = shutil.which("accelerate"), shutil.which("torchrun")
    return {
        "executable": sys.executable,
        "version": ".".join(map(str, sys.version_info[:3])),
        "on_path": _canonical_interpreter(shutil.which("python") or shutil.which("python3")),
        "accelerate_on_path": _canonical_interpreter(_interpreter_of(accelerate)),
        "accelerate_default_config": _default_config(),
        "accelerate_default_settings": _default_settings(),
        "accelerate_command": accelerate,
        "torchrun_on_path": _canonical_interpreter(_interpreter_of(torchrun)),
        "environment": _environment(),
        "prefix": sys.prefix,
        "suffixes": _suffixes(),
        "user_site": _user_site(),
        "user_packages": versions["user"],
    }


def _environment() -> str:
    """Return the kind of this interpreter's environment."""
    if sys.prefix != sys.base_prefix:
        return "venv"
    return "conda" if os.path.isdir(os.path.join(sys.prefix, "conda-meta")) else "system"


def _suffixes() -> list[str]:
    """Return the suffixes of compiled modules for this interpreter: .cpython-311-x86_64-linux-gnu.so, .abi3.so, .so."""
    import importlib.machinery

    return importlib.machinery.EXTENSION_SUFFIXES


def _user_site() -> str | None:
    """Return the user's site-packages if this interpreter uses it (not in a venv or with -s)."""
    site = sys.modules.get("site")
    folder = getattr(site, "USER_SITE", None)
    return folder if folder in sys.path else None


def _interpreter_of(script: str | None) -> str | None:
    """Return the interpreter of a console script, from its first line; None for other kinds of wrappers."""
    if script is None:
        return None
    try:
        with open(script, "rb") as file:
            first = file.readline(4096).decode("utf-8", "replace").strip()
            if first == "#!/bin/sh":  # pip and uv write this form if the path is long or has blanks
                first = (
                    "#!" + file.readline(4096).decode("utf-8", "replace").partition("'''exec' ")[2].split(' "$0"')[0]
                )
    except OSError:
        return None
    words = first[2:].strip().strip("'\"") if first.startswith("#!") else ""
    if words.startswith("/usr/bin/env "):
        words = shutil.which(words.split()[-1]) or ""
    if not os.path.basename(words).startswith(("python", "pypy")):
        return None  # a pyenv or site wrapper, which does not contain the interpreter's path
    return words


def _canonical_interpreter(python: str | None) -> str | None:
    """Return sys.executable for another path of this interpreter (python3.11 next to python, a linked folder)."""
    if python is None or not sys.executable:
        return python
    try:
        with open(python, "rb") as file:
            if file.read(2) == b"#!":
                return None  # a wrapper, as in pyenv
        here, there = os.path.dirname(sys.executable), os.path.dirname(python)
        in_venv = any(os.path.exists(os.path.join(folder, "..", "pyvenv.cfg")) for folder in (here, there))
        if os.path.samefile(here, there) or (not in_venv and os.path.samefile(python, sys.executable)):
            return sys.executable
    except OSError:
        pass
    return python


def _default_config() -> str | None:
    """Return the config that accelerate reads by default (commands/config/config_args.py)."""
    cache = os.environ.get("HF_HOME") or os.path.join(
        os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"), "huggingface"
    )
    path = os.path.join(cache, "accelerate", "default_config.yaml")
    return path if os.path.isfile(path) else None


def _default_settings() -> dict[str, str]:
    """Return the default config's keys that determine what it starts. It is YAML, or JSON in a .yaml file."""
    text = (_read(_default_config() or "") or "")[:65536]
    form = r"""^\s*["']?(distributed_type|num_processes|num_machines|mixed_precision)["']?\s*:\s*(\S[^#\n]*)"""
    return {key: value.strip(" \t\"',") for key, value in re.findall(form, text, re.MULTILINE)}


def _torch(versions: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Return torch as found in its files: the first `torch/version.py` on sys.path or in an editable install."""
    places = [os.path.join(folder or ".", "torch") for folder in sys.path]
    if "torch" in versions["packages"] and not any(os.path.isfile(os.path.join(p, "version.py")) for p in places):
        places = _editable("torch")
    for location in places:
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
            "nccl_required": _nccl_required(os.path.dirname(location)),
            "built_for": _built_for(location),
        }
    return {"installed": False}


def _editable(package: str) -> list[str]:
    """Return the folder of an editable install (`pip install -e`) from its import hook, without importing it."""
    import importlib.util

    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError, AttributeError):
        return []
    return [os.path.dirname(spec.origin)] if spec is not None and spec.origin else []


def _arch_list(location: str) -> list[str] | None:
    """Return the architectures of torch.cuda.get_arch_list(), a NUL-terminated text in libtorch_python.so.

    Searches for its beginning first, because a regular expression over 34 MB takes ten times as long.
    """
    import mmap

    whole = re.compile(rb"\0((?:sm_\d+[a-z]? )*(?:sm|compute)_\d+[a-z]?)\0")
    try:
        with (
            open(os.path.join(location, "lib", "libtorch_python.so"), "rb") as file,
            mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
        ):
            for beginning in (b"\0sm_", b"\0compute_"):
                place = data.find(beginning)
                while place >= 0:
                    found = whole.match(data, place)
                    if found:
                        return found.group(1).decode().split()
                    place = data.find(beginning, place + 1)
    except (OSError, ValueError):
        pass
    return None


def _built_for(location: str) -> list[str]:
    """Return the suffixes of torch's compiled module `_C`; the interpreter must support one of them."""
    try:
        with os.scandir(location) as entries:
            return sorted(entry.name[2:] for entry in entries if re.fullmatch(r"_C\..*\bso", entry.name))
    except OSError:
        return []


def _nccl_required(folder: str) -> str | None:
    for path in glob.glob(os.path.join(glob.escape(folder), "torch-*.dist-info", "METADATA")):
        found = re.search(r"^Requires-Dist: (nvidia-nccl-cu\d+==[\w.]+)", _read(path) or "", re.MULTILINE)
        if found:
            return found.group(1)
    return None


def _nccl(wheels: dict[str, str], torch: dict[str, Any]) -> dict[str, Any]:
    """Return the libnccl files that a torch process could load, the used one first.

    Order: preloaded, the wheel's or conda's (torch's DT_RPATH has precedence over LD_LIBRARY_PATH), LD_LIBRARY_PATH,
    the system's.
    """
    candidates = [
        (path, "preload") for path in re.split(r"[ :]", os.environ.get("LD_PRELOAD", "")) if "libnccl" in path
    ]
    wheels_own: list[tuple[str, str]] = []
    if torch.get("cuda"):
        site = os.path.dirname(torch["location"])
        wheels_own = [(path, "wheel") for path in glob.glob(f"{glob.escape(site)}/nvidia/nccl/lib/libnccl.so.2")]
        if torch["nccl_required"]:  # torch from an image or conda does not search other packages' wheels
            candidates += wheels_own
        if _environment() == "conda":
            candidates += _in_folders([os.path.join(sys.prefix, "lib")], "conda")
    candidates += _in_folders(os.environ.get("LD_LIBRARY_PATH", "").split(":"), "library_path")
    candidates += _in_folders(
        ("/usr/lib/x86_64-linux-gnu", "/usr/lib/aarch64-linux-gnu", "/usr/lib64", "/usr/local/lib"), "system"
    )
    candidates += [found for found in wheels_own if found not in candidates]
    libraries = [{"path": path, "version": _nccl_version(path), "origin": origin} for path, origin in candidates]
    return {"libraries": libraries, "wheels": wheels, "config_files": _nccl_files()}


def _in_folders(folders: Sequence[str], origin: str) -> list[tuple[str, str]]:
    paths = [os.path.join(folder, "libnccl.so.2") for folder in folders if folder]
    return [(path, origin) for path in paths if os.path.isfile(path)]


def _nccl_version(path: str) -> str | None:
    """Return the version from ncclGetVersion: 22907 -> 2.29.7 (before 2.9: 2804 -> 2.8.4)."""
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
    """Return the nccl.conf files that NCCL reads after the environment: NAME=value lines (src/misc/param.cc).

    Lines are kept verbatim, because NCCL treats blanks as part of the name and the value. NCCL looks up the home folder
    in the user database and ignores HOME.
    """
    found = {}
    own = os.environ.get("NCCL_CONF_FILE") or _nccl_file_at_home()
    for path in (*filter(None, [own]), "/etc/nccl.conf"):
        text = _read(path, _MOST_NCCL)
        if text is not None:
            found[path] = [line for line in text.split("\n") if "=" in line and not line.startswith("#")]
    return found


def _nccl_file_at_home() -> str | None:
    try:
        return f"{pwd.getpwuid(os.getuid()).pw_dir}/.nccl.conf"
    except KeyError:  # a container's user without a name
        return None


def _read(path: str, most: int = _MOST_BYTES) -> str | None:
    """Return the text of a regular file; None if there is none, or it has more than `most` bytes."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    except (OSError, ValueError):
        return None
    try:
        data = b""
        regular = stat.S_ISREG(os.fstat(file).st_mode)
        while regular and len(data) <= most and (piece := os.read(file, 1 << 20)):
            data += piece
    except OSError:
        return None
    finally:
        os.close(file)
    return data.decode("utf-8", "replace").replace("\r\n", "\n") if regular and len(data) <= most else None
