"""What does a path that does not exist mean, by how it is written and what reads it? Cases of `log_file_missing`."""

from __future__ import annotations

from functools import partial

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import (
    either,
    every,
    line_of,
    own_line,
    raised_alone,
    said,
    shown,
    source_line,
    within,
)
from ._printed_paths import FIX, TWICE, WHY
from ._relative_paths import without_slash

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

_in_path = partial(line_of, "log_file_missing")  # an exception after it can have other quotes

# "model_-00002.pt", "step=-1.ckpt", "checkpoint--1", "step_None.pt"; in "model-00002.pt" the sign only separates.
_of_no_step = _in_path(
    r"(?:(?:ckpt|checkpoint|model|optim\w*|weights|[Ss]tep|[Ee]poch|iter\w*|state|meta)s?[_=-]-0*[1-9]\d*|"
    r"(?:ckpt|checkpoint|[Ss]tep|[Ee]poch|iter\w*)s?[_=-]None)"
    r"(?:_\w+)?(?:/[^']*|\.(?:pt|pth|ckpt|bin|safetensors|json|tar|pkl))?'"
)

_denied = partial(line_of, "log_permission_denied")
_CONTAINER = "https://docs.docker.com/reference/cli/docker/container/run/#user"
_CREATES = either(source_line(r"\b(?:mkdir|makedirs)\("), own_line(r"\b(?:mkdir|makedirs)\("))
# fmt: off
_SET_HOME = Fix("Set the home folder, or the caches, to a folder that this user can write to.",
                ("export HOME=/tmp/home-$(id -u) && mkdir -p $HOME", "export HF_HOME=/data/huggingface",
                 "export TRITON_CACHE_DIR=/tmp/triton-$(id -u)"))
HOMES = (
    Case(_denied(r"Permission denied: '/\.(?:cache|config|local|triton|nv|keras|matplotlib|huggingface|torch)\b"),
         "the home folder of this user is /, where it cannot create {path}",
         "HOME is not set, or is /. That happens in a container that runs with an unknown user ID (docker run --user, "
         "runAsUser in Kubernetes). Libraries keep their caches in the home folder.",
         (_SET_HOME, Fix("See which user the container runs as.", ("id; echo $HOME",))),
         "PermissionError: [Errno 13] Permission denied: '/.cache'", _CONTAINER),
    Case(every(_denied(r"Permission denied: '/(?:home|users?|Users)/[\w.-]+'"),
               source_line(r"\bmk(?:e?dirs?)\(")),
         "the home folder {path} does not exist, and this user cannot create it",
         "A program creates a folder in the home folder, and with it the home folder itself. HOME has the path of "
         "another machine or user, or the container has no such folder: it is not mounted.",
         (_SET_HOME, Fix("See which user this is, and mount the home folder if the run needs it.",
                         ("id; echo $HOME; ls -ld /home",))),
         'Traceback (most recent call last):\n  File "/srv/train.py", line 3, in <module>\n    import triton\n'
         '  File "/usr/lib/python3.11/os.py", line 225, in makedirs\n    mkdir(name, mode)\n'
         "PermissionError: [Errno 13] Permission denied: '/home/ai_dev'", _CONTAINER),
    Case(every(_denied(r"Permission denied: '[^']*/(?:\.locks/)?(?:models|datasets|spaces)--"), _CREATES),
         "this user cannot create {path} in a shared cache of the Hub",
         "The folder does not exist yet, and this user may not write to the folder above it: probably another user "
         "made the cache. Also a model that is there already needs a lock file.",
         (Fix("Use a cache of your own.", ("export HF_HOME=/scratch/$USER/huggingface",)),
          Fix("Or let the owner give the group write access to the shared one.",
              ("namei -l {path:path}; id", "chgrp -R GROUP CACHE && chmod -R g+rwX CACHE"))),
         'Traceback (most recent call last):\n  File "/srv/train.py", line 3, in <module>\n    model = load()\n'
         '  File "/opt/env/lib/python3.8/pathlib.py", line 1288, in mkdir\n    self._accessor.mkdir(self, mode)\n'
         "PermissionError: [Errno 13] Permission denied: '/data/hf/.locks/models--org--one'",
         "https://huggingface.co/docs/huggingface_hub/guides/manage-cache"),
    Case(_CREATES, "this user cannot create the folder {path}",
         "It does not exist yet. This user may not write to the folder above it, which belongs to another user, or "
         "which a container that runs as root created.",
         Fix("See which folder of the path it is, and who may write to it.",
             ("namei -l {path:path}; id", "mgpu doctor --only output_folder_not_writable,cache_not_writable")),
         'Traceback (most recent call last):\n  File "/srv/train.py", line 3, in <module>\n    os.makedirs(out)\n'
         '  File "<frozen os>", line 225, in makedirs\n'
         "PermissionError: [Errno 13] Permission denied: '/data/out/run1'",
         "https://docs.python.org/3/library/os.html#os.makedirs"),
)
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
LEFT_BY_EARLIER_RUN = Case(
    raised_alone,
    "a folder or file that the run creates exists already, probably from an earlier run",
    "Programs that must not mix their output with an older one create it without exist_ok (os.mkdir, Path.mkdir). One "
    "process raised it once, so it is probably not two processes of this run that created it at the same time.",
    (Fix("See what it is. Move it away, or give the run another output folder.", ("ls -ld PATH",)),
     Fix("If the run may write into it, allow that where it is created.",
         ("os.makedirs(path, exist_ok=True)", "Path(path).mkdir(parents=True, exist_ok=True)"))),
    'Traceback (most recent call last):\n  File "/home/user/collect.py", line 12, in main\n'
    "    os.mkdir(out)\nFileExistsError: [Errno 17] File exists: 'out/data'",
    "https://docs.python.org/3/library/os.html#os.mkdir")
