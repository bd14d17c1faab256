"""What does a log show of the run itself: its model, its framework, an option, what it was doing?

None of these is a fault. A case of a row (`Case`) can require them, with `shown` of `_circumstances`.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures


def _row(name: str, pattern: str, samples: tuple[str, ...], source: str) -> Row:
    return Row(name, "context", "script", pattern, samples, "", "", Fix("No action needed.", ()), source)


_TRAINING_LOSS = (
    r"(?i)(?=[abceflmort])"  # the first letters of what follows: with it a long line is searched several times as fast
    r"(?<![\w.-])(?<!\bval )(?<!\bvalid )(?<!\bvalidation )(?<!\btest )(?<!\beval )(?<!\bdev )"
    r"(?:(?:train(?:ing)?|total|avg|average|mean|running|epoch|batch|final|overall)[ _-])?"
    r"(?:loss|cost)(?:_(?:train|total|avg|mean))?['\"]?\s{0,3}[:=]?\s{0,6}(?:tensor\()?['\"]?"
)

# fmt: off
ROWS = (
    _row("multimodal_model",
         r"\b(?:Qwen[\d.]*-?(?:VL|Omni)|LLaVA|InternVL|MiniCPM-[VO]|Idefics|PaliGemma|Pixtral|mllama)\b|"
         r"\b(?:pixel_values|vision_tower|image_grid_thw)\b",
         ("Loading Qwen2.5-VL-7B-Instruct", "    features = self.vision_tower(pixel_values)"),
         "https://huggingface.co/docs/transformers/model_doc/qwen2_5_vl"),
    _row("sequence_beyond_model",  # the tokenizer's warning; only with -100 or added tokens is it about something else
         r"[Ss]equence length is longer than the specified maximum sequence length for this model \(\d+ > \d+\)",
         ("Token indices sequence length is longer than the specified maximum sequence length for this model "
          "(2201 > 1024). Running this sequence through the model will result in indexing errors",),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/tokenization_utils_base.py"),
    _row("processes_on_first_gpu",  # what accelerate prints of each process
         r"^Device: cuda:0\b", ("Device: cuda:0",),
         "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    _row("process_on_later_gpu", r"^Device: cuda:[1-9]", ("Device: cuda:3",),
         "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    _row("local_processes", r"^Local process index: [1-9]", ("Local process index: 3",),
         "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py"),
    _row("exception_hook_failed",
         r"^Error in sys\.excepthook:", ("Error in sys.excepthook:",),
         "https://docs.python.org/3/library/sys.html#sys.excepthook"),
    _row("has_its_gpus",  # a trainer found the GPUs: the environment that it needs is there
         r"\bGPU available: True\b.{0,20}, used: True",
         ("GPU available: True (cuda), used: True",),
         "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/trainer/setup.py"),
    _row("horovod_lacks_broadcast",  # a rank has not submitted these tensors
         r"\d!?: \[(?:broadcast\.|[^\s,\[\]]{0,120}HorovodBroadcast_)",
         ("[1,0]<stderr>:0: [HorovodBroadcast_net_bias_0, HorovodBroadcast_net_beta_0 ...]",
          "2!: [broadcast.conv1.weight]"),
         "https://github.com/horovod/horovod/blob/master/horovod/common/stall_inspector.cc"),
    _row("horovod_lacks_allreduce",
         r"\d!?: \[(?:allreduce\.|[^\s,\[\]]{0,120}HorovodAllreduce_)",
         ("1: [DistributedMomentumOptimizer_Allreduce/HorovodAllreduce_gradients_AddN_100_0 ...]",
          "1: [allreduce.conv1.weight, allreduce.conv2.weight ...]"),
         "https://github.com/horovod/horovod/blob/master/horovod/common/stall_inspector.cc"),
    _row("array_not_finite",
         r"RuntimeWarning: (?:divide by zero|invalid value) encountered in",
         ("/x/weights.py:161: RuntimeWarning: divide by zero encountered in true_divide",
          "a.py:3: RuntimeWarning: invalid value encountered in scalar divide"),
         "https://numpy.org/doc/stable/reference/generated/numpy.errstate.html"),
    _row("ranks_restarted",
         r"will restart worker group|\brestart_count=[1-9]|[Rr]estarting (?:the )?worker group|attempts? left; "
         r"restarting",
         ("[agent] Worker group FAILED. 2/3 attempts left; will restart worker group", "  restart_count=1"),
         "https://docs.pytorch.org/docs/stable/elastic/run.html"),
    _row("weights_quantized",
         r"\bload_in_[48]bit['\"]?\s?[=:]\s?True|\bload_in_[48]bit: true|BitsAndBytesConfig\(|"
         r"\bbnb_4bit_\w+['\"]?\s?[=:]|"
         r"Merge lora module to [48]-bit linear|peft/tuners/lora/bnb\.py",
         ("UserWarning: Merge lora module to 4-bit linear may get different generations due to rounding errors.",
          "ModelConfig(load_in_4bit=True, use_peft=True)", "load_in_8bit: true"),
         "https://huggingface.co/docs/transformers/main/en/quantization/bitsandbytes"),
    _row("weights_sent_to_engine",
         r"PyNcclCommunicator\(|\binit_communicator\b|trl[./](?:scripts[./]vllm_serve|extras[./]vllm_client)|"
         r"\bvllm[-_]serve\b|update_named_param\b",
         ("self.pynccl_comm = PyNcclCommunicator(pg, device=device)", "POST /init_communicator/ HTTP/1.1"),
         "https://huggingface.co/docs/trl/main/en/vllm_integration"),
    _row("module_names_joined",  # one text that was meant as a list of names
         r"(?i)(?:target|feed_?forward)[_ ]modules['\"]?\s?[=:]\s?\[?['\"](?=[^'\",/;|]+[/;|,])[\w.,/;| "
         r"-]+['\"]\]?\s*$",
         ("Target_modules=['encoder.layer.1.key/encoder.layer.1.value']", "target modules: 'q_proj,v_proj'"),
         "https://huggingface.co/docs/peft/package_reference/ia3"),
    _row("ultralytics",
         r"\bUltralytics (?:YOLO\S* )?\S{0,2} ?(?:YOLO)?v?\d+\.|\bYOLOv\d+\S* \S{1,3} v?\d+\.\d|"
         r"engine[/.\\]trainer: ?task=",
         ("Ultralytics 8.3.40 Python-3.11.4 torch-2.5.1 CUDA:0 (NVIDIA A100, 81156MiB)",
          "Ultralytics YOLOv8.0.137 Python-3.9.17 torch-2.0.1 CUDA:0 (Tesla V100-PCIE-32GB, 32633MiB)",
          "engine/trainer: task=detect, mode=train, model=yolov8l.pt"),
         "https://docs.ultralytics.com/modes/train/"),
    _row("hugging_face",  # accelerate, or what is built on it
         r"(?i)\b(?:accelerate|transformers|peft|diffusers|axolotl|llama-?factory|unsloth|ms-swift|sentence_transformers|"
         r"TrainingArguments|trl[./](?:trainer|scripts|extras|import)\w*)\b",
         ('  File "/venv/lib/python3.11/site-packages/transformers/trainer.py", line 2123, in train',
          "Using distributed_type: MULTI_GPU through accelerate", "LLaMA-Factory, version 0.9.2"),
         "https://huggingface.co/docs/accelerate/package_reference/cli"),
    _row("mmengine",
         r"\bmm(?:engine|det|seg|cv|pose|action|pretrain|cls)\b - (?:INFO|WARNING)\b",
         ("03/28 15:56:25 - mmengine - INFO - Epoch(train) [36][1750/2901]  lr: 2.8728e-03",
          "2022-04-21 10:12:01,123 - mmdet - INFO - Epoch [1][50/7330] lr: 1.978e-03"),
         "https://mmengine.readthedocs.io/en/latest/advanced_tutorials/logging.html"),
    _row("ddp",
         r"Reducer buckets have been rebuilt|torch/nn/parallel/distributed\.py|\bDistributedDataParallel\b|"
         r"distributed_type\W{1,4}MULTI_GPU",
         ("INFO:torch.nn.parallel.distributed:Reducer buckets have been rebuilt in this iteration.",
          "distributed_type: MULTI_GPU"),
         "https://docs.pytorch.org/docs/stable/notes/ddp.html"),
    _row("data_parallel",
         r"Was asked to gather along dimension 0, but all input tensors were scalars|\bin replica \d+ on device",
         ("UserWarning: Was asked to gather along dimension 0, but all input tensors were scalars; will instead "
          "unsqueeze and return a vector.", "RuntimeError: Caught RuntimeError in replica 1 on device 1."),
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html"),
    _row("make_in_package", r"^make(?:\[\d+\])?: Entering directory '[^']*(?:site|dist)-packages/",
         ("make: Entering directory '/opt/venv/lib/python3.12/site-packages/megatron/core/datasets'",),
         "https://www.gnu.org/software/make/manual/html_node/_002dw-Option.html"),
    _row("on_windows",
         r"\\(?:torch|site-packages|Scripts|Users|AppData|Anaconda3|actions-runner)\\|\[WinError \d|"
         r"system error: 100\d\d\b",
         (r"[W C:\actions-runner\_work\pytorch\torch\csrc\distributed\c10d\socket.cpp:601] x",
          "OSError: [WinError 126] The specified module could not be found.",
          "failed to connect to [t2]:58152 (system error: 10049 - The requested address is not valid)"),
         "https://learn.microsoft.com/windows/win32/winsock/windows-sockets-error-codes-2"),
    _row("interfaces_of_containers",
         r"\[\d+\](?:veth\w+|docker\d+|virbr\d+|flannel\S*?|cali[0-9a-f]{11}):|"
         r"NCCL_SOCKET_IFNAME set (?:by environment )?to (?:docker|virbr|br-|veth)|"
         r"NET/Socket : Using (?:\[0\])?(?:docker|virbr|br-|veth)\w*:",
         ("[12]veth6163fba:fe80::b878:6cff:fe52:abe2%veth6163fba<0>", "[0]docker0:172.17.0.1<0>",
          "NCCL INFO NET/Socket : Using [0]docker0:172.17.0.1<0>"),
         "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-socket-ifname"),
    _row("expert_model",
         r"\bMixtral\b|num_experts|expert_parallel|\bDeepSeek-?V[23]\b|\bQwen[\d.]+-\d+B-A\d+B\b",
         ("model: Qwen3-30B-A3B", "Initializing MoE layer with num_experts 64"),
         "https://huggingface.co/docs/transformers/model_doc/mixtral"),
    _row("language_model",
         r"ForCausalLM\b|\bvocab_size\b|\blm_head\b|\bmax_seq_len(?:gth)?\b|\bseq_len(?:gth)?\b|\bsequence_len\b|"
         r"MaskedCrossEntropy|\bcutoff_len\b|\b[Tt]okenizer\b",
         ("Config: loss_fn=MaskedCrossEntropy local_batch_size=8 seq_length=4096 vocab_size=201088",
          "Running tokenizer on dataset"),
         "https://huggingface.co/docs/transformers/tasks/language_modeling"),
    # Trainer prints fsdp=[] and fsdp_config={...} in every run.
    _row("fsdp",
         r"distributed_type\W{1,4}FSDP|DistributedType\.FSDP|FullyShardedDataParallel|--use_fsdp\b|--fsdp[ =](?!\W)|"
         r"\bfsdp2\b|\bfully_shard\b|\bfull_shard\b|\bhybrid_shard\b|torch/distributed/fsdp/|ACCELERATE_USE_FSDP=[tT1]",
         ("Setting args.fsdp: {'fsdp': 'full_shard auto_wrap'}", "distributed_type: FSDP", "sft.py --fsdp fsdp2"),
         "https://docs.pytorch.org/docs/stable/fsdp.html"),
    _row("optimizer_offloaded",
         r"DeepSpeedCPUAdam|\bcpu_adam\b|CPU Offload: True|\bz(?:ero)?_?[23]_?(?:cpu_?)?offload|_offload\w*\.json|"
         r"Adam Optimizer #\d+ is created with|offload_optimizer.{0,30}\bcpu\b|"
         r"\bparam_offload\W{1,3}True|\boptimizer_offload\W{1,3}True|offload_params\W{1,3}[Tt]rue|\badam_offload\b",
         ("Adam Optimizer #0 is created with AVX512 arithmetic capability.", "Loading extension module cpu_adam..."),
         "https://www.deepspeed.ai/docs/config-json/"),
    _row("host_memory_nearly_full",
         r"CPU Virtual Memory:\s+used = [\d.]+ GB, percent = (?:8[5-9]|9\d|100)\b",
         ("[INFO] [utils.py:789:see_memory_usage] CPU Virtual Memory:  used = 940.1 GB, percent = 93.4%",),
         "https://deepspeed.readthedocs.io/en/latest/memory.html"),
    _row("engine_weights_in_host_memory",
         r"CuMemAllocator: sleep freed .* of which (?!0\.0)[\d.]+ GiB is backed up in CPU|--vllm_enable_sleep\b",
         ("CuMemAllocator: sleep freed 151.20 GiB memory in total, of which 78.11 GiB is backed up in CPU and the rest "
          "73.09 GiB is discarded directly.",),
         "https://docs.vllm.ai/en/latest/features/sleep_mode.html"),
    _row("long_sequences",
         r"\b(?:max_tokens\w*|seq_len\w*|seqlen|sequence_len\w*|cutoff_len|max_length|max_seq_len\w*|context_length|"
         r"num_tokens)[\"']?(?:=|: ?| )[1-9]\d{5,6}\b",
         ("INFO packing: max_tokens_per_rank=425984 hidden=1536", "    seq_length: 131072", "cutoff_len: 262144"),
         "https://github.com/fla-org/flash-linear-attention/issues/1080"),
    _row("new_nvshmem",  # DeepEP before its pull request 564 waits forever with it
         r"\bnvshmem\S{0,12}(?:==|[ =:v]{1,3})3\.(?:5\.(?:19|[2-9]\d)|[6-9]\.|\d\d\.)",
         ("deep_ep 1.2.1+17cfb81 nvidia-nvshmem-cu13 3.6.5 torch 2.11.0+cu130", "nvidia-nvshmem-cu12==3.5.19"),
         "https://github.com/deepseek-ai/DeepEP/issues/707"),
    _row("tensor_parallel",
         r"tensor[_-](?:model[_-])?parallel[_-]?(?:size|dim|degree|world_size)?[\"']?(?: ?[=:] ?| (?:\.+ )?)"
         r"(?:[2-9]|\d\d)\b",
         ("tune run full_finetune_distributed tensor_parallel_dim=2", "--tensor-model-parallel-size 4",
          "  tensor_model_parallel_size ...................... 2"),
         "https://github.com/pytorch/torchtitan/blob/main/docs/composability.md"),
    _row("sequence_parallel",
         r"(?:ulysses|context|sequence)[-_](?:sequence[-_])?parallel(?:[-_](?:size|dim|degree|world_size))?[\"']?"
         r"(?: ?[=:] ?| (?:\.+ )?)(?:[2-9]|\d\d|[Tt]rue)\b|--sequence-parallel(?:\s|$)",
         ("ulysses_sequence_parallel_size: 2", "  sequence_parallel ............................... True",
          "--sequence-parallel --bf16", "--context-parallel-size 2", "context_parallel_degree = 4"),
         "https://docs.nvidia.com/megatron-core/developer-guide/latest/api-guide/context_parallel.html"),
    _row("ray_run",
         r"\(raylet[,)]|\bray::\w|Started a local Ray instance|\bray\.exceptions\.|/ray/_private/| pid=\d+, ip=",
         ("2025-02-08 14:20:18,110 INFO worker.py:1841 -- Started a local Ray instance.",
          "(WorkerDict pid=5011, ip=10.0.0.2) Actor use_remove_padding=True",
          "ray.exceptions.RayTaskError(ValueError): ray::run() (pid=51424, ip=10.141.17.198)"),
         "https://docs.ray.io/en/latest/ray-core/scheduling/accelerators.html"),
    # What the run was doing when ranks waited for each other.
    _row("training_finished",
         r"`Trainer\.fit` stopped: `max_|'train_runtime': |\[after training is done\]|"
         r"^\W*(?:the )?(?:training|fine-?tuning) (?:is |has |was )?(?:completed?|finished|done|ended)\b"
         r"(?! (?:(?:for|of|in) )?(?:the )?(?:epoch|step|batch|round|fold|stage|phase))|"
         r"\b(?:completed|finished|done) training\b(?! (?:epoch|step|batch|iteration|loop|round|fold|stage|phase|on ))",
         ("`Trainer.fit` stopped: `max_epochs=100` reached.", "{'train_runtime': 812.4, 'train_loss': 0.3}",
          "Training completed.", "INFO: Finished training, best epoch 12",
          "[after training is done] datetime: 2026-11-21 10:12:09"),
         "https://github.com/alan-turing-institute/autocast/issues/381"),
    _row("rank_finished",
         r"\brank[ _#:=]{0,2}\d+\]?:? (?:is |has |was )?(?:done|finished|exhausted|ran out of|out of)\b"
         r"(?:[ ,:(-]{0,3}(?:with |its |all |the |in |after )*(?:\d+ )?(?:batch|step|sample|iter|epoch|data|train)|"
         r"[ .!]*$)",
         ("rank 1 done, 2 batches", "Rank 3 finished epoch 4 after 212 steps", "[rank 0] exhausted its data"),
         "https://github.com/huggingface/datasets/issues/6719"),
    _row("stopped_early",
         r"\b[Ee]arly[ -]?(?:S|s)(?:topping|topped)\b"
         r"(?=[^=]*(?:trigger|reached|at (?:epoch|step|iteration)|after \d|\.{3}|!|[Bb]reak))|"
         r"[Ss]ignaling Trainer to stop|^\W*[Ee]arly (?:stopping|stopped)\W*$",
         ("Early stopping triggered after 12 epochs", "Monitored metric val_loss did not improve in the last 5 "
          "records. Best score: 0.3. Signaling Trainer to stop.", "EarlyStopping: early stopping at epoch 7",
          "Early stopping!"),
         "https://github.com/Lightning-AI/pytorch-lightning/issues/379"),
    _row("batch_skipped",
         r"^(?!.*(?:OVERFLOW|overflow|first \d|[Rr]esum|fast-forward|already|skipped ?[=:]|skip_|on all ranks)).*"
         r"(?:\b[Ss]kip(?:ping|ped)\b.{0,30}\b(?:batch|step|iteration|update|backward)\b|"
         r"(?i:\b(?:nan|oom|out of memory|non-?finite|inf|empty)\b.{0,60}\bskip(?:ping|ped)\b))",
         ("WARNING: ran out of memory on rank 2, skipping batch", "non-finite loss nan, skipping this step",
          "[rank1] NaN loss detected: skipped"),
         "https://github.com/NVIDIA-NeMo/Automodel/pull/2468"),
    _row("kernels_compiling",
         r"\bAUTOTUNE \w+\(|SingleProcess AUTOTUNE|SubProcess AUTOTUNE|Triton autotuning for function|"
         r"torch\._dynamo\S* .*[Rr]ecompil|\bJIT[- ]compil|Compiling (?:kernels?|the model|model|graph|triton|cuda)\b|"
         r"c\+\+ -MMD|nvcc --generate-dependencies|Building extension module \w+",
         ("AUTOTUNE mm(32768x1280, 1280x5120)", "SingleProcess AUTOTUNE benchmarking takes 9.4 seconds and 61.8 "
          "seconds precompiling for 20 choices", "Building extension module fused_adam...",
          "Triton autotuning for function _fwd_kernel"),
         "https://github.com/karpathy/nanochat/pull/722"),
    _row("zero_three",
         r"partition_parameters\.py|partitioned_param_coordinator|Parameter Offload: Total persistent parameters|"
         r"\bstage3\.py|[Zz]e[Rr][Oo][- _]?(?i:stage[- _]?)?3\b|[\"']stage[\"']: 3\b|"
         r"\bzero_?stage\W{1,3}3\b|\bds_z3|Invalidate trace cache @ step|zero_optimization.{0,40}stage\W{1,4}3\b|"
         r"--deepspeed[ =]\S*z(?:ero)?_?3|zero_?3\w*\.(?:json|ya?ml)|DeepSpeedZeroOptimizer_Stage3|"
         r"DeepSpeedZeRoOffload",
         ("[2025-07-31 06:11:41,663] [INFO] [partition_parameters.py:348:__exit__] finished initializing model",
          "Parameter Offload: Total persistent parameters: 6522880 in 3457 params", "deepspeed: configs/zero3.json",
          "{'zero_optimization': {'stage': 3}}", "--deepspeed ds_config_zero3.json"),
         "https://www.deepspeed.ai/docs/config-json/#zero-optimizations-for-fp16-training"),
    _row("module_order_changed", r"Invalidate trace cache @ step \d+",
         ("Invalidate trace cache @ step 1: expected module 25, but got module 323",
          "Invalidate trace cache @ step 412 and module 398: cache has only 412 modules"),
         "https://github.com/deepspeedai/DeepSpeed/pull/5008"),
    _row("thousands_of_parameters", r"num_params = (?:[5-9]\d{3}|\d{5,}), num_elems",  # dense models have up to 1,500
         ("finished initializing model - num_params = 18867, num_elems = 30.53B",),
         "https://github.com/deepspeedai/DeepSpeed/issues/7461"),
    _row("reference_model_prepared", r"\b(?:ref|reference|reward|teacher)_model\w*\b.*prepare_deepspeed\(",
         ("    self.ref_model = self.accelerator._prepare_deepspeed(self.ref_model)[0]",),
         "https://github.com/huggingface/trl/pull/825"),
    _row("samples_packed", r"sample_packing|\bmultipack\b|packing_efficiency|PackedDataset|\bpacking[=:] ?[Tt]rue",
         ("axolotl.utils.samplers.multipack.calc_min_len:203", "packing_efficiency_estimate: 0.93", "packing: true"),
         "https://github.com/axolotl-ai-cloud/axolotl/pull/1974"),
    # How the ranks were started, and how NCCL connects them.
    _row("several_nodes",
         r"--?nnodes[= ](?:[2-9]|\d\d)|\b(?:min_nodes|num_machines|NNODES|SLURM_NNODES|SLURM_JOB_NUM_NODES|nnodes)"
         r"\s{0,20}[:=]\s{0,3}'?(?:[2-9]|\d\d)",
         ("torchrun --nnodes=4 --node-rank=2 train.py", "  min_nodes                   : 4", "num_machines: 2"),
         "https://docs.pytorch.org/docs/stable/elastic/run.html"),
    _row("endpoint_is_loopback",
         r"(?i:rdzv[-_]endpoint|rdzv_host|master_addr|main_process_ip|head_node_ip|init_method)['\"]?\s{0,20}[:= ]"
         r"\s{0,3}['\"]?(?:tcp://)?(?:localhost|127\.\d+\.\d+\.\d+|::1)\b",
         ("torchrun --nnodes=4 --rdzv-endpoint=localhost:29500 -m train", "0: + RDZV_HOST=localhost",
          "  rdzv_endpoint               : 127.0.0.1:29500", "export MASTER_ADDR=127.0.1.1"),
         "https://github.com/mlc-ai/pith-train/pull/91"),
    _row("torchrun_without_nodes",
         r"(?:^|[\s+])torchrun (?!.*(?:--?nnodes|--?rdzv|--?master|--?node[-_]rank|--standalone|--help|\\\s*$))"
         r"(?:-{1,2}[a-z]|\S+\.(?:py|sh)\b)",
         ("2025-11-04T10:01:02.11822Z + torchrun /tmp/train_func.py", "$ torchrun --nproc_per_node=8 train.py"),
         "https://github.com/kubeflow/sdk/issues/142"),
    _row("peer_channels", r"NCCL INFO Channel \d+(?:/\d+)? : .* via P2P/",
         ("node1:1:2 [0] NCCL INFO Channel 00/0 : 0[0] -> 1[1] via P2P/CUMEM",),
         "https://github.com/NVIDIA/nccl/issues/2079"),
    _row("network_channels", r"NCCL INFO Channel \d+(?:/\d+)? : .* via NET/",
         ("node1:1:2 [0] NCCL INFO Channel 00/0 : 8[0] -> 0[0] [receive] via NET/Socket/0",),
         "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"),
    _row("network_within_node",  # "rank[GPU]": rank 3 on GPU 3 and rank 0 on GPU 0 are on one node
         r"NCCL INFO Channel \d+(?:/\d+)? : (?P<sends>\d+)\[(?P=sends)\] -> (?P<gets>\d+)\[(?P=gets)\] .*via NET/",
         ("node1:1:2 [0] NCCL INFO Channel 00/0 : 3[3] -> 0[0] [receive] via NET/IB/1/GDRDMA",),
         "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level"),
    _row("process_manager_silent",
         r"\bMPIR_pmi_init\(\d+\)|\bPMI_Get_appnum returned|write_line error; fd=\d+ buf=:cmd=",
         ("MPIR_pmi_init(142)...: PMI_Get_appnum returned -1",
          "[cli_0]: write_line error; fd=9 buf=:cmd=init pmi_version=1 pmi_subversion=1"),
         "https://github.com/pmodels/mpich/blob/main/src/pmi/src/pmi_v1.c"),
    _row("bridge_interface",
         r"NCCL INFO (?:Bootstrap ?:|NET/Socket :) [Uu]sing (?:\[\d\])?(?:docker\d|br-[0-9a-f]{12}|virbr\d|veth\w+|"
         r"lxdbr\d|cni\d|flannel\S*?):",
         ("node1:1:2 [0] NCCL INFO Bootstrap : Using docker0:172.17.0.1<0>",
          "node1:1:2 [0] NCCL INFO NET/Socket : Using [0]virbr0:192.168.122.1<0>"),
         "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"),
    _row("one_process",
         r"\blocal_rank: -1, world_size\b|Process rank: -1\b|Process rank: 0, .*\bdistributed training: False",
         ("[INFO:swift] rank: 0, local_rank: -1, world_size: 2, local_world_size: 1",
          "Process rank: 0, device: cuda:0, n_gpu: 1, distributed training: False, compute dtype: torch.bfloat16",
          "Process rank: -1, device: cuda:0, n_gpu: 4distributed training: False, 16-bits training: False"),
         "https://github.com/hiyouga/LlamaFactory/issues/4557"),
    _row("weights_saved_alone", r"save_only_model['\"]?[=:] ?[Tt]rue",
         ("SftArguments(sft_type='lora', save_only_model=True, deepspeed=None)", "save_only_model: true"),
         "https://github.com/modelscope/ms-swift/issues/574"),
    _row("spread_by_device_map", r"['\"]device_map['\"]: "
                                 r"['\"]auto['\"]|device_map=['\"](?:auto|balanced\w*)['\"]|MP\(device_map\)",
         ("[INFO:swift] model_kwargs: {'device_map': 'auto'}", "[INFO:swift] Using MP(device_map) + DDP"),
         "https://huggingface.co/docs/accelerate/concept_guides/big_model_inference"),
    _row("adapter_trained", r"trainable params: [\d,]+ \|\| all params|\bPeftModel\w*: [\d.]+M Params|\bLoraConfig\(|"
         r"\blora_(?:rank|alpha|target(?:_modules)?|dropout)\b['\"]?[=: ]|\badapter: q?lora\b|"
         r"(?:sft_type|train_type|finetuning_type)['\"]?[=: ]+['\"]?q?lora\b",
         ("adapter: qlora", "--train_type lora", "lora_rank: 16",
          "trainable params: 13,631,488 || all params: 7,255,363,584 || trainable%: 0.1879",),
         "https://huggingface.co/docs/peft/package_reference/peft_model"),
    _row("keys_of_wrapper",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: \"(?:module|_forward_module|_fsdp_wrapped_module)\.",
         ('\tMissing key(s) in state_dict: "module.embed.weight", "module.head.weight".',),
         "https://pytorch.org/docs/stable/generated/torch.nn.Module.html"),
    _row("keys_of_compiler", r"(?:Missing|Unexpected) key\(s\) in state_dict: \"(?:\w+\.)*_orig_mod\.",
         ('\tUnexpected key(s) in state_dict: "_orig_mod.embed.weight", "_orig_mod.head.weight".',),
         "https://pytorch.org/docs/stable/generated/torch.compile.html"),
    _row("keys_of_adapter",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: .*(?:\"base_model\.model\.|\.base_layer\.|\.lora_[AB]\.)",
         ('\tUnexpected key(s) in state_dict: "base_model.model.model.embed_tokens.weight".',),
         "https://huggingface.co/docs/peft/developer_guides/checkpoint"),
    _row("keys_of_quantizer",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: "
         r".*\.(?:absmax|quant_map|quant_state|SCB|weight_format|qweight|"
         r"qzeros|nested_absmax)\b",
         ('\tUnexpected key(s) in state_dict: "model.layers.0.mlp.up_proj.weight.absmax".',),
         "https://huggingface.co/docs/transformers/main/en/quantization/overview"),
    _row("keys_of_fake_quantizer",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: .*(?:fake_quant|activation_post_process)",
         ('\tUnexpected key(s) in state_dict: "conv1.weight_fake_quant.scale".',),
         "https://docs.pytorch.org/docs/stable/generated/torch.ao.quantization.prepare_qat.html"),
    _row("keys_of_other_release",
         r"(?:Missing|Unexpected) key\(s\) in state_dict: \"[\w.]*(?:position_ids|inv_freq|masked_bias|attn\.bias)\"",
         ('\tUnexpected key(s) in state_dict: "bert.embeddings.position_ids".',),
         "https://github.com/huggingface/transformers/pull/24505"),
    _row("visible_devices_renumbered",
         r"CUDA_VISIBLE_DEVICES['\"]?\)?\s?[:=]\s?\\?['\"\[]?[1-9]\d*(?:, ?\d+)+",
         ("+ export CUDA_VISIBLE_DEVICES=4,5,6,7", "os.environ.get('CUDA_VISIBLE_DEVICES')='4,5,6,7'",
          "LOCAL_RANK: 1 - CUDA_VISIBLE_DEVICES: [2,3]"),
         "https://docs.nvidia.com/cuda/cuda-c-programming-guide/index.html#env-vars"),
    _row("stopped_with_checkpoint",
         r"[Pp]reempt\w* (?:signal )?.{0,80}\bsav(?:ing|ed) (?:a )?checkpoint|"
         r"\bstopped early due to (?:preemption|SIGTERM|a signal)|exiting program after receiving SIGTERM",
         ("Preemption signal seen on at least one rank, saving checkpoint and stopping",
          "Training stopped early due to preemption (step 412 of 2000); exiting with code 0",
          "exiting program after receiving SIGTERM."),
         "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/training.py"),
    _row("samples_masked", r"WARNING: tokenization mismatch: \d+ vs\. \d+\..*\(ignored\)",
         ("WARNING: tokenization mismatch: 276 vs. 272. (ignored)",
          "WARNING: tokenization mismatch: 654 vs. 643. #turn = 25. (ignored). This dataset is docs."),
         "https://github.com/haotian-liu/LLaVA/issues/1166"),
    _row("tensor_not_finite",
         r"\b(?!\w*(?:loss|grad|logit|norm|pred|output|isnan|has|any|contains)(?:\b|_))[A-Za-z_]\w+: nan=True\b|"
         r"(?i:\bnans? (?:found|detected) in (?:the )?(?:input|batch|feature|latent|audio|image|pixel|embed))",
         ("[Check] audio_emb: nan=True, inf=False, shape=torch.Size([1, 25, 10752])", "NaN found in input features"),
         "https://docs.pytorch.org/docs/stable/generated/torch.isfinite.html"),
    _row("answer_check_timed_out", r"/math_verify/|/latex2sympy2|^TimeoutError: Operation timed out!",
         ('  File "/opt/lib/python3.12/site-packages/math_verify/utils.py", line 43, in handler',
          "TimeoutError: Operation timed out!"),
         "https://github.com/huggingface/open-r1/issues/658"),
    _row("ray_gpus_used", r"^\s*(?:- )?\d+(?:\.\d+)?/\d+(?:\.\d+)? GPU\b", (" 0.0/1.0 GPU", " 6.0/8.0 GPU"),
         "https://docs.ray.io/en/latest/ray-core/scheduling/resources.html"),
    _row("gradients_not_finite", r"['\"]grad_norm['\"]: ['\"]?(?:nan|inf)\b|\bgrad[_ ]?norm:? ?=?\|? ?(?:nan|inf)\b",
         ("{'loss': 1.4121, 'grad_norm': nan, 'learning_rate': 0.0, 'epoch': 0.0}", "grad norm: nan", "grad_norm=inf"),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
    _row("weights_written",
         r"\b(?:[Mm]odel|[Cc]heckpoint|[Ww]eights|[Aa]dapter|[Ss]tate)s?\b.{0,60}?\b(?:saved|written)\b|"
         r"\b[Ss]aved (?:the )?(?:final |best |trained |merged )?(?:model|checkpoint|weights|adapter)",
         ("Model weights saved in out/model.safetensors", "Saved checkpoint to out/step-500", "Checkpoint saved."),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/modeling_utils.py"),
    _row("loss_logged", r"\bloss['\"]?\s?[:= ]\s?['\"]?-?\d+\.\d",
         ("{'loss': 1.4121, 'grad_norm': 1.2, 'learning_rate': 0.0, 'epoch': 0.0}", "19% step: 5700 loss: 0.028"),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
    # The loss of the training as programs print it; neither parts of it (aux_loss) nor the loss of a validation.
    _row("training_loss_nan",
         _TRAINING_LOSS + r"(?<=[:=('\" ])[-+]?nan(?!\s+(?:guard|check|count|value|error|detect)\w*\b)"
         r"(?=\s*[^\w\s]|\s*$|\s\s|(?:\s\w+){1,3}\s?[:=]?\s?[-\d])",
         ("epoch 3 cost=nan acc=0.1", "Epoch [3/90], Loss: nan, lr 0.001", "step 7: loss tensor(nan, device='cuda:0')"),
         "https://docs.pytorch.org/docs/stable/generated/torch.isnan.html"),
    _row("training_loss_finite", _TRAINING_LOSS + r"[-+]?\d",
         ("epoch 3 cost=0.41 acc=0.1", "Epoch [3/90], Loss: 4.1e-1, lr 0.001",
          "step 7: loss tensor(0.2, device='cuda:0')"),
         "https://docs.pytorch.org/docs/stable/generated/torch.isnan.html"),
    _row("evaluation_not_finite", r"['\"]eval_loss['\"]: ['\"]?(?:nan|NaN)\b",
         ("{'eval_loss': nan, 'eval_runtime': 17.1, 'epoch': 1.0}",),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
    _row("evaluation_finite", r"['\"]eval_loss['\"]: ['\"]?\d", ("{'eval_loss': 0.41, 'eval_runtime': 17.1}",),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
    _row("all_steps_skipped", r"\bstep=(?P<steps>[1-9]\d{0,8}), skipped=(?P=steps),",
         ("[Rank 0] step=10, skipped=10, lr=[1e-05], mom=[(0.9, 0.99)]",),
         "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py"),
    _row("some_steps_skipped", r"\bstep=\d{1,9}, skipped=\d{1,9},",
         ("[Rank 0] step=20, skipped=10, lr=[1e-05], mom=[(0.9, 0.99)]",),
         "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py"),
    _row("gradients_finite", r"['\"]grad_norm['\"]: ['\"]?\d|\bgrad[_ ]?norm:? ?=?\|? ?\d",
         ("{'loss': 1.4121, 'grad_norm': 1.2, 'learning_rate': 0.0, 'epoch': 0.0}", "grad norm: 1.372",
          "grad_norm: 4.8125"),
         "https://github.com/huggingface/transformers/blob/main/src/transformers/trainer.py"),
)
# fmt: on

CHECKS = signatures(__name__, ROWS)
