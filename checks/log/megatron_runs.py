"""What did Megatron, Transformer Engine and apex say about the model, the data, the settings and a checkpoint?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from .._apex import BUILD_APEX
from ._other_program_cases import BLOCKS_OF_MODEL, CLASS_OF_SCRIPT, DEFINED_TOO_LATE

_ARGUMENTS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py"
_ATTENTION = "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/attention/attention.html"
_CHECKPOINTS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/checkpointing.py"
_FP8 = "https://docs.nvidia.com/deeplearning/transformer-engine/user-guide/examples/fp8_primer.html"
_LAYERS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/tensor_parallel/layers.py"

# fmt: off
ROWS = (
    Row("log_megatron_norm_needs_engine", "root", "library",
        r"\(\w+\) is not supported in FusedLayerNorm|FusedLayerNorm is not supported|"
        r"Only (?:LayerNorm|RMSNorm)\b.* are currently supported",
        ("AssertionError: (RMSNorm) is not supported in FusedLayerNorm when instantiating FusedLayerNorm when "
         "instantiating TransformerLayer", "Exception: Only LayerNorm and RMSNorm are currently supported"),
        "Megatron's local layers do not support this normalization: it needs Transformer Engine",
        "apex's FusedLayerNorm computes LayerNorm only. RMSNorm (Llama, Qwen, Mistral) comes from Transformer Engine. "
        "It is not installed or cannot be imported, or the run asks for the local implementation.",
        Fix("Use Transformer Engine's layers, and check that they can be imported.",
            ("--transformer-impl transformer_engine", "python -c 'import transformer_engine.pytorch'",
             "pip install --no-build-isolation 'transformer-engine[pytorch]'")),
        "https://github.com/NVIDIA/Megatron-LM/issues/1658"),
    Row("log_megatron_connections_not_one", "root", "launcher",
        r"CUDA_DEVICE_MAX_CONNECTIONS to 1(?! while)|CUDA_DEVICE_MAX_CONNECTIONS (?:must|should|has to) be (?:set to "
        r")?1",
        ("AssertionError: Using tensor model parallelism or context parallelism require setting the environment "
         "variable CUDA_DEVICE_MAX_CONNECTIONS to 1",
         "RuntimeError: Using sequence parallelism requires setting the environment variable "
         "CUDA_DEVICE_MAX_CONNECTIONS to 1"),
        "Megatron needs CUDA_DEVICE_MAX_CONNECTIONS=1 for tensor or context parallelism",
        "With one connection, kernels start in the order in which they were launched, so communication overlaps as "
        "planned. Before Blackwell, Megatron requires it.",
        Fix("Set it for all ranks.", ("export CUDA_DEVICE_MAX_CONNECTIONS=1",)), _ARGUMENTS),
    Row("log_megatron_connections_one", "root", "launcher",
        r"requires? CUDA_DEVICE_MAX_CONNECTIONS (?:value large|> ?1)"
        r"|requires `CUDA_DEVICE_MAX_CONNECTIONS > 1`",
        ("AssertionError: FSDP always requires CUDA_DEVICE_MAX_CONNECTIONS value large than one",
         "AssertionError: FSDP requires CUDA_DEVICE_MAX_CONNECTIONS > 1 or unset.",
         "ValueError: Megatron-FSDP requires `CUDA_DEVICE_MAX_CONNECTIONS > 1`, for example you can set"),
        "Megatron's FSDP needs CUDA_DEVICE_MAX_CONNECTIONS to be larger than 1 or unset",
        "With one connection, FSDP's communication cannot overlap with the computation.",
        Fix("Unset it.", ("unset CUDA_DEVICE_MAX_CONNECTIONS",)), _ARGUMENTS),
    Row("log_megatron_gradient_fusion_missing", "root", "library",
        r"gradient_accumulation_fusion set to True but the custom CUDA|"
        r"extension fused_weight_gradient_mlp_cuda module is not found",
        ("RuntimeError: ColumnParallelLinear was called with gradient_accumulation_fusion set to True but the custom "
         "CUDA extension fused_weight_gradient_mlp_cuda module is not found.",),
        "Megatron's fused gradient accumulation needs apex's CUDA extensions",
        "apex is not installed, or was built without them.",
        (Fix("Turn the fusion off.", ("--no-gradient-accumulation-fusion",)),
         Fix("Or build apex with its extensions.",
             (BUILD_APEX,))), _LAYERS),
    Row("log_other_apex_installed", "root", "library",
        r"UnencryptedCookieSessionFactoryConfig|No module named 'pyramid|apex\S* .*wtforms",
        ("ImportError: cannot import name 'UnencryptedCookieSessionFactoryConfig' from 'pyramid.session' (unknown "
         "location)",),
        "the wrong apex is installed: the package of that name on PyPI is a web framework",
        "NVIDIA's apex is not on PyPI. It is built from its repository.",
        Fix("Remove it, and build NVIDIA's.",
            ("pip uninstall -y apex", BUILD_APEX)), "https://github.com/NVIDIA/apex"),
    Row("log_no_attention_backend", "root", "library",
        r"No dot product attention (?:backend is available|support) for the provided inputs|"
        r"No fused attention backend supports this input",
        ("ValueError: No dot product attention backend is available for the provided inputs. Please run with "
         "NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 to find out the reasons for disabling all backends.",
         "Exception: No dot product attention support for the provided inputs!"),
        "Transformer Engine has no attention kernel for these inputs",
        "Every backend was ruled out: flash-attn is missing or has an unsupported version, cuDNN is too old, or the "
        "combination of GPU, dtype, head size, mask, bias and context parallelism is not supported, or an NVTE_ "
        "variable turned the backends off.",
        Fix("Let it print why each backend was ruled out.",
            ("NVTE_DEBUG=1 NVTE_DEBUG_LEVEL=2 mgpu launch train.py", "env | grep NVTE_", "pip show flash-attn",
             "unset NVTE_FUSED_ATTN NVTE_FLASH_ATTN NVTE_UNFUSED_ATTN")), _ATTENTION),
    Row("log_cudnn_attention_failed", "root", "library",
        r"fused_attn\w*\.(?:cu|cpp):\d+ in function.*cuDNN Error|\[cudnn_frontend\] Error: |"
        r"cuDNN Frontend error: ",
        ("RuntimeError: /te/transformer_engine/common/fused_attn/fused_attn_f16_arbitrary_seqlen.cu:373 in function "
         "operator(): cuDNN Error: Tensor 'sdpa_bwd::Row_Sum' has invalid dimensions.",
         "RuntimeError: cuDNN Error: [cudnn_frontend] Error: No execution plans support the graph.",
         "RuntimeError: cuDNN Frontend error: [cudnn_frontend] Error: No valid execution plans built."),
        "cuDNN cannot run the fused attention",
        "The loaded cuDNN is older than the caller was built for, is mixed from two installations (the system's and "
        "the wheel's), or has no kernel for this GPU, head size or sequence length.",
        (Fix("Check that one cuDNN is loaded, and that it is new enough.",
             ("pip list | grep -i cudnn", "python -c 'import torch; print(torch.backends.cudnn.version())'",
              "ldconfig -p | grep libcudnn", "unset LD_LIBRARY_PATH")),
         Fix("Or use flash attention instead.",
             ("export NVTE_FUSED_ATTN=0 NVTE_FLASH_ATTN=1", "torch.backends.cuda.enable_cudnn_sdp(False)"))),
        "https://github.com/NVIDIA/TransformerEngine/issues/1591"),
    Row("log_fp8_shape_wrong", "root", "script",
        r"FP8 execution requires .*(?:divisible|multiple)|"
        r"(?:MXFP8|NVFP4|FP8|[Ff]p8)\b(?!.*(?:per_partition|page_size|head_dim|weight K|MoE requires)).* (?:requires?|"
        r"must|needs?) .*\b(?:divisible by|multiples? of) \d",
        ("AssertionError: FP8 execution requires the product of all dimensions except the last to be divisible by 8 "
         "and the last dimension to be divisible by 16, but got tensor with dims=[4095, 1, 4096]",
         "AssertionError: FP8 execution requires 2D input matrices with height divisible by 8 and width divisible by "
         "16, but got tensor with dims=[3, 1024]",
         "AssertionError: MXFP8 quantization requires s_q % 128 == 0 and that the tokens are a multiple of 32"),
        "a tensor's size does not fit fp8",
        "fp8 kernels need tokens (batch x sequence on this rank) and layer sizes in multiples of 8, 16 or 32. The last "
        "batch of an epoch, a sequence of variable length or a vocabulary is not.",
        Fix("Pad the sequences and the vocabulary to a multiple of 32, and drop the last batch.",
            ("DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=32)", "DataLoader(..., drop_last=True)",
             "model.resize_token_embeddings(len(tokenizer), pad_to_multiple_of=64)")), _FP8),
    Row("log_fp8_gpu_too_old", "root", "library",
        r"compute capability (?P<wanted>\d+\.\d+) or higher required for (?P<format>\w+)",
        ("AssertionError: Device compute capability 8.9 or higher required for FP8 execution.",),
        "this GPU does not support {format}: it needs compute capability {wanted}",
        "fp8 needs Ada, Hopper or newer (8.9), MXFP8 and NVFP4 need Blackwell (10.0).",
        Fix("Train in bf16.", ("accelerate launch --mixed_precision bf16 ...", "nvidia-smi "
                                                                               "--query-gpu=name,compute_cap "
                                                                                "--format=csv")),
        "https://github.com/NVIDIA/TransformerEngine/blob/main/transformer_engine/pytorch/quantization.py",
        summary="This GPU does not support fp8."),
    Row("log_fp8_cublas_too_old", "root", "library",
        r"CublasLt version (?P<wanted>[\d.x]+) or higher required for FP8 execution on (?P<gpu>\w+)",
        ("AssertionError: CublasLt version 12.1.3.x or higher required for FP8 execution on Ada.",),
        "the loaded cuBLASLt is too old for fp8 on {gpu} GPUs: it must be {wanted} or newer",
        "cuBLASLt comes with CUDA, and with torch's wheel. fp8 on Ada needs the one of CUDA 12.1 update 1 or newer.",
        (Fix("Install a torch with a newer CUDA, or a newer cuBLAS, and rebuild Transformer Engine for it.",
             ("python -c 'import torch; print(torch.version.cuda)'", "pip list | grep -i cublas; nvcc --version",
              "echo $LD_LIBRARY_PATH")),
         Fix("Or train in bf16.", ("accelerate launch --mixed_precision bf16 ...",))),
        "https://github.com/NVIDIA/TransformerEngine/issues/955",
        summary="The loaded cuBLASLt is too old for fp8 on this GPU."),
    Row("log_flattened_range_removed", "root", "library", r"ShardedTensor\.flattened_range is not supported",
        ("megatron.core.dist_checkpointing.core.CheckpointingException: ShardedTensor.flattened_range is not "
         "supported.",
         "ShardedTensor.flattened_range is not supported."),
        "the optimizer's sharding type in the checkpoint is not supported by this megatron-core (flattened_range)",
        "Newer megatron-core releases no longer save or load optimizer states with flattened ranges, as the type "
        "fully_sharded_model_space has them.",
        (Fix("Save with another type of optimizer sharding.", ("--dist-ckpt-optim-fully-reshardable",
                                                               "metadata={{'distrib_optim_sharding_type': "
                                                               "'dp_reshardable'}}")),
         Fix("Or install the megatron-core that the framework or the checkpoint was made with.",
             ("pip show megatron-core",))),
        "https://github.com/areal-project/AReaL/pull/1468"),
    Row("log_sequence_not_split_evenly", "root", "script",
        r"(?:Error|Exception): .*(?:First dimension of the tensor|\b[Ss]eq(?:uence)?[ _-]?len(?:gth)?).*"
        r"\b(?:divisible by|divisible requirements|a multiple of)",
        ("AssertionError: First dimension of the tensor should be divisible by tensor parallel size",
         "AssertionError: seq-length should be a multiple of 2 * context-parallel-size if context-parallel-size > 1.",
         "ValueError: Sequence length 4095 must be divisible by the product of context parallel size and tensor "
         "parallel size 8", "ValueError: batch's seqlen=4095 isn't divisible by sp-size=2"),
        "the sequence length cannot be divided evenly over the ranks that share a sequence",
        "Sequence parallelism splits each sequence over the TP ranks, context parallelism over 2 x CP parts, Ulysses "
        "over its ranks. A batch that is padded to its longest sample, or packed, has any length.",
        (Fix("Pad every batch to a multiple of TP x CP x 2 (TP for sequence parallelism, 2 x CP for context "
             "parallelism, the size for Ulysses).",
             ("DataCollatorForSeq2Seq(tokenizer, pad_to_multiple_of=16)", "SFTConfig(pad_to_multiple_of=16)")),
         Fix("Or turn sequence parallelism off, or use a smaller TP or CP.", ("--tensor-model-parallel-size 1",))),
        "https://github.com/verl-project/verl/issues/3296", cases=(BLOCKS_OF_MODEL,)),
    Row("log_megatron_loss_not_finite", "root", "script",
        r"found (?:NaN|Inf) in local (?:grad norm|forward loss)|Unexpected result (?:nan|inf|-inf)\b",
        ("AssertionError: Rank 3: found NaN in local grad norm for bucket #0 in backward pass before data-parallel "
         "communication collective. Device: 3, node: n1",
         "RuntimeError: Unexpected result nan (message='found NaN in local forward loss calculation')"),
        "the loss or a gradient is NaN or infinite on a rank",
        "Megatron checks each rank before it exchanges gradients, so this rank computed it: bad data or an empty "
        "sequence, a learning rate that is too high, fp16, weights that were not loaded, or a faulty GPU.",
        (Fix("Train in bf16 with a lower learning rate, and look at this rank's batch.", ("--bf16",)),
         Fix("If it is always the same GPU, test that GPU.", ("mgpu smoke-test",
                                                              "mgpu doctor --deep --only gpu_results_differ"))),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/distributed/param_and_grad_buffer.py"),
    Row("log_megatron_arguments_changed", "root", "launcher",
        r"(?P<name>\w+) value from checkpoint \((?P<then>[^)]*)\) is not equal to the input argument value "
        r"\((?P<now>[^)]*)\)",
        ("AssertionError: hidden_size value from checkpoint (4096) is not equal to the input argument value (2048).",),
        "the checkpoint was written with {name} {then}, but the run has {now}",
        "These arguments define the shapes of the weights.",
        Fix("Use the checkpoint's arguments, or start from another folder.", ("--use-checkpoint-args",)), _CHECKPOINTS,
        summary="A checkpoint was written with other arguments of Megatron."),
    Row("log_megatron_checkpoint_format", "root", "launcher",
        r"neither --use-dist-ckpt nor --auto-detect-ckpt-format|is not a distributed checkpoint\b|"
        r"Different dict keys encountered in `apply_factory_merges`|checkpoint versions do not match",
        ("RuntimeError: Detected load from a distributed checkpoint, but neither --use-dist-ckpt nor "
         "--auto-detect-ckpt-format is set.",
         "megatron.core.dist_checkpointing.core.CheckpointingException: out/iter_0000100 is not a distributed "
         "checkpoint",
         "ValueError: Different dict keys encountered in `apply_factory_merges` (dict_keys(['iteration']) vs "
         "dict_keys(['state_dict']))"),
        "the checkpoint has another format than the run expects",
        "Megatron has torch, torch_dist and fsdp_dtensor checkpoints, and frameworks on top of it (NeMo, "
        "Megatron-Bridge) store other keys. A Hugging Face folder must be converted first.",
        Fix("Name the format, or convert the checkpoint.",
            ("--auto-detect-ckpt-format --ckpt-format torch_dist", "ls CHECKPOINT CHECKPOINT/iter_*")), _CHECKPOINTS),
    Row("log_megatron_shards_missing", "root", "script",
        r"(?:Object shard|Sharded tensor|Key) \S+ (?:not found in the checkpoint|from model not in state "
        r"dict)|"
        r"CheckpointingException: (?:Unexpected|Missing) keys|Object shard \S+ not found$",
        ("megatron.core.dist_checkpointing.core.CheckpointingException: Object shard "
         "decoder.layers.self_attention.core_attention._extra_state/shard_0_64 not found in the checkpoint. Available "
         "shards: []",
         "megatron.core.dist_checkpointing.core.CheckpointingException: Unexpected keys (not found in the checkpoint): "
         "{'a'}", "CheckpointingException: Object shard /c/iter_5/decoder._extra_state/shard_0_1.pt not found"),
        "the checkpoint lacks parts that this model has",
        "The model's settings differ (layers, experts, biases, qk layernorm), or only the _extra_state of Transformer "
        "Engine is missing: the checkpoint was written by another version of it, without it, or without fp8.",
        (Fix("If only _extra_state keys are missing, ignore them.", ("--dist-ckpt-strictness log_all",)),
         Fix("Otherwise use the arguments that wrote the checkpoint.", ("--use-checkpoint-args",))), _CHECKPOINTS),
    Row("log_checkpoint_objects_missing", "root", "script",
        r"Invalid access pattern: (?P<missing>\d+) ShardedObject are missing",
        ("megatron.core.dist_checkpointing.core.CheckpointingException: Invalid access pattern: 36 ShardedObject are "
         "missing.",
         "ERROR:megatron.core.dist_checkpointing.validation:Invalid access pattern: 60 ShardedObject are missing. "
         "Existing shards: ['decoder.layers.self_attention.core_attention._extra_state/shard_0_80']"),
        "the ranks of this run do not make up the whole model: {missing} parts of it (ShardedObject) are on none",
        "Megatron compares the parts that the running ranks have with those that the model needs, before it reads or "
        "writes any. Parts are usually missing because a program runs with fewer ranks than the model's parallel "
        "sizes: a conversion on one rank, with the pipeline size of the training, has the layers of one stage only (3 "
        "of 4 parts are missing with 4 stages). The files of the checkpoint are probably complete.",
        (Fix("Start as many ranks as tensor x pipeline x context size, or set the sizes of this program to its ranks. "
             "A torch_dist checkpoint can be loaded with other sizes than it was saved with.",
             ("--pipeline-model-parallel-size 1 --tensor-model-parallel-size 1 --expert-model-parallel-size 1",
              "env | grep WORLD_SIZE")),
         Fix("If the sizes fit, read the line with \"Existing shards\", which names the parts, and upgrade.",
             ("pip show megatron-core megatron-bridge",))),
        "https://github.com/NVIDIA-NeMo/RL/issues/1053",
        summary="The ranks of a run do not make up the whole model of a Megatron checkpoint."),
    Row("log_megatron_optimizer_lists_differ", "root", "library",
        r"Cannot merge two lists with different lengths \((?P<saved>\d+) and (?P<now>\d+)",
        ("ValueError: Cannot merge two lists with different lengths (1 and 9, encountered at level ('optimizer', 0, "
         "'param_state', 0, (torch.bfloat16, torch.float32), 0))",),
        "the optimizer state in Megatron's checkpoint has {saved} entries where this rank has {now}",
        "The number of parameters in a rank's part of the optimizer differs between the ranks (experts next to small "
        "norms) or between the parallel sizes then and now, and only rank 0's number was saved. The weights are "
        "complete.",
        (Fix("Load the weights without the optimizer's state.", ("--no-load-optim --no-load-rng",)),
         Fix("Resume with the parallel sizes that wrote it, or upgrade Megatron.", ("pip show megatron-core",)),
         Fix("Save in a form that can be divided otherwise.",
             ("--dist-ckpt-optim-fully-reshardable", "--ckpt-format torch_dist"))),
        "https://github.com/NVIDIA/Megatron-LM/issues/1517",
        summary="The optimizer state in Megatron's checkpoint is for other parallel sizes."),
    Row("log_megatron_checkpoint_absent", "root", "launcher",
        r"(?:No such file or directory|FileNotFoundError|not found).*latest_checkpointed_iteration\.txt|"
        r"No checkpoint found in load directory or pretrained directory",
        ("FileNotFoundError: [Errno 2] No such file or directory: '/ckpt/latest_checkpointed_iteration.txt'",
         "FileNotFoundError: No checkpoint found in load directory or pretrained directory"),
        "the folder to load is not a Megatron checkpoint, or is not on this node's disk",
        "Rank 0 writes latest_checkpointed_iteration.txt after a save. It is missing in a Hugging Face folder, after "
        "an interrupted save, and on nodes without the shared disk.",
        Fix("Check the folder on every node, and convert Hugging Face weights first.",
            ("ls CHECKPOINT CHECKPOINT/iter_*", "df -h CHECKPOINT")), _CHECKPOINTS),
    Row("log_megatron_samples_used_up", "root", "script",
        r"no samples? (?:left )?to consume: \d|"
        r"last epoch number of samples (?:exceeded|should)|blend oversamples the contributing datasets",
        ("AssertionError: no samples left to consume: 1024, 1000", "AssertionError: no sample to consume: 0",
         "AssertionError: last epoch number of samples exceeded max value."),
        "the dataset has no samples left to train on",
        "The checkpoint has already consumed as many samples as the dataset has, the dataset is smaller than "
        "--train-samples, or a split (--split, valid) is empty.",
        Fix("Lower the number of iterations, add data, or start the count again.",
            ("--finetune  # loads the weights, and starts at iteration 0", "--split 99,1,0")),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/datasets/data_samplers.py"),
    Row("log_pickled_class_missing", "root", "library",
        r"Can't get attribute '(?P<name>\w+)' on <module '(?P<module>[\w.]+)'(?! \(built-in\))",
        ("AttributeError: Can't get attribute 'MegatronModelMeta' on <module 'swift.megatron.model.register' from "
         "'/x/swift/megatron/model/register.py'>",),
        "a saved file needs {module}.{name}, which the installed code does not have",
        "The file was pickled with objects of that class. The class was renamed or removed in another release, or it "
        "was defined in the script that wrote the file.",
        Fix("Install the release that wrote the file, or write the file again (delete the cache).",
            ("pip check", "python -c 'import {module:dotted} as m; print(m.__file__)'")), "https://docs.python.org/3/library/pickle.html",
        summary="A saved file needs a class that the installed code does not have.",
        cases=(CLASS_OF_SCRIPT, DEFINED_TOO_LATE)),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
