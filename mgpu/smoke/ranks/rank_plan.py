"""What is every rank of this run told to do?"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import RUNGS

FILE = "orders.json"
Level = Literal["quick", "standard", "long"]


@dataclass(frozen=True)
class Orders:
    """Written by the runner into the run folder, read by every rank."""

    folder: str  # where journals, reports and stacks go
    world: int  # ranks over all nodes
    nodes: int = 1
    node: int = 0
    level: Level = "standard"
    rungs: tuple[str, ...] = RUNGS  # the ones to climb, in order
    strategy: Literal["ddp", "fsdp", "deepspeed"] = "ddp"
    precision: Literal["no", "fp16", "bf16", "fp8"] = "no"
    accumulate: int = 1  # micro-batches behind an optimizer step
    cpu: bool = False  # a rehearsal, or a machine without a GPU
    stall_s: float = 30.0
    start_limit_s: float = 90.0  # for imports and for all ranks to come
    checkpoint_folder: str | None = None  # where the training will write; None: the run folder
    workers: int = 2  # processes of a DataLoader on each rank
    scaling: bool = True  # measure 1 -> 2 -> all
    fill_percent: int = 0  # of the GPU's free memory, held during the test
    backend: Literal["", "gloo"] = ""  # of the process group; "": the one the training would have

    def write(self) -> Path:
        """Into the run folder."""
        path = Path(self.folder) / FILE
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", "utf-8")
        return path


def read(path: Path) -> Orders:
    """The orders back."""
    data = json.loads(path.read_text("utf-8"))
    return Orders(**{**data, "rungs": tuple(data["rungs"])})
