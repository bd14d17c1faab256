"""Which environment variables does mgpu read, and which does it set? Every answer's: `reference/answers.md`.

A test compares the names with those in the source.
"""

from __future__ import annotations

from docs.generate.markup import code, front, plain, table

READ = {
    "MGPU_CONFIG": "Path of the config, as with --config. Default: ./accelerate.yaml.",
    "MGPU_LOG_DIR": "Folder for the folders of runs.",
    "MGPU_LOG_LIMIT": "Largest size of a run's log in bytes. Default: 268435456 (256 MiB).",
    "MGPU_NO_INPUT": "Set: never prompt. So does CI, which CI services set.",
    "MGPU_ACCESSIBLE": "Set: plain numbered questions and nothing redrawn, as TERM=dumb.",
    "MGPU_ASCII": "Set: no characters beyond ASCII on the screen.",
    "MGPU_COLOR": "always or never. It counts before NO_COLOR, FORCE_COLOR, CLICOLOR_FORCE and CLICOLOR.",
    "MGPU_DEBUG": "Set: a bug in mgpu is shown with its traceback instead of one line.",
    "MGPU_NO_PROJECT": "Set: [tool.mgpu] in pyproject.toml and mgpu.toml are not read.",
    "MGPU_PREFLIGHT": "0: a job script skips its pre-flight.",
    "MGPU_WATCH_AFTER": "Seconds until the first report about the GPUs of a run (60). It scales the later times, too.",
}
STANDARD = {
    "NO_COLOR": "Set: no colors.",
    "FORCE_COLOR, CLICOLOR_FORCE": "Set: colors, also in a file or pipe.",
    "CLICOLOR": "0: no colors.",
    "TERM": "dumb: plain lines.",
    "CI": "Set: never prompt.",
    "VIRTUAL_ENV, CONDA_PREFIX": "The environment that is examined if mgpu's own Python has no torch.",
    "XDG_CACHE_HOME": "Where mgpu.pyz unpacks itself. Default: ~/.cache.",
    "XDG_STATE_HOME": "Where mgpu keeps the last verdict, drafts and the list of runs. Default: ~/.local/state.",
    "TMPDIR": "Where scratch folders are created.",
}
SET = {
    "MGPU_RUN_ID": "In every process of a run: which run it belongs to.",
    "MGPU_RECORDER": "In the ranks: the folder of the recorder. 0 in a Slurm job script: no recorder.",
    "MGPU_NAN_CHECK": "In the ranks: the value of --nan-check.",
    "MGPU_REHEARSAL": "In the ranks of smoke-test SCRIPT: the number of optimizer steps.",
    "MGPU_REHEARSAL_BEGAN": "In the ranks of smoke-test SCRIPT: when the run began.",
    "MGPU_REHEARSAL_CPU": "In the ranks of smoke-test SCRIPT --cpu: gloo takes the place of a backend that needs GPUs.",
    "MGPU_REHEARSAL_UNTIL": "In the ranks of smoke-test SCRIPT: when its measured steps end.",
    "MGPU_REHEARSAL_CHECKPOINT": "In the ranks of smoke-test SCRIPT --checkpoint-now.",
}


def page() -> str:
    """Return the page with all variables."""
    parts = [
        front("Environment variables", "The environment variables that mgpu reads and sets."),
        "# Environment variables\n",
        "## Read by mgpu\n",
        "Every [answer](answers.md) of `mgpu configure` also has a variable: `MGPU_BATCH_PER_GPU=8` is the same as "
        "`--batch-per-gpu 8`.\n",
        _table(READ),
        "## Conventions that mgpu follows\n",
        _table(STANDARD),
        "## Set by mgpu\n",
        "Do not set these yourself. `mgpu launch --dry-run` shows every variable that a launch adds.\n",
        _table(SET),
        "NCCL's, torch's and the launchers' variables are examined by the checks of "
        "[environ](../checks/area/environ.md) and [nccl](../checks/area/nccl.md).\n",
    ]
    return "\n".join(parts)


def _table(names: dict[str, str]) -> str:
    return table(("Variable", "Meaning"), [(code(name), plain(text)) for name, text in names.items()])
