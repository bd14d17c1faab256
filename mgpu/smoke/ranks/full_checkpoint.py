"""A checkpoint in one file: model and optimizer, written by the main process, loaded by any rank."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from . import compute
from .context import Here
from .journal import Failure

FILE, DIGEST = "checkpoint.pt", "digest"
_WIDTH = {"long": 2048}  # of the model: 55 MiB with the state of its optimizer
_USUAL_WIDTH = 512  # 3.8 MiB
_PIECE_BYTES = 4 << 20  # per write; each one is announced
_SAMPLES = 4


def trained_model(here: Here) -> tuple[Any, Any]:
    """Return a model and its optimizer after one step, so that there is state to save."""
    torch = here.torch
    width = _WIDTH.get(here.orders.level, _USUAL_WIDTH)
    torch.manual_seed(5)  # drawn on the CPU: the same on every rank
    first, second = torch.nn.Linear(width, width), torch.nn.Linear(width, width // 4)
    model = torch.nn.Sequential(first, torch.nn.Tanh(), second).to(here.device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=False)
    _step(here, model, optimizer)
    return model, optimizer


def _step(here: Here, model: Any, optimizer: Any) -> float:
    inputs = here.torch.ones(_SAMPLES, _width(model), device=here.device)
    loss = model(inputs).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return float(loss.detach())


def _width(model: Any) -> int:
    return int(next(iter(model.parameters())).shape[1])


def tensors_of(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return every tensor of a state dict by a unique name."""
    moments = state["optimizer"]["state"].items()
    return {f"model.{name}": tensor for name, tensor in state["model"].items()} | {
        f"optimizer.{number}.{name}": value for number, held in moments for name, value in held.items()
    }


def digest(tensors: Mapping[str, Any]) -> str:
    """Return the digest of all bits."""
    parts = [f"{name} {compute.digest(tensor)}" for name, tensor in sorted(tensors.items())]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()


@contextmanager
def explained_errors(folder: Path) -> Iterator[None]:
    """Turn an error of the file system into a Failure with the folder and the reason."""
    try:
        yield
    except OSError as error:
        raise unwritable(error, folder) from error


def unwritable(error: OSError, folder: Path) -> Failure:
    """Return the failure for an error of the file system."""
    base, message = folder.parent, error.strerror or str(error)
    return Failure(
        f"cannot write a checkpoint to {base}: {message}",
        "checkpoint_not_writable",
        folder=str(base),
        errno=errno.errorcode.get(error.errno or 0, "OSError"),
        error=message,
        free_bytes=free_space(base),
    )


def free_space(folder: Path) -> int | None:
    """Return the bytes that this user can still write there."""
    try:
        room = os.statvfs(folder)
    except OSError:
        return None
    return room.f_bavail * room.f_frsize


def save(here: Here, folder: Path, state: Mapping[str, Any]) -> dict[str, int | None]:
    """Write to a temporary name, sync to disk, then rename: a reader never finds a partial file.

    Returns the size of the file, and the free bytes before.
    """
    with explained_errors(folder):
        here.about_to(f"create a folder in {folder.parent}")
        room = free_space(folder.parent)
        folder.mkdir(mode=0o755, exist_ok=True)
        buffer = io.BytesIO()
        here.torch.save(state, buffer)
        data = buffer.getbuffer()
        start = time.monotonic()
        _write(here, folder / FILE, data)
        here.measured(checkpoint_write_mb_per_s=len(data) / 1e6 / (time.monotonic() - start))
        _write(here, folder / DIGEST, digest(tensors_of(state)).encode())
    return {"size_bytes": len(data), "free_bytes": room}


def _write(here: Here, path: Path, data: Any) -> None:
    beside = path.with_name(f"{path.name}.{here.rank}.tmp")
    handle = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, 0o644)
    try:
        written = 0
        while written < len(data):
            here.about_to(f"write {path.name}: {written >> 20} of {len(data) / 2**20:.1f} MiB")
            written += os.write(handle, data[written : written + _PIECE_BYTES])
        here.about_to(f"sync {path.name} to disk")
        os.fsync(handle)
    finally:
        os.close(handle)
    beside.replace(path)


def load(here: Here, folder: Path, model: Any, optimizer: Any) -> None:
    """Load the file into this rank's model and optimizer; every bit must be as saved."""
    found = _read(here, folder)
    model.load_state_dict(found["model"])
    optimizer.load_state_dict(found["optimizer"])
    compare(folder, tensors_of({"model": model.state_dict(), "optimizer": optimizer.state_dict()}), "the checkpoint")


def _read(here: Here, folder: Path) -> Any:
    here.about_to("load the checkpoint")
    try:
        return here.torch.load(folder / FILE, map_location="cpu", weights_only=True)
    except Exception as error:  # zip, pickle and torch raise different errors for a damaged file
        raise restore_failure(
            folder, f"it cannot be read ({type(error).__name__}: {str(error).splitlines()[0]})"
        ) from error


def compare(folder: Path, tensors: Mapping[str, Any], what: str) -> None:
    """Compare the loaded tensors with the saved ones. Raises Failure."""
    if digest(tensors) != expected_digest(folder):
        raise restore_failure(folder, f"{what} differs from the saved numbers")


def expected_digest(folder: Path) -> str:
    """Return the digest that the main process wrote beside the checkpoint."""
    return (folder / DIGEST).read_text("ascii")


def restore_failure(folder: Path, how: str) -> Failure:
    """Return the failure for a checkpoint that cannot be loaded as it was saved."""
    return Failure(
        f"the checkpoint in {folder.parent} cannot be restored: {how}",
        "checkpoint_altered",
        folder=str(folder.parent),
        how=how,
    )


def resume(here: Here, folder: Path, group: Any, *, alone: bool) -> None:
    """Train one more step from the file with a new model: alone, or with the ranks of `group`."""
    model, optimizer = trained_model(here)
    load(here, folder, model, optimizer)
    if not alone:
        from .ddp import wrap_ddp

        model = wrap_ddp(here, model, process_group=group)
    loss = _step(here, model, optimizer)
    if not loss < float("inf"):
        raise restore_failure(folder, f"the first step after it has a loss of {loss}")
