"""Run training scripts and record the parameters after every optimizer step: as they are, or as one of several ranks.

python port_runs.py FILE.json: a list of runs, each {"script", "arguments", "ranks", "folder", "trace"}, and "module" if
it is run with `python -m`. torch and accelerate are imported once, and each rank is a fork of this process, because
imports take most of the time. Two things are held equal in all runs, since they are not compared: the order of a
shuffle, and the random numbers that accelerate draws while it prepares a loader. The process group is not destroyed.
`python port_runs.py --one TRACE SCRIPT ...` is one rank of a launcher.
"""

from __future__ import annotations

import json
import os
import runpy
import socket
import sys
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.modules["deepspeed"] = None  # type: ignore[assignment]  # its import takes seconds, and nothing here uses it


def _hold_equal() -> None:
    import accelerate.data_loader
    import torch
    import torch._dynamo  # the first optimizer step imports it, in each fork again
    import torch.distributed
    from torch.utils.data.sampler import RandomSampler

    torch.set_num_threads(1)
    prepare = accelerate.data_loader.prepare_data_loader

    def prepare_data_loader(*values: Any, **options: Any) -> Any:
        state = torch.get_rng_state()
        loader = prepare(*values, **options)
        torch.set_rng_state(state)
        return loader

    def order(self: Any) -> Iterator[int]:
        self.epochs = getattr(self, "epochs", 0) + 1
        torch.empty((), dtype=torch.int64).random_()  # as the original does
        yield from torch.randperm(len(self.data_source), generator=torch.Generator().manual_seed(self.epochs)).tolist()

    accelerate.accelerator.prepare_data_loader = prepare_data_loader
    # torch 2.13's gloo now and then waits forever for a peer that has left already, which is not compared here.
    torch.distributed.destroy_process_group = lambda *_values, **_options: None
    RandomSampler.__iter__ = order


def _record(trace: Path) -> None:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    out = trace.open("w")

    def after_step(optimizer: Any, _arguments: Any, _options: Any) -> None:
        sums = [0.0, 0.0]
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                values = parameter.detach().double()
                sums = [sums[0] + values.sum().item(), sums[1] + values.abs().sum().item()]
        print(*sums, file=out, flush=True)

    register_optimizer_step_post_hook(after_step)


def _rank(run: dict[str, Any], rank: int, port: int) -> None:
    """Be one rank of a run."""
    script = Path(run["script"])
    os.chdir(run["folder"])
    sys.stdout = sys.stderr = open(f"{run['trace']}.{rank}.out", "w", buffering=1)  # noqa: SIM115
    os.environ |= {"ACCELERATE_USE_CPU": "true", "CUDA_VISIBLE_DEVICES": ""}
    if run["ranks"]:
        os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(run["ranks"])}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "LOCAL_WORLD_SIZE": str(run["ranks"])}
    _record(Path(f"{run['trace']}.{rank}"))
    sys.argv = [str(script), *run.get("arguments", [])]
    sys.path.insert(0, str(script.parent))
    try:
        if module := run.get("module"):  # as `python -m` in the folder of the run
            sys.path[0] = run["folder"]
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        else:
            runpy.run_path(str(script), run_name="__main__")
    except BaseException:
        traceback.print_exc()
        os._exit(1)
    sys.stdout.flush()
    os._exit(0)


def _all(runs: list[dict[str, Any]]) -> int:
    failed = 0
    for run in runs:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        ranks = []
        for rank in range(run["ranks"] or 1):
            if (child := os.fork()) == 0:
                _rank(run, rank, port)
            ranks.append(child)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in ranks]
        Path(f"{run['trace']}.codes").write_text(json.dumps(codes))
        failed += any(codes)
    return failed


if __name__ == "__main__":
    _hold_equal()
    if sys.argv[1] == "--one":
        _record(Path(f"{sys.argv[2]}.{os.environ.get('RANK', 0)}"))
        script = sys.argv[3]
        sys.argv = sys.argv[3:]
        sys.path.insert(0, str(Path(script).parent))
        runpy.run_path(script, run_name="__main__")
    else:
        sys.exit(min(_all(json.loads(Path(sys.argv[1]).read_text())), 1))
