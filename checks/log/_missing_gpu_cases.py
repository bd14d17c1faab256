"""What does a GPU that is missing mean for one process: on a Mac, in a hosted notebook, or for a number in the script?

The rows explain what ranks of a launcher lack.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, never, own_line, raised_alone, said, several_ranks, shown, source_line

_ALONE = every(raised_alone, never(several_ranks))
_NUMBER = r"cuda:\d|device_ids ?= ?\[|set_device\( ?\d|\.cuda\( ?\d|device\( ?\d|gpus ?= ?\["
_MPS = "https://docs.pytorch.org/docs/stable/notes/mps.html"
_COLAB = "https://research.google.com/colaboratory/faq.html"
_NUMBERS = "https://docs.pytorch.org/docs/stable/notes/cuda.html"
# fmt: off
_TRACEBACK = ('Traceback (most recent call last):\n  File "{script}", line 7, in <module>\n    {code}\n'
              '  File "/x/site-packages/torch/cuda/__init__.py", line 9, in _lazy_init\n    torch._C._cuda_init()\n')
_LOOK = ("nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES", "python -c 'import torch; print(torch.cuda.device_count())'")
_CHOOSE = "device = 'cuda' if torch.cuda.is_available() else 'cpu'"
_RENUMBERED = (
    "CUDA_VISIBLE_DEVICES, a container or a job shows a process some of the GPUs only, and CUDA counts these from 0: "
    "with CUDA_VISIBLE_DEVICES=1, that GPU is cuda:0.")
WITHOUT_CUDA_ON_MAC = Case(
    every(shown("on_mac"), said(r"Torch not compiled with CUDA|_cuda_")),
    "torch has no CUDA on a Mac, and the script asks for it",
    "Builds of torch for macOS have no CUDA. Their GPU is the device 'mps'. Calls of torch.cuda, .cuda(), 'cuda' as a "
    "device and packages that need CUDA do not work there.",
    (Fix("Choose the device at run time, and use it in place of .cuda().",
         ("device = 'mps' if torch.backends.mps.is_available() else 'cpu'", "x = x.to(device)",
          "grep -rnE --include='*.py' 'cuda' .")),
     Fix("If the code is a package's that needs CUDA, run it on a machine with an NVIDIA GPU."),),
    _TRACEBACK.format(script="/Users/ada/fit.py", code="x = x.cuda()")
    + "AssertionError: Torch not compiled with CUDA enabled", _MPS)
NO_GPU = (
    Case(every(either(shown("in_colab"), shown("in_kaggle")), raised_alone),
         "the notebook's machine has no GPU",
         "Colab and Kaggle give a notebook a GPU only if it asks for one, and neither if the quota is used up. The "
         "choice restarts the machine.",
         (Fix("Colab: Runtime > Change runtime type, and choose a GPU. Kaggle: Settings > Accelerator.",
              ("nvidia-smi -L",)),
          Fix("For a run without a GPU, choose the device at run time.", (_CHOOSE,))),
         _TRACEBACK.format(script="/content/fit.py", code="x = x.cuda()") + "RuntimeError: No CUDA GPUs are available",
         _COLAB),
    Case(_ALONE,
         "the program sees no GPU",
         "This machine has no NVIDIA GPU, its driver is not loaded, the container or job was given no GPU, or "
         "CUDA_VISIBLE_DEVICES hides all of them.",
         (Fix("Check which of these it is.",
              ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES", "mgpu doctor --only driver,visibility,container")),
          Fix("In a container or a job, request GPUs.", ("docker run --gpus all ...", "sbatch --gpus=1 ...")),
          Fix("For a run without a GPU, choose the device at run time.", (_CHOOSE,))),
         _TRACEBACK.format(script="/home/ada/fit.py", code="x = x.cuda()") + "RuntimeError: No CUDA GPUs are available",
         _NUMBERS),
)
NUMBER_OF_ONE_PROCESS = (
    Case(every(_ALONE, either(source_line(_NUMBER), own_line(_NUMBER))),
         "the script asks for a GPU by its number, and the process has no GPU of that number ({the_place})",
         "The line is \"{the_line}\". It was written for a machine with more GPUs, or GPUs are hidden. "
         f"{_RENUMBERED}",
         (Fix("Compare the numbers with the GPUs that the process sees, and use one of these.",
              (*_LOOK, "device = 'cuda:0'")),
          Fix("If more GPUs should be visible, look for what hides them.", ("mgpu doctor --only visibility",))),
         _TRACEBACK.format(script="/home/ada/fit.py", code="net.to('cuda:3')")
         + "RuntimeError: CUDA error: invalid device ordinal", _NUMBERS),
    Case(_ALONE,
         "the process has no GPU of the number that it asks for ({the_place})",
         f"The number is in the script, an option, a config file or a checkpoint. The process sees fewer GPUs. "
         f"{_RENUMBERED}",
         (Fix("Print the device before that line, and count the GPUs that the process sees.",
              ("print(device, torch.cuda.device_count())", *_LOOK)),
          Fix("If more GPUs should be visible, look for what hides them.", ("mgpu doctor --only visibility",))),
         _TRACEBACK.format(script="/home/ada/fit.py", code="net.to(args.device)")
         + "RuntimeError: CUDA error: invalid device ordinal", _NUMBERS),
)
# fmt: on