_FROM_CURRENT = (
    "The path is relative: it starts at the current folder of the process, which is not the script's. The run was "
    "started in another folder, or the program changed the folder (os.chdir, or Hydra, which can change into "
    "outputs/DATE/TIME).")
_CHANGED = Fix("If the program changes the folder, keep it where the run starts, or make the path whole.",
               ("print(os.getcwd())", "hydra.job.chdir=False", "path = hydra.utils.to_absolute_path(path)"))
RELATIVE = Case(
    every(_in_path(r"'(?!/|~|\\|[A-Za-z]:)[^']+'"), own_line(r"\S")),
    "{path} is not in the current folder of the process ({the_place})",
    f"{_FROM_CURRENT} Or the step that writes the file has not run there.",
    (Fix("See where the run starts, and what is there.", ("pwd; ls -ld {path:path}",)),
     Fix("Start the run in the folder that has it, or give the code the whole path.",
         ("cd PROJECT && mgpu launch train.py",)),
     _CHANGED),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n'
    "    vocab = pickle.load(open(name, 'rb'))\n"
    "FileNotFoundError: [Errno 2] No such file or directory: 'vocab.pkl'",
    "https://docs.python.org/3/library/os.html#os.getcwd")
PATHS = (
    Case(_in_path(rf"'[^']*{TWICE}"),
         "{path} does not exist: the path has a folder twice",
         WHY,
         (FIX, Fix("Look at it.", ("pwd; namei {path:path}",))),
         _OPEN.format(file="settings.py", function="load", path="/srv/set/audio/set/audio/one.json"), _PYTHON),
    Case(_in_path(r"'/(?:var/)?tmp/(?:tmp|pymp-)[a-z0-9_]{8}(?:/[^']*)?'"),
         "a temporary folder, or a file in it, does not exist (any more): {path}",
         "Python's tempfile made the name. Either the file was never written there, or a process on another node made "
         "the folder and sent its path (each node has its own /tmp), or the folder was removed: by a program that "
         "removes what is old (systemd-tmpfiles, cron), the end of another job, another process of this run at its own "
         "end, or the with block of the script that made it. The workers of a DataLoader have their sockets there "
         "(pymp-...), so they fail, too: \"Pin memory thread exited unexpectedly\", or errno 2 in resource_sharer.",
         (Fix("See on the node of the rank that failed whether the folder is there, and which files it has. If it is "
              "there, look for the step that should write the file.", ("hostname; ls -la {path:folder}",)),
          Fix("If it was removed, or another node made it: put temporary files on a disk that the nodes share and that "
              "nothing else empties.", ("export TMPDIR=/scratch/$USER/tmp && mkdir -p $TMPDIR",)),
          Fix("See what removes them.", ("systemctl list-timers | grep tmp; cat /usr/lib/tmpfiles.d/tmp.conf",))),
         _OPEN.format(file="cache.py", function="read", path="/tmp/tmpk3x9_2ab/index.json"),
         "https://man7.org/linux/man-pages/man5/tmpfiles.d.5.html"),
    Case(_in_path(r"/snapshots/[0-9a-f]{40}/"),
         "a file is missing in the cache of the Hugging Face Hub: {path}",
         "The files below snapshots are links to those below blobs. The download was not complete, the cache was "
         "copied without what the links point to, or another node has another cache folder.",
         (Fix("See whether the link has a target.", ("ls -l {path:path}", "ls -lL {path:path}", "echo $HF_HOME")),
          Fix("Download the files again.", ("hf download --force-download ORG/MODEL",))),
         "RuntimeError: unable to open file </home/u/.cache/huggingface/hub/models--openai--clip/snapshots/"
         "32bd64288804d66eefd0ccbe215aa642df71cc41/model.safetensors> in read-only mode: No such file or directory (2)",
         "https://huggingface.co/docs/huggingface_hub/guides/manage-cache"),
    Case(_in_path(r"(?i)'[^']*(?:path[/_-]to\b|\byour[_-]|<[\w /.-]+>|change[_-]?me\b|replace[_-](?:me|with|this)\b|"
              r"\bplaceholder\b|\btodo\b|/xxx+\b|\[your)"),
         "the path is a placeholder of an example, not a real one: {path}",
         "The job script, the config or the command line was copied, and this value was not filled in. All ranks fail "
         "in the same way.",
         Fix("Put the real path in its place.", ("grep -rn {path:path} .",)),
         _OPEN.format(file="settings.py", function="load", path="/data/path/to/config.json"), _PYTHON),
    Case(_in_path(r"'(?:[^'/]*/)*(?:None|null|undefined)(?:/[^']*)?'"),
         "the path is made of an option that is not set: {path}",
         "A value that is None became text. The option is missing on the command line or in the config, or has another "
         "name there.",
         Fix("Set the option that this path comes from, and let the script stop early if it is empty.",
             ("python train.py --help | grep -iE 'path|dir|file'",)),
         _OPEN.format(file="settings.py", function="load", path="None/train.json"), _PYTHON),
    Case(every(_of_no_step, shown("sweep_agent")),
         "a run of a sweep resumes from a step that no checkpoint can have: {path}",
         "The number in the name is negative, or missing: -1 or None of such an option mean that nothing is resumed. "
         "A sweep's agent starts the runs: probably the range of its config for that option has such values. The path "
         "and the disk are not the fault. Runs before this one can have failed for another reason.",
         (Fix("Take that option out of the sweep's parameters, or fix it to its default.",
              ("parameters: {{resume_from_step: {{value: -1}}}}  # the option's own name, in the sweep's YAML",
               "grep -rnE 'resume|step' SWEEP.yaml")),
          Fix("Let the script treat all negative values in the same way.", ("if args.resume_from_step >= 0:",))),
         "2026-03-19 09:32:46,050 - wandb.wandb_agent - INFO - Running runs: ['2l8thknc']\n"
         + _OPEN.format(file="saving.py", function="load_checkpoint", path="/runs/d8/model_-00002.pt"),
         "https://docs.wandb.ai/guides/sweeps/sweep-config-keys"),
    Case(_of_no_step,
         "the script resumes from a step that no checkpoint can have: {path}",
         "The number in the name is negative, or missing. Options for a step often have -1 or None for \"do not "
         "resume\"; here such a value became a part of the name. The path and the disk are not the fault.",
         (Fix("See which steps are saved, and name one of them, or leave the option out to start from the beginning.",
              ("ls -la {path:folder}", "python train.py --help | grep -iE 'resume|step'")),
          Fix("Let the script resume only from a step that exists.", ("if args.resume_from_step >= 0:",))),
         _OPEN.format(file="saving.py", function="load_checkpoint", path="/runs/d8/model_-00002.pt"), _PYTHON),
    Case(_in_path(r"'[^']*(?:[\u00c3\u00c2\u00e3\u00e2](?:[\u0080-\u00bf]|\\x[89ab][0-9a-f]|\u20ac)|\ufffd)[^']*'"),
         "the name of a file has garbled letters, and no file has that name: {path}",
         "Letters with accents were written as UTF-8 and read as Latin-1, which makes two letters of each "
         "(\u00c3\u00a9 in place of \u00e9). Either the list of the data has the garbled "
         "name, or the archive was unpacked with another encoding: the name on the disk and the name in the list "
         "differ.",
         (Fix("Compare the names on the disk with the list, in bytes.",
              ("ls -b {path:folder} | grep '\\\\' | head",)),
          Fix("Rename the files, repair the names in the list, or unpack the archive again with UTF-8.",
              ("name = name.encode('latin-1').decode('utf-8')  # undoes it, if the case of letters was kept",)),
          Fix("Or drop the few samples whose file does not exist.",
              ("samples = [s for s in samples if os.path.exists(s.path)]",))),
         _OPEN.format(file="items.py", function="load", path="/data/art/jos\u00c3\u00a9-17.jpg"), _PYTHON),
    Case(_in_path(r"'(?:~[^']*|[^']*\$\{?\w+\}?[^']*|[^']*\{\w*\}[^']*)'"),
         "the path contains a sign that nothing has replaced: {path}",
         "The shell replaces ~, $NAME and ${{NAME}} only outside of quotes, and Python, YAML and JSON do not replace "
         "them at all. {{name}} is left if an f before the string is missing.",
         (Fix("Write the whole path, or replace them in the script.",
              ("os.path.expanduser(os.path.expandvars(path))",)),),
         _OPEN.format(file="settings.py", function="load", path="~/data/train.json"), _PYTHON),
    without_slash("log_file_missing",
                  _OPEN.format(file="settings.py", function="load", path="./mnt/disk2/train.json")),
    Case(said(_STATE),
         "the checkpoint to resume from is incomplete: it has no {path}",
         "The run before stopped while it saved this checkpoint (a full disk, a quota, a time limit, a crash), or it "
         "was saved without the training state (save_only_model, a final model, a merged one). The checkpoint before "
         "it is probably complete.",
         (Fix("Compare what the checkpoints contain, and resume from the last complete one.",
              ("ls -la {path:folder} {path:folder}/..", "--resume_from_checkpoint CHECKPOINT")),
          Fix("Move the incomplete one away: resume_from_checkpoint=True takes the one with the highest number."),
          Fix("Check why it was not written.", ("df -h .; df -i .; quota -s",))),
         'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    trainer.train(True)\n'
         '  File "/x/site-packages/transformers/trainer.py", line 7, in train\n    state = load(path)\n'
         "FileNotFoundError: [Errno 2] No such file or directory: 'out/checkpoint-80/trainer_state.json'", _TRAINER),
    Case(_in_path(r"'(?!\.\./)(?:\./)?(?:data|datasets?|inputs?|corpus|images|annotations?|splits?)/[^']*\.\w{1,9}'"),
         "a file of the data is not below the current folder of the process: {path}",
         f"{_FROM_CURRENT} Or the data (or a link to it) is missing there.",
         (Fix("See where the run starts, and what is there.", ("pwd; ls -ld {path:path} {path:folder}",)),
          Fix("Start the run in the folder that has the data, link it there, or give the code the whole path.",
              ("cd PROJECT && mgpu launch train.py", "ln -s /path/of/the/data data", "sbatch --chdir PROJECT job.sh")),
          _CHANGED),
         _OPEN.format(file="settings.py", function="load", path="./data/train/part_0.json"), _PYTHON),
    Case(within(r"(?:dataset|dataloader|data_utils|/data/\S+|_data)\w*\.py in (?:__getitem__|_?load\w*|fetch|"
                r"__next__)$"),
         "a file that the dataset lists does not exist: {path}",
         "The list of samples (a CSV, JSON or index file) names it. The list was made on another machine or with "
         "another root folder, the copy of the data is incomplete, or the folder is not mounted on this node.",
         (Fix("Compare the path with where the data is on this node.",
              ("ls -ld {path:path} {path:folder}",
               "srun --ntasks-per-node=1 ls -ld {path:path}")),
          Fix("If only some files are missing, drop those samples when the list is read.",
              ("samples = [s for s in samples if os.path.exists(s.path)]",))),
         'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    for x in loader:\n'
         '  File "/home/user/my_dataset.py", line 7, in __getitem__\n    with open(path) as f:\n'
         "FileNotFoundError: [Errno 2] No such file or directory: '/mnt/a/clips/17.wav'", _PYTHON),
)
# fmt: on
