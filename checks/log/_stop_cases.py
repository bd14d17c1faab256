"""Was the launcher sent SIGTERM as well as SIGHUP, and was a checkpoint being saved? Cases of rows of `ends.py`."""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, SignatureMatch, UncaughtException, seconds_between_lines

from ._circumstances import called, either, every, last_did, never, shown, within

_OF_LAUNCHER = re.compile(r"got signal: 15\b|Received (?:15|Signals\.SIGTERM) death signal|received SIGTERM")
_WAITS = re.compile(r"\.(?:wait|join)\(|\bsleep\(")
_OF_WORKER = re.compile(r"^torch/utils/data/_utils/worker\.py in ")
_SECONDS_TOGETHER = 1.0
_LINES_TOGETHER = 60  # of two nested tracebacks
_LOGIND = "https://www.freedesktop.org/software/systemd/man/latest/logind.conf.html#KillUserProcesses="


def _first(log: Log, signature: str) -> SignatureMatch | None:
    return next((one for one in log.seen if one.signature == signature and not one.survived), None)


def _in_the_script(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the traceback of the interruption shows what the script did: not that of a launcher, or of a worker."""
    if raised is None or not raised.own_code or raised.of_launcher:
        return False
    return raised.place is not None and not any(map(_OF_WORKER.search, raised.frames))


def _while_it_waited(log: Log) -> bool:
    """Whether SIGTERM came while the launcher waited for its ranks to end, which can take 30 s."""
    raised = [one for one in log.raised if "log_asked_to_end" in one.signatures and one.message.endswith("signal: 15")]
    return any(_WAITS.search(call.code or "") for one in raised for call in one.calls)


def with_sigterm(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the launcher got SIGTERM before SIGHUP, or together with it."""
    term, hangup = _first(log, "log_asked_to_end"), _first(log, "log_terminal_closed")
    if term is None or hangup is None or not _OF_LAUNCHER.search(term.text):
        return False
    seconds = seconds_between_lines(hangup, term)
    if seconds is not None:
        return seconds <= _SECONDS_TOGETHER
    if term.file != hangup.file:
        return False
    return term.line - hangup.line <= _LINES_TOGETHER and not (hangup.line < term.line and _while_it_waited(log))


# fmt: off
_WHY = (
    "A terminal that closes sends only SIGHUP. This launcher also got SIGTERM, first or at the same time. Either the "
    "machine or the container was stopped: a shutdown, a reboot, a spot VM that the provider reclaimed, docker stop. "
    "Or only the session was ended: a logout on a machine with KillUserProcesses=yes, or a person or a script that "
    "killed its processes.")
_FIXES = (
    Fix("Check which of the two it was: whether the machine restarted at that time, and what stopped it. Of a cloud "
        "VM, the provider's console lists its events (preempted, stopped, maintenance).",
        ("last -x | head", "journalctl -b -1 -n 50")),
    Fix("If only the session was ended: keep your processes after a logout, and detach the run.",
        ("loginctl enable-linger", "systemd-run --user --scope tmux new -s train", "mgpu launch --detach train.py")),
    Fix("If the machine can stop at any time: save checkpoints often, and resume from the last complete one."),
)
_INCOMPLETE = " The last lines before it show that a checkpoint was being saved: it may be incomplete."
_CHECK_IT = Fix("Compare the newest checkpoint with the one before it (files and their sizes). If it is incomplete, "
                "resume from the older one.", ("ls -lat CHECKPOINT_FOLDER",))
_SAVING = "step 3/9 loss 0.41\nSaving the optimizer state...\n"
_TERM = ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 15\n")
_HANGUP = ("torch.distributed.elastic.multiprocessing.api.SignalException: Process 77 got signal: 1\n")
ENDED_WHILE_SAVING = Case(
    every(with_sigterm, last_did("save")),
    "the session, the container or the machine was ended while a checkpoint was being saved (SIGTERM and SIGHUP)",
    f"{_WHY}{_INCOMPLETE}", (_FIXES[0], _CHECK_IT, *_FIXES[1:]), f"{_SAVING}{_TERM}{_HANGUP}", _LOGIND)
ENDED_WITH_SESSION = Case(
    with_sigterm,
    "the session, the container or the machine was ended, which stopped the run (SIGTERM and SIGHUP)",
    _WHY, _FIXES, f"step 3/9 loss 0.41\n{_TERM}{_HANGUP}", _LOGIND)
# A log with SIGTERM alone does not show whether the ranks still trained.
STOPPED_BY = (
    "mgpu with --timeout or --on-hang stop, a scheduler at the time limit or at preemption, a container or a machine "
    "that stops, or kill. No rank reports an error before it.")
SPAWNED_STOPPED_BY = (
    "It did not fail by itself: something asked it to end. Mostly a scheduler at the time limit or at preemption, a "
    "container that stops, a monitor of the node's memory or load, or kill. If another rank printed an exception, "
    "that one is the cause.")
_SENDERS = "https://pytorch.org/docs/stable/elastic/errors.html"
_OF_SLURM = ("sacct -j JOBID --format=JobID,State,ExitCode", "journalctl --since -1h | tail")
STOPPED_WHILE_SAVING = Case(
    last_did("save"),
    "the launcher received SIGTERM while a checkpoint was being saved",
    f"{STOPPED_BY}{_INCOMPLETE}",
    (_CHECK_IT, Fix("Find out what sent it.", ("journalctl --since -1h | tail",))),
    f"{_SAVING}{_TERM}", _SENDERS)
STOPPED = (
    Case(
        shown("mgpu_stopped_run"),
        "mgpu stopped the run",
        'mgpu wrote into the log: "{shown_mgpu_stopped_run}". What the launcher and the ranks print after it is a '
        "consequence.",
        (Fix("Find out why the run made no progress or took so long: start it again, and look at the ranks while it "
             "stands still.", ("mgpu launch --why",)),),
        f"mgpu: SIGTERM to the launcher: --timeout 60 s reached\n{_TERM}", _SENDERS),
    STOPPED_WHILE_SAVING,
    Case(
        shown("in_slurm_job"),
        "the launcher or the program received SIGTERM",
        f"{STOPPED_BY} The log is of a Slurm job: Slurm sends it at the time limit, at preemption and with scancel.",
        (Fix("Find out what sent it.", _OF_SLURM),),
        f"SLURM_JOB_ID=12\n{_TERM}", _SENDERS),
)
SPAWNED_IN_SLURM = Case(
    shown("in_slurm_job"),
    "{process} received SIGTERM, which ended the run",
    f"{SPAWNED_STOPPED_BY} The log is of a Slurm job.",
    (Fix("Find out what sent it, and resume from the last checkpoint.", _OF_SLURM),),
    "SLURM_JOB_ID=12\ntorch.multiprocessing.spawn.ProcessExitedException: process 0 terminated with signal SIGTERM\n",
    "https://github.com/pytorch/pytorch/blob/main/torch/multiprocessing/spawn.py")
_INTERRUPT = "https://docs.python.org/3/library/exceptions.html#KeyboardInterrupt"
_STOPPED_BY_USER = (
    "A user, or a program that sends SIGINT, stopped it: it had not failed. What is printed afterwards is a "
    "consequence. The script was at {the_place}: {the_line}")
_RESUME = Fix("Start it again, or resume from the last checkpoint.", ("mgpu launch train.py",))
_IN_FETCH = (
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    for batch in loader:\n'
    '  File "/x/site-packages/torch/utils/data/{file}", line 54, in {function}\n    data = self.dataset[0]\n'
    '  File "/home/user/clips.py", line 7, in __getitem__\n    member = archive.getmember(name)\n'
    '  File "/usr/lib/python3.12/tarfile.py", line 235, in next\n    buf = self.fileobj.read(size)\n'
    "KeyboardInterrupt\n")
# Calls and functions that download a file, and do nothing else.
_FETCHES = (r"\b(?:urlretrieve|hf_hub_download|snapshot_download|http_get|load_state_dict_from_url|"
            r"download_url\w*|download_file\w*|(?:gdown|wget|nltk)\.download)\(")
_FETCHING = (r"^(?:torch/hub\.py in (?:download_url_to_file|_?load_state_dict_from_url)|gdown/|wget\.py|"
             r"nltk/downloader|huggingface_hub/(?:file_download|_snapshot_download)\.py|"
             r"torchvision/datasets/utils\.py in _?\w*download)")
INTERRUPTED_ON_CPU = Case(
    every(shown("gpu_not_available"), never(_in_the_script)),
    "the run was interrupted (Ctrl-C); before that, it had reported that no GPU is available",
    'The program printed "{shown_gpu_not_available}", and went on with the CPU, where a model that is meant for a GPU '
    "takes very long to load and to compute. A user, or a program that sends SIGINT, stopped it: it had not failed.",
    (Fix("Check why torch sees no GPU before you start it again: the driver, a torch that was built for the CPU only, "
         "or a job without a GPU.",
         ("nvidia-smi", "python -c 'import torch; print(torch.__version__, torch.cuda.is_available())'",
          "mgpu doctor")),),
    "INFO - CUDA not available\nINFO - Loading the model\nTraining interrupted by user\n",
    "https://docs.pytorch.org/docs/stable/generated/torch.cuda.is_available.html")
INTERRUPTED_WHILE_LOADING = Case(
    every(_in_the_script, within(r"^torch/utils/data/_utils/fetch\.py in fetch$")),
    "the run was interrupted (Ctrl-C) while it loaded a batch",
    f"{_STOPPED_BY_USER}. The main process loads the data itself (num_workers=0), and trains only after that.",
    (_RESUME,
     Fix("If it was interrupted because it was slow: make that line faster, or load in worker processes.",
         ("DataLoader(..., num_workers=4, persistent_workers=True)", "py-spy dump --pid PID"))),
    _IN_FETCH.format(file="_utils/fetch.py", function="fetch"), _INTERRUPT)
INTERRUPTED_DOWNLOAD = Case(
    every(_in_the_script, either(called(_FETCHES), within(_FETCHING))),
    "the run was interrupted (Ctrl-C) while it downloaded a file",
    f"{_STOPPED_BY_USER}. The download was slow, or the server no longer answered.",
    (Fix("Download it once, before the run, and let the run find it: what an interrupted download left can be "
         "incomplete.", ("ls -la CACHE_FOLDER", "curl -L -C - -o FILE URL  # continues an incomplete file")),
     Fix("If it stalled, check whether this machine reaches the server, directly or through a proxy.",
         ("curl -sSI URL | head -1", "env | grep -i proxy"))),
    'Traceback (most recent call last):\n  File "/home/user/train.py", line 12, in main\n    data = load_jets()\n'
    '  File "/x/site-packages/jets/utils.py", line 36, in get\n    urlretrieve(url, path)\n'
    '  File "/usr/lib/python3.12/urllib/request.py", line 270, in urlretrieve\n    block = fp.read(bs)\n'
    "KeyboardInterrupt\n", "https://docs.python.org/3/library/urllib.request.html#urllib.request.urlretrieve")
INTERRUPTED_IN_SCRIPT = Case(
    _in_the_script,
    "the run was interrupted (Ctrl-C)",
    _STOPPED_BY_USER,
    (_RESUME,
     Fix("If it was interrupted because it was slow or did not go on: that line is where it was. See whether it is "
         "there again the next time.", ("py-spy dump --pid PID",))),
    _IN_FETCH.format(file="dataset.py", function="__getitem__"), _INTERRUPT)
# fmt: on
