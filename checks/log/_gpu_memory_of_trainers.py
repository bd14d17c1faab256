"""Cases of a full GPU in trainers of vision models, in Lightning, and in loops that use nothing but torch.

Their batch size and their ways to save memory have other names than Trainer's and accelerate's.
"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case
from mgpu.snapshot import Log, UncaughtException

from ._circumstances import either, every, in_own_line, last_did, never, own_line, shown, through, within
from ._gpu_memory import ENGINE, GIANT, TUNING, numbers, trace

_ULTRALYTICS = "https://docs.ultralytics.com/modes/train/"
_MMENGINE = "https://mmengine.readthedocs.io/en/latest/common_usage/save_gpu_memory.html"
_DETECTRON = "https://detectron2.readthedocs.io/en/latest/modules/config.html"
_LIGHTNING = "https://lightning.ai/docs/pytorch/stable/advanced/training_tricks.html"
_TORCH = "https://docs.pytorch.org/docs/stable/notes/faq.html"
# Packages whose own cases and options fit better.
# fmt: off
_WITH_OPTIONS = frozenset({
    "transformers", "accelerate", "trl", "peft", "deepspeed", "verl", "openrlhf", "megatron", "vllm", "sglang",
    "axolotl", "llamafactory", "swift", "torchtune", "torchtitan", "nemo", "unsloth", "diffusers", "fairseq",
    "lightning", "pytorch_lightning", "ultralytics", "mmengine", "mmcv", "mmdet", "detectron2", "fairscale",
    "colossalai", "tensorflow", "jax", "xformers", "ray", "torchrec", "bitsandbytes",
})
# fmt: on


def only_torch(log: Log, raised: UncaughtException | None) -> bool:
    """Whether the traceback passes through the script's own files, and through no trainer."""
    return bool(raised and raised.frames and raised.place) and _WITH_OPTIONS.isdisjoint(
        raised.packages if raised else ()
    )


# fmt: off
_BACKWARD = within(rf"{ENGINE}|torch/_?tensor\.py in backward$")
_FORWARD = within(r" in forward$")
_EVALUATING = within(r" in (?:_?evaluat(?:e|ion)\w*|predict\w*|_?validat(?:e|ion)\w*|eval(?:_\w+)?|val(?:_\w+)?|"
                     r"test(?:_\w+)?|inference\w*)$")
_IN_LOOP = every(
    only_torch, never(numbers(lambda read: read.tried is not None and read.tried >= GIANT)),
    never(within(rf"{TUNING}|torch/optim/|torch/nn/utils/clip_grad|"
                 r"torch/nn/parallel/(?:data_parallel|scatter_gather|replicate|parallel_apply)|"
                 r"torch/distributed/fsdp|torch/cuda/(?:__init__|random)\.py|"
                 r" in (?:cross_entropy|log_softmax|generate|_?load\w*|from_pretrained)$")))
_OF_LOGITS = within(r" in (?:cross_entropy|log_softmax|generate)$")
_LARGE = 1.0  # GiB in one allocation
# Operations that make one tensor of several, or of all pairs of their elements.
_JOINS = (r"\b(?:cat|concat|concatenate|[hvd]?stack|einsum|outer|kron|cdist|meshgrid|repeat|repeat_interleave|tile|"
          r"unfold)\(")
_OF_HEAD = r"(?i)logit|vocab|lm_head|log_?prob|softmax|entropy|attn|attention|scores|pred"
_ACCUMULATE = Fix("Use a smaller batch. To keep the same batch for the optimizer, add up gradients of several steps.",
                  ("loader = DataLoader(dataset, batch_size=4, ...)",
                   "(loss / 4).backward()  # optimizer.step() and zero_grad() in each 4th iteration only"))
_SAVE = Fix("Compute in bf16, use smaller images or shorter inputs, and recompute activations in the backward pass.",
            ("with torch.autocast('cuda', dtype=torch.bfloat16):",
             "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"))
_KEPT = Fix("If it grew from step to step, look for tensors that keep their graph: lists of losses or outputs.",
            ("total += loss.item()  # not: total += loss",))

