"""Does NCCL understand the values that are set for it?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.snapshot import Gpu, Nccl, Network, Plan, Visible
from mgpu.text import counted

from .._gpus import usable_count
from .._grammars import ALGO, Misread, Version, c_integer, format_version
from .._interfaces import interface_settings, interfaces_for_nccl
from .._nccl_settings import (
    NCCL_GUIDE,
    Setting,
    effective_value,
    loaded_version,
    origin_evidence,
    setting_problem,
    settings,
)
from .._variables import NCCL

_SOURCES = "https://github.com/NVIDIA/nccl (src/graph/tuning.cc)"
_GLOO = Skip("a CPU rehearsal: the ranks use gloo")
_STRICT: Version = (2, 24)  # since then, ring is not a silent fallback, and unknown values are errors
_MOST_SOCKETS = 64  # NCCL_SOCKET_NTHREADS x NCCL_NSOCKS_PERTHREAD, the guide


def _misread_values(found: Mapping[str, Setting], version: Version) -> dict[str, Misread]:
    """Return the settings whose value NCCL misreads, and the effect of each."""
    wrong: dict[str, Misread] = {}
    for name, setting in found.items():
        variable = NCCL.get(name)
        if variable is None or not variable.read_by(version):
            continue
        misread = variable.grammar(setting.value, version)
        quoted = len(setting.value) > 1 and setting.value[0] in "\"'" and setting.value[0] == setting.value[-1]
        if quoted and (misread or not variable.grammar(setting.value[1:-1], version)):
            misread = Misread("the quotes are part of the value", fatal=misread is not None and misread.fatal)
        if misread:
            wrong[name] = misread
    return wrong


@check(Severity.WARNING, source=NCCL_GUIDE)
def nccl_value_misread(env: Mapping[str, str], nccl: Nccl) -> Answer:
    """NCCL reads a different value than the one a variable contains.

    Why: NCCL reads "4M" as 4 and "true" as 0, and ignores unknown words. At best it logs that with NCCL_DEBUG=INFO,
    and runs with unintended settings.

    Fix: use a value that the guide allows, or remove it.
    """
    found, version = settings(env, nccl), loaded_version(nccl)
    wrong = {name: misread.effect for name, misread in _misread_values(found, version).items() if not misread.fatal}
    threads, sockets = (found.get(f"NCCL_{name}") for name in ("SOCKET_NTHREADS", "NSOCKS_PERTHREAD"))
    if threads and sockets and c_integer(threads.value)[0] * c_integer(sockets.value)[0] > _MOST_SOCKETS:
        wrong.setdefault(sockets.name, f"times {threads} is more than {_MOST_SOCKETS} sockets: NCCL uses fewer")
    if not wrong:
        return Ok(f"{counted(len(found), 'NCCL variable')} set, all values valid")
    bad = [found[name] for name in wrong]
    return setting_problem(
        bad,
        "; ".join(f"{found[name].name}={found[name].value!r}: {effect}" for name, effect in wrong.items()),
        f"NCCL {format_version(version) or 'of unknown version'} continues with the value it read and logs nothing.",
    )


@check(Severity.ERROR, source=_SOURCES)
def nccl_value_refused(env: Mapping[str, str], nccl: Nccl, visible: Visible, plan: Plan) -> Answer:
    """NCCL does not start with the value of a variable.

    Why: since 2.24, NCCL stops with "Unrecognized element token" and ncclInvalidUsage in every rank on an unknown
    word in NCCL_ALGO or NCCL_PROTO. Older versions ignored such words, so old scripts still contain them.

    Fix: unset it. NCCL makes a better choice itself.
    """
    found, version = settings(env, nccl), loaded_version(nccl)
    wrong = {name: misread.effect for name, misread in _misread_values(found, version).items() if misread.fatal}
    if not wrong:
        return Ok("no value of NCCL_ALGO or NCCL_PROTO stops NCCL")
    if plan.cpu_ranks is not None:
        return _GLOO
    if usable_count(visible) < 2 and plan.nodes < 2:
        return Skip("NCCL is not used with one GPU")
    bad = [found[name] for name in wrong]
    return setting_problem(
        bad,
        "; ".join(f"{found[name].name}={found[name].value!r}: {effect}" for name, effect in wrong.items()),
        f"NCCL {format_version(version)} stops in every rank as soon as the process group is used.",
    )


@check(Severity.ERROR, source=NCCL_GUIDE, because_of=("nccl_value_refused",))
def nccl_algorithm_incomplete(env: Mapping[str, str], nccl: Nccl, visible: Visible, plan: Plan) -> Answer:
    """NCCL_ALGO leaves no algorithm for a broadcast.

    Why: NCCL can broadcast only with ring. Up to 2.23, ring was a silent fallback; since 2.24, a broadcast without
    it fails with "no algorithm/protocol available". DDP broadcasts the model before the first step.

    Fix: let NCCL choose.
    More: Unset NCCL_ALGO, or allow ring for broadcast and reduce.
    """
    version, value = loaded_version(nccl), effective_value("NCCL_ALGO", env, nccl)
    if value is None:
        return Ok("NCCL_ALGO is not set: NCCL chooses")
    if not version:
        return Skip("the NCCL version is unknown")
    if version < _STRICT:
        return Ok(f"NCCL {format_version(version)} falls back to ring")
    if plan.cpu_ranks is not None:
        return _GLOO
    if usable_count(visible) < 2 and plan.nodes < 2:
        return Skip("one GPU needs no algorithm")
    if ALGO(value, version):
        return Skip("its value is not valid: see nccl_value_refused")
    without = [name for name in ("BROADCAST", "REDUCE") if "RING" not in ALGO.chosen(value)[name]]
    if not without:
        return Ok(f"NCCL_ALGO={value} allows ring for broadcast and reduce")
    setting = settings(env, nccl)["NCCL_ALGO"]
    return setting_problem(
        [setting],
        f"NCCL_ALGO={value} leaves {' and '.join(name.lower() for name in without)} without an algorithm",
        f"Only ring supports them. NCCL {format_version(version)} no longer falls back to it, and stops.",
    )


@check(Severity.ERROR, source=f"{NCCL_GUIDE}#nccl-socket-family")
def nccl_socket_family_absent(env: Mapping[str, str], nccl: Nccl, network: Network, plan: Plan) -> Answer:
    """NCCL_SOCKET_FAMILY requires addresses that no interface has.

    Why: NCCL needs an interface to start, even if all ranks are on this machine.
    More: AF_INET6 on a machine with IPv4 only (or the reverse) leaves NCCL without an interface, even in a
    single-node run: it stops with "no socket interface found".

    Fix: unset it.
    """
    family = effective_value("NCCL_SOCKET_FAMILY", env, nccl)
    if family not in ("AF_INET", "AF_INET6"):
        return Ok("NCCL_SOCKET_FAMILY is not set: NCCL uses any address")
    if plan.cpu_ranks is not None:
        return _GLOO
    if not network.listed:
        return Skip("the network interfaces cannot be listed")
    if "NCCL_SOCKET_IFNAME" in interface_settings(env, nccl):
        return Skip("NCCL_SOCKET_IFNAME selects the interface: see socket_interface_unusable")
    usable = interfaces_for_nccl(network, None, family)
    if usable:
        return Ok(f"{usable[0].name} has an {family} address")
    setting = settings(env, nccl)["NCCL_SOCKET_FAMILY"]
    return setting_problem(
        [setting],
        f"NCCL_SOCKET_FAMILY={family}, but no interface has an address of this family",
        more={"interfaces": " ".join(interface.name for interface in network.interfaces)},
    )


@check(Severity.INFO, source=NCCL_GUIDE)
def nccl_log_overwritten(env: Mapping[str, str], nccl: Nccl, gpus: tuple[Gpu, ...]) -> Answer:
    """The ranks overwrite each other's NCCL log.

    Why: each rank truncates the file and overwrites what the others wrote.
    More: Without %p (and %h on several nodes) in the name, all ranks write to one file, which is useless when the
    run fails.

    Fix: give each rank its own file.
    More: Add %h and %p to the name.
    """
    setting = settings(env, nccl).get("NCCL_DEBUG_FILE")
    if setting is None or not setting.value:
        return Ok("NCCL logs to the output of each rank")
    if (effective_value("NCCL_DEBUG", env, nccl) or "").strip().upper() not in ("WARN", "INFO", "ABORT", "TRACE"):
        return Skip("NCCL_DEBUG enables no log")
    if setting.value.startswith("/dev/") or "%p" in setting.value:
        return Ok(f"{setting}: one file per rank")
    if len(gpus) < 2:
        return Skip("one rank, one file")
    return Problem(
        f"{setting}: one file for all ranks",
        fix=Fix(commands=(shell("export NCCL_DEBUG_FILE={}.%h.%p", setting.value),)),
        evidence=origin_evidence([setting]),
        subjects=("NCCL_DEBUG_FILE",),
    )
