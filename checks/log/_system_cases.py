"""Is it a program or a library of the operating system that is missing? Cases of rows about files and libraries."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import counts, either, every, own_line, said, source_line, within
from ._image_cases import NO_TEXT

_SUBPROCESS = "https://docs.python.org/3/library/subprocess.html#subprocess.Popen"

# Programs that scripts start: a file of this name, without a folder, is one, also in a log without the last frame.
_PROGRAMS = (
    "ffmpeg|ffprobe|sox|git|git-lfs|java|javac|nvcc|gcc|g\\+\\+|cc|cmake|make|ninja|nvidia-smi|aria2c|wget|curl|rsync|unzip|"
    "squeue|sbatch|scontrol|srun|sinfo|tmux|ssh|dot|pdflatex|pdftoppm|Xvfb|xvfb-run|blender|perl|lspci|numactl|ip|ps|free"
)

# fmt: off
PROGRAM_MISSING = Case(
    either(source_line(r"child_exception_type\("), said(rf"No such file or directory: '(?:{_PROGRAMS})'")),
    "the program {path} is not installed, or not on the PATH of this node",
    "The script starts it as a command of its own. It was installed on another machine, in an environment or a module "
    "that is not active here, or not in this container.",
    (Fix("Look for it. Its package can have another name (ffprobe is in ffmpeg, dot in graphviz); Slurm's commands and "
         "nvidia-smi come from the cluster or the driver.",
         ("command -v {path:path}", "conda install -c conda-forge ffmpeg  # for ffmpeg and ffprobe",
          "apt-cache search {path:path}")),
     Fix("On a cluster it may be a module.", ("module spider {path:path}",))),
    'Traceback (most recent call last):\n  File "/home/user/clips.py", line 7, in cut\n    subprocess.run(["ffmpeg"])\n'
    '  File "/usr/lib/python3.10/subprocess.py", line 1863, in _execute_child\n    raise child_exception_type('
    "errno_num, err_msg, err_filename)\nFileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'\n",
    _SUBPROCESS)
LIBRARY_OF_SYSTEM = Case(
    said(r"lib(?:GL|GLU|EGL|OSMesa|GLESv2|gthread-2\.0|glib-2\.0|SM|ICE|X11|Xext|Xrender|sndfile|xcb\S*)\.so"),
    "a library of the operating system is missing: {library}",
    "opencv-python, open3d, pyrender and soundfile need libraries for windows, OpenGL or sound, which servers and "
    "containers often lack. It has nothing to do with CUDA.",
    (Fix("Install them in the system or the image.",
         ("sudo apt-get install -y libgl1 libglib2.0-0 libsm6 libxext6 libegl1 libsndfile1",
          "conda install -c conda-forge libgl libsndfile")),
     Fix("Or take the OpenCV that needs no windows.",
         ("pip uninstall -y opencv-python opencv-contrib-python", "pip install opencv-python-headless"))),
    "ImportError: libGL.so.1: cannot open shared object file: No such file or directory\n",
    "https://pypi.org/project/opencv-python/")
ODD_SIZE = Case(
    every(NO_TEXT, said(r"except in dimension 1\b"),
          counts(r"Expected size (\d+) but got size (\d+)", lambda found: abs(int(found[0]) - int(found[1])) == 1)),
    "two tensors that are joined differ by one: for feature maps, probably because the image size is not a multiple of "
    "the model's strides",
    "Each layer with stride 2 rounds an odd size down, and the way back doubles it: 25 becomes 12, then 24. Decoders "
    "with skip connections (U-Net, FPN) need sizes that can be halved as often as the model does.",
    (Fix("Resize or pad the images to a multiple of 32 (or 2 to the power of the number of levels).",
         ("x = F.pad(x, (0, -x.shape[-1] % 32, 0, -x.shape[-2] % 32))", "transforms.Resize((512, 512))")),
     Fix("Or bring one map to the size of the other before they are joined.",
         ("x = F.interpolate(x, size=skip.shape[-2:], mode='bilinear', align_corners=False)",))),
    "RuntimeError: Sizes of tensors must match except in dimension 1. Expected size 26 but got size 25 for tensor "
    "number "
    "1 in the list.\n", "https://docs.pytorch.org/docs/stable/generated/torch.cat.html")
NOTHING_TO_DRAW = Case(
    within(r"(?i)rasteriz|gsplat"),
    "the rasterizer was started for no points, or was built for another GPU",
    "A kernel with 0 threads is an invalid configuration: no Gaussian is left (all were pruned, or the initial point "
    "cloud is empty), or none is in the view of this camera. A build for another GPU gives the same message.",
    (Fix("Print how many points there are, and look at the initial cloud (\"Number of points at initialisation\").",
         ("print(means3D.shape)", "ls -la SCENE/sparse/0")),
     Fix("Build it again for this GPU, with the torch of this environment.",
         ("pip install --force-reinstall --no-deps --no-build-isolation ./submodules/diff-gaussian-rasterization",))),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 7, in training\n    render(cam)\n  File '
    '"/v/lib/python3.10/site-packages/diff_gaussian_rasterization/__init__.py", line 9, in forward\n'
    "    _C.rasterize()\nRuntimeError: CUDA error: invalid configuration argument\n",
    "https://github.com/graphdeco-inria/gaussian-splatting/issues/41")
PAIR_OF_RESET = Case(
    own_line(r"\benvs?\w*(?:\.\w+)?\.reset\("),
    "env.reset() returns a pair, the observation and a dict, and the whole pair is converted into a tensor",
    "gym 0.26 and gymnasium return (observation, info). The code was written for an older gym.",
    (Fix("Take the observation.", ("obs, info = env.reset(seed=seed)",)),
     Fix("Or install the release that the code was written for.", ("pip install 'gym<0.26'", "pip show gymnasium"))),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 7, in main\n    state = torch.tensor('
    "env.reset())\nValueError: expected sequence of length 4 at dim 1 (got 0)\n",
    "https://gymnasium.farama.org/introduction/migration_guide/")
# fmt: on
