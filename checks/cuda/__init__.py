"""Do the GPUs work when they are actually used?

* start: does CUDA start on every GPU, and do kernels run to their end?
* results: does every GPU compute correct and equal results?
* peers: do copies between GPUs arrive intact?
* _runs: which GPUs were tested, and how they are named.
"""

from __future__ import annotations

from mgpu.check import Family

FAMILY = Family(gpu_only=True)
ORDER = ("start", "results", "peers")