OF_TRAINERS = (
    Case(every(either(through("ultralytics"), shown("ultralytics")), never(within(r"^torch/cuda/|^transformers/"))),
         "a GPU's memory is full in a run of Ultralytics: batch and image size are too large for this model",
         "imgsz counts with its square. Its validation uses twice the batch, and images with many objects, mosaic and "
         "multi_scale need more than the average.",
         (Fix("Use a smaller batch or smaller images, or let it choose the batch (about 60 % of the memory).",
              ("yolo train data=DATA.yaml model=MODEL.pt batch=8 imgsz=640",
               "yolo train data=DATA.yaml model=MODEL.pt batch=-1", "model.train(batch=8, imgsz=640)")),
          Fix("If the GPU was not empty before, see who uses it.", ("nvidia-smi",)),
          Fix("Or use a smaller model of the family (n, s, m, l, x).")),
         trace("train.py in main", "ultralytics/engine/trainer.py in _do_train", "ultralytics/nn/tasks.py in forward"),
         _ULTRALYTICS),
    Case(every(either(through("mmengine", "mmcv", "mmdet", "mmseg", "mmdet3d", "mmaction", "mmpose", "mmpretrain"),
                      shown("mmengine")), never(within(r"^torch/cuda/|^transformers/"))),
         "a GPU's memory is full in a run of an OpenMMLab package (MMEngine)",
         "The batch per GPU, the image size and the number of objects or points per image decide it. A batch with many "
         "objects needs more than the others, often in the assigner or in the mask head.",
         (Fix("Use a smaller batch per GPU, or half precision.",
              ("python tools/train.py CONFIG.py --cfg-options train_dataloader.batch_size=1",
               "python tools/train.py CONFIG.py --amp")),
          Fix("Recompute activations in the backbone, or use smaller images. In detectors with many objects, let the "
              "assigner work on the CPU.",
              ("--cfg-options model.backbone.with_cp=True",
               "assigner=dict(type='MaxIoUAssigner', gpu_assign_thr=200, ...)"))),
         trace("train.py in main", "mmengine/runner/loops.py in run_iter", "mmdet/models/detectors/base.py in forward"),
         _MMENGINE),
    Case(every(through("detectron2"), never(within(r"^torch/cuda/"))),
         "a GPU's memory is full in a run of detectron2: too many or too large images per batch",
         "SOLVER.IMS_PER_BATCH counts the images of all GPUs together. The largest image of a batch decides.",
         (Fix("Use fewer or smaller images, and lower the learning rate in the same ratio.",
              ("python train_net.py --config-file CONFIG.yaml SOLVER.IMS_PER_BATCH 2 SOLVER.BASE_LR 0.0025",
               "python train_net.py --config-file CONFIG.yaml INPUT.MIN_SIZE_TRAIN '(480,)' INPUT.MAX_SIZE_TRAIN 800",
               "python train_net.py --config-file CONFIG.yaml SOLVER.AMP.ENABLED True")),),
         trace("train_net.py in main", "detectron2/engine/train_loop.py in run_step",
               "detectron2/modeling/meta_arch/rcnn.py in forward"),
         _DETECTRON),
    Case(every(through("lightning", "pytorch_lightning"), never(through("transformers", "deepspeed", "nemo")),
               never(within(r"torch/optim/|torch/cuda/(?:__init__|random)\.py")), either(_FORWARD, _BACKWARD)),
         "a GPU's memory is full in a step of Lightning's Trainer",
         "The activations of a batch do not fit beside weights, gradients and optimizer states. The batch size is the "
         "DataLoader's, per GPU.",
         (Fix("Use a smaller batch and accumulate gradients, or half precision.",
              ("DataLoader(dataset, batch_size=4, ...)", "Trainer(accumulate_grad_batches=4, precision='bf16-mixed')")),
          Fix("Shard the model over the GPUs, or recompute activations.",
              ("Trainer(strategy='fsdp', devices=8)",
               "torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)"))),
         trace("train.py in main", "pytorch_lightning/trainer/trainer.py in fit", "train.py in training_step",
               "torch/nn/modules/conv.py in forward"),
         _LIGHTNING),
    Case(within(r"^dgl/\w+\.py in (?:update_all|apply_edges|message_passing|invoke_\w+)$|"
                r"^torch_geometric/nn/conv/message_passing\.py in (?:propagate|message)$"),
         "a GPU's memory is full while a layer passes messages along the edges of the graph (DGL, PyTorch Geometric)",
         "A message per edge, of the size of a node's features, is held for every layer until the backward pass. With "
         "the whole graph as one batch, the number of edges decides, and so do functions of your own for the messages "
         "or their sum: the library's own combine both without storing the messages.",
         (Fix("Train on batches of nodes with sampled neighbors.",
              ("dgl.dataloading.DataLoader(g, ids, dgl.dataloading.NeighborSampler([15, 10]), batch_size=1024)",
               "torch_geometric.loader.NeighborLoader(data, num_neighbors=[15, 10], batch_size=1024)")),
          Fix("Use the library's functions for messages and their sum, or fewer features or heads per layer.",
              ("g.update_all(dgl.function.copy_u('h', 'm'), dgl.function.mean('m', 'h'))",)),
          _KEPT),
         trace("train.py in main", "net.py in forward", "dgl/heterograph.py in update_all",
               "dgl/core.py in invoke_udf_reduce"),
         "https://www.dgl.ai/dgl_docs/guide/minibatch.html"),
    Case(every(_IN_LOOP, _EVALUATING, never(_BACKWARD)),
         "a GPU's memory is full during evaluation",
         "Evaluation or inference can need more than training: it builds a graph that it does not need, its batch or "
         "images are larger, or the outputs of all batches stay on the GPU.",
         (Fix("Build no graph, and keep results in host memory.",
              ("with torch.inference_mode():", "outputs.append(out.cpu())")),
          Fix("Use a smaller batch for it, and free what training cached.",
              ("loader = DataLoader(dataset, batch_size=1, ...)", "torch.cuda.empty_cache()"))),
         trace("train.py in main", "train.py in validate", "net.py in forward", "torch/nn/modules/conv.py in forward"),
         _TORCH),
    Case(every(only_torch, last_did("evaluated"), either(_BACKWARD, _FORWARD), never(_EVALUATING), never(_OF_LOGITS),
               never(numbers(lambda read: read.tried is not None and read.tried >= GIANT))),
         "a GPU's memory is full right after an evaluation: probably what the evaluation computed is still on the GPU",
         "The steps before it fitted. Without torch.no_grad(), a forward pass keeps its activations as long as a "
         "variable (a loss, logits) refers to its result: the last batch of the evaluation then stays on the GPU "
         "during the next training step, as do lists of predictions.",
         (Fix("Evaluate without a graph, keep only numbers and copies on the CPU, and delete the rest.",
              ("with torch.no_grad(): ...", "losses.append(loss.item()); outputs.append(logits.cpu())",
               "del logits, loss")),
          Fix("If it does all that, this batch may be larger than those before: use a smaller one.")),
         "".join(f"step {step}: train/loss 1.2{step}\n" for step in (980, 990, 1000)) + "step 1000: test/loss 1.3\n"
         + trace("train.py in main", "net.py in forward", "torch/nn/modules/conv.py in forward"),
         "https://docs.pytorch.org/docs/stable/notes/faq.html"),
    Case(every(_IN_LOOP, last_did("train"), either(_BACKWARD, _FORWARD)),
         "a GPU's memory is full in a later step: this batch needs more than the ones before, or memory grew",
         "Steps fitted before, so the model and the optimizer do. Larger images or longer inputs, more objects, "
         "another phase of the training (a second optimizer, unfrozen layers), or a list that keeps tensors of every "
         "step.",
         (_KEPT, _ACCUMULATE, _SAVE),
         "Epoch: [3] [41/200] loss: 0.41\nEpoch: [3] [42/200] loss: 0.40\n"
         + trace("train.py in main", "net.py in forward", "torch/nn/modules/conv.py in forward"),
         _TORCH),
    Case(every(only_torch, in_own_line, _FORWARD, never(_BACKWARD), never(_EVALUATING),
               numbers(lambda read: read.tried is not None and read.tried >= _LARGE), own_line(_JOINS),
               never(own_line(_OF_HEAD))),
         "a GPU's memory is full at {the_place}, where the model's own code makes one large tensor",
         'The line is "{the_line}". It writes a new tensor, and the tensors that it is made of stay. The result grows '
         "with batch x length (or pixels) x features, here with all that is joined or combined, and each layer that "
         "does the same keeps its own until the backward pass.",
         (Fix("Print how large it is, to see which of its sizes to reduce.",
              ("print(x.shape, x.numel() * x.element_size() / 2**30, 'GiB')",)),
          Fix("Join or combine fewer features, or use them one after the other without joining them: the weights of "
              "the next layer can be split in the same way.", ("y = sum(w(x) for w, x in zip(weights, parts))",)),
          _ACCUMULATE, _SAVE),
         trace("train.py in main", "net.py in forward", "net.py in features", code="phi = torch.cat(parts, dim=-1)",
               message="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 4.55 GiB. GPU 0 has a total "
                       "capacity of 79.15 GiB of which 2.61 GiB is free."),
         "https://docs.pytorch.org/docs/stable/generated/torch.cat.html"),
    Case(every(_IN_LOOP, _BACKWARD),
         "a GPU's memory is full in the backward pass: gradients come on top of the activations",
         "The forward pass fits. The backward pass adds the gradients, and is the peak of a step. The batch and the "
         "size of its images or inputs decide it.",
         (_ACCUMULATE, _SAVE, _KEPT),
         trace("train.py in main", "torch/_tensor.py in backward", "torch/autograd/graph.py in _engine_run_backward"),
         _TORCH),
    Case(every(_IN_LOOP, _FORWARD),
         "a GPU's memory is full in the forward pass: the activations of a batch do not fit beside the model",
         "Activations grow with the batch and with the size of its images or inputs, and stay until the backward pass "
         "(an evaluation keeps none, and can fit before). "
         "Weights, gradients and optimizer states take the rest.",
         (_ACCUMULATE, _SAVE, _KEPT),
         trace("train.py in main", "net.py in forward", "torch/nn/modules/conv.py in forward"),
         _TORCH),
)
# fmt: on
