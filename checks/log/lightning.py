"""Did Lightning or Fabric refuse how it was set up?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Row, signatures

from ._library_cases import NO_LIGHTNING_MODULE

_UPGRADE = "https://lightning.ai/docs/pytorch/stable/upgrade/from_1_9.html"
_STRATEGIES = "https://lightning.ai/docs/pytorch/stable/extensions/strategy.html"
_NOTEBOOKS = "https://lightning.ai/docs/pytorch/stable/common/notebooks.html"
_ACCELERATORS = "https://lightning.ai/docs/pytorch/stable/extensions/accelerator.html"
_CLUSTER = "https://lightning.ai/docs/pytorch/stable/clouds/cluster.html"
_CONNECTOR = (
    "https://github.com/Lightning-AI/pytorch-lightning/blob/master/src/lightning/pytorch/trainer/connectors/"
    "data_connector.py"
)
_FABRIC = "https://lightning.ai/docs/fabric/stable/fundamentals/launch.html"
_CHECKPOINTS = "https://lightning.ai/docs/pytorch/stable/common/checkpointing_intermediate.html"
# fmt: off
_ONE_PACKAGE = Fix("Import only one of the two, in the script and in all libraries it uses.",
                   ("grep -rn 'pytorch_lightning\\|import lightning\\|from lightning' --include='*.py' .",
                    "pip show lightning pytorch-lightning"))
ROWS = (
    Row("log_lightning_imported_twice", "root", "script",
        r"`model` must be a `LightningModule` or `torch\._dynamo\.OptimizedModule`, got `\w+`|"
        r"invalid strategy name: `strategy=<(?:lightning|pytorch_lightning)\.\S+ object|"
        r"Expected a (?:Callback|Logger|DataModule|LightningDataModule) instance"
        r"|Please switch to a single import style",
        ("TypeError: `model` must be a `LightningModule` or `torch._dynamo.OptimizedModule`, got `LitModel`",
         "ValueError: You selected an invalid strategy name: `strategy=<lightning.pytorch.strategies.ddp.DDPStrategy "
         "object at 0x19b>`. It must be either a string or an instance of `pytorch_lightning.strategies.Strategy`.",
         "TypeError: You passed a `lightning` object (<class 'LitModel'>) to a `pytorch_lightning` Trainer. Please "
         "switch to a single import style."),
        "the script mixes the packages lightning and pytorch_lightning",
        "They contain the same classes twice. A Trainer of one rejects modules, strategies and callbacks of the "
        "other.", _ONE_PACKAGE, _UPGRADE, cases=(NO_LIGHTNING_MODULE,)),
    Row("log_lightning_removed_hook", "root", "script",
        r"Support for `(?P<hook>\w+_epoch_end)` has been removed in v2",
        ("NotImplementedError: Support for `training_epoch_end` has been removed in v2.0.0. `LitModel` implements "
         "this method. You can use the `on_train_epoch_end` hook instead.",),
        "the installed Lightning is too new for this script: it no longer calls {hook}",
        "Lightning 2.0 (2023-03) removed it, with the outputs it got.",
        (Fix("Collect the outputs in the module, and use on_{hook}; for training, on_train_epoch_end.", ()),
         Fix("Or install the release it was written for.", ('pip install "pytorch-lightning<2"',))), _UPGRADE,
        summary="The installed Lightning no longer calls a hook that the script implements."),
    Row("log_lightning_in_notebook", "root", "launcher", r"is not compatible with an interactive environment",
        ("MisconfigurationException: `Trainer(strategy='ddp')` is not compatible with an interactive environment. Run "
         "your code as a script, or choose a notebook-compatible strategy: `Trainer(strategy='ddp_notebook')`.",),
        "this strategy cannot start its ranks from a notebook",
        "It starts the script again once per GPU, and a notebook is not a script.",
        Fix("Choose the strategy for notebooks, or run a script.",
            ("Trainer(strategy='ddp_notebook', devices=2)", "python train.py")), _NOTEBOOKS),
    Row("log_lightning_accelerator_missing", "root", "cuda",
        r"can not run on your system since the accelerator is not available|GPUs requested but none are available"
        r"|but there are no visible CUDA devices|requires a GPU accelerator, but received|"
        r"FSDP is only available on GPU|DeepSpeed strategy is only supported on (?:CUDA )?GPUs",
        ("MisconfigurationException: `CUDAAccelerator` can not run on your system since the accelerator is not "
         "available. The following accelerator(s) is available and can be passed into `accelerator` argument of "
         "`Trainer`: ['cpu'].", "MisconfigurationException: GPUs requested but none are available.",
         "ValueError: You requested to find 8 devices but there are no visible CUDA devices on this machine.",
         "ValueError: The strategy `fsdp` requires a GPU accelerator, but received `accelerator=cpu`. Please set "
         "`accelerator='cuda'`",
         "RuntimeError: The DeepSpeed strategy is only supported on CUDA GPUs but `CPUAccelerator` is used."),
        "Lightning was asked for a GPU, but torch sees none here",
        "The node or the job has no GPU, CUDA_VISIBLE_DEVICES hides it, torch is a CPU build, or the driver does not "
        "work.",
        Fix("Check what torch and this process see.",
            ("mgpu doctor --only visibility,driver,torch_is_cpu_build", "nvidia-smi -L; echo $CUDA_VISIBLE_DEVICES")),
        _ACCELERATORS),
    Row("log_lightning_rank_launches", "root", "launcher",
        r"attempted to launch new distributed processes with `local_rank > 0`",
        ("RuntimeError: Lightning attempted to launch new distributed processes with `local_rank > 0`. This should not "
         "happen. Possible reasons: 1) LOCAL_RANK environment variable was incorrectly modified by the user",),
        "LOCAL_RANK is set although no launcher that Lightning recognizes started this rank",
        "It remains from another program, an image or an earlier command, or another launcher set it without "
        "WORLD_SIZE and MASTER_ADDR.",
        Fix("Unset it, or start the script with torchrun or srun.",
            ("unset LOCAL_RANK RANK WORLD_SIZE", "env | grep -E 'RANK|WORLD_SIZE|SLURM_|MASTER_'")), _CLUSTER),
    Row("log_lightning_not_deepspeeds_checkpoint", "root", "script",
        r"provided path is not a valid DeepSpeed checkpoint|"
        r"DeepSpeed was unable to load the checkpoint\. Ensure you passed in a DeepSpeed compatible",
        ("FileNotFoundError: The provided path is not a valid DeepSpeed checkpoint: epoch=3.ckpt",
         "MisconfigurationException: DeepSpeed was unable to load the checkpoint. Ensure you passed in a DeepSpeed "
         "compatible checkpoint or a single checkpoint file"),
        "the checkpoint to resume from was not saved by Lightning's DeepSpeed strategy",
        "With DeepSpeed, a checkpoint is a folder with one part per rank. A single .ckpt file comes from another "
        "strategy, and a file inside the folder is only a part.",
        Fix("Pass the folder, or load only the weights and start with a new optimizer.",
            ("trainer.fit(model, ckpt_path='checkpoints/last.ckpt')  # the folder",
             "model.load_state_dict(torch.load('epoch.ckpt')['state_dict'])")), _CHECKPOINTS),
    Row("log_lightning_devices_busy", "root", "cuda",
        r"requested to find (?P<wanted>\d+) devices but only (?P<free>\d+) are currently available",
        ("RuntimeError: You requested to find 4 devices but only 2 are currently available. The devices {0, 1} are "
         "occupied by other processes and can't be used at the moment.",),
        "{free} GPUs are free, but the script asks for {wanted}",
        "The others are in exclusive mode, and another process uses them.",
        Fix("Stop that process, or use fewer devices.", ("nvidia-smi", "mgpu doctor --only gpu_busy")), _ACCELERATORS,
        summary="Fewer GPUs are free than the script asks for."),
    Row("log_lightning_loader_empty", "root", "script",
        r"`\w+` within local rank has zero length|"
        r"Total length of `\w+` across ranks is zero\. Please make sure that it returns",
        ("RuntimeError: `train_dataloader` within local rank has zero length. Please make sure that it returns at "
         "least 1 batch.",
         "MisconfigurationException: Total length of `Dataloader` across ranks is zero. Please make sure that it "
         "returns at least 1 batch."),
        "a rank's DataLoader has no batch",
        "The dataset has fewer samples than ranks x batch size and drop_last is on, the folder or the split that it "
        "reads is empty, or the samples were divided among the ranks twice.",
        Fix("Print len(dataset). If it has samples, use a smaller batch, or drop_last=False.",
            ("DataLoader(..., batch_size=4, drop_last=False)",)), _CONNECTOR),
    Row("log_lightning_no_batches", "secondary", "script",
        r"Total length of `(?P<loader>\w+)` across ranks is zero\. Please make sure this",
        ("/x/pytorch_lightning/utilities/data.py:104: Total length of `DataLoader` across ranks is zero. Please make "
         "sure this was your intention.",),
        "a {loader} has no batch on any rank: no step runs with it",
        "The folder or the split that it reads is probably empty, a filter removed all samples, or there are fewer "
        "samples than the batch size and drop_last is on. Lightning only warns, and then does nothing.",
        (Fix("Print the number of samples before the DataLoader is made.", ("print(len(dataset))",)),
         Fix("If there are some, use a smaller batch, or drop_last=False.",
             ("DataLoader(..., batch_size=4, drop_last=False)",))),
        "https://github.com/RangiLyu/nanodet/issues/486", tags=("before_ranks",),
        summary="A DataLoader has no batch on any rank."),
    Row("log_lightning_fewer_samples_than_ranks", "root", "script",
        r"assert self\.num_samples >= 1 or self\.total_size == 0",
        ("AssertionError: assert self.num_samples >= 1 or self.total_size == 0",),
        "there are fewer samples to predict or test than ranks",
        "Without repeating samples, Lightning cannot give every rank at least one.",
        Fix("Predict with fewer devices, or with more samples.", ("Trainer(devices=1)",)), _CONNECTOR),
    Row("log_fabric_not_launched", "root", "script", r"To use Fabric with more than one device, you must call "
                                                     r"`\.launch",
        ("RuntimeError: To use Fabric with more than one device, you must call `.launch()` or use the CLI: `fabric run "
         "--help`.",),
        "the script uses several devices but never starts the other ranks",
        "Fabric starts them in launch().",
        Fix("Call it before setup().", ("fabric = Fabric(devices=8); fabric.launch()", "fabric run --devices=8 "
                                                                                       "train.py")),
        _FABRIC),
    Row("log_lightning_sizes_differ", "root", "launcher",
        r"The sizes `data_parallel_size=\d+` and `tensor_parallel_size=\d+` multiplied should equal the world size",
        ("RuntimeError: The sizes `data_parallel_size=2` and `tensor_parallel_size=2` multiplied should equal the "
         "world size (8).",),
        "ModelParallelStrategy's sizes do not multiply to the number of ranks",
        "Every rank belongs to one data-parallel and one tensor-parallel group.",
        Fix("Set one of them and leave the other at 'auto'.",
            ("ModelParallelStrategy(data_parallel_size='auto', tensor_parallel_size=2)",)), _STRATEGIES),
    Row("log_lightning_monitor_missing", "root", "script",
        r"could not find the monitored key in the returned metrics|Early stopping conditioned on metric .* which "
        r"is not "
        r"available|ReduceLROnPlateau conditioned on metric .* which is not available",
        ("MisconfigurationException: `ModelCheckpoint(monitor='val_loss')` could not find the monitored key in the "
         "returned metrics: ['train_loss', 'epoch', 'step']. HINT: Did you call `log('val_loss', value)` in the "
         "`LightningModule`?",
         "RuntimeError: Early stopping conditioned on metric `val_loss` which is not available. Pass in or modify "
         "your `EarlyStopping` callback to use any of the following: `train_loss`"),
        "a callback watches a metric that no step has logged",
        "The name differs, validation did not run yet, or only some ranks log it.",
        Fix("Log it on all ranks, under the same name.", ("self.log('val_loss', loss, sync_dist=True)",)),
        _CHECKPOINTS),
)
# fmt: on

SIGNATURES = signatures(__name__, ROWS)
