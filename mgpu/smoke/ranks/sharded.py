"""A checkpoint to which every rank writes its own part, loaded by one process and by fewer ranks than wrote it."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from . import full_checkpoint
from .context import Here

_FOLDER = "sharded"


def run(here: Here, folder: Path, tensors: Mapping[str, Any]) -> None:
    """Save on all ranks, load on half of them and on one process, and compare with rank 0's tensors."""
    here.about_to("import torch.distributed.checkpoint", limit_s=here.orders.start_limit_s)
    from torch.distributed import checkpoint as distributed_checkpoint
    from torch.distributed.device_mesh import DeviceMesh

    parts = folder / _FOLDER
    here.about_to("shard the state for a checkpoint")
    # From the existing group: with gloo, init_device_mesh would create an NCCL group for GPU tensors.
    mesh = DeviceMesh.from_group(here.torch.distributed.group.WORLD, here.device.type)
    state = _distribute(tensors, mesh)
    here.about_to("save a sharded checkpoint")
    try:
        distributed_checkpoint.save(state, checkpoint_id=os.fspath(parts))
    except OSError as error:
        raise full_checkpoint.unwritable(error, folder) from error
    except Exception as error:  # CheckpointException contains the error of each failed rank
        for cause, *_ in getattr(error, "failures", {}).values():
            if isinstance(cause, OSError):
                raise full_checkpoint.unwritable(cause, folder) from error
        raise
    half = max(1, here.world // 2)
    group = here.first(half)
    if here.rank < half:
        here.about_to(f"load the sharded checkpoint on {half} of {here.world} ranks")
        mesh = DeviceMesh.from_group(group, here.device.type)
        fewer = _distribute({name: here.torch.zeros_like(tensor) for name, tensor in tensors.items()}, mesh)
        load(fewer, parts, process_group=group)
        _compare(folder, fewer, f"the sharded checkpoint, loaded on {half} of {here.world} ranks,")
    if here.rank == 0:
        here.about_to("load the sharded checkpoint on one process")
        alone = {name: here.torch.zeros_like(tensor) for name, tensor in tensors.items()}
        load(alone, parts, no_dist=True)
        _compare(folder, alone, "the sharded checkpoint, loaded on one process,")


def load(state: dict[str, Any], parts: Path, **how: Any) -> None:
    """Load into the tensors of `state`.

    Uses the older of torch's two functions while it exists: in torch 2.4 the newer one counts the ranks of the whole
    world instead of the group, and does not accept `no_dist`.
    """
    from torch.distributed import checkpoint as distributed_checkpoint

    reader = distributed_checkpoint.FileSystemReader(os.fspath(parts))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the deprecation, and that it assumes a single process: correct here
        read = getattr(distributed_checkpoint, "load_state_dict", distributed_checkpoint.load)
        try:
            read(state, storage_reader=reader, **how)
        except Exception as error:
            if causes := list(getattr(error, "failures", {}).values()):  # of a CheckpointException: reading failed
                message = f"{type(causes[0][0]).__name__}: {causes[0][0]}".splitlines()[0]
                raise full_checkpoint.restore_failure(
                    parts.parent, f"a part of it cannot be read ({message})"
                ) from error
            raise


def _distribute(tensors: Mapping[str, Any], mesh: Any) -> dict[str, Any]:
    """Shard each tensor along its first dimension over the ranks of the mesh; scalars stay whole."""
    try:
        from torch.distributed.tensor import Shard, distribute_tensor
    except ImportError:  # torch 2.4
        from torch.distributed._tensor import Shard, distribute_tensor
    return {
        name: distribute_tensor(tensor, mesh, [Shard(0)]) if tensor.dim() else tensor
        for name, tensor in tensors.items()
    }


def _compare(folder: Path, found: Mapping[str, Any], what: str) -> None:
    together = {name: t.full_tensor() if hasattr(t, "full_tensor") else t for name, t in found.items()}
    full_checkpoint.compare(folder, together, what)
