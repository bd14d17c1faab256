"""On which ranks does a script save? Only what certainly every rank does is a finding, however rank 0 is chosen."""

from __future__ import annotations

import time

import pytest

from tests.bad_scripts import read
from tests.test_script_twins import found

HEAD = """\
import os, torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader
from torch.utils.data.distributed import DistributedSampler
from settings import data, lock
"""
MAIN = """\
def main():
    dist.init_process_group("nccl")
    local = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local)
    model = DDP(torch.nn.Linear(2, 2).cuda(local), device_ids=[local])
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(data)
    loader = DataLoader(data, batch_size=4, sampler=sampler)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for x in loader:
            optimizer.zero_grad()
            model(x.cuda(local)).sum().backward()
            optimizer.step()
"""
END = """\
    dist.destroy_process_group()
if __name__ == "__main__":
    main()
"""
SAVE = 'torch.save(model.module.state_dict(), "model.pt")'
SAVES = f"def save(model):\n    {SAVE}\n"
METHOD = f"class Run:\n    @first\n    def save(self, model):\n        {SAVE}\n"
FIRST = """\
def first(function):
    def only(*given):
        if dist.get_rank() == 0:
            return function(*given)
    return only
"""
LOCKED = """\
def first(function):
    def only(*given):
        with lock:
            if dist.get_rank() == 0:
                return function(*given)
    return only
"""
CHOOSES = """\
def first(function):
    if int(os.environ["RANK"]) == 0:
        return function
    return lambda *given: None
"""
SHORT = """\
def first(function):
    def only(*given):
        return function(*given) if dist.get_rank() == 0 else None
    return only
"""
BOOL = SHORT.replace("function(*given) if dist.get_rank() == 0 else None", "dist.get_rank() == 0 and function(*given)")
EVERY = SHORT.replace(" if dist.get_rank() == 0 else None", "")


def saved(top: str, end: str) -> set[str]:
    body = "".join(f"    {line}\n" for line in end.split("\n"))
    return {name for name, _ in found(read(HEAD + top + MAIN + body + END))}


@pytest.mark.parametrize("first", [FIRST, LOCKED, CHOOSES, SHORT, BOOL])
def test_a_decorator_that_depends_on_the_rank(first: str) -> None:
    assert saved(f"{first}@first\n{SAVES}", "save(model)") == set()
    assert saved(first + METHOD, "Run().save(model)") == set()


def test_a_decorator_that_does_not() -> None:
    assert saved(f"{EVERY}@first\n{SAVES}", "save(model)") == {"script_saves_on_every_rank"}


def test_a_decorator_is_read_once() -> None:
    """Once for each of its 500 functions, this takes 5 s."""
    long = FIRST.replace("    return only", "        function(*given)\n" * 500 + "    return only")
    began = time.process_time()
    read(HEAD + long + "@first\ndef step(): pass\n" * 500)
    assert time.process_time() - began < 2
