"""Does a job script for Slurm start the training it means to start?"""

ORDER = ("text", "directives", "starting", "ranks", "meeting", "world", "gpus", "ending", "settings")
