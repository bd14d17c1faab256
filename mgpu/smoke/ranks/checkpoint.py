"""Rung "checkpoint": is what was trained saved once and whole, where the training will save it, and can it be loaded?

Everything goes into one folder, which is announced before it is made and removed when every rank has read it. After a
failure the runner removes it: other ranks must not fail because it is gone.
"""

from __future__ import annotations

import os
import secrets
import shutil
import time
from pathlib import Path
from typing import Any

from . import full_checkpoint, sharded
from .context import Here
from .journal import Failure

PREFIX = ".mgpu-smoke-"  # of the folder that is made beside the training's own checkpoints
_WRITER = "writer-"
# How long another host's file may take to appear. A name that was never looked up is asked of the server at once, on
# NFS (nfs(5)) as on Lustre, so that this is for clocks and caches in between.
_SEEN_WITHIN_S = 2.0
_POLL_S = 0.1


def climb(here: Here) -> str:
    """Saved by the main process alone; loaded by every rank, by one process, and by fewer ranks than saved it."""
    wanted = here.orders.checkpoint_folder or here.orders.folder
    with full_checkpoint.naming(Path(wanted, PREFIX)):
        base = place(wanted)
    folder = base / f"{PREFIX}{_agreed(here, 'folder', secrets.token_hex(6))}"
    here.journal.report["wrote"].append(str(folder))
    here.journal.introduce()
    done = _climb(here, base, folder)
    if here.rank == 0 or here.local_rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return done


def place(wanted: str) -> Path:
    """The folder to try: the wanted one, or the lowest above it that exists. The training would make the others."""
    path = Path(wanted).absolute()
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def is_main(here: Here) -> bool:
    """Whether this rank is the one that saves, as the training would ask."""
    return here.rank == 0 if here.accelerator is None else bool(here.accelerator.is_main_process)


def _climb(here: Here, base: Path, folder: Path) -> str:
    told: dict[str, Any] = {"folder": str(base), "named": here.orders.checkpoint_folder is not None, "shared": None}
    here.reports(checkpoint=told)
    model, optimizer = full_checkpoint.trained(here)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if is_main(here):
        told |= full_checkpoint.save(here, folder, state)
        with full_checkpoint.naming(folder):
            (folder / f"{_WRITER}{here.rank}").touch()
    _barrier(here, "wait for the main process to save")
    told["shared"] = _seen(here, folder)
    if here.rank == 0 and not told["shared"]:
        raise full_checkpoint.altered(folder, "no rank took itself for the main process, so nothing was saved")
    if not told["shared"]:
        here.skips(f"loading the checkpoint: this rank does not see what rank 0 wrote to {base}")
    else:
        _one_writer(here, base, folder)
        full_checkpoint.load(here, folder, model, optimizer)
    done = [f"{told['size_bytes'] / 2**20:.1f} MiB saved once" if "size_bytes" in told else "saved by rank 0"]
    if all(_all_told(here, "seen", told["shared"])):
        done.append(f"loaded on every rank and on {_resumed(here, folder)}")
        if here.orders.strategy != "ddp" and here.world > 1:
            done.append(sharded.climb(here, folder, full_checkpoint.tensors_of(state)))
    else:
        done.append("not seen from every host")
    _barrier(here, "wait until everyone has read the checkpoint")
    return ", ".join(done)


def _resumed(here: Here, folder: Path) -> str:
    """Training goes on from the checkpoint: on one process, and where there are enough ranks on half of them."""
    half = max(1, here.world // 2)
    group = here.first(half)
    if here.rank < half:
        here.about_to(f"train on from the checkpoint on {half} of {here.world} ranks")
        full_checkpoint.resume(here, folder, group if half > 1 else None, alone=half == 1)
    if half > 1 and here.rank == 0:
        here.about_to("train on from the checkpoint on one process")
        full_checkpoint.resume(here, folder, None, alone=True)
    return "1 process" if half == 1 else f"1 process and {half} ranks"


def _seen(here: Here, folder: Path) -> bool:
    """Whether this rank sees that the main process has finished. Another host's file may take a moment."""
    far = here.orders.nodes > 1
    here.about_to("look for what the main process saved", limit_s=_patience(here))
    deadline = time.monotonic() + (_SEEN_WITHIN_S if far else 0.0)
    while not (found := (folder / full_checkpoint.DIGEST).exists()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _patience(here: Here) -> float:
    """The limit on a step while a rank elsewhere may still be looking."""
    return here.orders.stall_s + _SEEN_WITHIN_S


def _one_writer(here: Here, base: Path, folder: Path) -> None:
    """Every rank that took itself for the main process left its mark."""
    names = [name for name in os.listdir(folder) if name.startswith(_WRITER)]
    writers = sorted(int(name.removeprefix(_WRITER)) for name in names)
    if len(writers) > 1:
        raise Failure(
            f"ranks {', '.join(map(str, writers))} all saved the checkpoint; only the main process may",
            "saved_on_every_rank",
            writers=writers,
            world=here.world,
            folder=str(base),
        )


def _barrier(here: Here, word: str) -> None:
    if here.world > 1:
        here.about_to(word)
        here.torch.distributed.barrier()


def _agreed(here: Here, key: str, value: str) -> str:
    """What rank 0 says, on every rank."""
    if here.world == 1:
        return value
    if here.rank == 0:
        here.store.set(f"mgpu/checkpoint/{key}", value)
    here.about_to(f"ask rank 0 for the checkpoint's {key}")
    return str(here.store.get(f"mgpu/checkpoint/{key}").decode())


def _all_told(here: Here, key: str, value: bool) -> list[bool]:
    """What every rank says."""
    if here.world == 1:
        return [value]
    here.store.set(f"mgpu/checkpoint/{key}/{here.rank}", "yes" if value else "no")
    here.about_to("ask every rank whether it sees the checkpoint", limit_s=_patience(here))
    keys = [f"mgpu/checkpoint/{key}/{rank}" for rank in range(here.world)]
    return [here.store.get(key) == b"yes" for key in keys]
