"""What does a log show around a run: its machine, its shell's files, its launcher's processes, the script's checks?

None of these is a fault, as in `circumstances.py`: a case of a row, or a check, can require them.
"""

from __future__ import annotations

from mgpu.check import Fix, Tag
from mgpu.signature import Row, signatures

_BASH = "https://www.gnu.org/software/bash/manual/bash.html#Bash-Startup-Files"
_LAUNCHER = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/launch.py"
_BSUB = "https://www.ibm.com/docs/en/spectrum-lsf/10.1.0?topic=reference-bsub"
_SBATCH = "https://slurm.schedmd.com/sbatch.html"
_CONDA = "https://docs.conda.io/projects/conda/en/stable/dev-guide/deep-dives/activation.html"
_LOGIN_FILE = r"\S*(?:\.(?:bashrc|bash_profile|bash_login|profile|zshrc|zshenv|zprofile)|/etc/(?:profile|bashrc))[:\[]"
_NO_CONDA = (
    r"(?:: (?:line \d+: )?\S+/etc/profile\.d/conda\.sh: No such file or directory|"
    r"(?:cannot open|[Cc]an't open|no such file or directory:) \S+/etc/profile\.d/conda\.sh\b)"
)


def _row(name: str, pattern: str, samples: tuple[str, ...], source: str, *tags: Tag) -> Row:
    return Row(name, "context", "script", pattern, samples, "", "", Fix("No action needed.", ()), source, tags=tags)


# "has nan: False", but not "(rank: 0)" or "on cuda:0"
_NONE = (
    r"(?<!rank)(?<!cuda)(?<!gpu)(?<!step)(?<!iter)(?<!iteration)(?<!layer)(?<!block)(?<!head)(?<!epoch)(?<!batch)"
    r"[=:?]\s*(?:tensor\()?(?:0(?!\.?\d)|0\.0+\b|false|none\b|no\b)"
)
_OF_DATA = (
    r"(?:\S/\S*\.|\.(?:npy|npz|csv|pt|pth|pkl|h5|tiff?|nii|png|jpe?g|wav)\b|\bin (?:the |this |input |training )?"
    r"batch|\b(?:files?|data|datasets?|samples?|labels?|targets?|images?)\b)"
)


