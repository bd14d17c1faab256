"""Did DeepSpeed reject its config, its operators or a checkpoint?"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from mgpu.check import Fix
from mgpu.signature import Case, Meaning, Row, signatures
from mgpu.snapshot import UncaughtException

from ._circumstances import counts, said
from ._container_cases import TOOLKIT_OF_HOST
from ._other_program_cases import NO_TOOLKIT_ON_MAC

_BUILDER = "https://github.com/deepspeedai/DeepSpeed/blob/master/op_builder/builder.py"
_CONFIG = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/config.py"
_ENGINE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py"
_RUNNER = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/launcher/runner.py"
_ACCELERATOR = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/accelerator.py"
_CLASSES = "https://github.com/huggingface/accelerate/blob/main/src/accelerate/utils/dataclasses.py"
_VALIDATE = "mgpu configure --validate accelerate.yaml"
_VALUE = re.compile(r"- ds (?P<key>[\w.]{1,80})=(?P<file>[^\s]{1,60}) vs hf [^\n=]{1,120}=(?P<set>[^\s]{1,60})")


_WORLD = r"world_size (\d+) != (\d+) \* (\d+) \* (\d+)"


def _others_are_missing(numbers: Sequence[str]) -> bool:
    """Whether the batch size fits several ranks, while DeepSpeed found one."""
    total, micro, steps, world = map(int, numbers)
    return world == 1 and total // max(1, micro * steps) > 1 and total % max(1, micro * steps) == 0


def _contradicting(_: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Name the values that the message lists."""
    text = "\n".join(filter(None, (raised.message, raised.more))) if raised else ""
    found = [(one["key"], one["file"], one["set"]) for one in _VALUE.finditer(text)]
    if not found:
        return None
    key, in_file, of_arguments = found[0]
    more = f" (and {len(found) - 1} more)" if len(found) > 1 else ""
    return Meaning(
        f"the DeepSpeed file and the script's arguments contradict each other: {key} is {in_file} in the file, and "
        f"{of_arguments} by the arguments{more}",
        "Both set these values. With auto in the file, the arguments decide.",
        (
            Fix(f'Set to "auto" in the file: {", ".join(key for key, _, _ in found)}.', (_VALIDATE,)),
            Fix(
                "Or pass the arguments that give the file's values.", ("python train.py --help | grep -E 'fp16|batch'",)
            ),
        ),
    )


# fmt: off
_HOST_FILE = Case(
    said(r"Hostfile (?:is|contains)|no extra nodes available via hostfile"),
    "DeepSpeed's host file does not list the nodes in the form it needs",
    "Each line is a host name that ssh can reach and its number of GPUs: `worker-1 slots=8`. A line with a comma, "
    "without slots, twice the same host, or an empty file is refused. Without --hostfile, the launcher reads "
    "/job/hostfile and, if that does not exist, uses this node only.",
    (Fix("Write one line per node, each host once.",
         ("printf '%s slots=8\\n' node1 node2 > hostfile; cat -A hostfile",
          "deepspeed --hostfile hostfile --num_nodes 2 train.py")),
     Fix("Under Slurm, make it from the node list, or start each node with srun.",
         ("scontrol show hostnames $SLURM_JOB_NODELIST | sed 's/$/ slots=8/' > hostfile",))),
    "ValueError: Hostfile contains a bad entry: node1:8, unable to proceed with launching\n", _RUNNER)
_NO_PDSH = Case(
    said(r"launcher '\w+' not installed"),
    "DeepSpeed's launcher for several nodes is not installed on this node",
    "By default deepspeed starts the other nodes with pdsh, which is a system package, not a Python one. The node is "
    "not known to be unreachable.",
    (Fix("Install pdsh on the node that starts the run, or choose another launcher.",
         ("sudo apt-get install -y pdsh", "deepspeed --launcher openmpi ...",
          "accelerate launch --deepspeed_multinode_launcher standard ...")),),
    "RuntimeError: launcher 'pdsh' not installed.\n", _RUNNER)
