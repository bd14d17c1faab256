"""What are the facts about a machine that is only given by name? `4xA100-80GB` becomes a Snapshot of nominal facts.

Only what the model name implies is known about such a machine: the number of GPUs, their memory and compute capability.
Everything else is a gap ("a target, not a machine"), so that no check reports it as healthy or as broken.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Final, NamedTuple

from mgpu.errors import USAGE, MgpuError
from mgpu.snapshot import FACTS, Config, Driver, Gap, Gpu, Snapshot, Visible

MOST_GPUS: Final = 64  # of one machine
_MOST_NODES: Final = 100_000
_NOT_HERE: Final = "is a target, not a machine"
_KNOWN: Final = frozenset({"driver", "gpus", "visible"})
_EXAMPLES: Final = "4xA100-80GB, 8xH100, 2x4xA100-40GB (2 nodes with 4 GPUs each), 1xRTX4090, cpu"

# Compute capabilities: developer.nvidia.com/cuda-gpus. Memory: as NVML reports it in public logs, except for the A30,
# which is from the data sheet (NVML reports up to 6% less than the advertised size).


class Model(NamedTuple):
    """A GPU model: the facts that its name implies."""

    name: str
    compute_capability: tuple[int, int]
    memory_mib: int  # as NVML reports it
    also: tuple[str, ...] = ()  # other spellings


MODELS: Final[tuple[Model, ...]] = (
    Model("P100-16GB", (6, 0), 16384),
    Model("V100-16GB", (7, 0), 16384),
    Model("V100-32GB", (7, 0), 32768),
    Model("T4", (7, 5), 15360),
    Model("RTX2080Ti", (7, 5), 11264, ("2080Ti",)),
    Model("TITANRTX", (7, 5), 24576),
    Model("RTX8000", (7, 5), 49152),
    Model("A10", (8, 6), 23028),
    Model("A10G", (8, 6), 23028),
    Model("A30", (8, 0), 24576),
    Model("A40", (8, 6), 46068),
    Model("A100-40GB", (8, 0), 40960),
    Model("A100-80GB", (8, 0), 81920),
    Model("A800-80GB", (8, 0), 81920),
    Model("RTXA4000", (8, 6), 16376, ("A4000",)),
    Model("RTXA5000", (8, 6), 24564, ("A5000",)),
    Model("RTXA6000", (8, 6), 49140, ("A6000",)),
    Model("RTX3060", (8, 6), 12288, ("3060",)),
    Model("RTX3080", (8, 6), 10240, ("3080",)),
    Model("RTX3080Ti", (8, 6), 12288, ("3080Ti",)),
    Model("RTX3090", (8, 6), 24576, ("3090",)),
    Model("RTX3090Ti", (8, 6), 24564, ("3090Ti",)),
    Model("RTX4060Laptop", (8, 9), 8188, ("RTX4060LaptopGPU",)),
    Model("RTX4060Ti-8GB", (8, 9), 8188),
    Model("RTX4060Ti-16GB", (8, 9), 16380),
    Model("RTX4070", (8, 9), 12282, ("4070",)),
    Model("RTX4070TiSUPER", (8, 9), 16376, ("4070TiSUPER",)),
    Model("RTX4080", (8, 9), 16376, ("4080",)),
    Model("RTX4080SUPER", (8, 9), 16376, ("4080SUPER",)),
    Model("RTX4090", (8, 9), 24564, ("4090",)),
    Model("RTX4090D", (8, 9), 24564, ("4090D",)),
    Model("L4", (8, 9), 23034),
    Model("L20", (8, 9), 46068),
    Model("L40", (8, 9), 46068),
    Model("L40S", (8, 9), 46068),
    Model("RTX4000Ada", (8, 9), 20475, ("4000Ada", "RTX4000AdaGeneration")),
    Model("RTX5000Ada", (8, 9), 32760, ("5000Ada", "RTX5000AdaGeneration")),
    Model("RTX6000Ada", (8, 9), 49140, ("6000Ada", "RTX6000AdaGeneration")),
    Model("H20", (9, 0), 97871, ("H20-96GB",)),
    Model("H100", (9, 0), 81559, ("H100-80GB", "H100-80GB-HBM3")),
    Model("H100-NVL", (9, 0), 95830, ("H100NVL",)),
    Model("H800", (9, 0), 81559, ("H800-80GB",)),
    Model("H200", (9, 0), 143771, ("H200-141GB", "H200NVL")),
    Model("GH200", (9, 0), 97871, ("GH200-96GB", "GH200-480GB")),
    Model("B200", (10, 0), 183359),
    Model("B300", (10, 3), 275040),
    Model("GB200", (10, 0), 189471),
    Model("GB300", (10, 3), 284208),
    Model("RTX5060Ti-8GB", (12, 0), 8151),
    Model("RTX5060Ti-16GB", (12, 0), 16311),
    Model("RTX5070", (12, 0), 12227, ("5070",)),
    Model("RTX5070Ti", (12, 0), 16303, ("5070Ti",)),
    Model("RTX5080", (12, 0), 16303, ("5080",)),
    Model("RTX5090", (12, 0), 32607, ("5090",)),
    Model("RTXPRO4500", (12, 0), 32623, ("RTXPRO4500Blackwell",)),
    Model("RTXPRO5000", (12, 0), 48935, ("RTXPRO5000Blackwell",)),
    Model("RTXPRO6000", (12, 0), 97887, ("RTXPRO6000Blackwell",)),
)


class Target(NamedTuple):
    """A machine that is only named, or several of the same kind."""

    snapshot: Snapshot  # of one node
    nodes: int
    text: str  # "2 nodes with 4 x NVIDIA A100-40GB each"


def is_target(snapshot: Snapshot) -> bool:
    """Return whether this is not a real machine but one that was only named."""
    return snapshot.gap("host").reason.endswith(_NOT_HERE)


def mark_if_away(config: Config, snapshot: Snapshot) -> Config:
    """Return the config, marked as away if it is for an engine's nodes and this machine is only a login node."""
    outside = snapshot.slurm is not None and snapshot.slurm.job_id is None and not is_target(snapshot)
    return replace(config, away=True) if config.engine and outside else config


