"""Under which one name is an object known that libraries export under several?"""

from __future__ import annotations

# Objects with several names.
_ALIASES = (
    ("torch.nn.parallel.distributed.", "torch.nn.parallel."),
    ("torch.nn.parallel.data_parallel.", "torch.nn.parallel."),
    ("torch.nn.parallel.DataParallel", "torch.nn.DataParallel"),
    ("torch.distributed.distributed_c10d.", "torch.distributed."),
    ("torch.distributed.fsdp.fully_sharded_data_parallel.", "torch.distributed.fsdp."),
    ("torch.utils.data.dataloader.", "torch.utils.data."),
    ("torch.utils.data.distributed.", "torch.utils.data."),
    ("torch.utils.data.sampler.", "torch.utils.data."),
    ("torch.utils.data.dataset.", "torch.utils.data."),
    ("torch.multiprocessing.spawn.spawn", "torch.multiprocessing.spawn"),
    ("torch.multiprocessing.spawn.", "torch.multiprocessing."),
    ("accelerate.accelerator.", "accelerate."),
    ("accelerate.state.", "accelerate."),
    ("pytorch_lightning.", "lightning.pytorch."),
    ("lightning.Trainer", "lightning.pytorch.Trainer"),
)
_ALIASED = tuple(old for old, _ in _ALIASES)


def canonical(name: str) -> str:
    """Return the canonical name of an object that libraries export under several names."""
    if not name.startswith(_ALIASED):
        return name
    for old, new in _ALIASES:
        if name.startswith(old):
            return new + name[len(old) :]
    return name
