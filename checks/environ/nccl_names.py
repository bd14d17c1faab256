"""Does NCCL read the variables that are set for it?"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Nccl, Pytorch
from mgpu.text import counted, listed

from .._grammars import Version, format_version
from .._nccl_settings import (
    HERE,
    NCCL_GUIDE,
    Setting,
    environment_settings,
    file_settings,
    loaded_version,
    origin_evidence,
    setting_problem,
    settings,
    unset_commands,
)
from .._variables import NCCL, NEVER_READ, NEWEST_NCCL, is_foreign, nearest_name
from ._pytorch import TORCH_NAMES

_PLUGINS = ("NCCL_NET_PLUGIN", "NCCL_TUNER_PLUGIN", "NCCL_PROFILER_PLUGIN", "NCCL_ENV_PLUGIN", "NCCL_GIN_PLUGIN")
_ROCM = Skip("a ROCm build of PyTorch: RCCL reads other names")
# Names that have no effect in lowercase.
# fmt: off
_CAPITALS = frozenset({
    *NCCL, *TORCH_NAMES, "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER", "CUDA_LAUNCH_BLOCKING", "OMP_NUM_THREADS",
    "MASTER_ADDR", "MASTER_PORT", "RANK", "WORLD_SIZE", "LOCAL_RANK", "ACCELERATE_USE_CPU", "FI_PROVIDER",
})
# fmt: on


def _is_newer(version: Version) -> bool:
    """Whether this NCCL may read names that are not in the table."""
    return version[:2] > NEWEST_NCCL[:2]


@cache
def _nearest_name(name: str, most: int) -> str | None:
    return nearest_name(name, NCCL, most)


def _unknown_names(found: Mapping[str, Setting], version: Version) -> tuple[dict[str, str], list[str]]:
    """Return the names that nothing reads: those close to a known name, with that name, and the others."""
    unknown = [name for name in found if name not in NCCL and name not in NEVER_READ and not is_foreign(name)]
    # A newer NCCL may have added a name two letters away from a known one; one letter away is more likely a typo.
    meant = {name: _nearest_name(name, 1 if _is_newer(version) else 2) for name in unknown}
    near = {name: known for name, known in meant.items() if known is not None}
    return near, [name for name in unknown if name not in near]


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_variable_misspelt(env: Mapping[str, str], nccl: Nccl, pytorch: Pytorch) -> Answer:
    """A variable name looks like a misspelled NCCL variable.

    Why: NCCL silently ignores unknown names.
    More: The setting has no effect, which is easy to miss when the run is slow or fails.

    Fix: correct the name, or remove it.
    """
    if pytorch.hip:
        return _ROCM
    found = settings(env, nccl)
    near, _ = _unknown_names(found, loaded_version(nccl))
    if not near:
        return Ok(f"no misspelled name among {counted(len(found), 'NCCL variable')}")
    bad = [found[name] for name in near]
    return setting_problem(
        bad,
        "; ".join(f"{name} instead of {known}" for name, known in near.items()),
        fix=Fix(f"Use {listed(dict.fromkeys(near.values()))}, or remove it.", unset_commands(bad)),
    )


@check(Severity.INFO, source=NCCL_GUIDE)
def nccl_variable_unknown(env: Mapping[str, str], nccl: Nccl, pytorch: Pytorch) -> Answer:
    """A variable has NCCL's prefix, but NCCL does not read it.

    Why: it is neither in NCCL's guide nor in its source code. A plugin may read it.
    More: Such names are often copied from articles or from clouds whose plugins read them. NCCL itself ignores them
    silently.

    Fix: remove it, unless one of your plugins reads it.
    """
    if pytorch.hip:
        return _ROCM
    found, version = settings(env, nccl), loaded_version(nccl)
    if _is_newer(version):
        newest = format_version(NEWEST_NCCL)
        return Skip(f"NCCL {format_version(version)} may read names that mgpu does not know (up to {newest})")
    if plugin := next((name for name in _PLUGINS if found.get(name) and found[name].value != "none"), None):
        return Skip(f"{plugin} is set: a plugin may read additional names")
    _, strange = _unknown_names(found, version)
    if not strange:
        return Ok(f"{counted(len(found), 'NCCL variable')} set, all known")
    bad = [found[name] for name in strange]
    return setting_problem(
        bad,
        f"{', '.join(strange)}: no NCCL up to {format_version(NEWEST_NCCL)} reads "
        f"{'it' if len(strange) == 1 else 'them'}",
    )


@check(Severity.INFO, source=NCCL_GUIDE)
def nccl_variable_without_effect(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A variable is set that neither NCCL nor PyTorch reads here.

    Why: NCCL_TIMEOUT is in many launch scripts and never had an effect. Other variables were removed from NCCL, or
    need a newer version than the loaded one. The protection or speed you expect from it is missing.

    Fix: remove it.
    More: To set a timeout, use the `timeout=` argument of init_process_group.
    """
    found, version = settings(env, nccl), loaded_version(nccl)
    dead: dict[str, str] = {}
    for name in found:
        variable = NCCL.get(name)
        if name in NEVER_READ:
            dead[name] = "neither NCCL nor PyTorch has ever read it"
        elif variable and not variable.read_by(version):
            gone = variable.until and (not version or version >= variable.until)
            when = (
                f"removed in NCCL {format_version(variable.until or ())}"
                if gone
                else f"new in NCCL {format_version(variable.since)}"
            )
            dead[name] = when + (f"; use {variable.instead}" if gone and variable.instead else "")
    if not dead:
        return Ok(f"{counted(len(found), 'NCCL variable')} set, all of them read")
    bad = [found[name] for name in dead]
    return setting_problem(
        bad,
        f"{', '.join(dead)} {'has' if len(dead) == 1 else 'have'} no effect",
        f"NCCL {format_version(version) or 'of unknown version'} is loaded. "
        + "; ".join(f"{name}: {why}" for name, why in dead.items())
        + ".",
    )


