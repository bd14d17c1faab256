"""How many parameters does a model in a local folder have? Read from the headers of safetensors files, exactly.

A safetensors file begins with the length of its header (8 bytes, little-endian) and the header (JSON: for each tensor
dtype, shape and place): https://huggingface.co/docs/safetensors. The weights themselves are never read.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from mgpu import file_reading
from mgpu.errors import reason
from mgpu.structured_text import Malformed, json_of

INDEX: Final = "model.safetensors.index.json"
_MOST_HEADER: Final = 16 << 20  # bytes; about 150 per tensor. The format allows 100 MB
_MOST_HEADERS: Final = 64 << 20  # for all files of a model: the largest published ones have 15 MiB
_MOST_JSON: Final = 32 << 20  # the index of a model of 92,000 tensors has 9 MiB
_MOST_FILES: Final = 5000
_MOST_EXTENTS: Final = 64  # PyTorch and NumPy allow no more dimensions
_TOO_LARGE: Final = 1 << 63  # a number of elements is a 64-bit integer
# One element of these holds several quantized weights, or none: the number of elements is not that of parameters.
_PACKED: Final = ("U8", "I16", "U16", "I32", "U32", "I64", "U64", "F4", "F6_E2M3", "F6_E3M2", "BOOL")
_MOST_PACKED = 0.01  # a few counters and masks are in every model
# What a model stores besides its parameters: PyTorch's buffers.
_BUFFERS: Final = re.compile(
    r"(^|\.)(inv_freq|position_ids|num_batches_tracked|running_(mean|var)|masked_bias)$|scale(_inv)?$"
)
_MASK: Final = re.compile(r"(^|\.)(attn|attention)\.bias$")  # of GPT-2: [1, 1, n, n]
_HEADS: Final = re.compile(r"(^|\.)lm_head\.weight$")
_EMBEDDINGS: Final = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in)\.weight$")


class Uncountable(Exception):
    """The reason why the number of parameters cannot be read, as a clause."""


@dataclass(frozen=True)
class Count:
    """The number of parameters of a model."""

    params: int
    dtype: str  # of most of them, as the format names it: BF16
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tensor:
    """One tensor of a safetensors header."""

    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """The number of elements."""
        return math.prod(self.shape)


def count(folder: Path) -> Count:
    """Count the parameters of the model in a folder. Raises Uncountable."""
    config_there = os.path.exists(folder / "config.json")
    if os.path.exists(folder / "adapter_config.json") and not config_there:
        base = _json(folder / "adapter_config.json").get("base_model_name_or_path")
        raise Uncountable(f"it contains an adapter, not the model{f'; the base model is {base}' if base else ''}")
    names = _files(folder)
    tensors: dict[str, Tensor] = {}
    left = _MOST_HEADERS
    for name in names:
        found, length = header(folder / name)
        if (left := left - length) < 0:
            raise Uncountable(f"the headers of its files are larger than {_MOST_HEADERS >> 20} MiB")
        for tensor in found:
            tensors.setdefault(tensor.name, tensor)
    config = _json(folder / "config.json") if config_there else {}
    return add(tensors.values(), tied=bool(_config_value(config, "tie_word_embeddings")))


def _config_value(config: Mapping[str, Any], key: str) -> Any:
    """Return a key of the model's config, or of its text model's config."""
    inner = config.get("text_config")
    return config.get(key, inner.get(key) if isinstance(inner, dict) else None)


def add(tensors: Iterable[Tensor], *, tied: bool = False) -> Count:
    """Sum up tensors. Raises Uncountable for packed weights. `tied`: input and output embeddings share weights."""
    tensors = list(tensors)
    sizes: Counter[str] = Counter()
    heads, embeddings, notes = [], [], []
    for tensor in tensors:
        mask = _MASK.search(tensor.name) and len(tensor.shape) == 4
        if mask or (_BUFFERS.search(tensor.name) and (tensor.dtype not in _PACKED or tensor.size < 10_000)):
            continue
        sizes[tensor.dtype] += tensor.size
        if _HEADS.search(tensor.name):
            heads.append(tensor)
        elif _EMBEDDINGS.search(tensor.name):
            embeddings.append(tensor)
    counted = by_dtype(sizes)
    twice = [head for head in heads if any(head.shape == other.shape for other in embeddings)] if tied else []
    if twice:
        notes.append("tied embeddings are stored twice and counted once")
    return Count(counted.params - sum(head.size for head in twice), counted.dtype, tuple(notes))


def by_dtype(sizes: Mapping[str, int]) -> Count:
    """Sum up elements by dtype, if each element is a parameter. Raises Uncountable."""
    total = sum(sizes.values())
    packed = sum(size for dtype, size in sizes.items() if dtype in _PACKED)
    if total >= _TOO_LARGE:
        raise Uncountable("it has more than 2^63 weights")
    if total <= 0:
        raise Uncountable("it contains no weights")
    if packed > total * _MOST_PACKED:
        most = max((dtype for dtype in sizes if dtype in _PACKED), key=lambda dtype: sizes[dtype])
        raise Uncountable(f"its weights are quantized and packed ({most}) and cannot be counted: use the base model")
    floats = {dtype: size for dtype, size in sizes.items() if dtype not in _PACKED}
    return Count(sum(floats.values()), max(floats, key=lambda dtype: floats[dtype]))


def _files(folder: Path) -> list[str]:
    """Return the safetensors files that make up the model. Raises Uncountable."""
    if os.path.exists(folder / INDEX):
        names = _json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise Uncountable(f"{INDEX} has no weight_map")
        shards = sorted({str(name) for name in names.values()})
        if any("/" in name or name.startswith("..") for name in shards):
            raise Uncountable(f"{INDEX} lists files outside the folder")
        if len(shards) > _MOST_FILES:
            raise Uncountable(f"{INDEX} lists {len(shards):,} files, more than {_MOST_FILES:,}")
        there = [name for name in shards if os.path.isfile(folder / name)]
        if len(there) < len(shards):
            raise Uncountable(f"only {len(there)} of its {len(shards)} files exist")
        return shards
    if os.path.exists(folder / "model.safetensors"):
        return ["model.safetensors"]
    try:
        found = sorted(path.name for path in folder.iterdir())
    except OSError as error:
        raise Uncountable(reason(error)) from None
    safe = [name for name in found if name.endswith(".safetensors")]
    if len(safe) == 1:
        return safe
    if safe:
        raise Uncountable(f"it has {len(safe)} safetensors files and no {INDEX}")
    if any(re.fullmatch(r"pytorch_model.*\.bin|.*\.pt|.*\.pth|.*\.ckpt", name) for name in found):
        raise Uncountable(
            "its weights are pickled (pytorch_model.bin), which mgpu does not open; there are no safetensors files"
        )
    raise Uncountable("it contains no safetensors file")


def header(path: Path) -> tuple[list[Tensor], int]:
    """Return the tensors of a safetensors file, and the length of its header in bytes. Raises Uncountable."""
    try:
        length = int.from_bytes(file_reading.read_start(path, most=8), "little")
        if not 2 <= length <= _MOST_HEADER:
            large = 0 < length <= path.stat().st_size
            why = f"its header is larger than {_MOST_HEADER >> 20} MiB" if large else ""
            raise Uncountable(f"{path.name}: {why}" if why else f"{path.name} is not a safetensors file")
        raw = file_reading.read_start(path, most=8 + length)[8:]
        size = path.stat().st_size
        found = json_of(raw)
        found.pop("__metadata__", None)
        tensors = [Tensor(str(name), str(entry["dtype"]), _shape(entry["shape"])) for name, entry in found.items()]
        end = max((_whole(entry["data_offsets"][1]) for entry in found.values()), default=0)
    except OSError as error:
        raise Uncountable(f"{path.name}: {reason(error)}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise Uncountable(f"{path.name} is not a safetensors file") from None
    if size < 8 + length + end:
        raise Uncountable(f"{path.name} is truncated: {size:,} of {8 + length + end:,} bytes")
    return tensors, length


def _shape(extents: Any) -> tuple[int, ...]:
    """Return the extents of a tensor. Raises ValueError or TypeError for anything else."""
    if len(extents) > _MOST_EXTENTS:
        raise ValueError("too many dimensions")
    return tuple(_whole(extent) for extent in extents)


def _whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number < _TOO_LARGE:
        raise ValueError("not a 64-bit number")
    return number


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json_of(file_reading.read(path, most=_MOST_JSON))
    except OSError as error:
        raise Uncountable(f"{path.name}: {reason(error)}") from None
    except Malformed:
        found = None
    if not isinstance(found, dict):
        raise Uncountable(f"{path.name} is not valid JSON")
    return found
