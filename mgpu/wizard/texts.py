"""What does each question ask, and what does its help say? Data: the words of the wizard."""

from __future__ import annotations

# Question, and what help says: what it means, why this default, when to change it.
TEXTS: dict[str, tuple[str, str]] = {
    "gpus": (
        "Which GPUs?",
        "Each marked GPU gets one process (rank), which trains on its own share of every batch.\n"
        "Marked are those that are free. A GPU somebody else is using slows both of you down.\n"
        "Unmark some to compare 1, 2 and 4 GPUs, or to leave one for another job.",
    ),
    "precision": (
        "Precision?",
        "The number format of most arithmetic while training; weights stay in fp32 with bf16 and fp16.\n"
        "bf16 has the range of fp32, so it needs no loss scaling: the default where the GPU computes in it.\n"
        "fp16 is for older GPUs (V100, T4); fp32 is the slowest and safest, to look for a numeric fault.",
    ),
    "params": (
        "How big is the model?",
        "The number of parameters decides whether one GPU can hold the whole model (DDP), or must share it.\n"
        "Type 7B, 350M or 8.03e9, the id of a Hugging Face model, or a folder with its files.\n"
        "Not sure? Enter skips it: the config is then for DDP. Or let mgpu count while your script starts:\n"
        "  mgpu configure --params-from train.py",
    ),
    "train": (
        "What will be trained?",
        "Gradients and optimizer states are kept only for what is trained; that is most of the memory.\n"
        "LoRA trains small added matrices, often about 1 % of the model, on top of frozen weights.\n"
        "QLoRA holds the frozen weights in 4 bits: the least memory, somewhat slower steps.",
    ),
    "optimizer": (
        "Which optimizer?",
        "AdamW keeps two numbers for each trained parameter in fp32, 8 bytes: more than the weights.\n"
        "8-bit Adam (bitsandbytes) keeps them in 2 bytes, SGD with momentum one number, Adafactor next to none.\n"
        "Say what your script uses: mgpu changes nothing there, it only counts the memory and the rate with it.",
    ),
    "strategy": (
        "How should the model be spread over the GPUs?",
        "DDP: a full copy on each GPU, the fastest where it fits. The default whenever there is room.\n"
        "FSDP2: weights, gradients and optimizer split over the GPUs; PyTorch's own way; more traffic.\n"
        "ZeRO-1, -2, -3: DeepSpeed's way to split the optimizer, also the gradients, also the weights.\n"
        "Change it when the model does not fit, or when your team already uses DeepSpeed.",
    ),
    "offload": (
        "Keep the optimizer in the computer's memory?",
        "With CPU offload, what does not fit on the GPUs is kept in RAM and moved when it is needed.\n"
        "It is off where the GPUs hold everything: each step waits for PCIe, often several times slower.\n"
        "Turn it on when nothing else fits, or to try out a large model before asking for more GPUs.",
    ),
    "batch_per_gpu": (
        "Samples per {unit} per step (micro-batch)?",
        "The batch_size your DataLoader gets. Each {unit} works on that many samples in each step, so one\n"
        "optimizer step sees ranks x micro-batch x accumulation samples: the effective batch.\n"
        "Take the largest that fits, or what one GPU used so far. accelerate does not store it: mgpu\n"
        "notes it in a comment of the config, and compares it with what your script does.",
    ),
    "dataset_size": (
        "How many samples has the dataset?",
        "With it, mgpu counts optimizer steps per epoch exactly as accelerate's sampler deals out batches.\n"
        "Type 52002, 52k or 1.2M. Enter = unknown or streaming: steps are then told per 1,000 samples.\n"
        "Schedulers and warm-up are built from that number, and it changes with the number of GPUs.",
    ),
    "drop_last": (
        "Does the DataLoader drop the last partial batch?",
        "With drop_last=True the samples that do not fill a batch on every rank are left out of the epoch.\n"
        "Without it accelerate repeats a few samples from the start, so that all ranks take equally many steps.\n"
        "Say what your script does: it only changes the numbers told here.",
    ),
    "accum": (
        "Accumulate gradients over how many batches?",
        "The optimizer steps once after that many batches, as if the batch were that much larger.\n"
        "1 is the default. Take more to keep the effective batch of a run on more GPUs or to reach one\n"
        "that does not fit. Your script has to do it: gradient_accumulation_steps of Accelerator().",
    ),
    "lr": (
        "A learning rate you trust?",
        "A rate that worked before, at some effective batch. A larger batch may want a larger rate.\n"
        "accelerate stores no rate: mgpu shows what the common rules give and notes it in a comment.\n"
        "Enter skips it.",
    ),
    "lr_ref_batch": (
        "The effective batch it was tuned for?",
        "Samples behind one optimizer step of the run in which the rate worked: batch x GPUs x accumulation.\n"
        "For a script that ran on one GPU it is the batch_size (times its accumulation steps).\n"
        "The ratio to the new effective batch is what the rules scale by.",
    ),
    "lr_rule": (
        "Which rule for the learning rate?",
        "keep: the same rate, the safest start for fine-tuning. Square root: usual for Adam and AdamW.\n"
        "Linear: usual for SGD with momentum, with warm-up. Each is a starting point, not a truth:\n"
        "compare the first few hundred steps of the loss. It becomes a note for your script.",
    ),
    "threads": (
        "CPU threads per process?",
        "How many threads each rank uses for CPU arithmetic (OMP_NUM_THREADS). The launcher's own default is 1.\n"
        "A small number is right: the GPUs do the work, and ranks x threads must not exceed the cores.\n"
        "Raise it for heavy CPU transforms in the main process.",
    ),
    "workers": (
        "Data-loader workers per process?",
        "num_workers of your DataLoader: processes that read and prepare batches, for each rank.\n"
        "2 to 8 are usual; each costs memory. Raise it when the GPUs wait for data, lower it when RAM is short.\n"
        "accelerate does not store it: it is noted for your script, and used for the thread count.",
    ),
    "numa": (
        "Bind each process to the CPUs near its GPU?",
        "On machines with several NUMA nodes, memory and PCIe of the other socket are slower to reach.\n"
        "mgpu launch adds --enable_cpu_affinity: the key of this name in the file is never applied.\n"
        "Leave it off inside containers that hide the topology, or when your scheduler binds already.",
    ),
    "nodes": (
        "How many machines?",
        "1 is this machine. For 2 or more, the same command is started on each by hand: mgpu prints them.\n"
        "All machines need the same number of GPUs, the same Python environment and a network between them.\n"
        "Your own rank is left to the command line, so one file serves them all.",
    ),
    "address": (
        "Address of the first machine?",
        "The host name or address at which the other machines reach the first one (rank 0).\n"
        "Never localhost or 127.0.0.1: each machine would then wait for itself.\n"
        "Take the address of the fast network when there are several (hostname -I lists them).",
    ),
    "port": (
        "Port at which the processes meet?",
        "On one machine a free port is picked at every launch: two runs never collide.\n"
        "Several machines must agree on it beforehand, so there it is fixed; 29500 is torch's own default.\n"
        "Change it when a firewall allows only some ports, or when another run uses this one.",
    ),
    "slurm": (
        "Where will it run?",
        "On a cluster the scheduler starts the ranks on its nodes: mgpu then writes the accelerate config for those\n"
        "nodes, and a job script beside it.\n"
        "Here is right for this machine's own GPUs, or for several machines without a scheduler.",
    ),
    "partition": (
        "Which partition?",
        "A partition is a queue of Slurm: nodes of some kind, with a limit for the time of a job.\n"
        "Partitions with GPUs come first; the numbers are of nodes that are neither down nor drained now.",
    ),
    "gpus_per_node": (
        "GPUs on each node?",
        "One rank is started for each. All that a node has is usual: a part of a node is shared with others.\n"
        "0 makes ranks on the CPU, to rehearse the job where no GPU is free.",
    ),
    "gpu_model": (
        "Which GPUs do the nodes have?",
        "Slurm does not say it here, or its name means several. Precision and memory follow from it.\n"
        "Type a model such as A100-80GB, H100 or L40S. Enter skips it: what is not known is then not judged.",
    ),
    "time": (
        "Time limit of the job?",
        "Slurm ends the job at this limit. A shorter limit starts sooner; more than the partition allows waits\n"
        "for ever. Type 90 (minutes), 12:00:00 or 2-00:00:00 (days). Enter takes the partition's default.",
    ),
    "account": (
        "Which account pays for it?",
        "The accounts that Slurm's accounting has for you. The default is taken when the script names none.",
    ),
    "qos": (
        "Which quality of service?",
        "A QOS changes priority and limits. The default of your account is taken when the script names none.",
    ),
    "constraint": (
        "Only nodes with a certain feature?",
        "Features are the site's own words for its nodes (sinfo -o '%N %f'). Enter skips it: any node will do.",
    ),
    "container": (
        "Does the training run in a container?",
        "A .sif file is run by apptainer, any other image by pyxis (srun --container-image).\n"
        "Enter skips it: the job then uses the environment that is active now.",
    ),
    "shape": (
        "What starts the ranks?",
        "accelerate: one task on each node, accelerate's launcher starts its ranks by the config. The default.\n"
        "torchrun: the same by torch's launcher, for scripts without accelerate.\n"
        "plain: Slurm starts every rank itself, for Lightning, NeMo and submitit.",
    ),
    "requeue": (
        "Queue again at the time limit?",
        "The job is warned before its end, and put back into the queue. Your script has to write a checkpoint,\n"
        "and to begin from it.",
    ),
    "preflight": (
        "Shall the job test its nodes first?",
        "mgpu examines every node, tries them out together, and names the bad ones before the training starts.\n"
        "mgpu launch --slurm does so with any script; here the script does it by itself, and needs mgpu.",
    ),
    "spare": (
        "How many spare nodes?",
        "They are asked for on top, and stand in for nodes that the pre-flight finds bad. Enter: none.",
    ),
    "command": (
        "Which training script?",
        "The script and its arguments, as you would type them behind python.\n"
        "It can be changed in the job script later.",
    ),
    "compile": (
        "Compile the model (torch.compile)?",
        "torch.compile often makes steps faster after a slow start of minutes, and errors harder to read.\n"
        "No is right for the first run: change one thing at a time.\n"
        "Turn it on once training works, and compare the speed of a few hundred steps.",
    ),
    "reshard": (
        "Might you continue on another number of GPUs?",
        "Split checkpoints (FSDP2) can be loaded on another number of GPUs when each rank saves its shard\n"
        "through torch's distributed checkpoint. ZeRO optimizer shards belong to one number of GPUs until they\n"
        "are converted (DeepSpeed's universal checkpoint). Maybe is the default: it costs nothing.",
    ),
    "trainable": (
        "How many parameters are trained?",
        "With LoRA only the adapters are; print_trainable_parameters() of peft says how many.\n"
        "Enter: about 1 % of the model is assumed, and said.",
    ),
    "seq_len": (
        "Tokens per sample?",
        "Activations grow with batch x sequence length; mgpu does not count them, and says so.\n"
        "The tokens of an optimizer step follow from it. Enter skips it.",
    ),
    "epochs": (
        "How many epochs?",
        "Only for the number of optimizer steps in all, which schedulers want.\nEnter skips it.",
    ),
}  # fmt: skip
# The same question, where an engine starts the machines.
NODES = (
    "How many nodes?",
    "Machines of the job, all with the same number of GPUs; the engine picks them, and gives each its rank.\n"
    "More than there are, or than the partition allows, waits for ever: Slurm does not refuse it.",
)
# How an answer is written: shown while nothing is typed.
HINTS: dict[str, str] = {
    "params": "Like 7B, 350M or 8.03e9, or the id of a Hugging Face model.",
    "dataset_size": "Like 52002, 52k or 1.2M. Skip it where it is unknown or a stream.",
    "lr": "Like 3e-4: a rate that worked, at a batch you know.",
    "lr_ref_batch": "Of the run in which the rate worked: batch x GPUs x accumulation.",
    "time": "Like 12:00:00, 2-00:00:00, or 90 for minutes.",
    "gpu_model": "Like A100-80GB, H100 or L40S.",
    "command": "Like train.py --lr 1e-4, or -m package.train.",
    "container": "Like image.sif, or nvcr.io/nvidia/pytorch:25.10-py3.",
    "constraint": "Like h100 or a100&ib.",
    "address": "Like node1 or 10.0.0.1: as the other machines reach it.",
}
YES_NO: dict[str, tuple[tuple[str, str], ...]] = {
    "requeue": (("no", "no    the job ends at its limit"), ("yes", "yes   it is warned, and queues again")),
    "preflight": (
        ("no", "no    mgpu launch --slurm does it, when it submits the script"),
        ("yes", "yes   the script does it by itself, and needs mgpu"),
    ),
    "drop_last": (
        ("no", "no    samples are repeated instead (the DataLoader's default)"),
        ("yes", "yes   drop_last=True"),
    ),
    "reshard": (("yes", "maybe   each rank saves its shard: can be split anew"), ("no", "no      one full file")),
}