_ONE_RANK = Case(
    counts(_WORLD, _others_are_missing),
    "DeepSpeed found only 1 rank: {total} = {micro} x {steps} x ranks fits several ranks",
    "The batch sizes fit the number of GPUs, but DeepSpeed read its config with a world size of 1. Either no launcher "
    "started the script, or the process group did not exist yet when the config was read: transformers and accelerate "
    "that do not fit each other create TrainingArguments or the DeepSpeed plugin too early.",
    (Fix("Start one process per GPU.", ("mgpu launch train.py", "deepspeed --num_gpus 8 train.py")),
     Fix("If a launcher did start it, upgrade both packages together, and create TrainingArguments before the model.",
         ("pip install --upgrade accelerate transformers", "pip show accelerate transformers deepspeed")),
     Fix("Or let DeepSpeed compute the total.", ('"train_batch_size": "auto"',))),
    "AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
    "gradient_acc_step * world_size 256 != 4 * 8 * 1\n", "https://github.com/microsoft/DeepSpeed/issues/3228")
_ON_PLACEHOLDER = Case(
    said(r"'DummyOptim' object has no attribute '(?:param_groups|defaults|state)'"),
    "a generic learning rate scheduler was built on DummyOptim, accelerate's placeholder for DeepSpeed's optimizer",
    "The DeepSpeed config has an optimizer, so the script has only a placeholder, which has no {name}. A scheduler of "
    "torch or transformers reads it when it is built: the code chooses the optimizer by the DeepSpeed config, but not "
    "the scheduler. It is a mistake in the training script.",
    (Fix("Update the training program, or build the scheduler's placeholder too.",
         ("accelerate.utils.DummyScheduler(optimizer, total_num_steps=STEPS, warmup_num_steps=100)",)),
     Fix("Or remove optimizer and scheduler from the DeepSpeed file, and build both in the script.", (_VALIDATE,))),
    "AttributeError: 'DummyOptim' object has no attribute 'param_groups'\n",
    "https://github.com/bghira/SimpleTuner/issues/796")
# fmt: on


def _no_sync(groups: Mapping[str, str], raised: UncaughtException | None) -> Meaning | None:
    """Explain no_sync() that accelerate or Trainer called, which is a matter of versions; None for the script's own."""
    if raised is None or not {"accelerate", "transformers", "trl"}.intersection(raised.packages):
        return None
    return Meaning(
        "the installed accelerate or transformers is too old for this DeepSpeed: it turns off gradient exchange",
        "DeepSpeed 0.16 began to reject no_sync() with ZeRO 2 and 3. Releases of accelerate and transformers from "
        "before it call it to accumulate gradients.",
        (
            Fix(
                "Upgrade them together.",
                ("pip install --upgrade accelerate transformers", "pip show deepspeed accelerate transformers"),
            ),
            Fix("Or stay on the DeepSpeed before it.", ("pip install 'deepspeed<0.16'",)),
        ),
    )


