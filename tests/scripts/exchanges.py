"""A rank that trains for a moment: alone, in a group without DDP, or with DDP.

Alone, without torch: a file with the name of its library is mapped, as `import torch` does.
"""

import mmap
import sys
import time
from pathlib import Path

how, seconds = sys.argv[1], float(sys.argv[2])
if how == "alone":
    library = Path(f"libtorch_cpu.so.{time.monotonic_ns()}")
    library.write_bytes(b"-" * 4096)
    with library.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 4096, prot=mmap.PROT_READ)
    time.sleep(seconds)
    sys.exit()

import torch  # noqa: E402

torch.distributed.init_process_group("gloo")
model: torch.nn.Module = torch.nn.Linear(300, 300)
if how == "ddp":
    model = torch.nn.parallel.DistributedDataParallel(model)
until = time.monotonic() + seconds
step = 0
while time.monotonic() < until if how != "ddp" else step < 20:  # ranks that train together need the same steps
    model(torch.ones(4, 300)).sum().backward()
    step += 1
    time.sleep(0.05)
torch.distributed.destroy_process_group()
