"""All questions of `mgpu configure`: one record each, one file per topic, in the order they are asked.

To add a question, add a record here and a field to `Answers`. Its option, environment variable, key in `--set` and in
answers files, and its part of the command line that repeats a session are generated from them.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Final

from mgpu.wizard.answer_fields import Answers
from mgpu.wizard.decision import Decision
from mgpu.wizard.topics import (
    batches,
    cpus,
    gpus,
    learning_rate,
    several_machines,
    slurm_job,
    splitting,
    torch_options,
    training,
)

SECTIONS: Final = {
    "model": "Model",
    "devices": "Devices",
    "batch": "Batch and learning rate",
    "host": "Host",
    "machines": "Nodes and jobs",
}
_TOPICS = (gpus, training, splitting, batches, learning_rate, cpus, several_machines, torch_options)
HERE: Final = tuple(one for topic in _TOPICS for one in topic.DECISIONS)
JOB: Final = slurm_job.DECISIONS  # With an engine these come first, because the other answers depend on its nodes.
BY_NAME: Final[dict[str, Decision]] = {one.name: one for one in (*JOB, *HERE)}
# In the order of the fields of Answers, as in the help and in answers files.
KEYS: Final = tuple(BY_NAME[field.name] for field in fields(Answers) if field.name in BY_NAME)
