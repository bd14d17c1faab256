"""What do `import torch` and torch.cuda say?

Runs in a child process of its own, in the interpreter of the training: torch may be broken, slow, or take the process
down. No CUDA context is made; the child ends before anything else starts.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any


def probe() -> Iterator[dict[str, Any]]:
    """Yield the fact torch_runtime, growing: a death half-way keeps what came before."""
    yield {"asking": "import torch"}
    start = time.perf_counter()
    try:
        import torch
    except BaseException as error:
        yield {"torch_runtime": {"import_error": f"{type(error).__name__}: {error}"}}
        return
    found: dict[str, Any] = {"import_error": None, "import_s": round(time.perf_counter() - start, 3)}
    yield {"asking": "torch.distributed"}
    distributed = torch.distributed
    found["gloo_available"] = distributed.is_available() and distributed.is_gloo_available()
    found["nccl_available"] = distributed.is_available() and distributed.is_nccl_available()
    found["cuda_available"] = False
    if torch.version.cuda is None:
        yield {"torch_runtime": found | {"device_count": 0}}
        return
    if found["nccl_available"]:
        found["nccl_version"] = ".".join(map(str, torch.cuda.nccl.version()))
    yield {"asking": "torch.cuda"}
    try:
        torch.cuda.init()
    except Exception as error:  # the text carries CUDA's own code and words
        found["cuda_error"] = (str(error).strip() or type(error).__name__).splitlines()[0]
        yield {"torch_runtime": found | {"device_count": 0}}
        return
    found["cuda_available"] = True
    found["device_count"] = torch.cuda.device_count()
    found["devices"] = []
    for index in range(found["device_count"]):
        properties = torch.cuda.get_device_properties(index)
        uuid = getattr(properties, "uuid", None)
        found["devices"].append({
            "index": index,
            "name": properties.name,
            "compute_capability": [properties.major, properties.minor],
            "memory_total_bytes": properties.total_memory,
            "uuid": f"GPU-{uuid}" if uuid is not None else None,
        })  # fmt: skip
    yield {"torch_runtime": found}
