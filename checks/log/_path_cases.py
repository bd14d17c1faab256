"""What does a path that does not exist mean, by how it is written and what reads it? Cases of `log_file_missing`."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import own_line, said, within

_OPEN = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    cfg = read(path)\n'
    '  File "/home/user/{file}", line 7, in {function}\n    with open(path) as f:\n'
    "FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
)
_PYTHON = "https://docs.python.org/3/library/os.path.html#os.path.expandvars"
_TRAINER = "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"
# Files that only a training state has. Without them a checkpoint has weights, but cannot be resumed.
_STATE = (
    r"/(?:trainer_state\.json|training_args\.bin|optimizer\w*\.(?:pt|pth|bin|safetensors)|scheduler\w*\.(?:pt|bin)|"
    r"scaler\.pt|random_states_\d+\.pkl|sampler\w*\.bin|trainer_config\.json|[\w-]*optim_states\.pt|"
    r"[\w-]*model_states\.pt|dataloader\w*\.(?:pt|json)|common\.pt|metadata\.json)'"
)

# fmt: off
NOT_A_FOLDER = Case(
    own_line(r"\bmakedirs\(.*exist_ok ?= ?True|\bmkdir\(.*exist_ok ?= ?True"),
    "a path that the run creates as a folder exists, but is not a folder in the view of this node",
    "With exist_ok=True, a folder that exists is no error. Either a rank on another node created it a moment ago, and "
    "the shared file system did not show it here yet, or a file or a broken link has this name.",
    (Fix("See what it is, on the node of the rank that failed.", ("ls -ld PATH", "findmnt -T PATH")),
     Fix("If it is a folder now, let one rank create it, and the others wait.",
         ("if rank == 0: os.makedirs(path, exist_ok=True)", "torch.distributed.barrier()"))),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n'
    "    os.makedirs(out, exist_ok=True)\n  File \"<frozen os>\", line 225, in makedirs\n"
    "FileExistsError: [Errno 17] File exists: 'out/step_10'",
    "https://docs.python.org/3/library/os.html#os.makedirs")
PATHS = (
    Case(said(r"(?i)'[^']*(?:path[/_-]to\b|\byour[_-]|<[\w /.-]+>|change[_-]?me\b|replace[_-](?:me|with|this)\b|"
              r"\bplaceholder\b|\btodo\b|/xxx+\b|\[your)"),
         "the path is a placeholder of an example, not a real one: {path}",
         "The job script, the config or the command line was copied, and this value was not filled in. All ranks fail "
         "in the same way.",
         Fix("Put the real path in its place.", ("grep -rn {path:path} .",)),
         _OPEN.format(file="settings.py", function="load", path="/data/path/to/config.json"), _PYTHON),
    Case(said(r"'(?:[^'/]*/)*(?:None|null|undefined)(?:/[^']*)?'"),
         "the path is made of an option that is not set: {path}",
         "A value that is None became text. The option is missing on the command line or in the config, or has another "
         "name there.",
         Fix("Set the option that this path comes from, and let the script stop early if it is empty.",
             ("python train.py --help | grep -iE 'path|dir|file'",)),
         _OPEN.format(file="settings.py", function="load", path="None/train.json"), _PYTHON),
    Case(said(r"'(?:~[^']*|[^']*\$\{?\w+\}?[^']*|[^']*\{\w*\}[^']*)'"),
         "the path contains a sign that nothing has replaced: {path}",
         "The shell replaces ~, $NAME and ${{NAME}} only outside of quotes, and Python, YAML and JSON do not replace "
         "them at all. {{name}} is left if an f before the string is missing.",
         (Fix("Write the whole path, or replace them in the script.",
              ("os.path.expanduser(os.path.expandvars(path))",)),),
         _OPEN.format(file="settings.py", function="load", path="~/data/train.json"), _PYTHON),
    Case(said(_STATE),
         "the checkpoint to resume from is incomplete: it has no {path}",
         "The run before stopped while it saved this checkpoint (a full disk, a quota, a time limit, a crash), or it "
         "was saved without the training state (save_only_model, a final model, a merged one). The checkpoint before "
         "it is probably complete.",
         (Fix("Compare what the checkpoints contain, and resume from the last complete one.",
              ("ls -la $(dirname {path:path}) $(dirname {path:path})/..", "--resume_from_checkpoint CHECKPOINT")),
          Fix("Move the incomplete one away: resume_from_checkpoint=True takes the one with the highest number."),
          Fix("Check why it was not written.", ("df -h .; df -i .; quota -s",))),
         'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    trainer.train(True)\n'
         '  File "/x/site-packages/transformers/trainer.py", line 7, in train\n    state = load(path)\n'
         "FileNotFoundError: [Errno 2] No such file or directory: 'out/checkpoint-80/trainer_state.json'", _TRAINER),
    Case(within(r"(?:dataset|dataloader|data_utils|/data/\S+|_data)\w*\.py in (?:__getitem__|_?load\w*|fetch|"
                r"__next__)$"),
         "a file that the dataset lists does not exist: {path}",
         "The list of samples (a CSV, JSON or index file) names it. The list was made on another machine or with "
         "another root folder, the copy of the data is incomplete, or the folder is not mounted on this node.",
         (Fix("Compare the path with where the data is on this node.",
              ("ls -ld {path:path} $(dirname {path:path})",
               "srun --ntasks-per-node=1 ls -ld {path:path}")),
          Fix("If only some files are missing, drop those samples when the list is read.",
              ("samples = [s for s in samples if os.path.exists(s.path)]",))),
         'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    for x in loader:\n'
         '  File "/home/user/my_dataset.py", line 7, in __getitem__\n    with open(path) as f:\n'
         "FileNotFoundError: [Errno 2] No such file or directory: '/mnt/a/clips/17.wav'", _PYTHON),
)
# fmt: on
