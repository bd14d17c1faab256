"""What do messages of frameworks for several ranks mean in other programs: a model's own sizes, a file, a compiler?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, never, said, several_ranks, shown, within
from ._image_cases import NO_TEXT

_OF_RANKS = said(
    r"(?i)parallel|\b[tcs]p\b|\bsp[-_ ]?size|ulysses|\bworld|\branks?\b|\bring\b|First dimension of the tensor"
)
_SHARDED = either(
    shown("fsdp"), shown("zero_three"), several_ranks, within(r"torch/distributed/"), said(r"lazily initialized")
)

# fmt: off
BLOCKS_OF_MODEL = Case(
    every(said(r"(?i)seq"), never(_OF_RANKS), never(several_ranks)),
    "the sequence length is not a multiple of the number that this model divides it by",
    "Models with blocks (local attention, chunks, hashing buckets, patches, poolings of time steps) divide each "
    "sequence into equal parts. The message has both numbers, if the program prints them.",
    (Fix("Pad or cut each sequence to a multiple of that number, and mask what was added.",
         ("x = F.pad(x, (0, 0, 0, -x.size(1) % block))  # (batch, length, features)",)),
     Fix("Or choose a block size that divides the length.")),
    'Traceback (most recent call last):\n  File "/home/ada/net.py", line 8, in forward\n    check(t, self.chunk)\n'
    "AssertionError: sequence length 100 must be divisible by chunk size 16\n",
    "https://huggingface.co/docs/transformers/model_doc/longformer")
WITHOUT_MEMORY = Case(
    never(_SHARDED),
    "an operation got a tensor that has a shape but no memory",
    "torch.compile, torch.export and vmap trace with tensors without values, and code that reads the memory itself (a "
    "C++ or CUDA extension, data_ptr()) cannot be traced. Otherwise the tensor's storage was freed or moved "
    "(resize_(0), a tensor shared with a process that ended), or weights were partitioned by FSDP.",
    (Fix("See whether it works without the compiler.", ("TORCH_COMPILE_DISABLE=1 python train.py",)),
     Fix("If it does, leave that function out, or register it as an operator of its own.",
         ("@torch.compiler.disable", "@torch.library.custom_op('mine::scan', mutates_args=())")),
     Fix("Else print what the tensor is.", ("print(type(x), x.device, x.shape, x.untyped_storage().size())",))),
    'Traceback (most recent call last):\n  File "/home/ada/ops.py", line 8, in scan\n    return _C.scan(x)\n'
    "RuntimeError: The tensor has a non-zero number of elements, but its data is not allocated yet.\n",
    "https://docs.pytorch.org/docs/stable/library.html")
CLASS_OF_SCRIPT = Case(
    said(r"on <module '__main__'"),
    "a saved file needs the class or function {name} of the script that wrote it, and this script does not define it",
    "pickle stores only where a class is found. One that was defined in the script that was started is found in "
    "__main__, and now another script is that. torch.save() of a whole model does so; a state dict has no classes.",
    (Fix("Define or import it in the script that is started, before the file is loaded.",
         ("from NAME_OF_THE_OTHER_SCRIPT import {name:name}",)),
     Fix("Better: save values only, from a class in a module that both import.",
         ("torch.save(model.state_dict(), path)", "model.load_state_dict(torch.load(path))"))),
    'Traceback (most recent call last):\n  File "/home/ada/test.py", line 8, in <module>\n    net = torch.load(path)\n'
    "AttributeError: Can't get attribute 'Net' on <module '__main__' from '/home/ada/test.py'>\n",
    "https://docs.python.org/3/library/pickle.html#what-can-be-pickled-and-unpickled")
DEFINED_TOO_LATE = Case(
    said(r"on <module '__mp_main__'"),
    "a process that the script starts does not find {name}: the script defines it where only the first process gets to",
    "With spawn (Windows, macOS), each worker imports the script itself as __mp_main__, and leaves out what "
    "is below `if __name__ == '__main__':`. A function or class that a DataLoader or a pool needs must be above it.",
    (Fix("Move its definition to the top level of the file, or into a module that the script imports."),
     Fix("Until then, load without workers.", ("DataLoader(dataset, num_workers=0)",))),
    "Traceback (most recent call last):\n  File \"C:\\Python\\Lib\\multiprocessing\\spawn.py\", line 126, in _main\n"
    "    self = reduction.pickle.load(from_parent)\n"
    "AttributeError: Can't get attribute 'collate' on <module '__mp_main__' from 'C:\\\\w\\\\train.py'>\n",
    "https://docs.python.org/3/library/multiprocessing.html#the-spawn-and-forkserver-start-methods")
NO_TOOLKIT_ON_MAC = Case(
    shown("on_mac"),
    "an extension for NVIDIA's GPUs should be compiled on a Mac, which has no CUDA",
    "There is no CUDA toolkit for macOS. The package needs a machine with an NVIDIA GPU, or has a part for the CPU or "
    "for Apple's GPU that is built instead.",
    Fix("Look in its documentation for a build without CUDA (an option, a variable, another package), or run it on a "
        "machine with such a GPU."),
    'Traceback (most recent call last):\n  File "/Users/ada/setup.py", line 8, in <module>\n    ext = CUDAExtension()\n'
    "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root.\n",
    "https://docs.nvidia.com/cuda/archive/10.2/cuda-installation-guide-mac-os-x/index.html")
RECOMPUTED_BY_SCRIPT = Case(
    every(NO_TEXT, never(shown("hugging_face")), never(_SHARDED)),
    "gradient checkpointing computed something else the second time",
    "The backward pass runs the checkpointed function again, and must meet the same operations: none that depend on "
    "random numbers drawn outside of torch (stochastic depth with random.random()), on a value or cache that the first "
    "pass has set, on the number of the call, or on autocast or no_grad() around one pass only. Its inputs must not "
    "change in place in between.",
    (Fix("Print what differs, and make the function depend on its arguments alone.",
         ("with torch.utils.checkpoint.set_checkpoint_debug_enabled(True): ...",
          "checkpoint(block, x, use_reentrant=False)")),
     Fix("To find it, checkpoint one block after the other.")),
    'Traceback (most recent call last):\n  File "/home/ada/fit.py", line 8, in <module>\n    loss.backward()\n'
    "torch.utils.checkpoint.CheckpointError: torch.utils.checkpoint: A different number of tensors was saved during "
    "the original forward and recomputation.\n",
    "https://docs.pytorch.org/docs/stable/checkpoint.html")
# fmt: on
