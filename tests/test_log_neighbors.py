"""Lines that belong together, or that look like another row's: which of the two is the cause?"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.engine import root_cause
from mgpu.readers.log import read

WATCHDOG = "[E ProcessGroupNCCL.cpp:523] Watchdog caught collective operation timeout:"
NET_IB = "node7:238:1219 [0] transport/net_ib.cc:180 NCCL WARN NET/IB : mlx5_0:1 async fatal event on QP (0x7f69): "
ARCH = "NVIDIA A40 with CUDA capability sm_86 is not compatible with the current PyTorch installation.\n"
NO_KERNEL = "RuntimeError: CUDA error: no kernel image is available for execution on the device\n"
TRACE = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 7, in <module>\n    import field\n'
MISSING = "ImportError: libtorch_cuda_cu.so: cannot open shared object file: No such file or directory\n"
HUB = (
    "[2026-11-30 15:32:18,446][huggingface_hub.utils._http][WARNING] - '(MaxRetryError(\"HTTPSConnectionPool(host="
    "'huggingface.co', port=443): Max retries exceeded with url: /a/b/resolve/main/config.json (Caused by SSLError("
    "'EOF'))\"), '(Request ID: 1f)')' thrown while requesting HEAD https://huggingface.co/a/b/resolve/main/config.json\n"
    "[2026-11-30 15:32:18,447][huggingface_hub.utils._http][WARNING] - Retrying in 1s [Retry 1/5].\n"
)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        # The rest of a watchdog's line is on the next one.
        (f"{WATCHDOG}\nWorkNCCL(OpType=ALLREDUCE, SeqNum=458) ran for 1800600 ms before timing out.\n",
         "log_collective_timed_out"),
        (f"{WATCHDOG}\n", "log_timeout_line_cut"),
        # A protection error is not a link that flaps.
        (f"{NET_IB}local access violation work queue error\n", "log_ib_protection_error"),
        (f"{NET_IB}local catastrophic error\n", "log_ib_link_flaps"),
        # torch's warning is the cause of a kernel that is missing, not of a library that is.
        (f"{ARCH}{TRACE}{MISSING}", "log_library_missing"),
        (f"{ARCH}{TRACE}{NO_KERNEL}", "log_gpu_older_or_newer_than_torch"),
        (ARCH, "log_gpu_older_or_newer_than_torch"),
        # The Hub's library tries again, and may give up.
        (f"{HUB}saved the config\n", None),
        (f"{HUB}{TRACE}requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max "
         "retries exceeded with url: /a/b (Caused by NewConnectionError('no route'))\n", "log_network_failed"),
    ],
)  # fmt: skip
def test_which_of_two_lines_counts(text: str, cause: str | None, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(text)
    first = root_cause.find_cause(read.read_logs([path]), None).first
    assert (first.id if first else None) == cause
