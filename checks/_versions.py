"""Compare versions (PEP 440), and list the combinations known to fail, each with its source.

Faults of single releases are in `_faults`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

_VERSION = re.compile(
    r"v?(?:(?P<epoch>\d+)!)?(?P<release>\d+(?:\.\d+)*)"
    r"(?:[-_.]?(?P<pre>alpha|beta|preview|pre|rc|a|b|c)[-_.]?(?P<pre_number>\d*))?"
    r"(?P<post>-(?P<implicit>\d+)|[-_.]?(?:post|rev|r)[-_.]?(?P<post_number>\d*))?"
    r"(?P<dev>[-_.]?dev[-_.]?(?P<dev_number>\d*))?"
    r"(?:\+(?P<local>[a-z0-9]+(?:[-_.][a-z0-9]+)*))?",
    re.IGNORECASE,
)
_PRE = {"a": 0, "alpha": 0, "b": 1, "beta": 1, "c": 2, "rc": 2, "pre": 2, "preview": 2}
_FINAL = 9  # after every kind of pre-release
_NO_DEV = 1 << 62  # a development release comes before the one it leads to


@dataclass(frozen=True, order=True)
class Version:
    """A version, ordered as in PEP 440. The local part (+cu130) is ignored: builds of one version are equal."""

    epoch: int
    release: tuple[int, ...]  # without trailing zeros
    pre: tuple[int, int]
    post: int
    dev: int

    @property
    def final(self) -> bool:
        """Whether it is neither a pre-release nor a development version."""
        return self.pre[0] == _FINAL and self.dev == _NO_DEV


@lru_cache(maxsize=512)
def parse_version(text: str | None) -> Version | None:
    """Parse a version, or return None if the text is not one."""
    found = _VERSION.fullmatch((text or "").strip())
    if found is None:
        return None
    release = [int(part) for part in found["release"].split(".")]
    while len(release) > 1 and release[-1] == 0:
        release.pop()
    pre = (_PRE[found["pre"].lower()], int(found["pre_number"] or 0)) if found["pre"] else (_FINAL, 0)
    if not found["pre"] and not found["post"] and found["dev"]:
        pre = (-1, 0)  # 2.0.dev1 comes before 2.0a1
    post = int(found["implicit"] or found["post_number"] or 0) if found["post"] else -1
    dev = int(found["dev_number"] or 0) if found["dev"] else _NO_DEV
    return Version(int(found["epoch"] or 0), tuple(release), pre, post, dev)


def satisfies(installed: str | None, specifier: str) -> bool | None:
    """Return whether a version satisfies a specifier (">=4.41,<5", "==2.9.*"), or None if either is unreadable.

    A pre-release counts as its final version: NVIDIA's containers have torch 2.9.0a0+..., and a source checkout is
    4.57.0.dev0. pip would reject both as too old.
    """
    have = parse_version(installed)
    if have is None:
        return None
    if not have.final:
        have = Version(have.epoch, have.release, (_FINAL, 0), have.post, _NO_DEV)
    answers = [_satisfies_part(have, installed or "", part.strip()) for part in specifier.split(",") if part.strip()]
    if None in answers:
        return None
    return all(answers)


def _satisfies_part(have: Version, installed: str, part: str) -> bool | None:
    found = re.fullmatch(r"(===|==|!=|<=|>=|~=|<|>)\s*(\S+)", part)
    if found is None:
        return None
    operator, text = found.groups()
    if operator == "===":
        return installed == text
    if text.endswith(".*"):
        want = parse_version(text[:-2])
        if want is None or operator not in ("==", "!="):
            return None
        digits = [int(part) for part in text[:-2].split(".") if part.isdecimal()]
        return (_pad(have.release, len(digits)) == tuple(digits)) == (operator == "==")
    want = parse_version(text)
    if want is None:
        return None
    if not want.final:  # torch==2.9.0a0+145a3a7bda.nv25.10 means that build, or its version
        want = Version(want.epoch, want.release, (_FINAL, 0), want.post, _NO_DEV)
    if operator == "~=":
        digits = [int(part) for part in re.match(r"[\d.]*\d", text).group().split(".")]  # type: ignore[union-attr]
        return have >= want and _pad(have.release, len(digits) - 1) == tuple(digits[:-1])
    return {
        "==": have == want,
        "!=": have != want,
        "<=": have <= want,
        ">=": have >= want,
        "<": have < want,
        ">": have > want,
    }[operator]


def _pad(release: tuple[int, ...], length: int) -> tuple[int, ...]:
    return (release + (0,) * length)[:length]


def split_requirement(line: str) -> tuple[str, str]:
    """Split a requirement: "torch>=2.0,<3" -> ("torch", ">=2.0,<3"). Extras in brackets are dropped."""
    found = re.match(r"([a-z0-9][a-z0-9-]*)(?:\[[^\]]*\])?(.*)", line)
    return (found.group(1), found.group(2)) if found else (line, "")


class Together(NamedTuple):
    """Package versions that fail together, and what the user would see."""

    packages: Mapping[str, str]  # name -> specifier; the entry applies if all match
    effect: str
    command: str  # fixes it
    url: str


# Not covered by the packages' own requirements. Read in the code of these releases, or confirmed by maintainers in the
# linked thread.
# fmt: off
TOGETHER: tuple[Together, ...] = (
    Together(
        {"numpy": ">=2", "torch": "<2.3"},
        "torch was compiled for NumPy 1 and cannot convert arrays (\"Numpy is not available\"), so data loaders fail.",
        "pip install 'numpy<2'",
        "https://github.com/pytorch/pytorch/issues/107302",
    ),
    Together(
        {"deepspeed": "<0.14.4", "torch": ">=2.4"},
        "`import deepspeed` fails: it imports _get_socket_with_port, which torch 2.4 removed.",
        "pip install --upgrade deepspeed",
        "https://github.com/deepspeedai/DeepSpeed/issues/5603",
    ),
    Together(
        {"peft": "<0.18", "transformers": ">=5"},
        "`import peft` fails: cannot import name 'HybridCache' from 'transformers'.",
        "pip install --upgrade peft",
        "https://github.com/huggingface/trl/pull/4820",
    ),
    Together(
        {"transformers": ">=4.52", "accelerate": "<1.3"},
        "Trainer.train() fails: Accelerator.unwrap_model() got an unexpected keyword argument 'keep_torch_compile'.",
        "pip install --upgrade accelerate",
        "https://github.com/huggingface/transformers/pull/37725",
    ),
    Together(
        {"transformers": ">=4.52", "torch": "<2.6"},
        "Trainer cannot resume from a checkpoint, and .bin weights do not load: transformers disables torch.load "
        "before torch 2.6 (CVE-2025-32434).",
        "pip install --upgrade torch",
        "https://github.com/huggingface/transformers/pull/37785",
    ),
)
# fmt: on

# CUDA minor versions in which DeepSpeed lets nvcc and torch differ (op_builder/builder.py, cuda_minor_mismatch_ok), by
# the first release with the list. There is no list for CUDA 13 up to 0.19.8: the versions must be equal.
DEEPSPEED_MINORS: tuple[tuple[str, frozenset[str]], ...] = (
    ("0.17.2", frozenset({"12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.8", "12.9"})),
    ("0.16.4", frozenset({"12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6", "12.8"})),
    ("0.15.3", frozenset({"12.0", "12.1", "12.2", "12.3", "12.4", "12.5", "12.6"})),
    ("0.14.3", frozenset({"12.0", "12.1", "12.2", "12.3", "12.4", "12.5"})),
    ("0.12.1", frozenset({"12.0", "12.1", "12.2", "12.3"})),
    ("0", frozenset({"12.0", "12.1"})),
)
