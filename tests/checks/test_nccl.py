"""checks/nccl.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import NcclLibrary
from tests.checks.facts import MIB, WHEEL, Case, fails, nccl, pytorch, skips, system, table, warns, well

BOTH = nccl(wheels={"nvidia-nccl-cu12": "2.27.5", "nvidia-nccl-cu13": "2.29.7"})
PRELOADED = NcclLibrary("/usr/lib/libnccl.so.2", "2.21.5", "preload")
UNLIMITED = system(limit_stack_bytes=None)
CASES = (
    # nccl_wheels_mixed
    fails("nccl_wheels_mixed",
        "nvidia-nccl-cu12 2.27.5 and nvidia-nccl-cu13 2.29.7", "pip uninstall -y nvidia-nccl-cu12", nccl=BOTH),
    fails("nccl_wheels_mixed", "nvidia-nccl-cu12 2.27.5", "--no-deps nvidia-nccl-cu13==2.29.7", nccl=BOTH),
    well("nccl_wheels_mixed", "nvidia-nccl-cu13 2.29.7 only"),
    skips("nccl_wheels_mixed", "no NCCL wheel", nccl=nccl(wheels={})),
    # nccl_not_the_wheels
    warns("nccl_not_the_wheels", "NCCL 2.21.5 is preloaded over the wheel's 2.29.7", "unset LD_PRELOAD",
        nccl=nccl(PRELOADED, WHEEL)),
    well("nccl_not_the_wheels", "NCCL 2.29.7 from /opt/env/", nccl=nccl(WHEEL, PRELOADED)),
    well("nccl_not_the_wheels", "NCCL 2.21.5 from /usr/lib",
        nccl=nccl(NcclLibrary("/usr/lib/libnccl.so.2", "2.21.5", "system"))),
    skips("nccl_not_the_wheels", "no NCCL library", nccl=nccl(libraries=())),
    skips("nccl_not_the_wheels", "no NCCL library", pytorch=pytorch(cuda=None)),
    # nccl_not_as_required
    warns("nccl_not_as_required",
        "nvidia-nccl-cu13 2.28.9, torch asks for 2.29.7", "pip install --no-deps nvidia-nccl-cu13==2.29.7",
        nccl=nccl(wheels={"nvidia-nccl-cu13": "2.28.9"})),
    warns("nccl_not_as_required", "nvidia-nccl-cu13 is missing, torch asks for 2.29.7", "pip install",
        nccl=nccl(wheels={"nvidia-nccl-cu12": "2.27.5"})),
    well("nccl_not_as_required", "nvidia-nccl-cu13 2.29.7, as torch asks"),
    skips("nccl_not_as_required", "pins no NCCL wheel", pytorch=pytorch(nccl_required=None)),
    skips("nccl_not_as_required", "pins no NCCL wheel", nccl=nccl(wheels={})),
    # nccl_stack_unlimited: NCCL before 2.28
    warns("nccl_stack_unlimited", "ulimit -s is unlimited, NCCL is 2.27.7", "ulimit -s 8192",
        system=UNLIMITED, nccl=nccl(NcclLibrary("/x", "2.27.7", "wheel"))),
    well("nccl_stack_unlimited", "NCCL 2.28 copes", system=UNLIMITED, nccl=nccl(NcclLibrary("/x", "2.28", "wheel"))),
    well("nccl_stack_unlimited", "NCCL 2.28.0 copes",
        system=UNLIMITED, nccl=nccl(NcclLibrary("/x", "2.28.0", "wheel"))),
    well("nccl_stack_unlimited", "stack limit 8192 KiB",
        system=system(limit_stack_bytes=8 * MIB), nccl=nccl(NcclLibrary("/x", "2.27.7", "wheel"))),
    skips("nccl_stack_unlimited", "no NCCL library", system=UNLIMITED, nccl=nccl(NcclLibrary("/x", None, "wheel"))),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
