"""Does a Slurm job script start the training run as intended?"""

ORDER = (
    "text",
    "directives",
    "starting",
    "ranks",
    "meeting",
    "world",
    "gpus",
    "ending",
    "settings",
    "values",
    "files",
    "options",
)
