"""What do tensors of the wrong device or dtype mean, by where they were used and how the run started?"""

from __future__ import annotations

import re

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import (
    either,
    every,
    in_own_line,
    never,
    own_line,
    raised_in,
    said,
    several_ranks,
    shown,
    through,
    within,
)

_MOVES = "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html"
_BIG_MODELS = "https://huggingface.co/docs/accelerate/concept_guides/big_model_inference"

_KEPT = re.compile(r"^\s*(?P<kept>self(?:\.\w+)+(?:\[\w+\])?) = torch\.(?:cat|concat|[hv]stack)\([\[(]\s*(?P=kept)\s*,")


def _extends_what_is_kept(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the script's line extends a tensor that an object keeps. forward() sets attributes of its copy."""
    return bool(raised and _KEPT.search(raised.own_code or "") and not (raised.place or "").endswith(" in forward"))


# fmt: off
_PER_GPU = Fix("Start one process per GPU, each with the whole model on its own GPU.",
               ("mgpu launch train.py", "NPROC_PER_NODE=4 swift sft ...", "torchrun --nproc-per-node=4 train.py"))
_ONE_GPU = Fix("Or use one GPU, if the model fits.", ("CUDA_VISIBLE_DEVICES=0 python train.py",))
_BOTH_GPUS = r"cuda:\d+\b.*\bcuda:\d+"
_ON_TWO = ('Traceback (most recent call last):\n  File "/x/train.py", line 58, in <module>\n    trainer.train()\n'
           '  File "/x/site-packages/{file}", line 9, in {function}\n    x = f(y)\n'
           "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
           "{devices}!{end}")
_OWN_LINE = ('Traceback (most recent call last):\n  File "/x/train.py", line 58, in update\n    {code}\n'
             "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, "
             "cuda:0 and cpu!")
_CPU_IN_OWN_LINE = every(in_own_line,
                         said(r"found at least two devices, (?:cpu and (?!meta)\w|(?!meta)[\w:]+ and cpu!)"))
_IN_REPLICA = within(r"nn/parallel/(?:data_parallel|parallel_apply|replicate)\.py")
TWO_DEVICES = (
    Case(every(either(_IN_REPLICA, shown("data_parallel")), said(_BOTH_GPUS), _extends_what_is_kept),
         "nn.DataParallel copied the model to several GPUs, and the copies share an object: {the_place} extends a "
         "tensor that was put there on another GPU",
         "nn.DataParallel copies parameters, buffers and modules. Other attributes of the model (a cache, a list, a "
         "state that is kept from call to call) are one object in all copies, which run at the same time in threads. "
         "The line is \"{the_line}\".",
         (_PER_GPU, _ONE_GPU,
          Fix("Or keep that tensor in a variable of one forward pass, and not in an object that the model holds.")),
         'Traceback (most recent call last):\n  File "/x/site-packages/torch/nn/parallel/parallel_apply.py", line 96, '
         'in _worker\n    output = module(*input, **kwargs)\n  File "/home/user/memory.py", line 7, in add\n'
         "    self.past = torch.cat([self.past, state], dim=1)\nRuntimeError: Expected all tensors to be on the same "
         "device, but found at least two devices, cuda:1 and cuda:0!",
         "https://github.com/pytorch/pytorch/blob/main/torch/nn/modules/module.py"),
    Case(every(either(_IN_REPLICA, shown("data_parallel")), never(said(r"(?i)\bcpu\b"))),
         "nn.DataParallel copied the model to several GPUs, and a tensor stayed on the GPU of another copy",
         "Started with plain python on a node with several GPUs, Trainer and older scripts use nn.DataParallel. A "
         "device that is stored in the model, a tensor made on cuda:0, or a quantized or dispatched model does not "
         "move with the copies.",
         (_PER_GPU, _ONE_GPU),
         _ON_TWO.format(file="torch/nn/parallel/parallel_apply.py", function="parallel_apply",
                        devices="cuda:0 and cuda:1", end=""),
         "https://huggingface.co/docs/transformers/perf_train_gpu_many"),
    Case(every(either(shown("spread_by_device_map"), within(r"accelerate/hooks\.py in")), said(_BOTH_GPUS),
               either(within(r"in (?:cross_entropy|compute_loss|loss_fn|\w*_loss)$"), said("nll_loss"))),
         "one process has the model split over its GPUs (device_map), and the loss gets predictions and labels from "
         "different ones",
         "device_map='auto' puts the head on the last GPU and the input on the first. Code that computes its loss "
         "itself (the model's own file, a custom compute_loss) must move the labels.",
         (_PER_GPU, _ONE_GPU,
          Fix("Or move the labels to the predictions.", ("labels = labels.to(logits.device)",))),
         "[INFO:swift] model_kwargs: {'device_map': 'auto'}\n"
         + _ON_TWO.format(file="torch/nn/functional.py", function="cross_entropy", devices="cuda:3 and cuda:0",
                          end=" (when checking argument for argument target in method wrapper_CUDA_nll_loss_forward)"),
         "https://github.com/modelscope/ms-swift/issues/1984"),
    Case(every(either(shown("spread_by_device_map"), within(r"accelerate/hooks\.py in")), said(_BOTH_GPUS)),
         "one process has the model split over its GPUs (device_map), and two of its tensors are on different ones",
         "device_map='auto' gives each GPU some layers. Code that uses a weight outside its own layer (tied weights, "
         "adapters, a second model, a custom loss or trainer) finds it on another GPU.",
         (_PER_GPU, _ONE_GPU,
          Fix("If the model is too large for one GPU, shard it instead.", ("mgpu configure",))),
         _ON_TWO.format(file="accelerate/hooks.py", function="new_forward", devices="cuda:0 and cuda:1", end=""),
         _BIG_MODELS),
    Case(every(said(r"\bcpu\b"), raised_in(r"^deepspeed/runtime/(?!engine\.py in forward)")),
         "DeepSpeed's own code mixes CPU and GPU tensors: probably a fault of this release with offload",
         "The script does not choose these devices. Releases 0.14.1 and 0.14.2 did so in the step with offloaded "
         "states; a checkpoint that was written with another offload setting does it too.",
         (Fix("Install another release.", ("pip install --upgrade deepspeed", "pip show deepspeed")),
          Fix("Or do not offload.", ('"offload_optimizer": {{"device": "none"}}',))),
         _ON_TWO.format(file="deepspeed/runtime/zero/stage_1_and_2.py", function="step", devices="cuda:0 and cpu",
                        end=""), "https://github.com/deepspeedai/DeepSpeed/issues/5538"),
    Case(every(said(r"\bcpu\b"), within(r"accelerate/hooks\.py in new_forward"), through("deepspeed")),
         "the model was loaded with device_map, which left a part of it on the CPU, and is trained by DeepSpeed",
         "device_map spreads a model over the GPUs and the CPU for one process, and moves inputs with hooks. DeepSpeed "
         "gives each rank the whole model on its own GPU, or shards it by itself. The two exclude each other.",
         (Fix("Load the model without device_map.", ("grep -rn device_map --include='*.py' .",
                                                     "from_pretrained(MODEL, torch_dtype=torch.bfloat16)")),
          Fix("If it does not fit on one GPU, let ZeRO-3 shard it.", ("accelerate launch --zero_stage 3 ...",))),
         _ON_TWO.format(file="deepspeed/runtime/engine.py", function="forward", devices="cuda:0 and cpu", end="")
         .replace("    x = f(y)\n", "    x = f(y)\n"
                  '  File "/x/site-packages/accelerate/hooks.py", line 9, in new_forward\n    x = g(y)\n'),
         _BIG_MODELS),
    Case(every(said(r"\bcpu\b"), shown("zero_three"), within(r"deepspeed/runtime/engine\.py in forward")),
         "a parameter is on the CPU where the model uses it: probably ZeRO-3's offload, and a use outside of its layer",
         "With offload_param, a weight is on the GPU during its own layer's forward pass only. Models that read a "
         "weight or a stored tensor directly (resamplers, rotary tables, custom attention) find it on the CPU.",
         (Fix("Do not offload parameters, or use ZeRO-2.",
              ('"offload_param": {{"device": "none"}}', "accelerate launch --zero_stage 2 ...")),),
         "--deepspeed zero3_offload.json\n"
         + _ON_TWO.format(file="deepspeed/runtime/engine.py", function="forward", devices="cpu and cuda:1", end=""),
         "https://github.com/OpenBMB/MiniCPM-V/issues/246"),
    Case(every(said(r"(?i)\bcpu\b"),
               within(r"torch/optim/|_foreach_utils|in (?:step|adamw?|_multi_tensor_\w+|_single_tensor_\w+)$")),
         "the optimizer's state and the parameters are on different devices (CPU and GPU)",
         "The state was loaded from a checkpoint to the CPU, or the model was moved or offloaded after the optimizer "
         "was built.",
         (Fix("Move the model first, then build the optimizer, then load its state.",
              ("model.to(device); optimizer = torch.optim.AdamW(model.parameters())",
               "torch.load(PATH, map_location=device)")),),
         _ON_TWO.format(file="torch/optim/adamw.py", function="step", devices="cuda:0 and cpu", end=""),
         "https://pytorch.org/docs/stable/optim.html"),
    Case(every(said(r"\bcpu\b"), shown("spread_by_device_map"), shown("weights_offloaded")),
         "a part of the model was offloaded to the CPU by device_map, and is used with a tensor on the GPU",
         "The model did not fit on the visible GPUs, so device_map left layers on the CPU. They are moved for their "
         "own forward pass only, not for training or a use outside of it.",
         (_PER_GPU, Fix("If the model is too large for one GPU, shard it instead.", ("mgpu configure", "nvidia-smi"))),
         "Some parameters are on the meta device because they were offloaded to the cpu.\nloading with "
         "device_map='auto'\n"
         + _ON_TWO.format(file="accelerate/hooks.py", function="new_forward", devices="cpu and cuda:0", end=""),
         _BIG_MODELS),
    Case(every(said(r"\bcpu\b"), either(shown("spread_by_device_map"), within(r"accelerate/hooks\.py in"))),
         "one tensor is on the CPU and one on the GPU, in a model whose parts accelerate places on devices",
         "device_map, or enable_model_cpu_offload() of diffusers, gives the parts hooks, which move a part's direct "
         "inputs to its device. What the script or the model's code makes or keeps itself (embeddings, latents, masks, "
         "positions), and a part whose weights are used without calling it, stays where it is. A part that did not fit "
         "on the GPU is on the CPU outside of its own forward pass.",
         (Fix("Print where both are, and move the tensor.",
              ("print(x.device, next(module.parameters()).device)", "x = x.to(module.weight.device)")),
          Fix("If the GPU has room for the whole model, place it there without hooks.",
              ("from_pretrained(MODEL).to('cuda')", "pipe.to('cuda')  # in place of enable_model_cpu_offload()")),
          Fix("To train it on several GPUs, start one process per GPU without device_map, and shard a model that is "
              "too large.", ("mgpu launch train.py", "mgpu configure"))),
         _ON_TWO.format(file="accelerate/hooks.py", function="new_forward", devices="cpu and cuda:0", end=""),
         _BIG_MODELS),
    Case(every(_CPU_IN_OWN_LINE, own_line(r"param|state_dict|\.data\b"),
               own_line(r"(?i)(?<![a-z])ema(?![a-z])|shadow")),
         "of the weights and their moving average, one is on the CPU and one on the GPU ({the_place})",
         'The line is "{the_line}". Probably the average was copied from the model before the model was moved to the '
         "GPU. Lightning and accelerate move it later than the script makes it, and do not move a dict of copies.",
         (Fix("Make the average after the model was moved: with Lightning in on_fit_start(), else after .to(device) or "
              "prepare()."),
          Fix("Move each copy to the device of its weight.",
              ("shadow[name] = shadow[name].to(param.device)",))),
         _OWN_LINE.format(code="self.shadow[name] = 0.1 * param.data + 0.9 * self.shadow[name]"), _MOVES),
    Case(_CPU_IN_OWN_LINE,
         "{the_place} mixes a tensor on the CPU with one on the GPU",
         'No layer of torch failed: the line is "{the_line}". One of its tensors was not moved: a batch, or what the '
         "script makes or keeps itself (torch.zeros, arange, from_numpy, a loaded table, a copy from before the model "
         "was moved).",
         (Fix("Print the devices before that line.", ("print(x.device, y.device)",)),
          Fix("Make the tensor on the device of the other, or move it there. A module moves only its parameters and "
              "registered buffers with it.",
              ("mask = torch.zeros(n, device=x.device)", "y = y.to(x.device)",
               "self.register_buffer('table', table)"))),
         _OWN_LINE.format(code="x = x * mask"), _MOVES),
    Case(every(said(r"\bmps\b"), said(r"(?i)\bcpu\b")),
         "one tensor is on the CPU, and one on Apple's GPU (mps)",
         "The model, a batch, or a tensor that the script or a module makes itself was not moved. A module moves only "
         "its parameters and registered buffers with it.",
         (Fix("Move the model once, and each batch before the call.",
              ("device = torch.device('mps'); model.to(device)", "x, y = x.to(device), y.to(device)")),
          Fix("Print the devices before that line.", ("print(x.device, next(model.parameters()).device)",))),
         'Traceback (most recent call last):\n  File "/Users/ada/train.py", line 58, in <module>\n    y = net(x)\n'
         '  File "/Users/ada/site-packages/torch/nn/functional.py", line 9, in linear\n    return f(x)\n'
         "RuntimeError: Expected all tensors to be on the same device, but found at least two devices, mps:0 and cpu!",
         "https://docs.pytorch.org/docs/stable/notes/mps.html"),
)

DEVICE_MAP = (
    Case(shown("one_process"),
         "device_map='auto' in a single process that no launcher started, while WORLD_SIZE announces several",
         "A program that is started as one process spreads the model over the GPUs by itself. It was probably meant to "
         "run one process per GPU, and the variable that says so (NPROC_PER_NODE) did not reach it: set on a line of "
         "its own, without export or a backslash at the line's end.",
         (Fix("Pass the variables on the command's own line, or export them.",
              ("NPROC_PER_NODE=8 swift sft ...", "FORCE_TORCHRUN=1 llamafactory-cli train CONFIG.yaml",
               "torchrun --nproc-per-node=8 train.py")),
          Fix("For a run on one node without a launcher, unset the cluster's variables.",
              ("unset WORLD_SIZE RANK LOCAL_RANK MASTER_ADDR MASTER_PORT",))),
         "[INFO:swift] rank: 0, local_rank: -1, world_size: 2, local_world_size: 1\nTraceback (most recent call "
         "last):\n"
         '  File "/x/site-packages/accelerate/accelerator.py", line 1264, in prepare\n    raise ValueError(\n'
         "ValueError: You can't train a model that has been loaded with `device_map='auto'` in any distributed mode.",
         "https://github.com/modelscope/ms-swift/issues/1538"),
)

_SHARDED = ('[rank0]: Traceback (most recent call last):\n[rank0]:   File '
            '"/x/site-packages/accelerate/accelerator.py", '
            "line 1498, in prepare_model\n[rank0]:     model = torch.nn.parallel.DistributedDataParallel(\n[rank0]: "
            "RuntimeError: found no DeviceMesh from dtensor args for c10d::broadcast_.default!")
FROM_A_GPU = (
    Case(every(said("Torch not compiled with CUDA"), within(r"^torch/distributed/_shard/")),
         "torch's own sharded tensors ask for a CUDA device, which this torch does not have",
         "The script does not choose it: where a rank holds no part of a tensor, this code takes the current CUDA "
         "device, whatever accelerator the run uses. It fails on others (XPU, HPU, NPU), mostly when FSDP1 saves or "
         "loads a sharded state. A CUDA build of torch does not help there.",
         (Fix("On another accelerator: upgrade torch and its backend, or use FSDP2, whose tensors are DTensors.",
              ("fsdp_version: 2  # in accelerate's fsdp_config", "pip show torch accelerate")),
          Fix("Or save the whole state, and resume from such a checkpoint. A sharded one cannot be loaded this way.",
              ("fsdp_state_dict_type: FULL_STATE_DICT",)),
          Fix("If the machine has NVIDIA GPUs, check the build.", ("mgpu doctor --only torch_is_cpu_build",))),
         '[rank0]: Traceback (most recent call last):\n'
         '[rank0]:   File "/x/site-packages/torch/distributed/_shard/sharded_tensor/_ops/tensor_ops.py", line 54, in '
         'tensor_device\n[rank0]:     dev = torch.device(torch.cuda.current_device())\n'
         '[rank0]:   File "/x/site-packages/torch/cuda/__init__.py", line 310, in _lazy_init\n'
         '[rank0]:     raise AssertionError("Torch not compiled with CUDA enabled")\n'
         "[rank0]: AssertionError: Torch not compiled with CUDA enabled\n",
         "https://github.com/pytorch/pytorch/blob/main/torch/distributed/_shard/sharded_tensor/_ops/tensor_ops.py"),
    Case(said(r"Attempting to deserialize object on a CUDA device"),
         "a file that was saved with tensors on a GPU is loaded where torch sees no GPU",
         "Without map_location, torch puts each tensor back on the device that it had when it was saved. pickle.load "
         "and joblib.load do the same with tensors, and have no such option.",
         (Fix("Load it for the CPU, and move what is needed.",
              ("torch.load(path, map_location='cpu')",)),
          Fix("For a file of pickle, let torch read the tensors in it.",
              ("torch.storage._load_from_bytes = lambda b: torch.load(io.BytesIO(b), map_location='cpu')",)),
          Fix("If the job should have a GPU, look for the reason.", ("mgpu doctor --only driver,visibility,pytorch",))),
         'Traceback (most recent call last):\n  File "/x/export.py", line 69, in main\n    key = pickle.load(f)\n'
         '  File "/x/site-packages/torch/serialization.py", line 258, in validate_cuda_device\n    raise RuntimeError('
         "\nRuntimeError: Attempting to deserialize object on a CUDA device but torch.cuda.is_available() is False. If "
         "you are running on a CPU-only machine, please use torch.load with map_location=torch.device('cpu')",
         "https://docs.pytorch.org/docs/stable/generated/torch.load.html"),
)
SHARDED_AGAIN = (
    Case(shown("spread_by_device_map"),
         "transformers made the model tensor parallel (DTensor) because of device_map='auto' under a launcher, and DDP "
         "was put around it",
         "Releases of transformers around 4.51 read device_map='auto' with WORLD_SIZE set as tensor parallelism. "
         "Frameworks that use fewer processes than GPUs, so that each has several GPUs (device_map with DDP), then "
         "break: probably a regression of the framework with this transformers.",
         (Fix("Start as many processes as GPUs, so that each rank has one.",
              ("NPROC_PER_NODE=8 swift sft ...", "torchrun --nproc-per-node=8 train.py")),
          Fix("Or upgrade the framework, or use the transformers that it was tested with.",
              ("pip install --upgrade ms-swift", "pip show transformers ms-swift")),
          Fix("Or shard the model with ZeRO-3 or FSDP.", ("mgpu configure",))),
         "[INFO:swift] Using MP(device_map) + DDP\n" + _SHARDED,
         "https://github.com/modelscope/ms-swift/issues/4019"),
)

_NO_BACKEND = ('[rank0]: Traceback (most recent call last):\n[rank0]:   File "/x/site-packages/{file}", line 9, in '
               "{function}\n[rank0]:     work = group.broadcast([tensor], opts)\n"
               "[rank0]: RuntimeError: No backend type associated with device type cpu")
_CPU_TOO = Fix("Give the process group a backend for each device.",
               ("torch.distributed.init_process_group('cpu:gloo,cuda:nccl')",))
BACKENDS = (
    Case(within(r"^unsloth|/unsloth\w*/"),
         "Unsloth exchanges a CPU tensor between the ranks: this release does not support several processes",
         "It patches the trainers when it is imported or when it compiles them, and takes for granted that it runs as "
         "one process. The group of a launcher with GPUs (nccl) cannot transfer CPU tensors.",
         (Fix("Train without Unsloth on several GPUs, or with Unsloth on one.",
              ("use_unsloth: false", "CUDA_VISIBLE_DEVICES=0 python train.py")),
          Fix("Or upgrade it: newer releases accept torchrun.", ("pip install --upgrade unsloth unsloth_zoo",))),
         _NO_BACKEND.format(file="unsloth/models/rl.py", function="PatchFastRL"),
         "https://github.com/hiyouga/LlamaFactory/issues/8113"),
    Case(within(r"torch/distributed/(?:fsdp|_composable|tensor|checkpoint)/|full_tensor|clip_grad"),
         "sharded parameters are on the CPU (FSDP's offload), and the process group has no backend for the CPU",
         "With CPU offload, gathering parameters, saving and clipping gradients exchange CPU tensors. The group was "
         "created for nccl alone.",
         (_CPU_TOO, Fix("Or do not offload.", ("accelerate launch --fsdp_offload_params false ...",))),
         _NO_BACKEND.format(file="torch/distributed/tensor/_api.py", function="full_tensor"),
         "https://github.com/areal-project/AReaL/issues/644"),
    Case(within(r"torchmetrics/|/metrics?/|_sync_dist|in (?:on_)?validation_epoch_end$|in compute_metrics$"),
         "a metric on the CPU is combined over the ranks, and NCCL transfers GPU tensors only",
         "The metric was not moved to the GPU with the model (created in a list, a dict or outside of the module), or "
         "a value was moved to the CPU before it was logged with sync_dist.",
         (Fix("Keep it on the rank's GPU.", ("self.metric = Metric().to(self.device)",
                                             "self.log('loss', loss.to(self.device), sync_dist=True)")), _CPU_TOO),
         _NO_BACKEND.format(file="torchmetrics/metric.py", function="_sync_dist"),
         "https://github.com/Lightning-AI/pytorch-lightning/issues/18803"),
    Case(within(r"in "
                r"_broadcast_model$|_sync_(?:params|module)|torch/nn/parallel/distributed\.py|deepspeed_training\.py"),
         "parameters of the model are still on the CPU when a wrapper broadcasts them with NCCL",
         "The model was not moved to the rank's GPU before it was wrapped, or a part (a frozen tower, a buffer) was "
         "left out.",
         (Fix("Move the model first.", ("torch.cuda.set_device(int(os.environ['LOCAL_RANK']))", "model.cuda()",
              "print([n for n, p in model.named_parameters() if not p.is_cuda])")), _CPU_TOO),
         _NO_BACKEND.format(file="deepspeed/runtime/engine.py", function="_broadcast_model"),
         "https://github.com/zai-org/CogVLM/issues/328"),
)

_META = ('Traceback (most recent call last):\n  File "/x/site-packages/{file}", line 9, in {function}\n    '
         "x.to(device)\nNotImplementedError: Cannot copy out of meta tensor; no data!")
META = (
    Case(every(shown("zero_three"), within(r"quantiz|bnb|bitsandbytes|from_pretrained|_load_pretrained_model|"
                                      r"_load_state_dict_into_meta_model")),
         "a model is loaded empty (meta device) while ZeRO-3 partitions it: quantization or low_cpu_mem_usage with "
         "zero3",
         "Quantized loading and low_cpu_mem_usage create empty parameters first. ZeRO-3's zero.Init takes them over "
         "before they have values.",
         (Fix("Use ZeRO-2 with a quantized model, or FSDP with 4-bit storage in bf16.",
              ("accelerate launch --zero_stage 2 ...",
               "BitsAndBytesConfig(load_in_4bit=True, bnb_4bit_quant_storage=torch.bfloat16)")),
          Fix("Or let prepare() partition the model.", ("accelerate launch --zero3_init_flag false ...",))),
         "Detected DeepSpeed ZeRO-3: activating zero.init() for this model\n"
         + _META.format(file="transformers/modeling_utils.py", function="_load_state_dict_into_meta_model"),
         "https://github.com/huggingface/accelerate/issues/2809"),
    Case(every(within(r"_load_state_dict_into_meta_model|set_module_tensor_to_device"),
               either(shown("fsdp"), several_ranks)),
         "from_pretrained() on this rank has no values to load: other ranks' weights are expected to come from rank 0",
         "With FSDP, only one rank reads the weights (fsdp_cpu_ram_efficient_loading), and some releases of "
         "transformers (4.34) and accelerate (0.23) mistake which one, above all on several nodes.",
         (Fix("Upgrade both.", ("pip install --upgrade transformers accelerate",)),
          Fix("Or let every rank read them.", ("export FSDP_CPU_RAM_EFFICIENT_LOADING=false",))),
         "distributed_type: FSDP\n"
         + _META.format(file="transformers/modeling_utils.py", function="_load_state_dict_into_meta_model"),
         "https://github.com/huggingface/accelerate/issues/2031"),
    Case(within(r"_load_state_dict_into_meta_model|set_module_tensor_to_device"),
         "a model is loaded empty (meta device), and there are no values for one of its weights",
         "low_cpu_mem_usage and device_map make the model without values, and then fill in those of the checkpoint. "
         "This value is on the meta device, too: the call is within init_empty_weights() or torch.device('meta'), the "
         "variables of FSDP are set in a run without it, or releases of transformers, accelerate and diffusers do not "
         "fit together.",
         (Fix("Upgrade them together.", ("pip install --upgrade transformers accelerate",)),
          Fix("Look for leftover variables and for the context.",
              ("env | grep -E 'FSDP|ACCELERATE'", "unset ACCELERATE_USE_FSDP FSDP_CPU_RAM_EFFICIENT_LOADING",
               "grep -rnE --include='*.py' \"init_empty_weights|device\\('meta'\\)\" .")),
          Fix("Or load it with values at once.", ("from_pretrained(MODEL, low_cpu_mem_usage=False)",))),
         _META.format(file="transformers/modeling_utils.py", function="_load_state_dict_into_meta_model"),
         _BIG_MODELS),
    Case(either(shown("spread_by_device_map"),
                within(r"nn/parallel/|_move_model_to_device|accelerate/big_modeling|in (?:cuda|half)$")),
         "a model is moved that has parts without values on the GPU: probably device_map has offloaded them",
         "If the model does not fit on the visible GPUs, device_map='auto' leaves layers on the CPU or on disk, and "
         "empty parameters (meta) in their place. Such a model cannot be moved, copied or wrapped.",
         (_PER_GPU, Fix("Remove device_map, and shard a model that is too large for one GPU.", ("mgpu configure",))),
         _META.format(file="transformers/trainer.py", function="_move_model_to_device"), _BIG_MODELS),
)
# fmt: on