def parse(spec: str) -> Target:
    """Return the target of `[NODESx]GPUSxMODEL` or `cpu`. Raises MgpuError with the known models."""
    text = spec.strip()
    if text.lower() == "cpu":
        driver = Driver("LIBRARY_NOT_FOUND", None, None, None, None, None, 0)
        return Target(_snapshot(spec, driver, ()), 1, "a machine without an NVIDIA GPU")
    match = re.fullmatch(r"(?:([0-9]{1,6})\s*x\s*)?([0-9]{1,4})\s*x\s*(\S.*)", text, re.IGNORECASE)
    if match is None:
        raise MgpuError(f"--target {spec}: expected [NODESx]GPUSxMODEL, for example {_EXAMPLES}", USAGE)
    nodes, number = int(match[1] or 1), int(match[2])
    if not 1 <= number <= MOST_GPUS or not 1 <= nodes <= _MOST_NODES:
        raise MgpuError(f"--target {spec}: expected 1 to {MOST_GPUS} GPUs per node, 1 to {_MOST_NODES:,} nodes", USAGE)
    model = _model(match[3], spec)
    name, size = f"NVIDIA {model.name}", model.memory_mib << 20
    gpus = tuple(Gpu(i, None, name, None, model.compute_capability, size, None, None) for i in range(number))
    driver = Driver(None, None, None, None, None, None, number)
    each = f"{number} x {name}"
    return Target(_snapshot(spec, driver, gpus), nodes, each if nodes == 1 else f"{nodes} nodes with {each} each")


def _snapshot(spec: str, driver: Driver, gpus: tuple[Gpu, ...]) -> Snapshot:
    gap = Gap("not_asked", f"{spec.strip()} {_NOT_HERE}")
    gaps = {fact: gap for fact in FACTS if fact not in _KNOWN}
    visible = Visible(None, tuple(gpu.index for gpu in gpus))
    return Snapshot(driver=driver, gpus=gpus, visible=visible, gaps=gaps)


def models_named(text: str) -> tuple[Model, ...]:
    """Return the models that a name can refer to, as sites and people write it; none if it is unknown.

    h100 and nvidia_a100-sxm4-80gb are one model each; a100 is two, with 40 and 80 GB.
    """
    wanted = _plain(text)
    for model in MODELS:
        if wanted in map(_plain, (model.name, *model.also)):
            return (model,)
    return tuple(m for m in MODELS if wanted and re.fullmatch(rf"{re.escape(wanted)}[0-9]+gb", _plain(m.name)))


def _model(text: str, spec: str) -> Model:
    """Return the model with a name as people write it: "nvidia a100 80gb", "A100-SXM4-80GB", "rtx_4090"."""
    found = models_named(text)
    if len(found) == 1:
        return found[0]
    if found:
        raise MgpuError(f"--target {spec}: ambiguous, use {' or '.join(m.name for m in found)}", USAGE)
    import difflib

    wanted = _plain(text)
    near = difflib.get_close_matches(wanted, [_plain(model.name) for model in MODELS], n=3, cutoff=0.5)
    names = [model.name for model in MODELS if _plain(model.name) in near]
    meant = f" Did you mean {' or '.join(names)}?" if names else ""
    raise MgpuError(
        f"--target {spec}: unknown GPU model {text!r}.{meant}\n"
        f"{_known_models()}\n"
        "  any other machine: run  mgpu doctor --save machine.json  there, then  mgpu configure --from machine.json",
        USAGE,
    )


def _known_models() -> str:
    import textwrap

    names = f"known models: {', '.join(model.name for model in MODELS)}"
    return textwrap.fill(names, 78, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)


def _plain(text: str) -> str:
    """Return a name without vendor, form factor and punctuation, which do not affect memory or compute capability."""
    words = re.sub(r"[^a-z0-9]+", " ", text.lower())
    return re.sub(r"\b(nvidia|geforce|tesla|quadro|pcie|sxm[2-6]?)\b| ", "", words)
