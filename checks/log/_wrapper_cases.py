"""What does an attribute that a wrapper or a model does not have mean, and a batch of one, in which run?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Applies, Case

from ._circumstances import every, in_own_code, line_of, never, passed, said, several_ranks, within

_ATTRIBUTE = "log_wrapped_model_attribute"
_ENGINE = "https://github.com/deepspeedai/DeepSpeed/blob/master/deepspeed/runtime/engine.py"
_NORM = "https://docs.pytorch.org/docs/stable/generated/torch.nn.BatchNorm1d.html"
_OF_TORCH = within(r"^torch/nn/modules/module\.py in __getattr__$")


# torch's modules look up their attributes in torch's code.
_NO_MODULE: Applies = every(in_own_code, never(_OF_TORCH))
# fmt: off
# DDP has the model in .module and passes nothing on; DeepSpeed's engine passes on what dir(model) lists.
ATTRIBUTES = (
    Case(line_of(_ATTRIBUTE, "DeepSpeedEngine'? object"),
         "neither DeepSpeed's engine nor the model in it has .{name}",
         "The engine passes on the attributes of the model inside, as dir(model) lists them. The name is misspelled, "
         "is of a part deeper inside, or the model has another class than expected. A model of PEFT answers further "
         "names itself, which dir() does not list.",
         (Fix("See what the model inside has.",
              ("print(type(model.module), [n for n in dir(model.module) if not n.startswith('__')])",)),
          Fix("With PEFT, read it from the model inside.", ("model.module.{name:name}",))),
         "AttributeError: 'DeepSpeedEngine' object has no attribute 'save_adapter'\n", _ENGINE),
    Case(line_of(_ATTRIBUTE,
                 r"(?<!Sharded)DataParallel'? object has no attribute '?(?:no_sync|clip_grad_norm_|backward)\b"),
         "the script reads .{name} from {wrapper}, which does not have it: other wrappers do",
         "no_sync() is of DistributedDataParallel and FSDP, clip_grad_norm_() of FSDP 1, and backward() of DeepSpeed's "
         "engine. Code for one of them runs here with another wrapper.",
         (Fix("Ask for it, and do without it otherwise.",
              ("with getattr(model, 'no_sync', contextlib.nullcontext)(): ...",
               "torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)", "loss.backward()")),
          Fix("Or use the wrapper that the code is for: DistributedDataParallel, with one process per GPU.",
              ("mgpu launch train.py",))),
         "AttributeError: 'DataParallel' object has no attribute 'no_sync'\n",
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.parallel.DistributedDataParallel.html"),
)
UNUSED_IN_LIGHTNING = Case(
    said(r"It looks like your LightningModule has parameters"),
    "the LightningModule has parameters that get no gradient in a step, and DDP waits for them",
    "A layer is not used for this input, or the loss ignores an output. Lightning makes the DDP wrapper itself, by the "
    "strategy of its Trainer.",
    (Fix("Freeze or remove the unused parameters, or let DDP search for them.",
         ("Trainer(strategy='ddp_find_unused_parameters_true')",)),
     Fix("List them: they have no gradient after the first backward pass.",
         ("def on_after_backward(self): print([n for n, p in self.named_parameters() if p.grad is None])",))),
    "RuntimeError: It looks like your LightningModule has parameters that were not used in producing the loss returned "
    "by training_step.\n",
    "https://lightning.ai/docs/pytorch/stable/api/lightning.pytorch.strategies.DDPStrategy.html")
DATA_PARALLEL = Case(
    every(line_of(_ATTRIBUTE, r"(?<!Distributed)(?<!Sharded)DataParallel'? object"), never(passed(r"^accelerate/"))),
    "the script reads .{name} from the wrapper {wrapper}, but it belongs to the model inside",
    "nn.DataParallel has the model in .module. The wrapper forwards calls, not attributes.",
    Fix("Access the model inside.", ("model.module.{name:name}",)),
    "AttributeError: 'DataParallel' object has no attribute 'generate'\n",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.DataParallel.html")
NOT_A_MODEL = Case(
    _NO_MODULE,
    "{the_place} reads .module of an object of the class {owner}, which has none",
    'The line is "{the_line}". {owner} is not a model of torch: a missing attribute of one is reported by torch\'s own '
    "code, and here it is not. The name is misspelled, is not set in this object, or belongs to another object.",
    Fix("Print what it has, before that line.", ("print(type(x), vars(x))",)),
    'Traceback (most recent call last):\n  File "/home/user/plan.py", line 12, in build\n    part = spec.module\n'
    "AttributeError: 'LayerSpec' object has no attribute 'module'\n",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.Module.html")
ONE_SAMPLE_PER_RANK = Case(
    several_ranks,
    "BatchNorm got a batch with a single sample",
    "In training mode it needs two values per channel to compute a variance. The last, smaller batch of one rank has a "
    "single sample, the batch per GPU is 1, or the model is evaluated without model.eval().",
    (Fix("Drop the last batch, or use SyncBatchNorm.",
         ("DataLoader(..., drop_last=True)", "torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)")),
     Fix("For an evaluation, switch to evaluation mode.", ("model.eval()",))),
    '[rank1]: Traceback (most recent call last):\n[rank1]:   File "/home/user/train.py", line 12, in main\n'
    "[rank1]:     y = net(x)\n[rank1]: ValueError: Expected more than 1 value per channel when training, got input "
    "size torch.Size([1, 64])\n", _NORM)
# fmt: on