# fmt: off
ROWS = (
    Row("log_deepspeed_without_toolkit", "root", "library",
        r"CUDA_HOME does not exist, unable to compile|No such file or directory: "
        r"'\S*/nvcc'|MissingCUDAException|CUDA_HOME environment variable is not set",
        ("deepspeed.ops.op_builder.builder.MissingCUDAException: CUDA_HOME does not exist, unable to compile CUDA "
         "op(s)",
         "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
         "OSError: CUDA_HOME environment variable is not set. Please set it to your CUDA install root."),
        "an extension must be compiled, but there is no CUDA toolkit (nvcc)",
        "DeepSpeed and other packages look for nvcc, some of them on import.",
        Fix("Install the toolkit for torch's CUDA version, and set CUDA_HOME.",
            ("conda install -c nvidia cuda-nvcc", "export CUDA_HOME=/usr/local/cuda",
             "mgpu doctor --only deepspeed_cannot_compile")),
        "https://github.com/deepspeedai/DeepSpeed/issues/2772", cases=(NO_TOOLKIT_ON_MAC, TOOLKIT_OF_HOST)),
    Row("log_toolkit_not_torchs", "root", "library",
        r"Installed CUDA version \S+ does not match the\s+version torch was compiled with|"
        r"detected CUDA version \(.+\) mismatches the version that was used|CUDAMismatchException",
        ("DeepSpeed Op Builder: Installed CUDA version 12.6 does not match the version torch was compiled with 12.4, "
         "unable to compile cuda/cpp extensions", "RuntimeError: The detected CUDA version (11.8) mismatches the "
                                                  "version "
         "that was used to compile PyTorch (12.4). Please make sure to use the same CUDA versions."),
        "the CUDA toolkit has a different version than torch's CUDA, so extensions cannot be compiled",
        "An nvcc of a different major version produces code that torch cannot load.",
        Fix("Install the toolkit for torch's CUDA version, and put it first.",
            ("python -c 'import torch; print(torch.version.cuda)'; nvcc --version",
             "export CUDA_HOME=/usr/local/cuda-X",
             "mgpu doctor --only nvcc_of_another_cuda,deepspeed_refuses_nvcc")), _BUILDER),
    Row("log_cpu_adam_not_built", "secondary", "library", r"'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'|"
        r"DeepSpeedCPUAdam requires the cpu_adam op",
        ("AttributeError: 'DeepSpeedCPUAdam' object has no attribute 'ds_opt_adam'",),
        "DeepSpeed's CPU optimizer was not built; the reason is further up in the log",
        "This error is only the cleanup of an object that could not be created.",
        Fix("Build it separately, and read the first error.",
            ("python -c 'from deepspeed.ops.op_builder import CPUAdamBuilder; CPUAdamBuilder().load()'", "ds_report")),
        "https://github.com/deepspeedai/DeepSpeed/issues/1846"),
    Row("log_deepspeed_operator_not_built", "root", "library",
        r"Unable to (?:JIT )?load the \w+ op due to|Unable to load \w+ op due to|"
        r"no compute capabilities remaining after|AssertionError: Unable to pre-compile \w+",
        ("RuntimeError: Unable to JIT load the cpu_adam op due to ninja not being installed.",
         "RuntimeError: Unable to load fused_adam op due to no compute capabilities remaining after filtering"),
        "DeepSpeed cannot compile one of its operators",
        "ninja or a compiler is missing, or TORCH_CUDA_ARCH_LIST does not include this GPU.",
        Fix("Check what is missing.", ("ds_report", "pip install ninja", "unset TORCH_CUDA_ARCH_LIST",
                                       "mgpu doctor --only deepspeed_cannot_compile,arch_list_lacks_gpu")), _BUILDER),
    Row("log_deepspeed_contradicts_arguments", "root", "launcher",
        r"correct the following DeepSpeed config values that mismatch",
        ("ValueError: Please correct the following DeepSpeed config values that mismatch TrainingArguments values:",
         "ValueError: Please correct the following DeepSpeed config values that mismatch kwargs values:"),
        "the DeepSpeed file and the script's arguments contradict each other",
        "Both set the batch size, precision or optimizer. The next lines name the values.",
        Fix("Use auto in the file for the values that the arguments set.", ('"train_micro_batch_size_per_gpu": "auto"',
                                                                            _VALIDATE)),
        "https://github.com/huggingface/transformers/pull/12021", explain=_contradicting),
    Row("log_deepspeed_batch_wrong", "root", "launcher",
        r"train_batch_size is not equal to micro_batch_per_gpu \* gradient_acc_step \* world_size ?"
        r"(?P<total>\d+) != (?P<micro>\d+) \* (?P<steps>\d+) \* (?P<world>\d+)",
        ("AssertionError: Check batch related parameters. train_batch_size is not equal to micro_batch_per_gpu * "
         "gradient_acc_step * world_size 16 != 1 * 8 * 1",
         "AssertionError: train_batch_size is not equal to micro_batch_per_gpu * gradient_acc_step * world_size64 != 4 "
         "* 2 * 4"),
        "DeepSpeed's batch sizes do not match: {total} is not {micro} x {steps} x {world} ranks",
        "The last number is the number of ranks DeepSpeed found. If it is 1 on a node with several GPUs, no launcher "
        "started the script.",
        Fix("Let DeepSpeed compute train_batch_size, or correct one of the values.",
            ('"train_batch_size": "auto"', _VALIDATE)),
        _CONFIG, cases=(_ONE_RANK,),
        summary="DeepSpeed's batch sizes do not match."),
    Row("log_deepspeed_batch_zero", "root", "launcher",
        r"(?P<what>Train batch size|Micro batch size per gpu|Gradient accumulation steps): (?P<value>-?\d+) has to be "
        r"greater than 0",
        ("AssertionError: Micro batch size per gpu: 0 has to be greater than 0",
         "AssertionError: Gradient accumulation steps: 0 has to be greater than 0"),
        "DeepSpeed computes a batch setting as {value}: {what}",
        "train_batch_size = train_micro_batch_size_per_gpu x gradient_accumulation_steps x ranks. DeepSpeed divides "
        "the one that is given by the others, and rounds down: the total is smaller than what it is divided by, or "
        "the file has a 0.",
        (Fix("Raise train_batch_size to a multiple of ranks x accumulation steps, or lower these two.",
             ('"train_batch_size": 32  # = 1 x 4 x 8 ranks, for example',)),
         Fix("Or set the micro-batch and the steps, and leave the total out.",
             ('"train_micro_batch_size_per_gpu": 1, "gradient_accumulation_steps": 4',))), _CONFIG,
        summary="DeepSpeed computes a batch setting as 0."),
    Row("log_deepspeed_batch_missing", "root", "launcher",
        r"Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided|"
        r"requires you to pass at least one of training or evaluation dataloaders"
        r"|dataloaders passed to `accelerate\.prepare\(\)` has `None` as batch size",
        ("AssertionError: Either train_batch_size or train_micro_batch_size_per_gpu needs to be provided",
         "ValueError: When using DeepSpeed, `accelerate.prepare()` requires you to pass at least one of training or "
         "evaluation dataloaders with `batch_size` attribute returning an integer value",
         "ValueError: At least one of the dataloaders passed to `accelerate.prepare()` has `None` as batch size. "
         "Please set an integer value in `train_micro_batch_size_per_gpu`"),
        "DeepSpeed did not get a batch size",
        "It reads the size from the file, or from a DataLoader passed to prepare().",
        Fix("Pass the DataLoader to prepare(), or set the size.",
            ('"train_micro_batch_size_per_gpu": 4',)), _ACCELERATOR),
    Row("log_deepspeed_said_twice", "root", "launcher", r"following accelerate config variables will be ignored",
        ("ValueError: When using `deepspeed_config_file`, the following accelerate config variables will be ignored: "
         "['gradient_accumulation_steps'].",),
        "the accelerate config repeats settings of the DeepSpeed file",
        "With deepspeed_config_file, accelerate reads these settings from the file only, and rejects duplicates.",
        Fix("Remove them from one of the two.", (_VALIDATE,)), _CLASSES),
    Row("log_deepspeed_precision_twice", "root", "launcher",
        r"`--mixed_precision` arg cannot be set to `(?P<given>\w+)` when `(?P<file>\w+)`",
        ("ValueError: `--mixed_precision` arg cannot be set to `fp16` when `bf16` is set in the DeepSpeed config "
         "file.",),
        "the command line sets {given}, the DeepSpeed file {file}",
        "Both must set the same precision, or the file must use auto.",
        Fix("Use auto in the file.", ('"bf16": {{"enabled": "auto"}}', _VALIDATE)), _CLASSES,
        summary="The command line and the DeepSpeed file set different precisions."),
    Row("log_optimizer_twice", "root", "script",
        r"cannot specify (?:an optimizer|a scheduler) in the config file and in the code|"
        r"cannot create a `DummyOptim` without specifying",
        ("ValueError: You cannot specify an optimizer in the config file and in the code at the same time.",
         "ValueError: You cannot specify a scheduler in the config file and in the code at the same time."),
        "the optimizer or scheduler is set both in the DeepSpeed file and in the script",
        "Only one of them can create it.",
        Fix("Remove it from the file, or use DummyOptim in the script.", ("accelerate.utils.DummyOptim(params)",)),
        _ACCELERATOR),
    Row("log_placeholder_not_replaced", "root", "script",
        r"'(?P<owner>Dummy(?:Optim|Scheduler))' object has no attribute '(?P<name>\w+)'",
        ("AttributeError: 'DummyOptim' object has no attribute 'step'",
         "AttributeError: 'DummyScheduler' object has no attribute 'get_last_lr'"),
        "{owner} has no {name}: it is accelerate's placeholder for DeepSpeed, used before DeepSpeed replaced it",
        "If the DeepSpeed config has an optimizer or a scheduler, the script or Trainer builds only a placeholder, and "
        "prepare() replaces it by DeepSpeed's own. It is not replaced if the script does not run under DeepSpeed: one "
        "process that no launcher started, an accelerate config without DeepSpeed, a second Accelerator, an object "
        "that was not passed to prepare(), or accelerate and transformers that do not fit each other.",
        (Fix("Start the script with a launcher, also on one GPU.",
             ("mgpu launch train.py", "deepspeed --num_gpus 8 train.py", "accelerate env")),
         Fix("Use what prepare() returns, not the placeholder.",
             ("model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)",)),
         Fix("If both are right, upgrade the packages together.",
             ("pip install --upgrade accelerate transformers", "pip show accelerate transformers deepspeed"))),
        "https://github.com/huggingface/transformers/issues/26148",
        summary="A placeholder for DeepSpeed's optimizer or scheduler was used.", cases=(_ON_PLACEHOLDER,)),
    Row("log_zero3_with_device_map", "root", "script", r"DeepSpeed Zero-3 is not compatible with",
        ("ValueError: DeepSpeed Zero-3 is not compatible with `low_cpu_mem_usage=True` or with passing a "
         "`device_map`.",),
        "the model is loaded with device_map or low_cpu_mem_usage, which ZeRO-3 does not allow",
        "ZeRO-3 shards the weights while it loads them.",
        Fix("Remove both arguments.", ("mgpu doctor --script train.py",)),
        "https://github.com/huggingface/accelerate/issues/2543"),
    Row("log_zero3_saves_nothing", "root", "script",
        r"stage3_gather_16bit_weights_on_model_save`? in DeepSpeed config is False|"
        r"stage3_gather_16bit_weights_on_model_save=false\. Saving the full checkpoint",
        ("ValueError: Cannot get 16bit model weights because `stage3_gather_16bit_weights_on_model_save` in DeepSpeed "
         "config is False.", "stage3_gather_16bit_weights_on_model_save=false. Saving the full checkpoint instead, use "
         "zero_to_fp32.py to recover weights"),
        "ZeRO-3 is configured not to gather the weights when saving",
        "Each rank has one shard. Without gathering there is no complete model to save.",
        Fix("Turn gathering on, or convert the checkpoint afterwards.",
            ("accelerate launch --zero3_save_16bit_model true ...", "python zero_to_fp32.py CHECKPOINT OUTPUT")),
        _ACCELERATOR),
    Row("log_zero_checkpoint_of_other_size", "root", "script",
        r"checkpoint being loaded used a DP world size of (?P<then>\d+) but the current world size is (?P<now>\d+)",
        ("deepspeed.runtime.zero.utils.ZeRORuntimeException: The checkpoint being loaded used a DP world size of 8 but "
         "the current world size is 16.",),
        "the ZeRO checkpoint was written by {then} ranks, but {now} ranks load it",
        "The optimizer state is sharded by the number of ranks.",
        Fix("Resume with the same number of ranks, or convert the checkpoint.",
            ("accelerate launch --num_processes {then:number} ...", "python -m deepspeed.checkpoint.ds_to_universal "
             "--input_folder CHECKPOINT/global_stepN --output_folder CHECKPOINT/universal")),
        "https://github.com/deepspeedai/DeepSpeed/issues/3810",
        summary="A ZeRO checkpoint was written by a different number of ranks."),
    Row("log_deepspeed_checkpoint_missing", "root", "script",
        r"Unable to find latest file at|[Cc]lient provided checkpoint tag: .*does not exist"
        r"|\[deepspeed\] failed to resume from checkpoint",
        ("[WARNING] Unable to find latest file at out/latest, if trying to load latest checkpoint please ensure this "
         "file exists or pass an explicit checkpoint tag when loading a checkpoint.",
         "ValueError: [deepspeed] failed to resume from checkpoint out/checkpoint-500"),
        "the checkpoint to resume from is missing or incomplete",
        "The file `latest` names the newest checkpoint. It is written last.",
        Fix("Check which files exist, on every node.", ("ls -la OUTPUT; cat OUTPUT/latest",)), _ENGINE),
    Row("log_deepspeed_states_absent", "root", "script", r"^\s*assert len\(self\.ckpt_list\) > 0$",
        ("    assert len(self.ckpt_list) > 0",),
        "DeepSpeed found no file with the model's states in the checkpoint that it should load",
        "It looks for zero_pp_rank_*_model_states.pt with ZeRO-3, and for mp_rank_*_model_states.pt otherwise. The "
        "checkpoint was written with another ZeRO stage, holds weights only, or is not on this node's disk.",
        (Fix("Check which files exist, on every node.", ("find CHECKPOINT -name '*model_states.pt' | head",)),
         Fix("Resume with the ZeRO stage that wrote it, or convert the checkpoint.",
             ("python zero_to_fp32.py CHECKPOINT OUTPUT",))),
        "https://github.com/deepspeedai/DeepSpeed/issues/3377"),
    Row("log_deepspeed_missing", "root", "launcher",
        r"DeepSpeed is not (?:installed|available)\b"
        r"|you must have DeepSpeed installed",
        ("ImportError: DeepSpeed is not installed => run `pip3 install deepspeed` or build it from source.",
         "ImportError: DeepSpeed is not available => install it using `pip3 install deepspeed` or build it from "
         "source",
         "ImportError: To use the `DeepSpeedStrategy`, you must have DeepSpeed installed. Install it by running `pip "
         "install -U deepspeed`."),
        "the run uses DeepSpeed, which is not installed here",
        "A config file, an option (--deepspeed) or the script asks for it. It was probably written for another "
        "environment.",
        Fix("Install it, or train without it.", ("pip install deepspeed", "mgpu configure")),
        "https://github.com/huggingface/accelerate/blob/main/src/accelerate/commands/launch.py"),
    Row("log_deepspeed_hosts_unreachable", "root", "launcher",
        r"was not reachable via ssh|launcher '\w+' not installed|Hostfile (?:is empty|is not formatted|contains)|"
        r"Num nodes is >1 but no extra nodes available|pdsh@\S+: .*(?:ssh exited|Permission denied)",
        ("RuntimeError: launcher 'pdsh' not installed.", "ValueError: Hostfile is not formatted correctly, unable to "
         "proceed with training.", "RuntimeError: Using hostfile at /job/hostfile but host=worker-1 was not reachable "
                                   "via "
         "ssh. If you are running with a single node please remove /job/hostfile or setup passwordless ssh.",
         "pdsh@node1: node2: ssh exited with exit code 255"),
        "DeepSpeed's launcher cannot reach the other nodes",
        "pdsh or passwordless ssh is missing, or the host file is wrong (one `host slots=8` per line).",
        Fix("Set up ssh, or start each node yourself.",
            ("ssh -o BatchMode=yes HOST true", "sudo apt-get install -y pdsh",
             "accelerate launch --deepspeed_multinode_launcher standard ...",
             "mgpu doctor --only deepspeed_pdsh_missing")), _RUNNER, because_of=("log_ssh_refused",),
        cases=(_HOST_FILE, _NO_PDSH)),
    Row("log_optimizer_untested_with_zero", "root", "script", r"You are using an untested ZeRO Optimizer",
        ("AssertionError: You are using an untested ZeRO Optimizer. Please add <\"zero_allow_untested_optimizer\": "
         "true> in the configuration file to use it.",),
        "ZeRO does not recognize this optimizer",
        "ZeRO works with optimizers that update each element independently.",
        Fix("Allow it.", ('"zero_allow_untested_optimizer": true',)), _ENGINE),
    Row("log_zero_gradient_twice", "root", "script",
        r"parameter \d+ has already been reduced|Gradient for a parameter has already been reduced",
        ("AssertionError: The parameter 12 has already been reduced. Gradient computed twice for this partition. "
         "Multiple gradient reduction is currently not supported",),
        "ZeRO got the gradient of a parameter twice in one step",
        "The cause is reentrant gradient checkpointing, or two backward passes before a step.",
        Fix("Use non-reentrant checkpointing.",
            ("model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={{'use_reentrant': False}})",)),
        "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/zero/stage_1_and_2.py"),
    Row("log_no_sync_with_zero", "root", "script", r"no_sync context manager is incompatible with gradient",
        ("AssertionError: no_sync context manager is incompatible with gradient partitioning logic of ZeRO stage 2",),
        "gradient exchange is turned off (no_sync), which DeepSpeed 0.16 and later reject with ZeRO 2 and 3",
        "ZeRO shards gradients as they are computed. Accumulation with no_sync() keeps them whole. If the script does "
        "not call no_sync() itself, the installed transformers or accelerate is probably older than this DeepSpeed: "
        "their older releases call it to accumulate gradients.",
        (Fix("Upgrade them together, or stay on the DeepSpeed before it.",
             ("pip install --upgrade accelerate transformers", "pip install 'deepspeed<0.16'",
              "pip show deepspeed accelerate transformers")),
         Fix("In your own loop, let accelerate or DeepSpeed accumulate gradients.",
             ("with accelerator.accumulate(model):",))), _ENGINE,
        explain=_no_sync),
    Row("log_zero_order_differs", "root", "script",
        r"still have inflight params|Invalidate trace cache @ step \d+.*(?:AssertionError|assert)|"
        r"tracing error at step \d+",
        ("RuntimeError: still have inflight params [{'id': 2, 'status': 'AVAILABLE', 'numel': 1048576}]",
         "RuntimeError: tracing error at step 42: module id: 7, expected the next 2 parameters in the parameter fetch "
         "queue"),
        "ZeRO-3 fetched parameters of layers that were then not run",
        "It expects the same layers in the same order in every step on every rank. Experts, skipped branches or "
        "batches without images break that.",
        Fix("Mark the modules that ZeRO-3 must handle as one, or use ZeRO-2.",
            ("deepspeed.utils.set_z3_leaf_modules(model, [MoeLayer])",
             "accelerate launch --zero_stage 2 ...")),
        "https://github.com/deepspeedai/DeepSpeed/issues/5828"),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
