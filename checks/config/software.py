"""Is the software that the config needs installed?"""

from __future__ import annotations

from collections.abc import Mapping

from mgpu.check import Answer, Ok, Problem, Severity, Skip, check, commands
from mgpu.command_line import shell
from mgpu.planning.requirements import (
    FP8_LIBRARIES,
    FSDP2_TORCH,
    TENSOR_PARALLEL_TRANSFORMERS,
    fp8_backends,
    version_numbers,
)
from mgpu.snapshot import Config, Driver, Pytorch

from .._wording import format_driver_version
from ._config_file import LAUNCH, PLUGINS, is_readable, place_of
from ._schema import FP8, FSDP, PARALLELISM, entries, fsdp_version, precision, settings
from ._value_kinds import integer

_CONSTANTS = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/constants.py"

# fmt: off
_PIP = {
    "TE": "pip install --no-build-isolation transformer-engine[pytorch]", "AO": "pip install torchao",
}
# fmt: on


@check(Severity.ERROR, source=LAUNCH, because_of=("config_section_value_invalid",))
def config_fp8_library_missing(config: Config, packages: Mapping[str, str]) -> Answer:
    """The config uses fp8, but the library for it is not installed.

    Why: accelerate has no fp8 implementation of its own, and the launch stops.
    More: It uses Transformer Engine, torchao or MS-AMP. If none is installed, the launcher stops with "FP8 is not
    available on this machine". If only the configured one is missing, every worker stops.

    Fix: Install it in the training environment.
    """
    if not is_readable(config) or precision(config) != "fp8":
        return Skip("the config does not use fp8")
    given = settings(config, FP8).get("fp8_backend")
    named = given.upper() if isinstance(given, str) else ""
    there = [name for name in fp8_backends(packages) if named not in FP8_LIBRARIES or name == named]
    if there:
        library, _ = FP8_LIBRARIES[there[0]]
        return Ok(f"{library} {packages[library]}")
    at = entries(config, FP8).get("fp8_backend", "mixed_precision")
    what, least = FP8_LIBRARIES.get(named, ("transformer-engine, torchao or ms-amp", ()))
    command = _PIP.get(named or "AO")
    return Problem(
        f"fp8 needs {what}, which is not installed" + (f" ({what} from {'.'.join(map(str, least))})" if least else ""),
        fix=commands(*((command,) if command else ())),
        evidence={"backend": named or None},
        place=place_of(config, at),
    )


@check(Severity.ERROR, source=LAUNCH)
def config_deepspeed_not_installed(config: Config, packages: Mapping[str, str]) -> Answer:
    """The config uses DeepSpeed, but deepspeed is not installed.

    Why: accelerate launch stops with ImportError.
    More: "DeepSpeed is not installed".

    Fix: Install it in the training environment, or use FSDP 2.
    More: FSDP 2 is part of torch.
    """
    if not is_readable(config) or config.distributed_type != "DEEPSPEED":
        return Skip("the config does not use DeepSpeed")
    if "deepspeed" in packages:
        return Ok(f"deepspeed {packages['deepspeed']}")
    return Problem(
        "distributed_type DEEPSPEED, but deepspeed is not installed",
        fix=commands("pip install deepspeed"),
        place=place_of(config, "distributed_type"),
    )


@check(Severity.ERROR, source=PLUGINS, because_of=("config_deepspeed_not_installed",))
def config_deepspeed_without_transformers(config: Config, packages: Mapping[str, str], driver: Driver) -> Answer:
    """The config uses DeepSpeed, but transformers is not installed.

    Why: accelerate passes its DeepSpeed settings to transformers, even if the model is not from transformers, so
    Accelerator() stops on every rank.
    More: PackageNotFoundError: "No package metadata was found for transformers" (measured: accelerate 1.15).

    Fix: Install it in the training environment, or use FSDP 2.
    """
    if not is_readable(config) or config.distributed_type != "DEEPSPEED":
        return Skip("the config does not use DeepSpeed")
    if not driver.any_gpu:
        return Skip("no GPU here: accelerate trains on the CPU without DeepSpeed")
    if "transformers" in packages:
        return Ok(f"transformers {packages['transformers']}")
    return Problem(
        "distributed_type DEEPSPEED, but transformers is not installed",
        fix=commands("pip install transformers"),
        place=place_of(config, "distributed_type"),
    )


@check(Severity.ERROR, source=_CONSTANTS, because_of=("torch_missing",))
def config_software_too_old(config: Config, packages: Mapping[str, str], pytorch: Pytorch) -> Answer:
    """The config uses parallelism that needs a newer version of an installed package.

    Why: Every worker stops.
    More: accelerate requires torch 2.6 for FSDP 2, and transformers 4.52 for tensor parallelism, and raises ImportError
    or ValueError otherwise.

    Fix: Upgrade the package.
    """
    if not is_readable(config):
        return Skip("the file cannot be read")
    versions = {**packages, "torch": pytorch.version} if pytorch.version else dict(packages)
    needs = _requirements(config)
    if not needs:
        return Skip("the config uses no feature that needs a minimum version")
    old = [need for need in needs if need[0] in versions and version_numbers(versions[need[0]]) < need[1]]
    if not old:
        return Ok(", ".join(f"{what} (needs {name} {format_driver_version(least)})" for name, least, what, _ in needs))
    return tuple(
        Problem(
            f"{what} needs {name} {format_driver_version(least)}, but {versions[name]} is installed",
            fix=commands(shell("pip install --upgrade {:package}", name)),
            evidence={name: versions[name]},
            place=place_of(config, at),
        )
        for name, least, what, at in old
    )


def _requirements(config: Config) -> list[tuple[str, tuple[int, ...], str, str]]:
    """Return the requirements: package, minimum version, feature, and the dotted key that uses it."""
    needs: list[tuple[str, tuple[int, ...], str, str]] = []
    if fsdp_version(settings(config, FSDP)) == 2:
        needs.append(("torch", FSDP2_TORCH, "FSDP 2", entries(config, FSDP)["fsdp_version"]))
    tensor = "parallelism_config_tp_size"
    if (integer(settings(config, PARALLELISM).get(tensor, 1)) or 1) > 1:
        needs.append(
            ("transformers", TENSOR_PARALLEL_TRANSFORMERS, "tensor parallelism", entries(config, PARALLELISM)[tensor])
        )
    return needs
