"""What did nccl-tests, which measures collectives by themselves, find?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_SOURCE = "https://github.com/NVIDIA/nccl-tests/blob/master/src/common.cu"

# fmt: off
ROWS = (
    Row("log_nccl_tests_failed", "secondary", "nccl",
        r"Test (?P<what>NCCL|CUDA) failure \S+:\d+ '(?P<error>[^']*)'",
        ("node1: Test NCCL failure common.cu:961 'internal error - please report this issue to the NCCL developers / '",
         "gpu7: Test CUDA failure common.cu:892 'operation not supported'", "h100-a: Test NCCL failure "
                                                                            "all_reduce.cu:90 'internal error'"),
        "nccl-tests failed: a call of {what} returned '{error}'",
        "The line has only the class of the error. unhandled cuda error: a CUDA call inside NCCL failed (/dev/shm or "
        "host memory could not be registered, direct access between GPUs is refused, a GPU is faulty or full). "
        "unhandled system error: a socket, a file or a network card. NCCL names the call itself in a WARN line. If it "
        "works with fewer GPUs, /dev/shm of the container or one pair of GPUs is the likely cause.",
        (Fix("Run it again with NCCL's messages, and read the first WARN line.", ("export NCCL_DEBUG=WARN",)),
         Fix("Find what it depends on: turn off one path at a time.",
             ("NCCL_P2P_DISABLE=1", "NCCL_SHM_DISABLE=1", "NCCL_IB_DISABLE=1", "df -h /dev/shm",
              "mgpu smoke-test"))),
        _SOURCE, summary="nccl-tests stopped at a failed call."),
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
