"""Does a person come from an empty folder to a run on four hosts, and type the hosts only once?

Real ssh servers on hosts of namespaces, real ranks on the CPU. It takes minutes: MGPU_JOURNEY=1 runs it.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from tests.ssh_hosts import SshHosts
from tests.test_hosts_launch import nothing_left

_HOSTS = 4
_WHOLE_S = 400.0
_SCRIPT = """\
import sys

import torch
from accelerate import Accelerator

accelerator = Accelerator(cpu=True)
total = accelerator.reduce(torch.tensor([accelerator.process_index + 1.0]))
line = f"rank {accelerator.process_index} of {accelerator.num_processes}: the sum is {total.item():g}"
sys.stdout.write(f"{line}\\n")  # in one piece: torchrun's ranks are not buffered, and print() writes twice
torch.distributed.destroy_process_group()
"""
# The pre-flight refuses hosts on which torch's ranks wait long for a CPU: this machine has all of them on its own.
_LONG = ("--start-timeout", "240", "--stall-timeout", "120", "--timeout", "390")
pytestmark = pytest.mark.skipif(not os.environ.get("MGPU_JOURNEY"), reason="MGPU_JOURNEY=1 runs it, for minutes")


def test_from_an_empty_folder_to_a_run_on_four_hosts(tmp_path: Path) -> None:
    named = f"n[1-{_HOSTS}]"
    with SshHosts(tmp_path / "hosts", _HOSTS) as hosts:
        for name in hosts.names:
            hosts[name].write("project/train.py", _SCRIPT)

        def mgpu(*arguments: str) -> str:
            began = time.monotonic()
            done = hosts.head.run(sys.executable, "-m", "mgpu", *arguments, timeout=_WHOLE_S)
            print(f"{time.monotonic() - began:6.1f} s  mgpu {' '.join(arguments)}")
            assert done.returncode == 0, (arguments, done.stdout, done.stderr)
            return done.stdout + done.stderr

        assert f"mgpu configure --hosts '{named}'" in mgpu("doctor", "--hosts", named)
        assert f"mgpu smoke-test --hosts '{named}'" in mgpu("configure", "--hosts", named, "--yes")
        assert f"{_HOSTS} healthy nodes" in mgpu("smoke-test", *_LONG)
        for _ in ("first", "second"):  # nothing is typed but the script
            said = mgpu("launch", "train.py")
            for rank in range(2 * _HOSTS):
                assert f"[n{rank // 2 + 1}] rank {rank} of {2 * _HOSTS}: the sum is 36" in said, said
        nothing_left(hosts)
        terminal = hosts.head.terminal("launch", "train.py")
        terminal.see("rank 7 of 8: the sum is 36", _WHOLE_S)
        assert terminal.end(_WHOLE_S) == 0
        nothing_left(hosts)