# fmt: off
ROWS = (
    _row("slurm_step_still_waits", r"srun: Job \d+ step creation still disabled, retrying",
         ("srun: Job 4711 step creation still disabled, retrying (Requested nodes are busy)",),
         "https://github.com/SchedMD/slurm/tree/master/src/srun"),
    _row("slurm_step_created",  # after "step creation temporarily disabled"
         r"srun: Step created for ",
         ("srun: Step created for StepId=4711.0", "srun: Step created for job 4711"),
         "https://github.com/SchedMD/slurm/tree/master/src/srun"),
    _row("wsl",  # Windows names a computer so by itself
         r"\b(?:DESKTOP|LAPTOP)-[A-Z0-9]{7,8}\b|microsoft-standard-WSL|/mnt/[a-z]/Users/",
         ("  host      : DESKTOP-356K2N7.localdomain", "Linux 5.15.167.4-microsoft-standard-WSL2",
          '  File "/mnt/c/Users/ada/train.py", line 3'),
         "https://learn.microsoft.com/windows/wsl/"),
    _row("conda_missing_in_job", rf"^(?!{_LOGIN_FILE}).*{_NO_CONDA}",
         ("/var/spool/pbs/jobs/17.SC: line 22: /data/conda3/etc/profile.d/conda.sh: No such file or directory",
          "run.sh: 7: .: cannot open /data/conda3/etc/profile.d/conda.sh: No such file",
          "run.zsh:source:7: no such file or directory: /data/conda3/etc/profile.d/conda.sh"), _CONDA),
    _row("conda_missing_at_login", rf"^{_LOGIN_FILE}.*{_NO_CONDA}",
         ("/home/ada/.bashrc: line 15: /data/conda3/etc/profile.d/conda.sh: No such file or directory",), _CONDA),
    _row("processes_spawned", r"\bprocess \d+ spawned with command: \[",
         ("[2026-11-08 10:00:00,071] [INFO] [launch.py:256:main] process 71 spawned with command: ['python', 'a.py']",),
         _LAUNCHER),
    _row("process_ended", r"^Killing subprocess \d|\bexits with return code = [1-9]",
         ("[2026-11-08 10:00:01,116] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 71",), _LAUNCHER),
    _row("launcher_banner",  # each torchrun that starts several ranks prints it once
         r"^\W*(?:\d+: )?Setting OMP_NUM_THREADS environment variable for each process to be 1 in default",
         ("Setting OMP_NUM_THREADS environment variable for each process to be 1 in default, to avoid your system "
          "being overloaded, please further tune the variable",),
         "https://github.com/pytorch/pytorch/blob/main/torch/distributed/run.py"),
    _row("small_request_of_lsf",  # 2 GB or less
         r"^\s*Total Requested Memory :\s{1,40}(?:\d{1,3}|1\d{3}|20[0-3]\d|204[0-8])\.\d+ MB",
         ("    Total Requested Memory :                     1024.00 MB",), _BSUB),
    _row("small_use_of_lsf",  # the same: what the job used
         r"^\s*Max Memory :\s{1,40}(?:\d{1,3}|1\d{3}|20[0-3]\d|204[0-8])(?:\.\d+)? MB",
         ("    Max Memory :                                 1023.87 MB", "    Max Memory :             51 MB"), _BSUB),
    _row("errors_of_lsf", r"^Read file <[^<>]+> for stderr output of this job",
         ("Read file </work/ada/fit.err> for stderr output of this job.",), _BSUB),
    _row("in_slurm_job",
         r"slurmstepd: |srun: |sbatch: |scancel: |salloc: |#SBATCH |SLURM_[A-Z]{2}",
         ("slurmstepd: error: *** STEP 12.0 ON n1 CANCELLED ***", "#SBATCH --nodes=2", "SLURM_JOB_ID=12"), _SBATCH),
    _row("errors_of_slurm", r"^\s*(?:#SBATCH\s+(?:--error(?:=|\s+)|-e\s*)|StdErr=)[^\s=]",
         ("#SBATCH --error=logs/%j.err", "#SBATCH -e fit.err", "   StdErr=/work/ada/fit.err"), _SBATCH),
    _row("output_of_slurm", r"^\s*(?:#SBATCH\s+(?:--output(?:=|\s+)|-o\s*)|StdOut=)[^\s=]",
         ("#SBATCH --output=logs/%j.out", "#SBATCH -o fit.out", "   StdOut=/work/ada/fit.out"), _SBATCH),
    _row("image_not_opened",  # fopen() failed: the file is missing, or not readable for this user
         r"imread_\('(?P<path>[^'\n]{1,400})'\): can't open/read file",
         ("[ WARN:0@9.188] global loadsave.cpp:241 findDecoder imread_('/d/test/2.jpg'): can't open/read file: check "
          "file path/integrity",),
         "https://github.com/opencv/opencv/blob/4.x/modules/imgcodecs/src/loadsave.cpp", "keeps_latest"),
    _row("sweep_agent", r"\bwandb[._](?:wandb_)?agent - |^wandb: Agent [Ss]tarting [Rr]un: \w+ with config",
         ("2026-03-19 09:32:46,050 - wandb.wandb_agent - INFO - Running runs: ['2l8thknc']",
          "wandb: Agent Starting Run: 2l8thknc with config:"),
         "https://docs.wandb.ai/guides/sweeps"),
    _row("array_shape_printed", r"\b[Ss]hape\b[^\d\n]{0,20}[\[(]\d{1,9}(?:, ?\d{1,9}){1,5},?[\])]",
         ("trues shape: (92000, 96, 512)", "x.shape torch.Size([8, 512])"),
         "https://numpy.org/doc/stable/reference/generated/numpy.ndarray.shape.html", "keeps_latest"),
    _row("google_drive", r"/content/(?:g?drive)/",
         ('  File "/content/drive/MyDrive/project/train.py", line 9, in <module>', "root: /content/gdrive/MyDrive/x"),
         "https://research.google.com/colaboratory/faq.html"),
    _row("in_colab", r"\"/content/|/content/(?:g?drive|sample_data)/|<cell line: \d+>|[/\\]ipython-input-\d+-",
         ('  File "/content/fit.py", line 3, in <module>', "in <cell line: 3>()"),
         "https://research.google.com/colaboratory/faq.html"),
    _row("in_kaggle", r"/kaggle/(?:working|input|lib|src)/",
         ('  File "/kaggle/working/fit.py", line 3, in <module>',),
         "https://www.kaggle.com/docs/notebooks"),
    _row("warp_without_driver", r"CUDA driver not found or failed to initialize",
         ("   CUDA driver not found or failed to initialize",), "https://nvidia.github.io/warp/installation.html"),
    # What a script's own checks print; not if there is none, if it is in the data, or if such values are left out.
    _row("nan_reported",
         rf"(?i)^(?!.*{_OF_DATA})\W*(?:\[[\w :.-]{{1,40}}\]\W*)?(?:(?:warning|error|debug|step \d+)\W+)?"
         r"(?:nans?(?:(?:/| or | and )infs?)?(?: values?)? (?:(?:was|were) )?"
         r"(?:detected in |detected after |detected before |detected at |found in |found after |encountered in )|"
         r"[a-z_][\w.]* (?:contains nan|has nan)s?\b)"
         rf"(?!.*{_NONE})(?!.*\b(?:skip|replac|fill|drop|ignor|remov|clean|clamp|column|row|"
         r"mask(?:ed|ing) ?(?:out|from|$)|except|nan_to_num|handl|continu|zero))",
         ("NaN detected after softmax", "[layer 3] NaN found in attention scores", "attn_weights contains NaN",
          "nan values detected in hidden_states", "WARNING: NaN or Inf detected in grads at step 12", "h.q has nan"),
         "https://docs.pytorch.org/docs/stable/generated/torch.isnan.html"),
    _row("split_generated", r"^Generating (?P<name>\w+) split: ",
         ("Generating train split:   0%|          | 0/5200 [00:00<?, ? examples/s]",),
         "https://github.com/huggingface/datasets/blob/main/src/datasets/builder.py"),
    _row("bashrc_was_read", r"\.bashrc: line \d+: ", ("/home/ada/.bashrc: line 10: rbenv: command not found",), _BASH),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
