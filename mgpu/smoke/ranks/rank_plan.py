"""What must every rank of this run do?"""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from . import STAGES

FILE = "orders.json"
_MOST_MICRO_STEPS = 4
Level = Literal["quick", "standard", "long"]


@dataclass(frozen=True)
class Orders:
    """Instructions from the runner to every rank, as a file in the run folder."""

    folder: str  # for journals, reports and stacks
    world: int  # ranks over all nodes
    nodes: int = 1
    of_nodes: tuple[int, ...] = ()  # ranks of each node, if they differ
    node: int = 0
    level: Level = "standard"
    rungs: tuple[str, ...] = STAGES  # the stages to run, in order
    strategy: Literal["ddp", "fsdp", "deepspeed"] = "ddp"
    precision: Literal["no", "fp16", "bf16", "fp8"] = "no"
    accumulate: int = 1  # micro-batches per optimizer step
    cpu: bool = False  # a rehearsal, or a machine without a GPU
    stall_s: float = 30.0
    start_limit_s: float = 90.0  # for imports, and for all ranks to join
    checkpoint_folder: str | None = None  # the training's folder; None: the run folder
    workers: int = 2  # DataLoader processes on each rank
    scaling: bool = True  # measure training on 1, 2, 4 … all ranks
    fill_percent: int = 0  # of the GPU's free memory, allocated during the test
    backend: Literal["", "gloo"] = ""  # of the process group; "": the training's default

    def ranks_of(self, node: int) -> range:
        """Return the ranks of a node."""
        if self.of_nodes:
            first = sum(self.of_nodes[:node])
            return range(first, first + self.of_nodes[node])
        each = self.world // self.nodes
        return range(node * each, (node + 1) * each)

    @property
    def ranks_here(self) -> int:
        """Return the number of ranks of this node."""
        return len(self.ranks_of(self.node))

    @property
    def micro_steps(self) -> int:
        """Return the micro-batches per optimizer step in the test: not all of many, the mechanism is the same."""
        return min(self.accumulate, _MOST_MICRO_STEPS)

    def write(self) -> Path:
        """Write the file into the run folder and return its path."""
        path = Path(self.folder) / FILE
        path.write_text(json.dumps(dataclasses.asdict(self), indent=1) + "\n", "utf-8")
        return path


def read(path: Path) -> Orders:
    """Read the orders back."""
    data = json.loads(path.read_text("utf-8"))
    return Orders(**{**data, "rungs": tuple(data["rungs"]), "of_nodes": tuple(data["of_nodes"])})
