"""What did nccl-tests, which measures collectives by themselves, find?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_SOURCE = "https://github.com/NVIDIA/nccl-tests/blob/master/src/common.cu"

# fmt: off
ROWS = (
    Row("log_nccl_tests_wrong_values", "root", "nccl",
        r"^\s*# Out of bounds values\s*: (?P<count>[1-9]\d*) FAILED",
        ("# Out of bounds values : 48 FAILED",),
        "nccl-tests found {count} wrong values: a collective returned other data than it should",
        "The data changed on its way: probably a GPU, an NVLink, a PCIe switch or a network card corrupts it, or this "
        "NCCL version has a fault in the algorithm that it selected. A training would learn from wrong gradients.",
        (Fix("Find the pair of GPUs: the smoke test compares what each pair exchanges.", ("mgpu smoke-test",)),
         Fix("Compare without direct exchange between the GPUs.", ("export NCCL_P2P_DISABLE=1",), kind="stopgap",
             caveat="The exchange is much slower: only to find out, not for a training run.")),
        _SOURCE),
    Row("log_nccl_tests_too_slow", "root", "nccl",
        r"^\s*# Avg bus bandwidth\s*: (?P<rate>[\d.]+) FAILED",
        ("# Avg bus bandwidth    : 11.2041 FAILED",),
        "nccl-tests measured a bus bandwidth of {rate} GB/s, less than NCCL_TESTS_MIN_BW requires",
        "The values were correct. The limit is the one that was set for this test.",
        Fix("Compare with what the links of this machine should reach.", ("mgpu doctor --deep", "nvidia-smi topo -m")),
        _SOURCE),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