@check(Severity.WARNING, source="https://github.com/huggingface/accelerate (utils/environment.py)")
def variable_in_small_letters(env: Mapping[str, str]) -> Answer:
    """A variable name is in lowercase.

    Why: nothing reads the lowercase name, but accelerate launch converts it to uppercase.
    More: NCCL, CUDA and PyTorch read uppercase names only, so it has no effect under torchrun. `accelerate launch`
    converts every name to uppercase for its ranks: there it takes effect, and may overwrite the uppercase variable.

    Fix: write it in uppercase, or remove it.
    """
    small = {name: name.upper() for name in env if name != name.upper() and name.upper() in _CAPITALS}
    if not small:
        return Ok("every known variable is in uppercase")
    bad = [environment_settings(env)[name] for name in small]
    return setting_problem(
        bad,
        "; ".join(f"{name} instead of {capitals}" for name, capitals in small.items()),
    )


@check(Severity.INFO, source=NCCL_GUIDE)
def nccl_file_overrides(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """A file sets NCCL variables that are not visible in the shell.

    Why: NCCL reads $NCCL_CONF_FILE or ~/.nccl.conf, then /etc/nccl.conf, for variables that the environment does
    not set. `env` does not show them, and other machines may not have them.

    Fix: check that they are intended; the environment overrides the file.
    """
    if not nccl.config_files:
        return Ok("there is no nccl.conf")
    found = file_settings(nccl)
    counting = [setting for name, setting in found.items() if name not in env]
    if not counting:
        return Ok(f"{listed(nccl.config_files)} sets nothing that the environment does not")
    files = list(dict.fromkeys(setting.origin for setting in counting))
    overridden = [f"{setting.name} ({HERE}: {env[name]})" for name, setting in found.items() if name in env]
    return Problem(
        f"{listed(files)} {'sets' if len(files) == 1 else 'set'} {', '.join(map(str, counting))}",
        "NCCL uses these values because the environment does not set them."
        + (f" Not in effect: {', '.join(overridden)}." if overridden else ""),
        Fix(commands=tuple(shell("cat {:path}", path) for path in files)),
        origin_evidence(counting),
        tuple(setting.name for setting in counting),
    )


@check(Severity.WARNING, source=f"{NCCL_GUIDE}#nccl-conf-file")
def nccl_conf_file_missing(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL_CONF_FILE names a file that does not exist.

    Why: NCCL then silently reads neither this file nor ~/.nccl.conf: settings that the cluster needs (interfaces,
    traffic class) are missing from the run.

    Fix: correct the path, or unset it.
    """
    path, version = env.get("NCCL_CONF_FILE"), loaded_version(nccl)
    if not path:
        return Ok("NCCL_CONF_FILE is not set")
    if version and not NCCL["NCCL_CONF_FILE"].read_by(version):
        return Skip(f"NCCL {format_version(version)} does not read it")
    if path in nccl.config_files:
        return Ok(f"{path} exists")
    return Problem(
        f"NCCL_CONF_FILE={path}: no such file, or not readable",
        "NCCL continues without a user file." + (" It does not expand ~." if path.startswith("~") else ""),
        Fix(commands=("unset NCCL_CONF_FILE",)),
        {"NCCL_CONF_FILE": path},
        ("NCCL_CONF_FILE",),
    )


@check(Severity.WARNING, source="https://github.com/NVIDIA/nccl (src/misc/param.cc)")
def nccl_file_line_ignored(nccl: Nccl) -> Answer:
    """A line of an nccl.conf has no effect.

    Why: NCCL treats spaces before the = and the word export as part of the name.
    More: `NCCL_DEBUG = INFO` sets a variable whose name ends in a space, which nothing reads.

    Fix: write NAME=value, without spaces.
    """
    if not nccl.config_files:
        return Skip("there is no nccl.conf")
    bad = {
        line: path
        for path, lines in nccl.config_files.items()
        for line in lines
        if (name := line.partition("=")[0]) != name.strip() or len(name.split()) > 1
    }
    if not bad:
        return Ok(f"{counted(sum(map(len, nccl.config_files.values())), 'line')} of {listed(nccl.config_files)}")
    line, path = next(iter(bad.items()))
    return Problem(
        f"{path}: {line!r} has no effect" + (f", and {len(bad) - 1} more" if len(bad) > 1 else ""),
        fix=Fix(who="admin" if path.startswith("/etc/") else "you"),
        evidence=dict(bad),
    )
