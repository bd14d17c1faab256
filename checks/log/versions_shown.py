"""Which versions of packages does a log show: banners, lists of packages, the lines of engines?

None of these is a fault. The first such line of each package is kept, and `version_in` reads the number from it.
"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Row, signatures
from mgpu.snapshot import Log

_NUMBER = r"(?P<number>\d{1,4}\.\d+(?:\.\d+)?(?:\.?(?:post|dev|rc)\d+)?(?:\+[\w.]{1,20})?)\b"
_NAMED = r"{}(?:==| version:? ?|: )"
# fmt: off
# The text in front of the number, by import name. A name and a number alone are also in messages about other versions.
_BEFORE = {
    "accelerate": _NAMED.format(r"[Aa]ccelerate"), "axolotl": _NAMED.format(r"axolotl"),
    "deep_ep": r"\bdeep[_-]ep(?:==| version:? | )", "deepspeed": r"(?:deepspeed==|[Dd]eep[Ss]peed info: version=)",
    "llamafactory": r"llamafactory`? version: ", "megatron": r"megatron[.-]core(?:\.__version__: |==)",
    "nvshmem": r"nvshmem-cu1[23](?:==| )", "openrlhf": r"openrlhf==", "peft": _NAMED.format(r"(?:peft|PEFT)"),
    "sglang": r"sglang==", "swift": r"ms[_-]swift(?:==|: )", "torch": r"(?:PyTorch version: |Torch: )",
    "torchtitan": r"torchtitan==", "torchtune": r"torchtune==", "transformer_engine": r"transformer[_-]engine==",
    "transformers": _NAMED.format(r"[Tt]ransformers"), "trl": r"TRL version: ", "unsloth": r"Unsloth ",
    "vllm": r"(?:vllm==|vLLM API server version |LLM engine \(v)",
}
_SAMPLES = {
    "deepspeed": "DeepSpeed info: version=0.17.5, git-hash=unknown, git-branch=unknown",
    "llamafactory": "- `llamafactory` version: 0.9.2.dev0",
    "megatron": "[INFO:swift] megatron.core.__version__: 0.18.2",
    "nvshmem": "nvidia-nvshmem-cu13 3.6.5",
    "swift": "ms-swift==3.9.3",
    "torch": "- PyTorch version: 2.6.0+cu126",
    "transformers": "==((====))==  Unsloth 2026.7.1: Fast Qwen3_Moe patching. Transformers: 5.3.0.",
    "trl": "- TRL version: 0.9.6",
    "unsloth": "==((====))==  Unsloth 2026.7.1: Fast Qwen3_Moe patching. Transformers: 5.3.0.",
    "vllm": "INFO 03-20 04:34:20 [llm_engine.py:234] Initializing a V0 LLM engine (v0.7.3) with config: model='x'",
}
# fmt: on


def _row(package: str) -> Row:
    return Row(
        f"version_of_{package}",
        "context",
        "library",
        _BEFORE[package] + _NUMBER.replace("?P<number>", "?:"),
        (_SAMPLES.get(package, f"{package}==1.2.3"),),
        "",
        "",
        Fix("No action needed.", ()),
        "https://packaging.python.org/en/latest/specifications/version-specifiers/",
    )


ROWS = tuple(_row(package) for package in _BEFORE)


def version_in(log: Log, package: str) -> str | None:
    """Return the version of a package (its import name) as the log shows it; None if it does not."""
    shown = next((one.text for one in log.shows if one.name == f"version_of_{package}"), None)
    if shown is None:
        return None
    found = re.search(_BEFORE[package] + _NUMBER, shown)
    return found["number"] if found else None


CHECKS = signatures(__name__, ROWS)
