"""Which job does Slurm, or another engine, start?"""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import Final

from mgpu.job_formats import SHAPES
from mgpu.wizard.decision import Decision
from mgpu.wizard.topics import several_machines
from mgpu.wizard.value_readers import (
    command_of,
    gpu_model_of,
    image_of,
    one_of,
    slurm_name,
    time_of,
    whole,
    yes_no,
)

# fmt: off
DECISIONS: Final = (
    Decision("slurm", "machines", "", "Slurm starts it: write a job script as well.", yes_no,
        walk="quick", menu=True,
        text="Where will it run?",
        info="On a cluster the scheduler starts the ranks on its nodes: mgpu then writes the accelerate config for "
             "those\n"
             "nodes, and a job script beside it.\n"
             "Here is right for this machine's own GPUs, or for several machines without a scheduler."),
    Decision("partition", "machines", "NAME", "Slurm's queue.", slurm_name("a partition", ","),
        walk="quick", menu=True, probed=True, together=("gpus_per_node", "gpu_model", "time"),
        text="Which partition?",
        info="A partition is a queue of Slurm: nodes of some kind, with a limit for the time of a job.\n"
             "Partitions with GPUs come first; the numbers are of nodes that are neither down nor drained now."),
    replace(several_machines.NODES, walk="quick",
        text="How many nodes?",
        info="Machines of the job, all with the same number of GPUs; the engine picks them, and gives each its rank.\n"
             "More than there are, or than the partition allows, waits for ever: Slurm does not refuse it."),
    Decision("gpus_per_node", "machines", "N", "GPUs of each node; 0 = CPU ranks.", whole(0, 64),
        walk="quick", probed=True, together=("gpu_model",),
        applies=lambda case: case.proposal.gpus_of_node is None or case.proposal.gpus_of_node > 1,
        text="GPUs on each node?",
        info="One rank is started for each. All that a node has is usual: a part of a node is shared with others.\n"
             "0 makes ranks on the CPU, to rehearse the job where no GPU is free."),
    Decision("gpu_model", "machines", "MODEL", "Of the nodes, like A100-80GB.", gpu_model_of,
        walk="quick", skips=True, applies=lambda case: not case.proposal.gpus_named,
        text="Which GPUs do the nodes have?",
        info="Slurm does not say it here, or its name means several. Precision and memory follow from it.\n"
             "Type a model such as A100-80GB, H100 or L40S. Enter skips it: what is not known is then not judged.",
        hint="Like A100-80GB, H100 or L40S."),
    Decision("time", "machines", "LIMIT", "Of the job: 12:00:00, 2-00:00:00, 90 (minutes).", time_of,
        walk="quick", skips=True,
        text="Time limit of the job?",
        info="Slurm ends the job at this limit. A shorter limit starts sooner; more than the partition allows waits\n"
             "for ever. Type 90 (minutes), 12:00:00 or 2-00:00:00 (days). Enter takes the partition's default.",
        hint="Like 12:00:00, 2-00:00:00, or 90 for minutes."),
    Decision("account", "machines", "NAME", "That pays for the job.", slurm_name("an account"),
        walk="quick", menu=True, probed=True, label="account", why="pays for the job",
        text="Which account pays for it?",
        info="The accounts that Slurm's accounting has for you. The default is taken when the script names none."),
    Decision("command", "machines", "WORDS", "'train.py --lr 1e-4'; or behind a --.", command_of,
        show=shlex.join, walk="quick", probed=True,
        text="Which training script?",
        info="The script and its arguments, as you would type them behind python.\n"
             "It can be changed in the job script later.",
        hint="Like train.py --lr 1e-4, or -m package.train."),
    Decision("qos", "machines", "NAME", "Quality of service.", slurm_name("a QOS"),
        walk="guided", menu=True, skips=True, label="QOS", why="quality of service",
        text="Which quality of service?",
        info="A QOS changes priority and limits. The default of your account is taken when the script names none."),
    Decision("constraint", "machines", "FEATURE", "Nodes with this feature only: h100&ib.",
        slurm_name("a feature of nodes, or several joined by & or |", r"&|,:*\[\]()"),
        walk="guided", skips=True, label="constraint", why="only nodes with it",
        text="Only nodes with a certain feature?",
        info="Features are the site's own words for its nodes (sinfo -o '%N %f'). Enter skips it: any node will do.",
        hint="Like h100 or a100&ib."),
    Decision("container", "machines", "IMAGE", "Run in it: pyxis, or a .sif (apptainer).", image_of,
        walk="guided", skips=True,
        label="container", why="the ranks run in it",
        text="Does the training run in a container?",
        info="A .sif file is run by apptainer, any other image by pyxis (srun --container-image).\n"
             "Enter skips it: the job then uses the environment that is active now.",
        hint="Like image.sif, or nvcr.io/nvidia/pytorch:25.10-py3."),
    Decision("shape", "machines", "HOW", "accelerate, torchrun or plain (srun).",
        one_of(*SHAPES),
        walk="guided", menu=True, applies=lambda case: case.proposal.engine == "slurm",
        text="What starts the ranks?",
        info="accelerate: one task on each node, accelerate's launcher starts its ranks by the config. The default.\n"
             "torchrun: the same by torch's launcher, for scripts without accelerate.\n"
             "plain: Slurm starts every rank itself, for Lightning, NeMo and submitit."),
    Decision("requeue", "machines", "", "At its time limit the job queues again.", yes_no,
        walk="guided",
        text="Queue again at the time limit?",
        info="The job is warned before its end, and put back into the queue. Your script has to write a checkpoint,\n"
             "and to begin from it.",
        choices=(
            ("no", "no    the job ends at its limit"),
            ("yes", "yes   it is warned, and queues again"),
        )),
    Decision("preflight", "machines", "", "The job tests its nodes first (by mgpu).", yes_no,
        walk="guided", together=("spare",),
        text="Shall the job test its nodes first?",
        info="mgpu examines every node, tries them out together, and names the bad ones before the training starts.\n"
             "mgpu launch --slurm does so with any script; here the script does it by itself, and needs mgpu.",
        choices=(
            ("no", "no    mgpu launch --slurm does it, when it submits the script"),
            ("yes", "yes   the script does it by itself, and needs mgpu"),
        )),
    Decision("spare", "machines", "K", "Nodes more, in place of bad ones.", whole(0, 1_000),
        walk="guided", skips=True, applies=lambda case: case.answers.preflight is not False,
        text="How many spare nodes?",
        info="They are asked for on top, and stand in for nodes that the pre-flight finds bad. Enter: none."),
)
# fmt: on
