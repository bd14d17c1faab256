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
    whole_number,
    yes_no,
)

# fmt: off
DECISIONS: Final = (
    Decision("slurm", "machines", "", "Run on Slurm: also write a job script.", yes_no,
        walk="quick", menu=True,
        text="Where will it run?",
        info="On a cluster, the scheduler starts the ranks on its nodes. mgpu then writes the accelerate config for\n"
             "those nodes, and a job script next to it.\n"
             "Choose 'here' for this machine's own GPUs, or for several nodes without a scheduler."),
    Decision("partition", "machines", "NAME", "Slurm partition (queue).", slurm_name("a partition", ","),
        walk="quick", menu=True, probed=True, together=("gpus_per_node", "gpu_model", "time"),
        text="Which partition?",
        info="A partition is a Slurm queue: a set of nodes with a time limit for jobs.\n"
             "Partitions with GPUs come first. Nodes that are down or drained are not counted."),
    replace(several_machines.NODES, walk="quick",
        text="How many nodes?",
        info="All nodes of the job use the same number of GPUs. The engine picks the nodes and gives each its rank.\n"
             "A job for more nodes than exist, or than the partition allows, waits indefinitely: Slurm accepts it."),
    Decision("gpus_per_node", "machines", "N", "GPUs per node; 0 = CPU ranks.", whole_number(0, 64),
        walk="quick", probed=True, together=("gpu_model",),
        applies=lambda case: case.proposal.gpus_of_node is None or case.proposal.gpus_of_node > 1,
        text="GPUs per node?",
        info="One rank is started per GPU. Usually a job takes all GPUs of a node; otherwise it shares the node.\n"
             "0 starts CPU ranks, to rehearse the job when no GPU is free."),
    Decision("gpu_model", "machines", "MODEL", "GPU model of the nodes: A100-80GB.", gpu_model_of,
        walk="quick", skips=True, applies=lambda case: not case.proposal.gpus_named,
        text="Which GPUs do the nodes have?",
        info="Slurm does not report the model here, or its name is ambiguous. Precision and memory depend on it.\n"
             "Type a model such as A100-80GB, H100 or L40S. Press Enter to skip: memory is then not checked.",
        hint="For example A100-80GB, H100 or L40S."),
    Decision("time", "machines", "LIMIT", "Time limit: 12:00:00, 2-00:00:00, 90 (minutes).", time_of,
        walk="quick", skips=True,
        text="Time limit of the job?",
        info="Slurm stops the job at this limit. Jobs with a shorter limit start sooner; a job over the partition's\n"
             "limit waits indefinitely. Type 90 (minutes), 12:00:00 or 2-00:00:00 (days). Press Enter for the default.",
        hint="For example 12:00:00, 2-00:00:00, or 90 for minutes."),
    Decision("account", "machines", "NAME", "Account to charge.", slurm_name("an account"),
        walk="quick", menu=True, probed=True, label="account", why="charged for the job",
        text="Which account is charged?",
        info="Your accounts in Slurm's accounting database. If the script names none, Slurm uses your default."),
    Decision("command", "machines", "COMMAND", "'train.py --lr 1e-4'; or after --.", command_of,
        show=shlex.join, walk="quick", probed=True,
        text="Which training script?",
        info="The script and its arguments, as you would type them after python.\n"
             "You can change it in the job script later.",
        hint="For example train.py --lr 1e-4, or -m package.train."),
    Decision("qos", "machines", "NAME", "Quality of service.", slurm_name("a QOS"),
        walk="guided", menu=True, skips=True, label="QOS", why="quality of service",
        text="Which quality of service?",
        info="A QOS sets priority and limits. If the script names none, Slurm uses your account's default."),
    Decision("constraint", "machines", "FEATURE", "Only nodes with this feature: h100&ib.",
        slurm_name("a node feature, or several joined by & or |", r"&|,:*\[\]()"),
        walk="guided", skips=True, label="constraint", why="only nodes with this feature",
        text="Only nodes with a certain feature?",
        info="Features are the site's own labels for its nodes (sinfo -o '%N %f'). Press Enter to accept any node.",
        hint="For example h100 or a100&ib."),
    Decision("container", "machines", "IMAGE", "Container image: pyxis, or a .sif (apptainer).", image_of,
        walk="guided", skips=True,
        label="container", why="the ranks run in it",
        text="Run the training in a container (optional)?",
        info="A .sif file runs with apptainer, any other image with pyxis (srun --container-image).\n"
             "Press Enter to skip: the job then uses the environment that is active now.",
        hint="For example image.sif, or nvcr.io/nvidia/pytorch:25.10-py3."),
    Decision("shape", "machines", "HOW", "accelerate, torchrun or plain (srun).",
        one_of(*SHAPES),
        walk="guided", menu=True, applies=lambda case: case.proposal.engine == "slurm",
        text="What starts the ranks?",
        info="accelerate: one task per node; accelerate's launcher starts the ranks from the config. The default.\n"
             "torchrun: one task per node; torchrun starts the ranks, for scripts without accelerate.\n"
             "plain: Slurm starts every rank itself, for Lightning, NeMo and submitit."),
    Decision("requeue", "machines", "", "Requeue the job at its time limit.", yes_no,
        walk="guided",
        text="Requeue at the time limit?",
        info="The job is warned before the limit and put back into the queue. Your script must save a checkpoint\n"
             "and resume from it.",
        choices=(
            ("no", "no    the job stops at its limit"),
            ("yes", "yes   it is warned, then requeued"),
        )),
    Decision("preflight", "machines", "", "Test the nodes at the start of the job (with mgpu).", yes_no,
        walk="guided", together=("spare",),
        text="Should the job test its nodes first?",
        info="mgpu checks every node, tests them together, and reports the bad ones before training starts.\n"
             "mgpu launch --slurm does this with any script; here the script does it itself, and needs mgpu.",
        choices=(
            ("no", "no    mgpu launch --slurm does it when it submits the script"),
            ("yes", "yes   the script does it itself, and needs mgpu"),
        )),
    Decision("spare", "machines", "K", "Extra nodes to replace bad ones.", whole_number(0, 1_000),
        walk="guided", skips=True, applies=lambda case: case.answers.preflight is not False,
        text="How many spare nodes?",
        info="Extra nodes that replace nodes the pre-flight finds bad. Press Enter for none."),
)
# fmt: on
