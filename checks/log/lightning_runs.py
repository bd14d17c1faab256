"""Did Lightning or Fabric refuse the script's loaders, optimizers, checkpoints or numbers of ranks?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

_TORCHELASTIC = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/plugins/environments/"
    "torchelastic.py"
)
_LAUNCHERS = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/strategies/launchers/"
    "multiprocessing.py"
)
_SAMPLERS = "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/utilities/data.py"
_LOOPS = "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/loops/fit_loop.py"
_DEEPSPEED = "https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/deepspeed.html"
_DATA = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/trainer/connectors/"
    "data_connector.py"
)
_CHECKPOINTS = "https://lightning.ai/docs/pytorch/stable/common/checkpointing_basic.html"
_FSDP = "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/fabric/strategies/fsdp.py"
# fmt: off
ROWS = (
    Row("log_lightning_product_not_world", "root", "launcher",
        r"You set `devices=(?P<devices>\d+)` and `num_nodes=(?P<nodes>\d+)` in Lightning, but the product "
        r"\(.{1,20}\) does not match the world size \((?P<ranks>\d+)\)",
        ("ValueError: You set `devices=2` and `num_nodes=2` in Lightning, but the product (2 * 2) does not match "
         "the world size (8).",),
        "Lightning is set to {devices} devices on {nodes} nodes, but the launcher started {ranks} ranks",
        "torchrun decides how many ranks there are: nproc_per_node x nnodes. Lightning must be given the same "
        "numbers.",
        Fix("Take both from the launcher.",
            ("torchrun --nnodes=N --nproc_per_node=GPUS train.py",
             "Trainer(devices='auto', num_nodes=int(os.environ['GROUP_WORLD_SIZE']))")),
        _TORCHELASTIC,
        summary="Lightning's devices and nodes do not multiply to the launcher's number of ranks."),
    Row("log_lightning_spawn_not_guarded", "root", "script",
        r"'spawn' start method requires that your script guards the main",
        ("RuntimeError: Launching multiple processes with the 'spawn' start method requires that your script "
         "guards the main function with an `if __name__ == \"__main__\"` clause.",),
        "the script starts ranks with spawn while it is being imported",
        "Each child imports the script again. Code at its top level would start children again.",
        Fix("Put it in a guarded function, or use a strategy that starts the script as a whole.",
            ("if __name__ == '__main__': main()",
             "Trainer(strategy='ddp')  # not ddp_spawn")),
        _LAUNCHERS),
    Row("log_lightning_sampler_not_injected", "root", "script",
        r"Trying to inject (?:custom `Sampler`|a modified sampler|parameters) into the|"
        r"can't inject a \(distributed\) sampler into your batch sampler|"
        r"sampler in your DataLoader which does not provide (?:finite )?`__len__`",
        ("TypeError: Lightning can't inject a (distributed) sampler into your batch sampler, because it doesn't "
         "subclass PyTorch's `BatchSampler`.",
         "TypeError: Trying to inject parameters into the `MyLoader` instance. This would fail as it doesn't "
         "expose all its attributes in the `__init__` signature.",
         "TypeError: You seem to have configured a sampler in your DataLoader which does not provide `__len__` "
         "method. The sampler was about to be replaced by `DistributedSamplerWrapper`"),
        "Lightning cannot divide this DataLoader's samples among the ranks",
        "With several ranks it creates the loader a second time, with a DistributedSampler. That needs a DataLoader "
        "whose __init__ arguments are also its attributes, and a BatchSampler of torch's class.",
        Fix("Divide the samples yourself, and turn the replacement off.",
            ("Trainer(use_distributed_sampler=False)",
             "DataLoader(dataset, sampler=DistributedSampler(dataset, shuffle=True))")),
        _SAMPLERS),
    Row("log_lightning_step_skipped", "root", "script",
        r"Skipping the `training_step` by returning None in distributed training is not|"
        r"Skipping backward by returning `None` from your `training_step` is not supported",
        ("RuntimeError: Skipping the `training_step` by returning None in distributed training is not supported.",
         "MisconfigurationException: Skipping backward by returning `None` from your `training_step` is not "
         "supported by `DeepSpeed`"),
        "training_step returned None, which skips a step on one rank only",
        "The other ranks compute gradients and wait for this rank's in the all-reduce. With one GPU, None skips the "
        "step.",
        (Fix("Return a loss of 0 that depends on the parameters.",
             ("return 0.0 * output.sum()",)),
         Fix("Or remove such samples before they are divided among the ranks.",
             ("dataset = dataset.filter(is_usable)",))),
        _LOOPS),
    Row("log_lightning_optimizers_manual", "root", "script",
        r"Training with multiple optimizers is only supported with manual optimization",
        ("RuntimeError: Training with multiple optimizers is only supported with manual optimization. Remove the "
         "`optimizer_idx` argument from `training_step`",),
        "the module has several optimizers, which Lightning 2 does not step by itself",
        "Lightning 1 called training_step once per optimizer, with optimizer_idx. Version 2.0 (2023-03) removed "
        "that.",
        (Fix("Step them in training_step.",
             ("self.automatic_optimization = False",
              "first, second = self.optimizers(); first.zero_grad(); self.manual_backward(loss); first.step()")),
         Fix("Or install the release that the code was written for.",
             ("pip install \"pytorch-lightning<2\"",))),
        "https://lightning.ai/docs/pytorch/stable/upgrade/from_1_9.html"),
    Row("log_lightning_deepspeed_optimizers", "root", "script",
        r"urrently only one optimizer is supported with DeepSpeed|DeepSpeed currently only supports single optimizer",
        ("ValueError: Currently only one optimizer is supported with DeepSpeed. Got 2 optimizers instead.",
         "MisconfigurationException: DeepSpeed currently only supports single optimizer, single optional "
         "scheduler."),
        "the module has several optimizers, and a DeepSpeed engine has one",
        "DeepSpeed takes over one optimizer and its states. GANs and other models with two need one engine for each.",
        Fix("Use DDP or FSDP, or put all parameters into groups of one optimizer.",
            ("Trainer(strategy='ddp')",
             "AdamW([dict(params=a, lr=1e-4), dict(params=b, lr=1e-5)])")),
        _DEEPSPEED),
    Row("log_lightning_gpus_by_number", "root", "launcher",
        r"selected device indices \[[\d, ]*\] don't match the local rank values",
        ("RuntimeError: The selected device indices [2, 3] don't match the local rank values of processes. If you "
         "need to select GPUs at a specific index, set the `CUDA_VISIBLE_DEVICES` environment variable instead.",),
        "GPUs are chosen by number, but DeepSpeed uses the GPU with the number of the local rank",
        "Rank 0 of a node uses GPU 0 of those that it sees.",
        Fix("Hide the others.",
            ("CUDA_VISIBLE_DEVICES=2,3 python train.py",
             "Trainer(devices=2, strategy='deepspeed')")),
        _DEEPSPEED),
    Row("log_lightning_validation_beyond_epoch", "root", "script",
        r"`val_check_interval` \((?P<interval>[\w.]+)\) must be less than or equal to the number of the training "
        r"batches \((?P<batches>\w+)\)",
        ("ValueError: `val_check_interval` (1000) must be less than or equal to the number of the training "
         "batches (250). If you want to disable validation set `limit_val_batches` to 0.0 instead.",),
        "validation is set to run every {interval} batches, but each rank has {batches} batches per epoch",
        "The samples are divided among the ranks: with 8 GPUs, an epoch has an eighth of the batches that one GPU "
        "had.",
        Fix("Use a share of the epoch, or count across epochs: with check_val_every_n_epoch=None.",
            ("Trainer(val_check_interval=0.25)",)),
        _LOOPS,
        summary="val_check_interval is larger than the batches that each rank has per epoch."),
    Row("log_lightning_limit_below_one_batch", "root", "script",
        r"You requested to check \S+ of the `(?P<loader>\w+)` but \S+ \* (?P<batches>\d+) < 1",
        ("MisconfigurationException: You requested to check 0.1 of the `val_dataloader` but 0.1 * 4 < 1. Please "
         "increase the `limit_val_batches` argument.",),
        "a share of {loader} should be used, which is less than one batch: each rank has {batches}",
        "The samples are divided among the ranks, so that each has fewer batches with more GPUs.",
        Fix("Set a number of batches, or a larger share.",
            ("Trainer(limit_val_batches=1)",)),
        _DATA,
        summary="The share of the batches that should be used is less than one batch."),
    Row("log_lightning_already_trained", "root", "script",
        r"restored a checkpoint with current_epoch=(?P<epoch>\d+), but you have set Trainer\(max_epochs=(?P<most>\d+)",
        ("MisconfigurationException: You restored a checkpoint with current_epoch=11, but you have set "
         "Trainer(max_epochs=10).",),
        "the checkpoint is of epoch {epoch}, and training should end after epoch {most}",
        "The run had reached its end, or max_epochs counts all epochs, not those after resuming.",
        Fix("Increase it, or load only the weights.",
            ("Trainer(max_epochs=20)",
             "model = LitModel.load_from_checkpoint('last.ckpt')")),
        _CHECKPOINTS,
        summary="The checkpoint to resume from is of a later epoch than max_epochs."),
    Row("log_lightning_weights_only_checkpoint", "root", "script",
        r"Trying to restore (?:optimizer|learning rate scheduler) state but checkpoint contains only the model",
        ("KeyError: 'Trying to restore optimizer state but checkpoint contains only the model. This is probably "
         "due to `ModelCheckpoint.save_weights_only` being set to `True`.'",),
        "the checkpoint to resume from has weights only, no optimizer states",
        "ModelCheckpoint(save_weights_only=True) leaves them out, as do exported and consolidated checkpoints.",
        (Fix("Start a new training from the weights.",
             ("model = LitModel.load_from_checkpoint('last.ckpt')",
              "trainer.fit(model)  # without ckpt_path")),
         Fix("Save everything from now on.",
             ("ModelCheckpoint(save_weights_only=False)",))),
        _CHECKPOINTS),
    Row("log_lightning_not_a_sharded_checkpoint", "root", "script",
        r"does not point to a valid checkpoint\. Make sure the path points to either a directory with",
        ("ValueError: The path out/last.ckpt does not point to a valid checkpoint. Make sure the path points to "
         "either a directory with FSDP checkpoint shards, or a single file with a full checkpoint.",),
        "the path to resume from is neither a folder of shards nor a whole checkpoint",
        "With state_dict_type='sharded', FSDP and ModelParallelStrategy write a folder with one file per rank and a "
        ".metadata file. On nodes without a shared disk, each has only its own files.",
        (Fix("Check what is there, on every node.",
             ("ls -la CHECKPOINT",)),
         Fix("Write checkpoints to a shared disk.",
             ("Trainer(default_root_dir='/shared/run')",))),
        _FSDP),
    Row("log_lightning_clipping_sharded", "root", "script",
        r"Gradient clipping with FSDP is only possible if the module passed to|"
        r"`gradient_clip_algorithm='norm'` is currently not supported for `FSDP",
        ("MisconfigurationException: `gradient_clip_algorithm='norm'` is currently not supported for "
         "`FSDPPrecision`",
         "TypeError: Gradient clipping with FSDP is only possible if the module passed to "
         "`FSDPStrategy.clip_gradients_norm` is wrapped in `FullyShardedDataParallel`."),
        "gradients cannot be clipped this way with FSDP",
        "Each rank holds a part of the gradients, so that only FSDP's own module can compute their norm.",
        Fix("Clip through the wrapped root module, or by value.",
            ("def configure_gradient_clipping(self, optimizer, gradient_clip_val, gradient_clip_algorithm): "
             "self.trainer.strategy.model.clip_grad_norm_(gradient_clip_val)",
             "Trainer(gradient_clip_val=1.0, gradient_clip_algorithm='value')")),
        "https://lightning.ai/docs/pytorch/stable/advanced/model_parallel/fsdp.html"),
    Row("log_lightning_hybrid_without_groups", "root", "script",
        r"hybrid sharding strategy requires you to pass at least one of the parameters",
        ("RuntimeError: The hybrid sharding strategy requires you to pass at least one of the parameters: "
         "`auto_wrap_policy`, `process_group` tuple, or `device_mesh`.",),
        "HYBRID_SHARD is set, but not which ranks form a shard group",
        "It shards within a group, usually a node, and replicates between groups.",
        Fix("Give the mesh: nodes x GPUs per node.",
            ("FSDPStrategy(sharding_strategy='HYBRID_SHARD', device_mesh=(2, 8))",)),
        _FSDP),
    Row("log_fabric_method_bypasses_wrapper", "root", "script",
        r"You are calling the method `(?P<call>[\w.]+)\(\)` from outside the model\. To avoid issues",
        ("RuntimeError: You are calling the method `MyModel.training_step()` from outside the model. To avoid "
         "issues with the currently selected strategy, explicitly mark it as a forward method using "
         "`fabric_model.mark_forward_method('training_step')` after `fabric.setup()`.",),
        "the script calls {call}() of the wrapped model directly, which bypasses the strategy",
        "DDP and FSDP prepare gradients and gather weights in forward() only.",
        Fix("Mark the method, or call the model itself.",
            ("model = fabric.setup(model); model.mark_forward_method('training_step')",)),
        "https://lightning.ai/docs/fabric/stable/api/wrappers.html",
        summary="The script calls a method of the wrapped model directly, which bypasses the strategy."),
    Row("log_fabric_backward_bypassed", "root", "script",
        r"requires you to call `fabric\.backward\(loss\)` instead of",
        ("RuntimeError: The current strategy and precision selection requires you to call `fabric.backward(loss)` "
         "instead of `loss.backward()`.",),
        "the script calls loss.backward(), but the strategy must run the backward pass",
        "DeepSpeed reduces gradients, and fp16 scales the loss, in fabric.backward().",
        Fix("Call it.",
            ("fabric.backward(loss)",)),
        "https://lightning.ai/docs/fabric/stable/fundamentals/convert.html"),
    Row("log_lightning_finder_on_ranks", "root", "script",
        r"Batch size finder is not supported with distributed strategies",
        ("MisconfigurationException: The Batch size finder is not supported with distributed strategies.",),
        "the batch size finder runs with one device only",
        "Each rank would try, fail and continue by itself, and the others would wait for it.",
        Fix("Find the size on one GPU, and use it on all.",
            ("Trainer(devices=1, callbacks=[BatchSizeFinder()])",
             "mgpu configure")),
        "https://lightning.ai/docs/pytorch/stable/advanced/training_tricks.html"),
    Row("log_lightning_lsf_without_jsrun", "root", "launcher",
        r"Environment variable `JSM_NAMESPACE_\w+` not found\. Make sure you run your executable with `jsrun`",
        ("ValueError: Cannot determine world size. Environment variable `JSM_NAMESPACE_SIZE` not found. Make sure "
         "you run your executable with `jsrun`.",),
        "this is an LSF job, but the script was not started by jsrun",
        "Lightning reads ranks from jsrun's variables if it finds an LSF job.",
        Fix("Start it with jsrun, one task per GPU.",
            ("jsrun --nrs 2 --tasks_per_rs 6 --gpu_per_rs 6 python train.py",)),
        "https://lightning.ai/docs/pytorch/stable/clouds/cluster.html"),
    Row("log_lightning_name_removed", "root", "script",
        r"`(?P<what>[\w.]+)` (?:class )?was deprecated in v(?P<old>[\d.]+) and is no(?:t|) longer (?:accessible|"
        r"supported) as of v(?P<release>[\d.]+\d)",
        ("AttributeError: `Trainer.training_type_plugin` was deprecated in v1.6 and is no longer accessible as of "
         "v1.8. Use `Trainer.strategy` instead.",
         "NotImplementedError: The `pl.plugins.DDPPlugin` class was deprecated in v1.6 and is no longer supported "
         "as of v1.8. Use `pl.strategies.DDPStrategy` instead."),
        "the installed Lightning is too new for this script: {release} removed {what}",
        "It was deprecated in {old}. The message has what replaced it, if there is something.",
        (Fix("Change the script, or the package that uses it.",
             ("grep -rn '{what:dotted}' --include='*.py' .",)),
         Fix("Or install the last release that has it.",
             ("pip install \"pytorch-lightning<{release:id}\"",))),
        "https://lightning.ai/docs/pytorch/stable/upgrade/migration_guide.html",
        summary="The installed Lightning no longer has a name that the script uses."),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
