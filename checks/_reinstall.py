"""How to install a package again without changing the packages that it depends on, such as torch.

`pip install --force-reinstall` alone also reinstalls all dependencies, in their newest releases.
"""

from __future__ import annotations

from mgpu.command_line import Command, shell

# These packages download a prebuilt wheel instead of building, unless the variable is set.
_FORCE_BUILD = {
    "flash-attn": "FLASH_ATTENTION_FORCE_BUILD=TRUE ",
    "mamba-ssm": "MAMBA_FORCE_BUILD=TRUE ",
    "causal-conv1d": "CAUSAL_CONV1D_FORCE_BUILD=TRUE ",
}
OFFERS_WHEELS = frozenset(_FORCE_BUILD)
# Released as wheels for one torch release each, and rarely built from source.
WHEELS_FOR_ONE_TORCH = frozenset(
    {"torchvision", "torchaudio", "torchtext", "torchao", "torchcodec", "xformers", "vllm", "fbgemm-gpu"}
)


def reinstall(package: str) -> Command:
    """Return the command that installs a package again; only torch may bring its dependencies along."""
    if package == "torch":
        return shell("pip install --no-cache-dir --force-reinstall {:package}", package)
    return shell("pip install --no-cache-dir --force-reinstall --no-deps {:package}", package)


def rebuild(*packages: str) -> tuple[Command, ...]:
    """Return the commands that compile packages for the installed torch."""
    return tuple(
        shell(
            f"{_FORCE_BUILD.get(one, '')}pip install --force-reinstall --no-deps --no-build-isolation --no-cache-dir "
            "{:package}",
            one,
        )
        for one in packages
    )
