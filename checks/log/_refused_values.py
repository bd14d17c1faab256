"""Which of the values in a package's refusal is wrong: a remainder, a version, a mesh of one rank?"""

from __future__ import annotations

import re
from collections.abc import Callable

from mgpu.check import Fix
from mgpu.command_line import python, shell
from mgpu.signature import Meaning
from mgpu.snapshot import UncaughtException
from mgpu.text import listed

from ._refused_inputs import refused_input

_REMAINDER = re.compile(r"\b(?P<value>\d{1,12}) ?% ?(?P<by>\d{1,6}) ?!= ?0\b")
_NEEDS_CUDA = re.compile(
    r"(?i:requires?) (?:(?P<gpu>\w{2,20}) and )?(?P<what>CUDA|cuBLAS\w*|cuDNN) ?(?:>=|≥) ?(?P<version>\d[\d.]*\d)"
)
_FEATURES = re.compile(r"X has (?P<given>\d+) features, but (?P<what>\w+) is expecting (?P<fitted>\d+) features")
_MESH = re.compile(r"Mesh '(?P<mesh>\w+)' is not available")
# The names of torchtitan's meshes, and what they are for.
_DEGREES = {
    "tp": ("tensor parallelism", "tensor_parallel_degree"),
    "pp": ("pipeline parallelism", "pipeline_parallel_degree"),
    "cp": ("context parallelism", "context_parallel_degree"),
    "ep": ("expert parallelism", "expert_parallel_degree"),
    "etp": ("expert tensor parallelism", "expert_tensor_parallel_degree"),
    "fsdp": ("sharding of data parallel ranks", "data_parallel_shard_degree"),
    "dp_shard": ("sharding of data parallel ranks", "data_parallel_shard_degree"),
    "dp_replicate": ("replication (HSDP)", "data_parallel_replicate_degree"),
}


def _remainder(one: UncaughtException, who: str) -> Meaning | None:
    """Explain conditions with numbers: only those that are true are why the package refuses."""
    found = [(int(value), int(by)) for value, by in _REMAINDER.findall(one.message)]
    wrong = [(value, by) for value, by in found if by and value % by]
    if not wrong:
        return None
    first, by = wrong[0]
    following = first + by - first % by
    fp8 = "FP8" in one.message
    pad = (
        Fix(
            f"If {first} is the number of tokens (batch x sequence length), pad every batch to a multiple of {by}.",
            (python("DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of={:number})", by),),
        ),
        Fix(f"If it is a size of the model, choose a multiple of {by}, or leave that layer out of FP8."),
    )
    fixes = pad if fp8 else (Fix(f"Change what has {first}: use a multiple of {by}, such as {following}."),)
    well = [f"{value} is a multiple of {by}" for value, by in found if by and not value % by]
    fits = f" The other part of the message is met: {listed(well)}." if well else ""
    return Meaning(
        f"{who} rejects a size: {' and '.join(f'{value} is not a multiple of {by}' for value, by in wrong)}",
        f"The next multiple is {following}.{fits} The check is in {one.raised_in}.",
        fixes,
    )


def _cuda(one: UncaughtException, who: str) -> Meaning | None:
    """Explain a version of CUDA's libraries that a feature needs."""
    if not (found := _NEEDS_CUDA.search(one.message)):
        return None
    gpu, version = found["gpu"], found["version"]
    other = f", or the GPU is not one of the {gpu} generation" if gpu else ""
    fp8 = (
        Fix(
            "Use another FP8 recipe, which does not need it.",
            ("--fp8-recipe delayed", "te.fp8_autocast(fp8_recipe=recipe.DelayedScaling())"),
        )
        if "FP8" in one.message
        else Fix("Turn off the feature that needs it.")
    )
    return Meaning(
        f"{who} cannot do what the run asks for here: {one.message}",
        f"The {found['what']} that torch and {who} use in this environment is older than {version}{other}. What "
        "counts is the version that they were built with, not the one that the driver supports.",
        (
            Fix(
                "Check both.",
                (
                    "python -c 'import torch; print(torch.version.cuda, torch.cuda.get_device_name(), "
                    "torch.cuda.get_device_capability())'",
                    "pip list | grep -iE '^(torch|transformer|nvidia-cu)'",
                ),
            ),
            Fix(
                f"Use a torch, and a {who}, that are built for {found['what']} {version} or newer, or such a container."
            ),
            fp8,
        ),
    )


def _mesh(one: UncaughtException, who: str) -> Meaning | None:
    """Explain a mesh that torchtitan's own code requests although it has one rank."""
    found = _MESH.search(one.message)
    if not found or found["mesh"] not in _DEGREES:
        return None
    kind, degree = _DEGREES[found["mesh"]]
    callers = [frame for frame in one.frames if not frame.endswith((" in get_mesh", " in _get_mesh"))]
    caller = callers[-1] if callers else ""
    own = not caller.startswith("torchtitan/")
    first = (
        Fix(
            "Let your code request a mesh only if its degree is above 1.",
            ("mesh = parallel_dims.get_optional_mesh(NAME)",),
        )
        if own
        else Fix(
            f"Update {who}: a degree of 1 is valid, and newer code requests the mesh only if there is one.",
            ("git pull", shell("git log -1 --format=%cd -- {:path}", caller.partition(" in ")[0])),
        )
    )
    where = f" {caller} requests it in any case" if caller else " The caller requests it in any case"
    mistake = "." if own else ", which is probably a mistake of that release."
    return Meaning(
        f"{who} has no mesh '{found['mesh']}', because {kind} is off (degree 1)",
        f"{one.message}{where}{mistake}",
        (
            first,
            Fix(
                f"Until then, set the degree of {kind} above 1, if the number of GPUs allows it.",
                (shell("./run_train.sh --parallelism.{:name}=2", degree),),
            ),
        ),
    )


def _features(one: UncaughtException, who: str) -> Meaning | None:
    """Explain a table that has another number of columns than the one that an estimator was fitted with."""
    found = _FEATURES.match(one.message)
    if not found:
        return None
    called = f" (called by {one.place})" if one.place else ""
    return Meaning(
        f"{found['what']} was fitted with {found['fitted']} columns, and gets {found['given']}{called}",
        "The features differ between the two calls: columns that only one of them adds (time, one-hot classes, the "
        "target), another list of features in the options, or a scaler or model that was saved by another version.",
        (
            Fix(
                "Compare the columns, and build the features with the same code in training and use.",
                ("print(X.shape, estimator.n_features_in_, getattr(estimator, 'feature_names_in_', None))",),
            ),
            Fix("Or fit it again, and save it with the model that belongs to it."),
        ),
    )


def _data(one: UncaughtException, who: str) -> Meaning | None:
    """Explain what is about the data that a package gets, and not about its settings."""
    meant = refused_input(one)
    return Meaning(meant.title, meant.why, meant.fixes) if meant else None


_KINDS: tuple[Callable[[UncaughtException, str], Meaning | None], ...] = (_remainder, _cuda, _mesh, _features, _data)


def explain(one: UncaughtException, who: str) -> Meaning | None:
    """Return what is wrong, if a value in the message decides it; `who`: the package that refuses."""
    return next((meant for kind in _KINDS if (meant := kind(one, who))), None)
