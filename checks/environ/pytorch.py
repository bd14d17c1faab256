"""How do PyTorch's variables affect the process group and memory?"""

from __future__ import annotations

import re
from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Nccl, Network, Plan, Pytorch, Slurm, Visible
from mgpu.text import listed

from .._gpus import usable_count
from .._interfaces import interface_settings, interfaces_for_nccl, names_for_gloo
from .._nccl_settings import environment_settings, node_count, origin_evidence, setting_problem, unset_commands
from .._variables import nearest_name
from ._pytorch import (
    ALLOCATOR_OPTIONS,
    FALSE,
    NEWEST_ALLOCATOR,
    READ_BY_GLOO,
    TORCH_ALIASES,
    TORCH_BOOLEANS,
    TORCH_DEBUG_LEVELS,
    TORCH_NAMES,
    TORCH_NUMBERS,
    TORCH_PREFIXES,
    TORCH_RENAMED,
    TRUE,
    allocator_fault,
    allocator_options,
)

_TORCH = "https://pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_ALLOCATOR = "https://pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf"
_NEW, _OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_NEW_NAME_SINCE = (2, 8)  # before that, the CUDA allocator reads the old name only
# github.com/pytorch/pytorch/issues/183387: expandable_segments under the new name was dropped for CUDA in 2.9.
_NEW_NAME_HALF_READ = (2, 9)
_OLD_NAME_WINS = (2, 13)  # if both are set: measured PyTorch 2.13; the order changed between 2.8 and 2.13
# cudaMallocAsync ignores all options of the native allocator.
_ASYNC = "cudaMallocAsync"
_NO_NCCL = Skip("NCCL is not used here: PyTorch does not read it")


def _uses_nccl(visible: Visible, plan: Plan) -> bool:
    """Whether the ranks use NCCL, according to the visible GPUs and the plan."""
    return plan.cpu_ranks is None and (usable_count(visible) > 1 or plan.nodes > 1)


@check(Severity.WARNING, source=_TORCH)
def nccl_errors_not_raised(env: Mapping[str, str]) -> Answer:
    """PyTorch's handling of NCCL errors is disabled.

    Why: with TORCH_NCCL_ASYNC_ERROR_HANDLING=0 (or its old name NCCL_ASYNC_ERROR_HANDLING), PyTorch does not abort
    a collective that lost a rank: the run hangs forever. With monitoring off, the thread that aborts it can itself
    hang in CUDA or NCCL without being stopped.

    Fix: unset it.
    """
    bad = {
        name: env[name]
        for name in ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "NCCL_ASYNC_ERROR_HANDLING")
        if re.match(r"\s*[+-]?0+(?![0-9])", env.get(name, ""), re.ASCII)
    }
    unwatched = "TORCH_NCCL_ENABLE_MONITORING"
    if env.get(unwatched, "").lower() in FALSE:
        bad[unwatched] = env[unwatched]
    if not bad:
        return Ok("NCCL errors stop the run")
    return Problem(
        ", ".join(f"{name}={value}" for name, value in bad.items()),
        "When a rank dies, the others wait for it forever instead of failing."
        if set(bad) - {unwatched}
        else "If the thread that aborts a failed run hangs in CUDA or NCCL, the run hangs forever.",
        Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        bad,
        tuple(bad),
    )


@check(Severity.ERROR, source=_TORCH)
def torch_boolean_unreadable(env: Mapping[str, str], visible: Visible, plan: Plan) -> Answer:
    """A torch.distributed switch has a value that PyTorch cannot read.

    Why: PyTorch raises an error on this value in init_process_group.
    More: These switches accept yes/no words and 0/1; anything else raises "Invalid value for environment variable"
    in every rank. The NCCL switches are read only if several GPUs communicate.

    Fix: use 1 or 0, or unset it.
    """
    bad = {
        name: env[name] for name in TORCH_BOOLEANS if name in env and env[name].lower() not in TRUE | FALSE | {"***"}
    }
    if not bad:
        return Ok("all torch.distributed switches are valid")
    bad = {name: value for name, value in bad.items() if name in READ_BY_GLOO or _uses_nccl(visible, plan)}
    if not bad:
        return _NO_NCCL
    return Problem(
        ", ".join(f"{name}={value!r}" for name, value in bad.items()),
        fix=Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        evidence=bad,
        subjects=tuple(bad),
    )


