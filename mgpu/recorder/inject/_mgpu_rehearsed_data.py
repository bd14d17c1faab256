"""What the DataLoaders of this rank deliver: their lengths and samplers, and a fingerprint of each batch and sample."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import sys
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING or __package__:  # imported from mgpu, not in a rank
    from mgpu.recorder.inject._mgpu_rehearsal import guarded, user_line
else:
    from _mgpu_rehearsal import guarded, user_line

_MOST_LEAVES = 16
_MOST_BYTES = 1 << 20  # of each tensor that is hashed
_MOST_SAMPLES = 256  # of a batch that are hashed one by one
_MOST_BATCHES = 400  # of all loaders that are described
_NUMBER = "_mgpu_loader"


class Data:
    """The loaders of this rank."""

    def __init__(self, rehearsal: Any) -> None:
        self.rehearsal = rehearsal
        self.loaders = self.described = 0
        self.passes: dict[int, int] = {}  # of each loader over its data, so far

    def begin(self, iterator: Any, loader: Any) -> None:
        """A loader starts to deliver."""
        number = loader.__dict__.get(_NUMBER)
        if number is None:
            number = self.loaders
            self.loaders += 1
            object.__setattr__(loader, _NUMBER, number)
            self._describe(number, loader)
        iterator._mgpu = [number, 0, self.passes.get(number, 0)]
        self.passes[number] = iterator._mgpu[2] + 1
        epoch = getattr(_distributed(loader), "epoch", None)
        self.rehearsal.note("epoch", l=number, epoch=epoch if isinstance(epoch, int) else None)

    def _describe(self, number: int, loader: Any) -> None:
        sampler = _distributed(loader)
        self.rehearsal.note(
            "loader",
            l=number,
            dataset=type(loader.dataset).__name__,
            samples=_length(loader.dataset),
            batches=_length(loader),
            batch=getattr(loader, "batch_size", None) or getattr(loader.batch_sampler, "batch_size", None),
            sampler=type(sampler).__name__,
            batch_sampler=type(loader.batch_sampler).__name__,
            replicas=_int(getattr(sampler, "num_replicas", None)),
            shuffle=_bool(getattr(sampler, "shuffle", None)),
            workers=loader.num_workers,
            line=user_line(),
        )

    def deliver(self, iterator: Any, batch: Any, waited: float) -> None:
        """A batch was delivered."""
        known = self.rehearsal
        number, count, part = iterator._mgpu
        iterator._mgpu[1] = count + 1
        if not known.drawn:
            guarded(lambda: known.note("random", **_random_states()))
        known.drawn += 1
        known.drawn_from = number
        leaves: list[Any] = []
        _collect(batch, leaves)
        size = _size_of(leaves)
        known.samples += size or 0
        if self.described >= _MOST_BATCHES:
            return
        self.described += 1
        raw = [one for one in map(_bytes, leaves) if one is not None]
        whole = hashlib.blake2b(digest_size=8)
        for one in raw:
            whole.update(one)
        grad = sys.modules["torch"].is_grad_enabled()
        hashes = _samples(leaves, size) if size else []
        known.note(
            "batch",
            l=number,
            n=count,
            p=part,
            print=whole.hexdigest() if raw else None,
            samples=size,
            each=hashes,
            wait=waited,
            grad=grad,
            line=user_line(),
        )


def _distributed(loader: Any) -> Any:
    """Return the sampler that decides which samples this rank gets."""
    sampler, batches = getattr(loader, "sampler", None), getattr(loader, "batch_sampler", None)
    inner = getattr(batches, "sampler", None)
    for one in (sampler, inner, getattr(batches, "batch_sampler", None)):
        if hasattr(one, "num_replicas"):
            return one
    return inner if inner is not None else sampler


def _length(thing: Any) -> int | None:
    try:
        return len(thing)
    except Exception:  # an IterableDataset has none
        return None


def _int(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _bool(value: Any) -> bool | None:
    return value if isinstance(value, bool) else None


def _collect(batch: Any, leaves: list[Any], depth: int = 0) -> None:
    """Collect the tensors, arrays and texts of a batch, in order."""
    if len(leaves) >= _MOST_LEAVES or depth > 6:
        return
    if hasattr(batch, "data_ptr") or hasattr(batch, "tobytes") or isinstance(batch, (str, bytes, int, float)):
        leaves.append(batch)
    elif isinstance(batch, (list, tuple)):
        if batch and all(isinstance(one, (str, int, float)) for one in batch):
            leaves.append(list(batch))
            return
        for one in batch:
            _collect(one, leaves, depth + 1)
    elif hasattr(batch, "keys") and hasattr(batch, "__getitem__"):
        for key in batch.keys():  # noqa: SIM118 - a BatchEncoding iterates in other ways
            _collect(batch[key], leaves, depth + 1)
    elif hasattr(batch, "__dict__"):
        for one in vars(batch).values():
            _collect(one, leaves, depth + 1)


def _bytes(leaf: Any) -> bytes | None:
    if hasattr(leaf, "data_ptr"):
        if leaf.layout is not sys.modules["torch"].strided:
            return None
        tensor = leaf.detach().cpu().contiguous()
        size = min(tensor.numel() * tensor.element_size(), _MOST_BYTES)
        return ctypes.string_at(tensor.data_ptr(), size) if size else b""
    if hasattr(leaf, "tobytes"):
        return bytes(leaf.tobytes()[:_MOST_BYTES])
    return leaf if isinstance(leaf, bytes) else repr(leaf).encode("utf-8", "replace")[:_MOST_BYTES]


def _first_size(leaf: Any) -> int | None:
    shape = getattr(leaf, "shape", None)
    if shape is not None:
        return int(shape[0]) if len(shape) else None
    return len(leaf) if isinstance(leaf, list) else None


def _size_of(leaves: list[Any]) -> int | None:
    return next((size for leaf in leaves if (size := _first_size(leaf)) is not None), None)


def samples_in(batch: Any) -> int:
    """Return the number of samples in a batch; 0 if it is not known."""
    leaves: list[Any] = []
    _collect(batch, leaves)
    return _size_of(leaves) or 0


def _samples(leaves: list[Any], size: int) -> list[str]:
    """Return a hash of each sample: its part of all leaves that have one part per sample."""
    of_each = [leaf for leaf in leaves if _first_size(leaf) == size]
    found = []
    for index in range(min(size, _MOST_SAMPLES)):
        whole = hashlib.blake2b(digest_size=6)
        for leaf in of_each:
            whole.update(_bytes(leaf[index]) or b"")
        found.append(whole.hexdigest())
    return found


def _random_states() -> dict[str, str]:
    import random

    found = {"python": _hash(repr(random.getstate()).encode())}
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None:
        found["torch"] = _hash(_bytes(torch.get_rng_state()) or b"")
    if numpy is not None:
        found["numpy"] = _hash(repr(numpy.random.get_state()).encode())
    return found


def _hash(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=8).hexdigest()


def _loaders(rehearsal: Any, module: Any) -> None:
    data = Data(rehearsal)
    kind = module._BaseDataLoaderIter
    start, following, again = kind.__init__, kind.__next__, kind._reset

    @functools.wraps(start)
    def init(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:
        guarded(lambda: data.begin(self, loader))
        start(self, loader, *args, **kwargs)

    @functools.wraps(again)
    def reset(self: Any, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:  # its workers are kept for another pass
            guarded(lambda: data.begin(self, loader))
        again(self, loader, first_iter)

    @functools.wraps(following)
    def fetch(self: Any) -> Any:
        began = time.monotonic()
        try:
            batch = following(self)
        except StopIteration:
            guarded(lambda: rehearsal.note("exhausted", **dict(zip("lnp", self._mgpu))))  # noqa: B905 - Python 3.8
            raise
        waited = time.monotonic() - began
        rehearsal.waited += waited
        rehearsal.look(lambda: data.deliver(self, batch, waited))
        return batch

    kind.__init__, kind.__next__, kind._reset = init, fetch, reset


HOOKS = {"torch.utils.data.dataloader": _loaders}
