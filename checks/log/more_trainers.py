"""Did torchtitan, torchtune, MMEngine, Detectron2, fairseq, Composer or nanotron refuse to start, load or go on?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_TITAN_DIMS = "https://github.com/pytorch/torchtitan/blob/main/torchtitan/distributed/parallel_dims.py"
_TITAN = "https://github.com/pytorch/torchtitan/blob/main/torchtitan/components/checkpoint.py"
_TITAN_TOKENIZER = "https://github.com/pytorch/torchtitan/blob/main/torchtitan/components/tokenizer.py"
_TUNE = "https://github.com/meta-pytorch/torchtune/blob/main/recipes/full_finetune_distributed.py"
_MM_RUNNER = "https://github.com/open-mmlab/mmengine/blob/main/mmengine/runner/runner.py"
_MM_REGISTRY = "https://mmengine.readthedocs.io/en/latest/advanced_tutorials/registry.html"
_MM_DIST = "https://github.com/open-mmlab/mmengine/blob/main/mmengine/dist/dist.py"
_DETECTRON = "https://github.com/facebookresearch/detectron2/blob/main/detectron2/engine/train_loop.py"
_DETECTRON_DATA = "https://github.com/facebookresearch/detectron2/blob/main/detectron2/data/catalog.py"
_FAIRSEQ_SCALE = "https://github.com/facebookresearch/fairseq/blob/main/fairseq/optim/dynamic_loss_scaler.py"
_FAIRSEQ = "https://github.com/facebookresearch/fairseq/blob/main/fairseq/trainer.py"
_COMPOSER = "https://github.com/mosaicml/composer/blob/main/composer/distributed/shared_utils.py"

# fmt: off
ROWS = (
    Row("log_parallel_product_differs", "root", "launcher",
        r"(?P<what>Invalid parallel dims: .*!= WORLD_SIZE\(\d+\)|"
        r"(?:size|degree|dp|tp|pp|cp|ep) \(\d+\).* does not match the number of GPUs \(\d+\)|"
        r"[Ww]orld size.{0,40} (?:must|should) (?:be equal to|equal|be) .{0,40}(?:dp|data).{0,20}[*x].{0,60})",
        ("AssertionError: Invalid parallel dims: dp_replicate(1) * dp_shard(8) * cp(1) * tp(1) * pp(1) != "
         "WORLD_SIZE(4)",
         "ValueError: The expert parallel size (8) * the data parallel size (1) * the context parallel size (1) * the "
         "tensor parallel size (2) * the pipeline parallel size (1) does not match the number of GPUs (8)"),
        "the parallel sizes are for another number of ranks: {what}",
        "The product of all sizes must be the number of started ranks: nodes x processes per node.",
        Fix("Let one size follow (torchtitan: -1), or start as many ranks as the product.",
            ("--parallelism.data_parallel_shard_degree -1", "torchrun --nnodes 1 --nproc-per-node 8 ...")), _TITAN_DIMS,
        summary="The parallel sizes are for another number of ranks."),
    Row("log_experts_missing", "root", "launcher",
        r"Number of experts in the model must be greater than 0 when expert parallelism is enabled|"
        r"num_experts must be non None to use expert model parallelism|"
        r"[Ee]xpert parallelism (?:is|can) only (?:supported|be used) (?:for|with) MoE",
        ("ValueError: Number of experts in the model must be greater than 0 when expert parallelism is enabled.",
         "AssertionError: num_experts must be non None to use expert model parallelism"),
        "expert parallelism is on, but the model has no experts",
        "Only mixture-of-experts models can be divided by experts. This one is dense, or its number of experts is not "
        "set.",
        Fix("Set the expert parallel size to 1, or the number of experts.",
            ("--expert-model-parallel-size 1", "--num-experts 64 --moe-router-topk 8")), _TITAN_DIMS),
    Row("log_more_stages_than_layers", "root", "launcher",
        r"Number of stages \((?P<stages>\d+)\) cannot be greater than effective layers \((?P<layers>\d+)\)",
        ("ValueError: Number of stages (8) cannot be greater than effective layers (6)",),
        "the pipeline has {stages} stages, but the model only {layers} layers",
        "Each stage (ranks x virtual stages per rank) needs at least one layer. The embedding and the output count as "
        "layers.",
        Fix("Use fewer stages, or a schedule with one stage per rank.",
            ("--parallelism.pipeline_parallel_degree 2 --parallelism.pipeline_parallel_schedule 1F1B",)), _TITAN_DIMS,
        summary="The pipeline has more stages than the model has layers."),
    Row("log_mm_parts_missing", "root", "script",
        r"\b(?P<parts>(?:train|val|test)_dataloader, \w+_cfg,? and \w+) should be either all None or not None",
        ("ValueError: val_dataloader, val_cfg, and val_evaluator should be either all None or not None, but got "
         "val_dataloader={}, val_cfg=None",),
        "MMEngine's config sets some of {parts}, and not the others",
        "They belong together. A config that inherits from another one, or overrides one with None, leaves one out.",
        Fix("Set all three, or set all three to None, in the config that is read last.",
            ("python tools/misc/print_config.py CONFIG",)),
        _MM_RUNNER, summary="MMEngine's config sets only some of a loop's parts."),
    Row("log_training_already_done", "root", "launcher",
        r"Loaded checkpoint has already trained (?P<done>\d+) batches",
        ("AssertionError: Loaded checkpoint has already trained 600 batches, you need to specify a higher "
         "`config.tokens.train_steps`",),
        "the checkpoint has already done all steps of this run ({done})",
        "nanotron counts steps from the start of training, not from the checkpoint.",
        Fix("Raise tokens.train_steps, or start from an earlier checkpoint.", ("tokens.train_steps: 1200",)),
        "https://github.com/huggingface/nanotron/blob/main/src/nanotron/trainer.py",
        summary="The checkpoint has already done all steps of the run."),
    Row("log_tokens_of_other_vocabulary", "root", "script",
        r"Model's vocab_size \((?P<model>\d+)\) does not match dataset's \([^)]*\) vocab_size \((?P<data>\d+)\)",
        ("AssertionError: Model's vocab_size (128256) does not match dataset's (fineweb) vocab_size (49152)",),
        "the dataset was tokenized with another tokenizer: {data} tokens, where the model has {model}",
        "The token numbers in the prepared files mean other tokens, or exceed the model's embedding.",
        Fix("Tokenize the data with the model's tokenizer, or set model_config.vocab_size to the dataset's."),
        "https://github.com/huggingface/nanotron/blob/main/src/nanotron/config/config.py",
        summary="The dataset was tokenized with another tokenizer than the model's."),
    Row("log_hydra_moved_folder", "root", "launcher", r"Hydra changed the working directory\. This interferes",
        ("ValueError: Hydra changed the working directory. This interferes with ExpManger's functionality. Please pass "
         "hydra.run.dir=. to your python script.",),
        "Hydra changed the working folder, in which NeMo's exp_manager then does not find its files",
        "hydra.run.dir moves each run into a folder of its own.",
        Fix("Keep the folder.", ("python train.py hydra.run.dir=. hydra.job.chdir=False",)),
        "https://github.com/NVIDIA-NeMo/NeMo/blob/main/nemo/utils/exp_manager.py"),
    Row("log_heads_not_divided", "root", "launcher",
        r"(?:tensor_parallel_degree|tp_degree|tensor_parallel_size|tp_size|TP degree) \(?(?P<size>\d+)\)? must divide "
        r"(?P<what>[\w ]+?) \((?P<heads>\d+)\)",
        ("ValueError: tensor_parallel_degree (8) must divide n_kv_heads (4).",),
        "tensor parallel size {size} does not divide the model's {what} ({heads})",
        "Each tensor-parallel rank gets whole heads.",
        Fix("Choose a size that divides both heads and key-value heads."), _TITAN_DIMS,
        summary="The tensor parallel size does not divide the model's heads."),
    Row("log_global_batch_not_multiple", "root", "launcher",
        r"global batch size must be (?:a )?multiple of local batch size times data-parallel degree "
        r"\((?P<sum>[^)]*\)[^)]*)",
        ("AssertionError: global batch size must be multiple of local batch size times data-parallel degree (60 % (8 "
         "* 8) "
         "!= 0)",),
        "the global batch is not a multiple of local batch x data-parallel ranks: {sum}",
        "The quotient is the number of gradient accumulation steps, which must be whole.",
        Fix("Change training.global_batch_size or training.local_batch_size, or leave the global one at -1.",
            ("--training.local_batch_size 8 --training.global_batch_size 64",)),
        "https://github.com/pytorch/torchtitan/blob/main/torchtitan/train.py",
        summary="The global batch is not a multiple of local batch x data-parallel ranks."),
    Row("log_titan_checkpoint_missing", "root", "launcher",
        r"--checkpoint\.load_step=(?:-?\d+) not found|[Cc]heckpoint\.initial_load_path is invalid|"
        r"model\.hf_assets_path is being used to load HF weights but the path is not valid",
        ("FileNotFoundError: --checkpoint.load_step=800 not found because checkpoint.folder ./outputs/checkpoint does "
         "not "
         "exist", "ValueError: model.hf_assets_path is being used to load HF weights but the path is not valid."),
        "torchtitan does not find the checkpoint or the Hugging Face weights that it should load",
        "The folder is relative to job.dump_folder. It must exist on every node, with a subfolder step-N.",
        Fix("Check the folder on every node, or start from new weights.",
            ("ls outputs/checkpoint", "--checkpoint.load_step -1",
             "python scripts/download_hf_assets.py --repo_id MODEL --assets tokenizer safetensors index "
             "config")), _TITAN),
    Row("log_titan_tokenizer_missing", "root", "library",
        r"No supported tokenizer files found in '(?:[^']+)'|Tokenizer path '(?:[^']+)' does not exist",
        ("FileNotFoundError: No supported tokenizer files found in './assets/hf/Llama-3.1-8B'. Available files: []. "
         "Looking for: tokenizer.json",),
        "torchtitan does not find the tokenizer's files",
        "They are not in the repository: they must be downloaded before the run, to model.hf_assets_path, and on every "
        "node.",
        Fix("Download them.",
            ("python scripts/download_hf_assets.py --repo_id meta-llama/Llama-3.1-8B --assets tokenizer "
             "--hf_token=...", "--model.hf_assets_path ./assets/hf/Llama-3.1-8B")), _TITAN_TOKENIZER),
    Row("log_loader_of_other_degree", "root", "launcher",
        r"dp_degree is inconsistent before and after checkpoint",
        ("AssertionError: dp_degree is inconsistent before and after checkpoint, dataloader resharding is not "
         "supported "
         "yet.",),
        "the checkpoint's data position is for another number of data-parallel ranks",
        "Model and optimizer can be loaded on other sizes, but each rank's position in the data cannot be divided "
        "again.",
        Fix("Resume with the same data-parallel degree, or leave the loader's state out.",
            ("--checkpoint.exclude_from_loading dataloader",)), _TITAN),
    Row("log_loss_stopped_run", "root", "script",
        r"Loss is not finite \(|Loss became infinite or NaN at iteration ?=? ?(?:\d+)|"
        r"Predicted boxes or scores contain Inf/NaN",
        ("RuntimeError: Loss is not finite (global_avg_loss=nan) at step 6. Stopping training.",
         "FloatingPointError: Loss became infinite or NaN at iteration=100!",
         "FloatingPointError: Predicted boxes or scores contain Inf/NaN. Training has diverged."),
        "the loss became infinite or NaN, and the trainer stopped",
        "The learning rate is too high for this batch size or precision, a sample has bad values or no target, fp16 "
        "overflowed, or the weights were not loaded. After a change of the number of GPUs the learning rate often no "
        "longer fits.",
        (Fix("Lower the learning rate, warm up longer, clip gradients, train in bf16.",
             ("SOLVER.BASE_LR 0.0025 SOLVER.WARMUP_ITERS 2000 SOLVER.CLIP_GRADIENTS.ENABLED True",
              "--optimizer.lr 1e-4 --lr_scheduler.warmup_steps 500")),
         Fix("Print the batch of that step.")), _DETECTRON),
    Row("log_loss_scale_used_up", "root", "script",
        r"Minimum loss scale reached \((?P<scale>[^)]+)\)",
        ("FloatingPointError: Minimum loss scale reached (0.0001). Your loss is probably exploding. Try lowering the "
         "learning rate, using gradient clipping or increasing the batch size.",),
        "fp16 training diverged: the loss scale fell to its minimum ({scale})",
        "Each step with infinite or NaN gradients halves the scale. So many in a row mean that the gradients are not "
        "finite at all, not that the scale was too large.",
        Fix("Train in bf16, lower the learning rate, clip gradients.",
            ("--bf16  # instead of --fp16", "--clip-norm 1.0 --warmup-updates 4000")), _FAIRSEQ_SCALE,
        summary="fp16 training diverged: the loss scale fell to its minimum."),
    Row("log_loss_scale_vanishes", "secondary", "script",
        r"(?i:overflow).*(?:setting|reducing) loss scale to:? (?P<scale>0\.000[0-4]\d*|0\.0$|\d(?:\.\d+)?e-\d+)",
        ("| WARNING: overflow detected, setting loss scale to: 0.0001220703125",
         "Gradient overflow.  Skipping step, loss scaler 0 reducing loss scale to 1.52587890625e-05"),
        "fp16 training diverged: the loss scale fell to {scale}",
        "Each step with infinite or NaN gradients halves the scale and is skipped. So many in a row mean that the "
        "gradients are not finite at all, not that the scale was too large.",
        (Fix("Train in bf16, lower the learning rate, warm up longer, clip gradients.",
             ("--bf16  # instead of --fp16", "--clip-norm 1.0 --warmup-updates 4000")),
         Fix("Go back to a checkpoint before the overflows, and print the batch at which they begin.")),
        "https://github.com/facebookresearch/fairseq/issues/512",
        summary="fp16 training diverged: the loss scale fell to nearly 0."),
    Row("log_gradients_inconsistent", "root", "script",
        r"gradients are inconsistent between workers",
        ("FloatingPointError: Fatal error: gradients are inconsistent between workers. Try --ddp-backend=legacy_ddp. "
         "Or "
         "are you mixing up different generation of GPUs in training?",),
        "the ranks computed different gradient norms after they exchanged gradients",
        "A rank left parameters out of the exchange (find_unused_parameters), the GPUs are of different generations, "
        "or "
        "a GPU computes wrongly.",
        (Fix("Use the other DDP implementation of fairseq.", ("--ddp-backend=legacy_ddp --find-unused-parameters",)),
         Fix("Compare the GPUs.", ("nvidia-smi -L", "mgpu doctor --deep --only gpu_results_differ"))), _FAIRSEQ),
    Row("log_dataset_name_unknown", "root", "script",
        r"Dataset '(?:[^']+)' is not registered! Available datasets are|"
        r"dataset names are not registered in the DatasetCatalog",
        ("KeyError: \"Dataset 'my_train' is not registered! Available datasets are: coco_2017_train\"",),
        "Detectron2 has no dataset of the configured name in this process",
        "register_coco_instances() must run in every process. launch() starts new ones, which import the script but do "
        "not run what is below its main guard.",
        Fix("Register it at the top of the function that launch() calls, or in a module that it imports.",
            ("register_coco_instances('my_train', {{}}, 'train.json', 'images')",)), _DETECTRON_DATA,
        summary="Detectron2 has no dataset of the configured name in a process."),
    Row("log_registry_name_unknown", "root", "script",
        r"KeyError: ['\"]?(?P<name>[\w.]+) is not in the (?P<registry>[\w:. ]+?) registry",
        ("KeyError: 'MyHead is not in the mmdet::model registry. Please check whether the value of `MyHead` is "
         "correct or "
         "it was registered as expected.'",),
        "the config names {name}, which is not registered ({registry})",
        "The module that defines it was not imported in this process, the name is misspelled, it belongs to another "
        "scope (mmdet, mmpretrain), or to another release of the library.",
        Fix("Import it from the config, name its scope, and compare the releases.",
            ("custom_imports = dict(imports=['my_package.my_head'], allow_failed_imports=False)",
             "default_scope = 'mmdet'", "mim list")), _MM_REGISTRY,
        summary="The config names a class that is not registered."),
    Row("log_results_folder_not_shared", "root", "script",
        r"(?P<folder>\S{1,120}) is not an? shared directory for rank \S+",
        ("FileNotFoundError: .dist_test/tmpab is not an shared directory for rank 9, please make sure "
         ".dist_test/tmpab is "
         "a shared directory for all ranks!",),
        "the ranks collect their results in {folder}, which is not on a disk that all nodes share",
        "Each rank writes its part there, and rank 0 reads all of them.",
        Fix("Use a shared folder, or collect on the GPUs.",
            ("val_evaluator = dict(type='CocoMetric', collect_device='gpu')", "collect_results(..., "
                                                                              "tmpdir='/shared/tmp')")),
        _MM_DIST, summary="The ranks collect their results in a folder that is not shared."),
    Row("log_resumed_on_other_gpus", "root", "launcher",
        r"Number of GPUs used for current experiment is not consistent with the checkpoint",
        ("RuntimeError: Number of GPUs used for current experiment is not consistent with the checkpoint being resumed "
         "from. This will result in poor performance due to the learning rate.",),
        "the checkpoint was written on another number of GPUs",
        "Another number of GPUs changes the batch size, for which the saved learning rate does not fit.",
        Fix("Resume on the same number of GPUs, let MMEngine scale the rate, or load the weights only.",
            ("auto_scale_lr = dict(enable=True, base_batch_size=16)", "load_from = 'epoch_12.pth'; resume = False")),
        _MM_RUNNER),
    Row("log_metric_not_reported", "root", "script",
        r"The indicator \"?(?P<name>[^\"\s]+)\"? can ?not match any metric in (?P<metrics>.+)",
        ('ValueError: The indicator "coco/bbox_mAP" can not match any metric in [\'loss\']',),
        "save_best or a scheduler needs {name}, which is not reported by the evaluation",
        "It reports only: {metrics}. The evaluator has another prefix, or found nothing to evaluate.",
        Fix("Use a reported one, or auto.", ("default_hooks = dict(checkpoint=dict(save_best='auto'))",)), _MM_RUNNER,
        summary="save_best waits for a metric that the evaluation does not report."),
    Row("log_recipe_without_launcher", "root", "launcher",
        r"recipe should be run via a distributed launcher",
        ("RuntimeError: Distributed finetune recipe should be run via a distributed launcher.If using tune CLI, please "
         "specify --nnodes 1 and --nproc_per_node [num_gpus]",),
        "torchtune's distributed recipe was started without torchrun",
        "The options for torchrun must come before the recipe's name.",
        Fix("Start it with a number of processes.",
            ("tune run --nnodes 1 --nproc_per_node 8 full_finetune_distributed --config CONFIG",)), _TUNE),
    Row("log_other_rank_memory_full", "secondary", "cuda",
        r"CUDA out of memory encountered on a different rank",
        ("RuntimeError: CUDA out of memory encountered on a different rank",),
        "another rank ran out of GPU memory, and this one stopped with it",
        "Composer stops all ranks together, or lets all of them use a smaller microbatch.",
        Fix("Find the rank that ran out, and use a smaller microbatch.",
            ("Trainer(device_train_microbatch_size='auto')",)), _COMPOSER),
    Row("log_fairseq_checkpoint_other", "root", "script",
        r"Cannot load model parameters from checkpoint (?P<file>\S+?); please ensure that the architectures match",
        ("Exception: Cannot load model parameters from checkpoint /ckpt/checkpoint_last.pt; please ensure that the "
         "architectures match.",),
        "{file} is for another model architecture",
        "fairseq resumes from checkpoint_last.pt in the save folder by itself, also if it belongs to another run.",
        Fix("Use a new folder, or the checkpoint's --arch and sizes.",
            ("--save-dir NEW", "--restore-file none")), _FAIRSEQ,
        summary="fairseq's checkpoint is for another model architecture."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
