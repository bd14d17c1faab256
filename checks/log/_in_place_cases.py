"""Which change in place made the backward pass fail? Cases of `log_changed_in_place`."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import either, every, never, said, several_ranks, shown, within

_AUTOGRAD = "https://docs.pytorch.org/docs/stable/notes/autograd.html#in-place-operations-with-autograd"
_MESSAGE = (
    "RuntimeError: one of the variables needed for gradient computation has been modified by an inplace operation: "
    "[torch.cuda.FloatTensor [{size}]]{made} is at version {there}; expected version {wanted} instead.\n"
)
_TO_STEP = r"which is output \d+ of (?:TBackward|AsStridedBackward)\d?,"
_OF_ACTIVATION = (
    r"which is output \d+ of \w*(?:Relu|ReLU|Sigmoid|Tanh|Softmax|Dropout|Elu|Gelu|Silu|Hardtanh|Exp|Sqrt|Norm|Div|Mul|"
    r"Convolution|Addmm|Add|Sub|View|Slice|Select|Cat|Clamp|Permute|Transpose)\w*Backward\w*,"
)

# fmt: off
CHANGED_IN_PLACE = (
    Case(said(r"which is output \d+ of (?:torch::autograd::)?CopySlices"),
         "a tensor was written piece by piece (x[:, i] = ...) after an operation had used it",
         "CopySlices is an assignment to a part of a tensor. Each makes a new version of the whole tensor, and what "
         "used it before needs the old one for its backward pass: embeddings or hidden states that a loop replaces "
         "position by position and passes through the model each time.",
         (Fix("Collect the pieces in a list, and join them once.",
              ("parts.append(h); x = torch.stack(parts, dim=1)",
               "x = torch.where(mask, new, x)  # not: x[mask] = new")),
          Fix("Or write into a copy in each round.", ("x = x.clone(); x[:, i] = h",)),
          Fix("Let torch show the call that needed the old version.", ("torch.autograd.set_detect_anomaly(True)",))),
         _MESSAGE.format(size="1, 714, 2048", made=", which is output 0 of torch::autograd::CopySlices,", there=7,
                         wanted=0), _AUTOGRAD),
    Case(said(_TO_STEP),
         "an optimizer probably changed weights before another backward pass through them",
         "The tensor is the weight of a layer, and optimizer.step() changed it between the forward pass and this "
         "backward pass: two losses or two networks (generator and discriminator, actor and critic), of which one is "
         "updated too early, or retain_graph=True over several steps.",
         (Fix("Run all backward passes before the first step.",
              ("loss_d.backward(); loss_g.backward()", "optimizer_d.step(); optimizer_g.step()")),
          Fix("Or cut the graph where the other network needs no gradient, or run the forward pass again after the "
              "step.", ("d_loss = criterion(discriminator(fake.detach()), zeros)",))),
         _MESSAGE.format(size="128, 1", made=", which is output 0 of AsStridedBackward0,", there=2, wanted=1),
         "https://github.com/pytorch/pytorch/issues/39141"),
    Case(every(either(shown("ddp"), several_ranks, within(r"torch/nn/parallel/distributed\.py in "),
                      within(r"accelerate/accelerator\.py in backward")),
               said(r"cuda\.LongTensor \[1, \d+\]\] is at version")),
         "the model was probably called twice before backward, and DDP overwrote one of its buffers in between",
         "A tensor of whole numbers with one row is probably a buffer of the model: position ids or token type ids, "
         "which an embedding needs for its backward pass. DDP copies rank 0's buffers to all ranks before each "
         "forward pass. With two passes in one step (query and document, anchor and negative, teacher and student), "
         "the second copy changes what the first pass has saved.",
         (Fix("Call the model once, with both parts as one batch.", ("out = model(torch.cat([query, document]))",)),
          Fix("Or do not broadcast buffers, if the model has none that change, such as those of BatchNorm.",
              ("TrainingArguments(ddp_broadcast_buffers=False)",
               "DistributedDataParallel(model, broadcast_buffers=False)",
               "DistributedDataParallelKwargs(broadcast_buffers=False)  # with accelerate"))),
         "INFO: Reducer buckets have been rebuilt in this iteration.\n"
         + _MESSAGE.format(size="1, 512", made="", there=4, wanted=3).replace("FloatTensor", "LongTensor"),
         "https://github.com/pytorch/pytorch/issues/22095"),
    Case(every(either(shown("ddp"), several_ranks, within(r"torch/nn/parallel/distributed\.py in ")),
               never(said(_OF_ACTIVATION))),
         "a tensor that the backward pass needs was modified before it ran",
         "Under DDP the cause is often two forward passes before one backward: DDP copies the buffers (BatchNorm) "
         "again before each.",
         (Fix("Run one forward per backward, or do not broadcast buffers.",
              ("DistributedDataParallel(model, broadcast_buffers=False)",
               "DistributedDataParallelKwargs(broadcast_buffers=False)  # with accelerate")),
          Fix("If a discriminator gets real and generated samples, pass them as one batch.",
              ("real, fake = discriminator(torch.cat([x, g])).chunk(2)",))),
         "INFO: Reducer buckets have been rebuilt in this iteration.\n"
         + _MESSAGE.format(size="768", made="", there=4, wanted=3),
         "https://github.com/pytorch/pytorch/issues/22095"),
    Case(said(_OF_ACTIVATION),
         "the output of an operation was changed in place, and its backward pass needs it unchanged",
         "The message names the operation (\"output 0 of ReluBackward0\"). Something wrote into its result: x += y "
         "after it, x[mask] = 0, or an activation with inplace=True behind it.",
         (Fix("Make a new tensor instead.", ("x = x + y  # not: x += y", "nn.ReLU(inplace=False)",
                                             "x = torch.where(mask, 0.0, x)  # not: x[mask] = 0")),
          Fix("Let torch show which forward call made it.", ("torch.autograd.set_detect_anomaly(True)",))),
         _MESSAGE.format(size="8, 64", made=", which is output 0 of ReluBackward0,", there=1, wanted=0),
         _AUTOGRAD),
)
# fmt: on
