"""Which GPU numbers were requested, and which are there? Cases of `log_gpu_number_invalid`."""

from __future__ import annotations

from collections.abc import Sequence

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import counts, either, every, own_line, said, several_ranks, source_line

_LISTS = r"requested gpus?: \[([\d, ]*)\].{0,10}But your machine only has: \[([\d, ]*)\]"
_SOURCE = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/utilities/device_parser.py"
)


def _numbers(text: str) -> set[int]:
    return {int(one) for one in text.replace(",", " ").split()}


def _enough_gpus(lists: Sequence[str]) -> bool:
    wanted, there = map(_numbers, lists)
    return 0 < len(wanted) <= len(there)


def _too_few_gpus(lists: Sequence[str]) -> bool:
    wanted, there = map(_numbers, lists)
    return 0 < len(there) < len(wanted)


_BY_RANK = (
    r"(?:\.cuda\(|set_device\(|device\(|\.to\(|device=|device_ids=\[|map_location=|cuda:\{|['\"]cuda:['\"] ?\+ ?str\()"
    r"(?:f?['\"]cuda:\{|['\"]cuda['\"], ?|['\"]cuda:['\"] ?\+ ?str\()?"
    r"(?:(?:\w+\.)*(?:global_rank|rank|RANK|process_index)\b(?!\s*%)|(?:\w+\.)*get_rank\(\)(?!\s*%)|"
    r"int\(os\.(?:environ\[|getenv\(|environ\.get\()['\"]RANK['\"])"
)
# fmt: off
GLOBAL_RANK = Case(
    either(source_line(_BY_RANK), own_line(_BY_RANK)),
    "the script uses the global rank as the number of the GPU, so ranks of the second node ask for GPUs that no node "
    "has",
    "Ranks count over all nodes, GPUs on each node. Rank 8 is the first process of the second node of 8 GPUs, and its "
    "GPU is number 0. On one node the two numbers are equal, so the mistake shows only with several nodes.",
    (Fix("Use the rank on the node, which every launcher sets.",
         ("local_rank = int(os.environ['LOCAL_RANK'])", "torch.cuda.set_device(local_rank)",
          "x = torch.ones(1000).cuda()  # on the device that was set")),
     Fix("On one node, start as many ranks as there are visible GPUs.",
         ("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "mgpu doctor --only visibility"))),
    '[rank9]: Traceback (most recent call last):\n[rank9]:   File "/home/user/bench.py", line 8, in <module>\n'
    "[rank9]:     buffer = torch.zeros(64).to(f'cuda:{rank}')\n"
    "[rank9]: torch.AcceleratorError: CUDA error: invalid device ordinal",
    "https://docs.pytorch.org/docs/stable/elastic/run.html")
_NEGATIVE = said(r"Device index must (?:not be |be (?:-1 or )?non-)negative")
_NO_INDEX = "RuntimeError: Device index must not be negative\n"
NEGATIVE_NUMBERS = (
    Case(every(_NEGATIVE, several_ranks),
         "the number of a rank's GPU is negative: probably local_rank still has its default of -1",
         "torchrun passes the number of the rank on its node only as the variable LOCAL_RANK. An option --local_rank "
         "keeps the default that the script gives it, and device_ids=[-1] or torch.device('cuda', -1) then fails. The "
         "line is \"{the_line}\".",
         (Fix("Read the variable where the script sets local_rank.",
              ("local_rank = int(os.environ['LOCAL_RANK'])", "torch.cuda.set_device(local_rank)",
               "grep -rnE --include='*.py' 'local_rank' .")),),
         'Traceback (most recent call last):\n  File "/home/user/main.py", line 8, in main\n    out = model(x)\n'
         + _NO_INDEX
         + "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: "
         "/usr/bin/python3\n", "https://docs.pytorch.org/docs/stable/elastic/run.html"),
    Case(_NEGATIVE,
         "the script gives a GPU a negative number",
         "-1 often means \"no GPU\" in a script's options, and torch has no such device: the CPU is another type of "
         "device. The line is \"{the_line}\".",
         (Fix("Choose the device by the option's value.",
              ("device = torch.device('cuda', gpu) if gpu >= 0 else torch.device('cpu')",)),),
         _NO_INDEX, "https://docs.pytorch.org/docs/stable/tensor_attributes.html#torch.device"),
)
GPU_NUMBERS = (
    Case(counts(_LISTS, _enough_gpus),
         "the trainer requests a GPU by a number that does not exist: devices lists other numbers than those that are "
         "visible",
         "There are enough GPUs. A list for devices contains GPU numbers, counted from 0 among the visible ones. With "
         "CUDA_VISIBLE_DEVICES=1, that GPU is number 0.",
         (Fix("Request the numbers that the message lists after \"only has\", or a count.",
              ("Trainer(accelerator='gpu', devices=[0])", "Trainer(accelerator='gpu', devices=1)",
               "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")),
          Fix("If another GPU should be visible, change what hides it.", ("mgpu doctor --only visibility",))),
         "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [1] But your machine "
         "only has: [0]\n", _SOURCE),
    Case(counts(_LISTS, _too_few_gpus),
         "the process sees fewer GPUs than the trainer requests",
         "CUDA_VISIBLE_DEVICES or the container hides the others. Under Slurm, --gpus-per-task and --gpu-bind show "
         "each task only its own GPU, while Lightning expects that every task sees all GPUs of the node.",
         (Fix("Under Slurm, request GPUs per node, so that each task sees all of them.",
              ("sbatch --gpus-per-node=8 --ntasks-per-node=8 ...",)),
          Fix("Otherwise request as many devices as are visible.",
              ("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "mgpu doctor --only visibility"))),
         "lightning.fabric.utilities.exceptions.MisconfigurationException: You requested gpu: [0, 1, 2, 3] But your "
         "machine only has: [0]\n", _SOURCE),
)
# fmt: on
