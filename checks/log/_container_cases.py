"""What a failure means at the border of host and container: a path or library of the host that the container lacks."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import every, line_of, said, shown

_RUN = "https://apptainer.org/docs/user/latest/environment_and_metadata.html"
_GPU = "https://apptainer.org/docs/user/latest/gpu.html"
_SET = "https://www.gnu.org/software/bash/manual/bash.html#The-Set-Builtin"
_OPEN = r"^FATAL: +(?:.*: )?could not open image "
_UNSET = line_of("log_image_import_failed", _OPEN + r"(?:\S*/(?:None|null|undefined)|\S*\$\{?\w+\}?\S*): ")


def _after_an_exception(log: Log, raised: UncaughtException | None) -> bool:
    """Whether a program of the same job raised an exception before Apptainer was started."""
    return any(
        one.file == image.file and one.line < image.line
        for one in log.raised
        for image in log.seen
        if image.signature == "log_image_import_failed"
    )


# fmt: off
_PRINT_PATH = Fix("Let the script stop where a command fails, and at a path without an image.",
                  ("set -e  # at the start of the job script",
                   "test -f \"$IMAGE\"  # stops there, and the path is in the script"))
_NOT_OPENED = (
    "FATAL:   While checking container encryption: could not open image /work/ada/{name}: failed to retrieve path for "
    "/work/ada/{name}: lstat /work/ada/{name}: no such file or directory\n"
)
IMAGES = (
    Case(every(_UNSET, _after_an_exception),
         "the path of the container's image has an empty variable in it, and a command before it failed",
         "The path ends in a word for nothing (None, null) or in the name of a variable. A command of the same script "
         "raised an exception before: it probably should have set the variable. The script went on without it.",
         (Fix("Fix that command first: its exception is above this line."), _PRINT_PATH),
         'Traceback (most recent call last):\n  File "/work/ada/settings.py", line 8, in <module>\n    import yaml\n'
         "ModuleNotFoundError: No module named 'yaml'\n" + _NOT_OPENED.format(name="None"), _SET),
    Case(_UNSET, "the path of the container's image has an empty variable in it",
         "The path ends in a word for nothing (None, null) or in the name of a variable: what the job script or its "
         "config names as the image was not set, or was read from a program that printed None.",
         (_PRINT_PATH,), _NOT_OPENED.format(name="None"), _SET),
    Case(line_of("log_image_import_failed", _OPEN),
         "Apptainer cannot open the container's image",
         "The file does not exist on this node, is on a disk that only other nodes mount, or this user may not read "
         "it. A name without a path is a file in the current folder.",
         (Fix("Check the file on a node of the job.", ("srun --ntasks-per-node=1 ls -lL PATH.sif",)),
          Fix("If it was never built, or is incomplete, build it.", ("apptainer build image.sif docker://IMAGE",))),
         _NOT_OPENED.format(name="train.sif"), "https://apptainer.org/docs/user/latest/cli/apptainer_exec.html"),
)
TOOLKIT_OF_HOST = Case(
    every(said(r"No such file or directory: '/(?:cvmfs|sw|apps|software|opt/(?:apps|ohpc|software)|cm/shared|"
               r"(?:\S+/)?(?:easybuild|spack|modules|Core))/\S*/bin/nvcc'"), shown("runs_in_container")),
    "CUDA_HOME has a path of the host, which does not exist in the container",
    "The path of nvcc is of an environment module of the host. The variable came into the container with the host's "
    "environment. DeepSpeed starts $CUDA_HOME/bin/nvcc when it is imported, only to read its version. Nothing is to be "
    "compiled yet.",
    (Fix("Set it to the toolkit of the image, or start the container without the host's environment.",
         ("apptainer exec --nv --env CUDA_HOME=/usr/local/cuda IMAGE.sif ...",
          "apptainer exec --nv --cleanenv IMAGE.sif ...")),
     Fix("Or remove it in the job script, after the modules are loaded.", ("unset CUDA_HOME CUDA_PATH",)),
     Fix("See whether the image has a toolkit.",
         ("apptainer exec --nv IMAGE.sif sh -c 'ls -d /usr/local/cuda*; command -v nvcc'",))),
    "== CUDA ==\nCUDA Version 12.4.1\nContainer image Copyright (c) 2016-2023, NVIDIA CORPORATION & AFFILIATES.\n"
    "FileNotFoundError: [Errno 2] No such file or directory: '/cvmfs/soft/easybuild/cudacore/12.6.2/bin/nvcc'\n", _RUN)
LIBRARIES_OF_HOST = Case(
    every(line_of("log_rank_segfault", r"Segmentation fault\s+(?:\(core dumped\)\s*)?(?:\S*/)?"
                                       r"(?:apptainer|singularity) (?:run|exec|shell)\b"), shown("libraries_mixed")),
    "the container crashed (SIGSEGV), and libraries of the host are mixed with its own",
    "A shell or program got a library that is not from its own system (\"no version information available\"): "
    "LD_LIBRARY_PATH has a whole library folder of the host. With another C library than the host's, what starts in "
    "the container crashes before Python does.",
    (Fix("Do not pass the host's library folders to the container. Bind only the files that MPI needs.",
         ("env -u LD_LIBRARY_PATH apptainer exec --nv --cleanenv IMAGE.sif python train.py",)),
     Fix("See what the container has set.",
         ("apptainer exec --nv IMAGE.sif sh -c 'echo $LD_LIBRARY_PATH'",))),
    "/bin/bash: /cvmfs/soft/usr/lib64/libtinfo.so.6: no version information available (required by /bin/bash)\n"
    "slurm_script: line 55: 4711 Segmentation fault      (core dumped) apptainer run --nv image.sif python train.py\n",
    _GPU)
# fmt: on