@check(Severity.ERROR, source=_TORCH)
def torch_number_unreadable(env: Mapping[str, str], visible: Visible, plan: Plan) -> Answer:
    """A torch.distributed variable that must be a number is not one.

    Why: PyTorch needs an integer, and raises an error or hangs in init_process_group.
    More: A timeout of "ten" stops every rank with "Invalid value for environment variable", or makes it hang if a
    PyTorch thread reads the value.

    Fix: write a number, or unset it.
    """
    bad = {
        name: env[name]
        for name in TORCH_NUMBERS
        if name in env and not re.match(r"\s*[+-]?[0-9]", env[name], re.ASCII) and env[name] != "***"
    }
    if not bad:
        return Ok("all torch.distributed numbers are valid")
    bad = {name: value for name, value in bad.items() if name in READ_BY_GLOO or _uses_nccl(visible, plan)}
    if not bad:
        return _NO_NCCL
    return Problem(
        ", ".join(f"{name}={value!r}" for name, value in bad.items()),
        fix=Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        evidence=bad,
        subjects=tuple(bad),
    )


@check(Severity.ERROR, source="https://pytorch.org/docs/stable/distributed.html#torch-distributed-debug")
def torch_debug_level_unknown(env: Mapping[str, str]) -> Answer:
    """TORCH_DISTRIBUTED_DEBUG is not OFF, INFO or DETAIL.

    Why: PyTorch raises "The value of TORCH_DISTRIBUTED_DEBUG must be OFF, INFO, or DETAIL".
    More: `import torch.distributed` itself raises ValueError on any other value, including an empty one and 1.

    Fix: unset it.
    """
    value = env.get("TORCH_DISTRIBUTED_DEBUG")
    if value is None or value.upper() in TORCH_DEBUG_LEVELS:
        return Ok(f"TORCH_DISTRIBUTED_DEBUG is {value or 'not set'}")
    return Problem(
        f"TORCH_DISTRIBUTED_DEBUG={value!r}",
        fix=Fix(commands=("unset TORCH_DISTRIBUTED_DEBUG",)),
        evidence={"TORCH_DISTRIBUTED_DEBUG": value},
        subjects=("TORCH_DISTRIBUTED_DEBUG",),
    )


@check(Severity.WARNING, source=_TORCH)
def torch_variable_misspelt(env: Mapping[str, str]) -> Answer:
    """A variable name looks like a misspelled PyTorch or gloo variable.

    Why: neither PyTorch nor gloo reads it.
    More: The timeout, flight recorder or interface it was meant to set keeps its default.

    Fix: correct the name, or remove it.
    """
    asked = [name for name in env if name.startswith(TORCH_PREFIXES) and name not in TORCH_NAMES]
    near = {name: known for name in asked if (known := nearest_name(name, TORCH_NAMES)) is not None}
    if not near:
        return Ok("no misspelled PyTorch or gloo variable")
    bad = [environment_settings(env)[name] for name in near]
    return setting_problem(
        bad,
        "; ".join(f"{name} instead of {known}" for name, known in near.items()),
        fix=Fix(f"Use {listed(dict.fromkeys(near.values()))}, or remove it.", unset_commands(bad)),
    )


