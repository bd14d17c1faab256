"""Did Megatron, or a framework on it, refuse the batch, its process groups, its data files or its checkpoint folder?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_ARGUMENTS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/arguments.py"
_STATE = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/parallel_state.py"
_TRAINING = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/training.py"
_INDEXED = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/indexed_dataset.py"
_VALIDATION = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/dist_checkpointing/validation.py"
_SCHEDULER = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer_param_scheduler.py"
_OPTIMIZER = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/optimizer/optimizer.py"
_MICROBATCHES = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/num_microbatches_calculator.py"
_HELPERS = "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/datasets/Makefile"

# fmt: off
ROWS = (
    Row("log_megatron_iteration_missing", "root", "script",
        r"metadata file exists but unable to load iteration from checkpoint (?P<path>\S+?),",
        ("A metadata file exists but unable to load iteration from checkpoint /c/iter_1/model_optim_rng.pt, exiting",),
        "Megatron's checkpoint does not contain its iteration, and the run stopped: {path}",
        "The file is not one that this Megatron wrote: it was converted from Hugging Face, saved by another program "
        "(flash checkpoint, DeepSpeed), or is incomplete.",
        Fix("Load the weights only, and start counting at 0.", ("--finetune --no-load-optim --no-load-rng",)),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/checkpointing.py",
        summary="Megatron's checkpoint does not contain its iteration."),
    Row("log_megatron_batch_too_small", "root", "launcher",
        r"current global batch size \(?(?:\d+)\)? is too small for micro_batch_size|"
        r"number of micro-?batches should be at least 1",
        ("AssertionError: current global batch size (64) is too small for micro_batch_size (4) * data_parallel_size "
         "(32) "
         "= 128. The world size cannot accommodate the batch size.",
         "AssertionError: number of microbatches should be at least 1, got 0."),
        "the global batch is smaller than one micro batch on every data-parallel rank",
        "Each data-parallel rank needs at least one micro batch per step: global batch >= micro batch x data-parallel "
        "ranks (GPUs / (tensor x pipeline x context parallel size)).",
        Fix("Raise the global batch, lower the micro batch, or use fewer data-parallel ranks.",
            ("--global-batch-size 128 --micro-batch-size 1", "--tensor-model-parallel-size 4")), _MICROBATCHES),
    Row("log_megatron_groups_missing", "root", "script",
        r"(?:parallel|embedding|data|context) group(?:-gloo)?(?: with context parallel combined)? is not initialized|"
        r"parallel state to be initialized\. Call initialize_model_parallel",
        ("AssertionError: tensor model parallel group is not initialized",
         "AssertionError: data parallel group with context parallel combined is not initialized"),
        "Megatron's process groups were not created before they are used",
        "initialize_model_parallel() did not run in this process, or ran in another copy of the module (two installed "
        "versions of megatron), or destroy_model_parallel() came first. A layer, an optimizer or a checkpoint function "
        "of Megatron needs them.",
        (Fix("Initialize torch.distributed, then the groups, before you build the model.",
             ("torch.distributed.init_process_group('nccl')",
              "parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)")),
         Fix("Check that only one copy is installed.",
             ("python -c 'import megatron.core as m; print(m.__file__, "
              "m.__version__)'", "pip list | grep -i megatron"))),
        _STATE),
    Row("log_megatron_groups_twice", "root", "script",
        r"(?:parallel|embedding|instance|data|context) group(?:-gloo)? is already initialized(?!, but)|"
        r"num microbatches calculator is already initialized|AssertionError: (?:args|tokenizer|timers|"
        r"tensorboard writer|wandb writer|adlr autoresume|signal handler) is already initialized",
        ("AssertionError: data parallel group is already initialized",
         "AssertionError: num microbatches calculator is already initialized."),
        "Megatron is initialized a second time in the same process",
        "Its groups and globals exist once per process. The script, or a trainer that builds two models (actor and "
        "reference, a test after another), calls the initialization twice.",
        Fix("Initialize only if it has not happened, or destroy the groups first.",
            ("if not parallel_state.model_parallel_is_initialized(): ...", "parallel_state.destroy_model_parallel()",
             "megatron.core.num_microbatches_calculator.destroy_num_microbatches_calculator()")), _STATE,
        summary="Megatron is initialized a second time in the same process."),
    Row("log_megatron_globals_missing", "root", "script",
        r"AssertionError: (?P<what>args|tokenizer|timers|energy monitor|signal handler) is not initialized",
        ("AssertionError: args is not initialized.", "AssertionError: tokenizer is not initialized."),
        "Megatron's global {what} does not exist yet in this process",
        "get_args() and get_tokenizer() work only after initialize_megatron(). Code that runs at import, a process of "
        "a DataLoader that is spawned, or a script that uses megatron.core alone has none.",
        Fix("Call initialize_megatron() first, or pass the values as arguments.",
            ("from megatron.training.initialize import initialize_megatron; initialize_megatron()",)),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/training/global_vars.py",
        summary="A global object of Megatron does not exist yet in a process."),
    Row("log_megatron_schedule_changed", "root", "launcher",
        r"class input value (?P<now>\S+) and checkpoint ?value (?P<then>\S+) for (?P<name>[\w ]+?) do not match",
        ("AssertionError: OptimizerParamScheduler: class input value 0.0003 and checkpointvalue 0.0001 for learning "
         "rate "
         "do not match",),
        "the checkpoint has another {name} ({then}) than this run ({now})",
        "Megatron restores the learning-rate schedule with the weights, and accepts no other values unless an option "
        "says which ones count.",
        Fix("Choose which values count: those of this run, those of the checkpoint, or start a new schedule.",
            ("--override-opt_param-scheduler", "--use-checkpoint-opt_param-scheduler",
             "--finetune --no-load-optim --no-load-rng")), _SCHEDULER,
        summary="Megatron's checkpoint has another learning-rate schedule than the run."),
    Row("log_megatron_data_missing", "root", "script",
        r"One or both of the \.idx and \.bin files cannot be found at the path prefix (?:\S+)|"
        r"^\s*Dataset does not exist: /|Path should be a basename that both \.idx and "
        r"\.bin",
        ("AssertionError: One or both of the .idx and .bin files cannot be found at the path prefix "
         "/data/wiki_text_document",
         "Dataset does not exist: /data/wiki_text_document"),
        "Megatron does not find its dataset: a pair of .bin and .idx files",
        "--data-path is the prefix of both files, without an extension. preprocess_data.py adds _text_document (or the "
        "name of the JSON key) to --output-prefix.",
        Fix("List the files, on a node of the job, and pass the common part.",
            ("ls -l /data/*.idx", "--data-path /data/wiki_text_document")), _INDEXED),
    Row("log_megatron_tokenizer_missing", "root", "launcher",
        r"Tokenizer path (?:must be specified|doesn't exist)|Please provide --tokenizer-model|"
        r"SentencePiece tokenizer model path must be specified|--tokenizer-model (?:is required|must be)",
        ("AssertionError: Tokenizer path must be specified.",
         "AssertionError: Tokenizer path doesn't exist. Please, provide the correct path to the tokenizer."),
        "Megatron has no tokenizer: its path is not set, or does not exist on this node",
        "Every tokenizer type but NullTokenizer needs a file or a Hugging Face name.",
        Fix("Set it, and check the path on every node.",
            ("--tokenizer-type HuggingFaceTokenizer --tokenizer-model meta-llama/Llama-3.1-8B",
             "--tokenizer-type NullTokenizer --vocab-size 128256  # with --mock-data")), _ARGUMENTS),
    Row("log_load_folder_empty", "root", "launcher",
        r"(?P<what>args\.load=\S+|(?:ref_load|critic_load|hf_checkpoint) \S+) does not exist",
        ("AssertionError: args.load=/ckpt does not exist or is an empty directory. Did you specify the wrong folder?",
         "FileNotFoundError: ref_load /ckpt/qwen does not exist, please check the path."),
        "the checkpoint to load is missing, or its folder is empty, on this node: {what}",
        "Megatron trainers such as slime load converted weights (torch_dist), which must be made from the Hugging Face "
        "folder first. Ray workers on other nodes need the same path.",
        Fix("Check it on every node, and convert the weights if they are not there.",
            ("ls CHECKPOINT", "python tools/convert_hf_to_torch_dist.py --hf-checkpoint HF_FOLDER --save CHECKPOINT")),
        "https://github.com/THUDM/slime/blob/main/slime/utils/arguments.py",
        summary="The checkpoint to load is missing on a node."),
    Row("log_megatron_numpy", "root", "library", r"Megatron does not support numpy 2",
        ("AssertionError: Megatron does not support numpy 2.x",),
        "this Megatron does not work with numpy 2",
        "Another package upgraded numpy.",
        Fix("Install numpy 1.", ("pip install 'numpy<2'", "pip check")),
        "https://github.com/THUDM/slime/blob/main/slime/backends/megatron_utils/initialize.py"),
    Row("log_megatron_helpers_not_built", "root", "library",
        r"Failed to compile the C\+\+ dataset helper|Making C\+\+ dataset helpers module failed",
        ("ERROR: Failed to compile the C++ dataset helper functions",
         "ERROR:megatron.core.datasets.utils:Failed to compile the C++ dataset helper functions"),
        "Megatron could not compile its helpers for datasets",
        "Rank 0 builds them with make, pybind11 and a C++ compiler at the start. A checkout on a read-only disk or an "
        "image without a compiler has none.",
        Fix("Build them once, in the environment of the run.",
            ("pip install pybind11 && make -C megatron/core/datasets", "g++ --version; which make python3-config")),
        _HELPERS),
    Row("log_megatron_folder_not_empty", "root", "script",
        r"Checkpoint destination directory \((?:[^)]+)\) is not empty|"
        r"Checkpoint destination directory .* does not exist",
        ("megatron.core.dist_checkpointing.core.CheckpointingException: Checkpoint destination directory "
         "(/ckpt/iter_0000100) is not empty",),
        "Megatron does not save into a folder that already has files",
        "An earlier run saved the same iteration there, or was stopped while it saved.",
        Fix("Move that folder away, or save elsewhere.", ("mv /ckpt/iter_0000100 /ckpt/iter_0000100.old",
                                                         "--save /ckpt/new")), _VALIDATION,
        summary="Megatron does not save into a folder that already has files."),
    Row("log_megatron_folder_missing", "root", "script",
        r"CheckpointingException: Checkpoint directory (?:\S+) does not exist|"
        r"CheckpointingException: .*[Cc]annot find.*metadata",
        ("megatron.core.dist_checkpointing.core.CheckpointingException: Checkpoint directory /ckpt/iter_0000100 does "
         "not "
         "exist",),
        "the checkpoint's folder does not exist on this node",
        "latest_checkpointed_iteration.txt names an iteration whose folder was deleted, or is on a disk that this node "
        "does not mount.",
        Fix("Compare the folders on every node, and choose another iteration.",
            ("cat CHECKPOINT/latest_checkpointed_iteration.txt; ls -d CHECKPOINT/iter_*", "--ckpt-step 1000")),
        _VALIDATION, summary="A folder of Megatron's checkpoint does not exist on a node."),
    Row("log_megatron_optimizer_groups", "root", "library",
        r"Could not find parameter group with key|checkpoint has \d+ param_groups but current optimizer has \d+",
        ("ValueError: Could not find parameter group with key (1.0, 1.0, False, False) in loaded checkpoint.",
         "ValueError: Optimizer 'llm': checkpoint has 2 param_groups but current optimizer has 4"),
        "the optimizer in Megatron's checkpoint has other parameter groups than this run's",
        "Groups follow weight decay, learning-rate multipliers, experts and decoupled embeddings. An option of these "
        "changed, or the checkpoint is from another release.",
        (Fix("Use the options that wrote the checkpoint.", ("--use-checkpoint-args",)),
         Fix("Or load the weights only.", ("--no-load-optim --no-load-rng",))), _OPTIMIZER),
    Row("log_megatron_stages_uneven", "root", "launcher",
        r"number of layers (?:per pipeline stage must be divisible|of the model must be divisible|at (?:first|last|"
        r"middle) "
        r"stage)|layers on each (?:middle )?pipeline rank|With uneven pipelineing the left over layers",
        ("AssertionError: number of layers of the model must be divisible pipeline model parallel size",
         "AssertionError: number of layers per pipeline stage must be divisible number of layers per virtual pipeline "
         "stage"),
        "the layers cannot be divided evenly over the pipeline stages",
        "Layers / pipeline parallel size must be whole, and with virtual stages be a multiple of their number too. The "
        "embedding and the loss count as layers if the account-for options are on.",
        Fix("Change the pipeline size, or give the first and last stage fewer layers.",
            ("--pipeline-model-parallel-size 4", "--decoder-first-pipeline-num-layers 7 "
                                                 "--decoder-last-pipeline-num-layers 7")), _ARGUMENTS),
    Row("log_megatron_replicas_differ", "root", "script",
        r"Parameter hashes not matching across DP replicas",
        ("AssertionError: Parameter hashes not matching across DP replicas",),
        "the data-parallel copies of the weights are no longer equal",
        "Ranks updated their copies differently: faulty memory or arithmetic on a GPU, an exchange that a rank left "
        "out, or different random numbers.",
        Fix("Test the GPUs, and compare the copies at the start and after each step.",
            ("mgpu doctor --deep --only gpu_results_differ", "mgpu smoke-test",
             "--check-weight-hash-across-dp-replicas-interval 1")), _TRAINING),
    Row("log_megatron_validation_empty", "root", "script",
        r"cyclic_iter: iterable produced no data|RuntimeError: .*validation dataloader is empty",
        ("RuntimeError: cyclic_iter: iterable produced no data. This may indicate the validation dataloader is empty "
         "or "
         "eval_iters is incorrectly set.",),
        "the validation data has no samples on this rank",
        "The split gives validation less than one global batch, or the dataset of --valid-data-path is empty.",
        Fix("Give validation more data, or do not evaluate.", ("--split 98,2,0", "--eval-iters 0")), _TRAINING),
    Row("log_megatron_local_attention", "root", "launcher",
        r"(?:Error|Exception): (?:.{3,80} (?:requires?|needs?|only supported (?:with|by)) (?:the )?"
        r"(?:transformer[-_ ]engine|Transformer Engine)(?: implementation)?\.?$|Transformer Engine is not installed)",
        ("AssertionError: Fine-grained activation offloading is only supported with transformer_engine implementation",
         "ImportError: Transformer Engine is not installed. Please install it with `pip install transformer-engine`."),
        "an option needs Transformer Engine, which is not installed or not chosen",
        "Megatron's local layers lack the option. Transformer Engine must be built for this torch and CUDA.",
        (Fix("Choose it, and check that it can be imported.",
             ("--transformer-impl transformer_engine", "python -c 'import transformer_engine.pytorch'",
              "pip install --no-build-isolation 'transformer-engine[pytorch]'")),
         Fix("Or leave the option out.")),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/extensions/transformer_engine.py"),
    Row("log_sequence_parallel_without_tensor", "root", "launcher",
        r"Cannot use sequence parallelism without tensor parallelism|"
        r"(?:tensor parallelism and|MoE and|using MoE and) (?:expert parallelism|tensor parallelism), sequence "
        r"parallelism "
        r"must be used",
        ("ValueError: Cannot use sequence parallelism without tensor parallelism",
         "AssertionError: When using MoE and tensor parallelism, sequence parallelism must be used."),
        "sequence parallelism does not fit the parallel sizes",
        "Megatron's sequence parallelism splits activations over the tensor-parallel ranks: it needs a tensor parallel "
        "size above 1, and MoE layers with tensor parallelism need it.",
        Fix("With tensor parallel size 1 leave it out; with MoE and a larger size turn it on.",
            ("--tensor-model-parallel-size 2 --sequence-parallel",)),
        "https://github.com/NVIDIA/Megatron-LM/blob/main/megatron/core/model_parallel_config.py"),
    Row("log_nemo_nothing_to_resume", "root", "script",
        r"There were no checkpoints found in checkpoint_dir or no checkpoint folder at checkpoint_dir ?:? "
        r"?(?P<folder>\S*)",
        ("nemo.utils.exp_manager.NotFoundError: There were no checkpoints found in checkpoint_dir or no checkpoint "
         "folder "
         "at checkpoint_dir :/results/ckpt. Cannot resume.",),
        "NeMo should resume, but its folder has no checkpoint: {folder}",
        "exp_manager looks in exp_dir/name/version/checkpoints. A new exp_dir, name or version has none.",
        Fix("Allow a first start, or name the folder.",
            ("exp_manager.resume_if_exists=True exp_manager.resume_ignore_no_checkpoint=True",
             "exp_manager.explicit_log_dir=/results/run1")),
        "https://github.com/NVIDIA-NeMo/NeMo/blob/main/nemo/utils/exp_manager.py",
        summary="NeMo should resume, but its folder has no checkpoint."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
