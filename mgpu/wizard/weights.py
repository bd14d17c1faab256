"""How many parameters has a model whose files lie here? Read from the headers of safetensors files, exactly.

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
_MOST_HEADER: Final = 16 << 20  # bytes; 150 a tensor. The format allows 100 MB
_MOST_HEADERS: Final = 64 << 20  # of all files of a model: the largest published ones have 15 MiB
_MOST_JSON: Final = 32 << 20  # the index of a model of 92,000 tensors has 9 MiB
_MOST_FILES: Final = 5000
_MOST_EXTENTS: Final = 64  # PyTorch and NumPy allow no more dimensions
_TOO_LARGE: Final = 1 << 63  # a number of elements is a 64-bit integer
# One element of these holds several quantised weights, or none: their number is no number of parameters.
_PACKED: Final = ("U8", "I16", "U16", "I32", "U32", "I64", "U64", "F4", "F6_E2M3", "F6_E3M2", "BOOL")
_MOST_PACKED = 0.01  # a few counters and masks are in every model
# What a model keeps beside its parameters: PyTorch's buffers.
_BUFFERS: Final = re.compile(
    r"(^|\.)(inv_freq|position_ids|num_batches_tracked|running_(mean|var)|masked_bias)$|scale(_inv)?$"
)
_MASK: Final = re.compile(r"(^|\.)(attn|attention)\.bias$")  # of GPT-2: [1, 1, n, n]
_HEADS: Final = re.compile(r"(^|\.)lm_head\.weight$")
_EMBEDDINGS: Final = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in)\.weight$")


class Uncountable(Exception):
    """Why the number of parameters cannot be read, as a clause."""


@dataclass(frozen=True)
class Count:
    params: int
    dtype: str  # of most of them, in the format's words: BF16
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Tensor:
    name: str
    dtype: str
    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        return math.prod(self.shape)


def count(folder: Path) -> Count:
    """The parameters of the model in a folder. Raises Uncountable."""
    config_there = os.path.exists(folder / "config.json")
    if os.path.exists(folder / "adapter_config.json") and not config_there:
        base = _json(folder / "adapter_config.json").get("base_model_name_or_path")
        raise Uncountable(f"it holds an adapter, not the model{f'; its base is {base}' if base else ''}")
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
    return add(tensors.values(), tied=bool(_nested(config, "tie_word_embeddings")))


def _nested(config: Mapping[str, Any], key: str) -> Any:
    """A key of the model's config, or of the text model's inside it."""
    inner = config.get("text_config")
    return config.get(key, inner.get(key) if isinstance(inner, dict) else None)


def add(tensors: Iterable[Tensor], *, tied: bool = False) -> Count:
    """The sum over tensors. Raises Uncountable for packed weights. `tied`: output and input embeddings are one."""
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
        notes.append("its tied embeddings are stored twice and counted once")
    return Count(counted.params - sum(head.size for head in twice), counted.dtype, tuple(notes))


def by_dtype(sizes: Mapping[str, int]) -> Count:
    """The sum of elements by dtype, where each element is a parameter. Raises Uncountable."""
    total = sum(sizes.values())
    packed = sum(size for dtype, size in sizes.items() if dtype in _PACKED)
    if total >= _TOO_LARGE:
        raise Uncountable("the number of its weights is larger than 2^63")
    if total <= 0:
        raise Uncountable("no weights stand in it")
    if packed > total * _MOST_PACKED:
        most = max((dtype for dtype in sizes if dtype in _PACKED), key=lambda dtype: sizes[dtype])
        raise Uncountable(
            f"its weights are quantised and packed ({most}), so they cannot be counted: name the base model"
        )
    floats = {dtype: size for dtype, size in sizes.items() if dtype not in _PACKED}
    return Count(sum(floats.values()), max(floats, key=lambda dtype: floats[dtype]))


def _files(folder: Path) -> list[str]:
    """The safetensors files that together are the model. Raises Uncountable."""
    if os.path.exists(folder / INDEX):
        names = _json(folder / INDEX).get("weight_map")
        if not isinstance(names, dict) or not names:
            raise Uncountable(f"{INDEX} has no weight_map")
        shards = sorted({str(name) for name in names.values()})
        if any("/" in name or name.startswith("..") for name in shards):
            raise Uncountable(f"{INDEX} names files outside the folder")
        if len(shards) > _MOST_FILES:
            raise Uncountable(f"{INDEX} names {len(shards):,} files")
        there = [name for name in shards if os.path.isfile(folder / name)]
        if len(there) < len(shards):
            raise Uncountable(f"{len(there)} of its {len(shards)} files are there")
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
            "its weights are pickled (pytorch_model.bin): they are not opened, and safetensors are not there"
        )
    raise Uncountable("no safetensors file is in it")


def header(path: Path) -> tuple[list[Tensor], int]:
    """The tensors a safetensors file holds, and the length of its header in bytes. Raises Uncountable."""
    try:
        length = int.from_bytes(file_reading.beginning(path, most=8), "little")
        if not 2 <= length <= _MOST_HEADER:
            large = 0 < length <= path.stat().st_size
            why = f"its header is larger than {_MOST_HEADER >> 20} MiB" if large else ""
            raise Uncountable(f"{path.name}: {why}" if why else f"{path.name} is no safetensors file")
        raw = file_reading.beginning(path, most=8 + length)[8:]
        size = path.stat().st_size
        found = json_of(raw)
        found.pop("__metadata__", None)
        tensors = [Tensor(str(name), str(entry["dtype"]), _shape(entry["shape"])) for name, entry in found.items()]
        end = max((_whole(entry["data_offsets"][1]) for entry in found.values()), default=0)
    except OSError as error:
        raise Uncountable(f"{path.name}: {reason(error)}") from None
    except (ValueError, TypeError, KeyError, IndexError, AttributeError):
        raise Uncountable(f"{path.name} is no safetensors file") from None
    if size < 8 + length + end:
        raise Uncountable(f"{path.name} is cut short: {size:,} bytes of {8 + length + end:,}")
    return tensors, length


def _shape(extents: Any) -> tuple[int, ...]:
    """The extents of a tensor. Raises ValueError and TypeError for what is none."""
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
        raise Uncountable(f"{path.name} is not readable as JSON")
    return found