@check(Severity.WARNING, source="https://github.com/pytorch/pytorch/pull/114077")
def torch_names_contradict(env: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """A PyTorch variable is set under both its old and its new name, to different values.

    Why: PyTorch 2.2 renamed its NCCL_ variables to TORCH_NCCL_. Since then the new name takes precedence, while
    older versions read only the old one: one of the two values has no effect.

    Fix: keep the new name.
    """
    version = version_numbers(pytorch.version)
    both = {
        old: new
        for old, new in TORCH_ALIASES.items()
        if old in env and new in env and env[old].lower() != env[new].lower()
    }
    if not both:
        return Ok("no PyTorch variable is set under two names")
    wins = "old" if version and version < TORCH_RENAMED else "new"
    found = environment_settings(env)
    return Problem(
        "; ".join(f"{found[old]}, but {found[new]}" for old, new in both.items()),
        f"PyTorch {pytorch.version or 'of unknown version'} uses the {wins} name.",
        Fix(commands=unset_commands(found[old] for old in both)),
        origin_evidence(found[name] for pair in both.items() for name in pair),
        tuple(both),
    )


@check(Severity.INFO, source="https://github.com/pytorch/pytorch/pull/114077")
def torch_name_outdated(env: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """A PyTorch variable is set under the name that another PyTorch version uses.

    Why: names such as NCCL_ASYNC_ERROR_HANDLING are deprecated since PyTorch 2.2: every rank prints a warning, and
    they will be removed. PyTorch before 2.2 does not read the new names at all.

    Fix: use the name that this version reads.
    """
    if not (version := version_numbers(pytorch.version)):
        return Skip("the PyTorch version is unknown")
    other = TORCH_ALIASES if version >= TORCH_RENAMED else {new: old for old, new in TORCH_ALIASES.items()}
    outdated = {name: right for name, right in other.items() if name in env and right not in env}
    if not outdated:
        return Ok(f"all names are those of PyTorch {pytorch.version}")
    found = environment_settings(env)
    return Problem(
        "; ".join(f"{name} is {right} in PyTorch {pytorch.version}" for name, right in outdated.items()),
        "The old name still works, with a warning." if version >= TORCH_RENAMED else "This PyTorch does not read it.",
        Fix(commands=unset_commands(found[name] for name in outdated)),
        origin_evidence(found[name] for name in outdated),
        tuple(outdated),
    )


@check(Severity.ERROR, source=_ALLOCATOR)
def allocator_option_refused(env: Mapping[str, str], pytorch: Pytorch, plan: Plan) -> Answer:
    """PyTorch rejects an option of its memory allocator.

    Why: PyTorch parses the variable before the first tensor on a GPU, and raises an error on an unknown option or
    value: "Unrecognized key", "Expected 'True' or 'False'". Every rank fails there.

    Fix: correct it, or unset it.
    """
    if not pytorch.cuda and not pytorch.hip:
        return Skip("a CPU build of PyTorch does not read it")
    if plan.cpu_ranks is not None:
        return Skip("a CPU rehearsal has no tensor on a GPU")
    version = version_numbers(pytorch.version)
    read = [_OLD] if version and version < _NEW_NAME_SINCE else [_NEW, _OLD]
    asked = {name: env[name] for name in read if env.get(name)}
    if version > NEWEST_ALLOCATOR and any(_has_unknown_option(value) for value in asked.values()):
        return Skip(f"PyTorch {pytorch.version} may have options that mgpu does not know")
    if len(asked) > 1 and version >= _OLD_NAME_WINS:
        del asked[_NEW]
    bad = {name: fault for name, value in asked.items() if (fault := allocator_fault(value)) is not None}
    if not bad:
        return Ok(", ".join(f"{name}={value}" for name, value in asked.items()) or "the allocator is not configured")
    if len(bad) < len(asked):
        return Skip(f"{_NEW} and {_OLD} are both set: which one PyTorch {pytorch.version} reads is unknown")
    name, fault = next(iter(bad.items()))
    meant = nearest_name(fault.option, ALLOCATOR_OPTIONS) if fault.unknown else None
    return Problem(
        f"{name}={env[name]}: {fault.option}: {fault.why}",
        f"Did you mean {meant}? " * (meant is not None) + "PyTorch raises an error before the first tensor on a GPU.",
        Fix(commands=tuple(shell("unset {:name}", name) for name in bad)),
        {name: env[name] for name in bad},
        tuple(bad),
    )


def _has_unknown_option(value: str) -> bool:
    fault = allocator_fault(value)
    return fault is not None and fault.unknown


@check(
    Severity.WARNING,
    source="https://github.com/pytorch/pytorch/issues/183387",
    because_of=("allocator_option_refused",),
)
def allocator_setting_ignored(env: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """PyTorch ignores a setting for its memory allocator.

    Why: PyTorch silently continues without it.
    More: Before 2.8 it reads PYTORCH_CUDA_ALLOC_CONF only, 2.9 drops expandable_segments under the new name, and if
    both are set, one has no effect (in 2.13 the new one). Memory then fragments as if nothing were set, and the run
    can run out of memory.

    Fix: set it in the form that this version reads.
    """
    new, old, version = env.get(_NEW), env.get(_OLD), version_numbers(pytorch.version)
    if not new and not old:
        return Ok("the allocator is not configured")
    if not pytorch.cuda:
        return Skip("not a CUDA build of PyTorch")
    if not version:
        return Skip("the PyTorch version is unknown")
    options = allocator_options(old or new or "")
    renamed: str = shell(f"export {_OLD}={{}}", new)
    if new and not old and version < _NEW_NAME_SINCE:
        why, right = f"PyTorch {pytorch.version} does not read {_NEW}", renamed
    elif new and not old and version[:2] == _NEW_NAME_HALF_READ and options.get("expandable_segments") == "True":
        why, right = f"PyTorch {pytorch.version} drops expandable_segments under this name", renamed
    elif new and old and new != old:
        old_wins = version < _NEW_NAME_SINCE or version >= _OLD_NAME_WINS
        why = f"{_OLD} takes precedence" if old_wins else f"PyTorch {pytorch.version} reads one of the two"
        right = f"unset {_NEW}"
    elif options.get("backend") == _ASYNC and set(options) - {"backend"}:
        others = listed(sorted(set(options) - {"backend"}))
        why, right = f"the backend {_ASYNC} ignores {others}", f"export {_NEW if new else _OLD}=backend:{_ASYNC}"
    else:
        return Ok(f"{_NEW if new else _OLD}={new or old}")
    shown = {name: env[name] for name in (_NEW, _OLD) if env.get(name)}
    return Problem(
        ", ".join(f"{name}={value}" for name, value in shown.items()) + f": {why}",
        fix=Fix(commands=(right,)),
        evidence=shown,
        subjects=tuple(shown),
    )


@check(Severity.INFO, source=_TORCH, because_of=("allocator_setting_ignored", "allocator_option_refused"))
def expandable_segments_exclude_registration(env: Mapping[str, str]) -> Answer:
    """Two memory settings exclude each other.

    Why: PyTorch does not register the buffers with NCCL.
    More: With expandable_segments, PyTorch ignores TORCH_NCCL_USE_TENSOR_REGISTER_ALLOCATOR_HOOK=1: collectives
    copy through NCCL's own buffers.

    Fix: choose one of them.
    """
    options = allocator_options(env.get(_NEW) or env.get(_OLD) or "")
    hooks = [name for pair in TORCH_ALIASES.items() for name in pair if name.endswith("_ALLOCATOR_HOOK")]
    on = next((name for name in hooks if env.get(name, "").strip().lower() in TRUE), None)
    if options.get("expandable_segments") != "True" or on is None:
        return Ok("no memory setting excludes another")
    return Problem(
        f"expandable_segments:True with {on}={env[on]}",
        fix=Fix(commands=(shell("unset {:name}", on),)),
        evidence={on: env[on], "expandable_segments": "True"},
        subjects=(on,),
    )


@check(
    Severity.INFO,
    source="https://pytorch.org/docs/stable/distributed.html#common-environment-variables",
    because_of=("hostname_is_loopback", "hostname_unresolvable", "hostname_is_elsewhere", "socket_interface_missing"),
)
def gloo_leaves_nccl_interface(
    env: Mapping[str, str], nccl: Nccl, network: Network, plan: Plan, slurm: Slurm
) -> Answer:
    """In a multi-node run, gloo uses a different interface than the one set for NCCL.

    Why: CPU barriers and object collectives use gloo, which uses the host name's interface unless
    GLOO_SOCKET_IFNAME names one. It ignores NCCL_SOCKET_IFNAME: NCCL starts, but gloo ends in "Connect full mesh
    failed" if its network does not connect the nodes.

    Fix: use the same interface for gloo, unless the difference is intended.
    More: Use the same interface for both, unless both networks connect the nodes.
    """
    if node_count(plan, slurm) < 2:
        return Skip("single-node run")
    named = interface_settings(env, nccl)
    if "NCCL_SOCKET_IFNAME" not in named:
        return Ok("no interface is set for NCCL")
    chosen = [interface.name for interface in interfaces_for_nccl(network, named["NCCL_SOCKET_IFNAME"][0])]
    if not chosen:
        return Skip("NCCL_SOCKET_IFNAME matches no interface: see socket_interface_missing")
    if "GLOO_SOCKET_IFNAME" in named:
        value = named["GLOO_SOCKET_IFNAME"][0]
        used, why = names_for_gloo(value), f"GLOO_SOCKET_IFNAME={value}"
    else:
        mine = [i for i in network.interfaces if set(i.addresses) & set(network.hostname_addresses[:1])]
        used, why = [i.name for i in mine], f"{network.hostname} resolves to its address"
    if not used:
        return Skip("gloo's interface is unknown")
    if set(used) & set(chosen):
        return Ok(f"NCCL and gloo both use {used[0]}")
    return Problem(
        f"NCCL is set to use {listed(chosen)}, but gloo uses {listed(used)}",
        f"{why}. Both networks must connect the nodes.",
        Fix(commands=(shell("export GLOO_SOCKET_IFNAME={:interface}", chosen[0]),)),
        {name: value for name, (value, _) in named.items()} | {"gloo": " ".join(used), "nccl": " ".join(chosen)},
        ("GLOO_SOCKET_IFNAME",),
    )


@check(Severity.WARNING, source="measured PyTorch 2.13.0 2026-11-21")
def gloo_transport_unknown(env: Mapping[str, str]) -> Answer:
    """GLOO_DEVICE_TRANSPORT names a transport that gloo does not have.

    Why: gloo supports TCP and, depending on the build, TCP_TLS, UV and IBVERBS. Any other value, including
    lowercase or empty, makes init_process_group fail with "makeDeviceForHostname(): unsupported gloo device".

    Fix: unset it.
    """
    value = env.get("GLOO_DEVICE_TRANSPORT")
    if value is None or value in ("TCP", "TCP_TLS", "UV", "IBVERBS"):
        return Ok(f"GLOO_DEVICE_TRANSPORT is {value or 'not set'}")
    return Problem(
        f"GLOO_DEVICE_TRANSPORT={value!r}",
        "gloo has no such transport and fails.",
        Fix(commands=("unset GLOO_DEVICE_TRANSPORT",)),
        {"GLOO_DEVICE_TRANSPORT": value},
        ("GLOO_DEVICE_TRANSPORT",),
    )
