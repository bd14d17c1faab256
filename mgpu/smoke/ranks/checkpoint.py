"""Stage "checkpoint": is a checkpoint saved once and completely in the training's folder, and can it be loaded?

Everything goes into one folder, which is announced before it is created and removed after every rank has read it. After
a failure the runner removes it, so that other ranks do not fail because it disappeared.
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

PREFIX = ".mgpu-smoke-"  # of the folder that is created beside the training's own checkpoints
_WRITER = "writer-"
# How long another host's file may take to appear. NFS (nfs(5)) and Lustre query the server for a name that was never
# looked up, so this only covers clock differences and caches in between.
_SEEN_WITHIN_S = 2.0
_POLL_S = 0.1


def run_stage(here: Here) -> str:
    """Save on the main process only; load on every rank, on one process, and on fewer ranks than saved it."""
    wanted = here.orders.checkpoint_folder or here.orders.folder
    with full_checkpoint.explained_errors(Path(wanted, PREFIX)):
        base = place(wanted)
    folder = base / f"{PREFIX}{_broadcast(here, 'folder', secrets.token_hex(6))}"
    here.journal.report["wrote"].append(str(folder))
    here.journal.introduce()
    done = _save_and_load(here, base, folder)
    if here.rank == 0 or here.local_rank == 0:
        shutil.rmtree(folder, ignore_errors=True)
    return done


def place(wanted: str) -> Path:
    """Return the wanted folder or its nearest existing parent; the training would create the missing ones."""
    path = Path(wanted).absolute()
    return next(candidate for candidate in (path, *path.parents) if candidate.exists())


def is_main(here: Here) -> bool:
    """Whether this rank saves the checkpoint, determined like in a training script."""
    return here.rank == 0 if here.accelerator is None else bool(here.accelerator.is_main_process)


def _save_and_load(here: Here, base: Path, folder: Path) -> str:
    facts: dict[str, Any] = {"folder": str(base), "named": here.orders.checkpoint_folder is not None, "shared": None}
    here.reports(checkpoint=facts)
    model, optimizer = full_checkpoint.trained_model(here)
    state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
    if is_main(here):
        facts |= full_checkpoint.save(here, folder, state)
        with full_checkpoint.explained_errors(folder):
            (folder / f"{_WRITER}{here.rank}").touch()
    _barrier(here, "wait for the main process to save")
    facts["shared"] = _is_visible(here, folder)
    if here.rank == 0 and not facts["shared"]:
        raise full_checkpoint.restore_failure(folder, "no rank acted as the main process, so nothing was saved")
    if not facts["shared"]:
        here.skips(f"loading the checkpoint: rank 0's files in {base} are not visible here")
    else:
        _one_writer(here, base, folder)
        full_checkpoint.load(here, folder, model, optimizer)
    saved = f"{facts['size_bytes'] / 2**20:.1f} MiB" if "size_bytes" in facts else "saved by rank 0"
    if all(_all_answers(here, "seen", facts["shared"])):
        counts = _resume(here, folder)
        if here.orders.strategy != "ddp" and here.world > 1:
            sharded.run(here, folder, full_checkpoint.tensors_of(state))
            saved += " + sharded"
        on = " and ".join(", ".join(map(str, counts)).rsplit(", ", 1))
        done = f"{saved}, loads on {on} {'ranks' if here.world > 1 else 'rank'}"
    else:
        done = f"{saved}, not visible on every host"
    _barrier(here, "wait until all ranks have read the checkpoint")
    return done


def _resume(here: Here, folder: Path) -> list[int]:
    """Continue training from the checkpoint on half of the ranks and on one process.

    Returns the numbers of ranks on which the checkpoint was loaded.
    """
    half = max(1, here.world // 2)
    group = here.first(half)
    if here.rank < half:
        here.about_to(f"resume from the checkpoint on {half} of {here.world} ranks")
        full_checkpoint.resume(here, folder, group if half > 1 else None, alone=half == 1)
    if half > 1 and here.rank == 0:
        here.about_to("resume from the checkpoint on one process")
        full_checkpoint.resume(here, folder, None, alone=True)
    return list(dict.fromkeys((here.world, half, 1)))


def _is_visible(here: Here, folder: Path) -> bool:
    """Whether this rank sees the finished checkpoint. Another host's file may take a moment."""
    far = here.orders.nodes > 1
    here.about_to("look for the checkpoint of the main process", limit_s=_patience(here))
    deadline = time.monotonic() + (_SEEN_WITHIN_S if far else 0.0)
    while not (found := (folder / full_checkpoint.DIGEST).exists()) and time.monotonic() < deadline:
        time.sleep(_POLL_S)
    return found


def _patience(here: Here) -> float:
    """Return the limit of a step during which another rank may still be looking for the checkpoint."""
    return here.orders.stall_s + _SEEN_WITHIN_S


def _one_writer(here: Here, base: Path, folder: Path) -> None:
    """Raise Failure if several ranks saved the checkpoint: each left a file with its number."""
    names = [name for name in os.listdir(folder) if name.startswith(_WRITER)]
    writers = sorted(int(name.removeprefix(_WRITER)) for name in names)
    if len(writers) > 1:
        raise Failure(
            f"ranks {', '.join(map(str, writers))} all saved the checkpoint, only the main process should",
            "saved_on_every_rank",
            writers=writers,
            world=here.world,
            folder=str(base),
        )


def _barrier(here: Here, word: str) -> None:
    if here.world > 1:
        here.about_to(word)
        here.torch.distributed.barrier()


def _broadcast(here: Here, key: str, value: str) -> str:
    """Return rank 0's value on every rank."""
    if here.world == 1:
        return value
    if here.rank == 0:
        here.store.set(f"mgpu/checkpoint/{key}", value)
    here.about_to(f"get the checkpoint's {key} from rank 0")
    return str(here.store.get(f"mgpu/checkpoint/{key}").decode())


def _all_answers(here: Here, key: str, value: bool) -> list[bool]:
    """Return the values of all ranks."""
    if here.world == 1:
        return [value]
    here.store.set(f"mgpu/checkpoint/{key}/{here.rank}", "yes" if value else "no")
    here.about_to("check whether every rank sees the checkpoint", limit_s=_patience(here))
    keys = [f"mgpu/checkpoint/{key}/{rank}" for rank in range(here.world)]
    return [here.store.get(key) == b"yes" for key in keys]
