"""Does a call or an import exchange gradients or parameters between the ranks?"""

from __future__ import annotations

import re

# Anything that sends gradients or parameters, or splits the model, without DistributedDataParallel.
_TOGETHER = re.compile(
    r"(?!torch\.nn\.(?:DataParallel|parallel\.data_parallel)\b)(?:"
    r"torch\.distributed\.(?!init_process_group|destroy_process_group|get_|is_|barrier|new_group).*"
    r"|(?!.*DistributedSampler).*(?:Distributed|Parallel|Sharded|shard|parallel|all_?reduce|broadcast|average"
    r"|(?<!a)sync(?!hronize)|hvd|horovod|apex(?!\.(?:amp|optimizers|normalization)\b)).*)"
)


def is_together(name: str) -> bool:
    """Whether what a call or an import names may exchange gradients or parameters, or split the model."""
    return _TOGETHER.fullmatch(name) is not None
