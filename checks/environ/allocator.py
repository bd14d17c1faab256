"""Do the options of PyTorch's memory allocator take effect?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Fix, Ok, Problem, Severity, Skip, check
from mgpu.command_line import shell
from mgpu.planning.requirements import version_numbers
from mgpu.snapshot import Plan, Pytorch
from mgpu.text import listed

from .._variables import nearest_name
from ._pytorch import ALLOCATOR_OPTIONS, NEWEST_ALLOCATOR, TORCH_ALIASES, TRUE, allocator_fault, allocator_options

_TORCH = "https://pytorch.org/docs/stable/torch_nccl_environment_variables.html"
_ALLOCATOR = "https://pytorch.org/docs/stable/notes/cuda.html#optimizing-memory-usage-with-pytorch-alloc-conf"
_NEW, _OLD = "PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF"
_NEW_NAME_SINCE = (2, 8)  # before that, the CUDA allocator reads the old name only
# github.com/pytorch/pytorch/issues/183387: expandable_segments under the new name was dropped for CUDA in 2.9.
_NEW_NAME_HALF_READ = (2, 9)
_OLD_NAME_WINS = (2, 13)  # if both are set: measured PyTorch 2.13; the order changed between 2.8 and 2.13
# cudaMallocAsync ignores all options of the native allocator.
_ASYNC = "cudaMallocAsync"


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
