"""What do messages about gradients, shapes and types mean in a script that uses torch without a trainer?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import (
    either,
    ends_within,
    every,
    never,
    own_line,
    said,
    several_ranks,
    shown,
    source_line,
    within,
)

# fmt: off
_OF_PACKAGES = within(r"^(?:transformers|accelerate|peft|trl|deepspeed|lightning|pytorch_lightning|bitsandbytes|unsloth"
                      r"|llamafactory|swift|axolotl)\b|torch/utils/checkpoint|torch/distributed/")
_BACKWARD = ('Traceback (most recent call last):\n  File "/x/train.py", line 99, in main\n    loss.backward()\n'
             '  File "/x/site-packages/torch/_tensor.py", line 522, in backward\n    torch.autograd.backward(\n'
             "RuntimeError: element 0 of tensors does not require grad and does not have a grad_fn")
NO_GRADIENT = (
    Case(every(within(r"torch/_tensor\.py in backward"), never(_OF_PACKAGES), never(shown("keys_of_adapter"))),
         "the loss has no path to a parameter: the forward pass was probably cut off from autograd",
         "torch.no_grad() or inference_mode() around it, detach(), item(), numpy(), argmax(), a tensor that is made "
         "from values (torch.tensor(loss)), or integers as outputs end the path. So do parameters that are all frozen.",
         (Fix("Print where it ends: the first of these without a grad_fn.",
              ("print(out.requires_grad, out.grad_fn, loss.grad_fn)",
               "print(sum(p.requires_grad for p in model.parameters()))")),
          Fix("Keep losses as tensors, and compute the last forward pass outside of no_grad().",
              ("loss = criterion(model(x), y)  # no torch.tensor(), no argmax()",))),
         _BACKWARD, "https://docs.pytorch.org/docs/stable/notes/autograd.html"),
)
INTEGERS = (
    Case(every(either(source_line(r"requires_grad(?:_\(| ?= ?True)|\bParameter\("), own_line(r"\bParameter\(")),
               never(_OF_PACKAGES),
               never(source_line(r"\b(?:p|param|params|parameter|weight|v)\.requires_grad"))),
         "gradients are requested for a tensor of integers",
         "Only floating point numbers have gradients. torch.tensor([1, 2]) and torch.arange() make integers, and so "
         "are ids, labels and what argmax() returns.",
         (Fix("Make it of floating point numbers first.",
              ("torch.tensor([1.0, 2.0], requires_grad=True)", "x = x.float().requires_grad_()")),),
         'Traceback (most recent call last):\n  File "/x/train.py", line 91, in main\n'
         "    start = output.clone().detach().requires_grad_()\n"
         "RuntimeError: only Tensors of floating point dtype can require gradients",
         "https://docs.pytorch.org/docs/stable/generated/torch.Tensor.requires_grad_.html"),
)
INTEGER_LABELS = Case(
    every(within(r"."), never(_OF_PACKAGES)),
    "a loss got integer labels (Long), and compares floating point numbers",
    "Losses such as MSELoss, L1Loss and BCEWithLogitsLoss need labels of the output's type, and fail without it, some "
    "only in backward(). Labels that are made of Python integers or class numbers are Long.",
    (Fix("Convert the labels.", ("y = y.float()",)),
     Fix("If they are class numbers, use the loss for these.", ("nn.CrossEntropyLoss()",))),
    _BACKWARD.partition("RuntimeError")[0] + "RuntimeError: Found dtype Long but expected Float",
    "https://docs.pytorch.org/docs/stable/generated/torch.nn.MSELoss.html")
ATTENTION = (
    Case(ends_within(r"torch/nn/functional\.py in multi_head_attention_forward$", 1),
         "the keys or values of an attention layer have another batch size than its queries",
         "nn.MultiheadAttention and nn.Transformer take (length, batch, features), unless they are made with "
         "batch_first=True. With (batch, length, features), they take the lengths of source and target for batch "
         "sizes, and these differ.",
         (Fix("Make the layers with batch_first=True, or transpose the inputs.",
              ("nn.Transformer(..., batch_first=True)", "memory = memory.transpose(0, 1)")),
          Fix("Print the shapes before the call.", ("print(query.shape, key.shape, value.shape)",))),
         'Traceback (most recent call last):\n  File "/x/train.py", line 91, in main\n    y = model(x)\n'
         '  File "/x/site-packages/torch/nn/functional.py", line 5382, in multi_head_attention_forward\n'
         "    k = k.view(k.shape[0], bsz * num_heads, head_dim).transpose(0, 1)\n"
         "RuntimeError: shape '[16, 64, 192]' is invalid for input of size 1228800",
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.MultiheadAttention.html"),
)
OF_ANOTHER_TENSOR = Case(
    own_line(r"\.(?:reshape|view)\(\s*(?:[\w.]+\.shape|[\w.]+\.size\(\)|\*[\w.]+\.shape)\s*\)"),
    "a tensor of {size} elements should get the shape [{shape}] of another tensor ({the_place})",
    "The line takes the whole shape from the other tensor: {the_line}. So no written number is at fault, and a smaller "
    "batch would change both. What the model returns has another size than that: padding that was added and not cut "
    "off again, another resolution or stride, one dimension more (channels, time), or a sample that was resized on one "
    "side only.",
    (Fix("Print both shapes, and make the model return the size that is compared.",
         ("print(out.shape, y.shape)", "out = out[:, :y.shape[1], :y.shape[2]]  # cuts off padding")),),
    'Traceback (most recent call last):\n  File "/x/train.py", line 91, in main\n    f(out.reshape(y.shape), y)\n'
    "RuntimeError: shape '[8, 30, 30]' is invalid for input of size 8192",
    "https://docs.pytorch.org/docs/stable/generated/torch.reshape.html")
_TYPES = ('Traceback (most recent call last):\n  File "/x/train.py", line 91, in main\n    y = a @ b\n'
          "RuntimeError: {message}")
TYPES = (
    Case(every(said("expected scalar type Long"),
               ends_within(r"torch/nn/functional\.py in (?:cross_entropy|nll_loss|embedding|one_hot)$", 1)),
         "labels or ids are no integers of 64 bits (Long), which the function needs",
         "Class numbers and token ids are indices. A table or numpy gives floats or int32, and a loss like MSE needs "
         "floats, so the same labels do not fit both.",
         (Fix("Convert them.", ("y = y.long()",)),
          Fix("If the labels are numbers to predict, or several classes at once, use another loss.",
              ("nn.MSELoss()", "nn.BCEWithLogitsLoss()"))),
         'Traceback (most recent call last):\n  File "/x/train.py", line 91, in main\n    loss = ce(out, y)\n'
         '  File "/x/site-packages/torch/nn/functional.py", line 3053, in cross_entropy\n'
         "    return torch._C._nn.cross_entropy_loss(\nRuntimeError: expected scalar type Long but found Float",
         "https://docs.pytorch.org/docs/stable/generated/torch.nn.CrossEntropyLoss.html"),
    Case(every(said(r"dtype, but got:? .*\b(?:Long|Int|long|int|Bool|bool)\b|found (?:Long|Int)\b"),
               never(said("expected scalar type Long"))),
         "one of two tensors holds integers, and the other floating point numbers",
         "Matrix products and layers do not convert them. Ids, labels, counts and masks are integers, and so is a "
         "tensor that is made with the type of another one.",
         (Fix("Convert the integers before.", ("x = x.float()", "x = x.to(weight.dtype)")),),
         _TYPES.format(message="expected m1 and m2 to have the same dtype, but got: float != long int"),
         "https://docs.pytorch.org/docs/stable/tensor_attributes.html"),
    Case(every(said(r"\b[Dd]ouble\b"), never(_OF_PACKAGES)),
         "one of two tensors is float64 (Double), which numpy makes, and the other float32",
         "torch.from_numpy(), torch.tensor(array) and Python's own floats in an array keep 64 bits. Layers are "
         "float32 by default, and do not convert their input.",
         (Fix("Make the input float32 where it is created.",
              ("x = torch.from_numpy(array).float()", "array = array.astype('float32')")),),
         _TYPES.format(message="mat1 and mat2 must have the same dtype, but got Double and Float"),
         "https://docs.pytorch.org/docs/stable/tensor_attributes.html"),
)
OTHER_PARAMETERS = Case(
    every(within(r"torch/optim/optimizer\.py in load_state_dict"), never(_OF_PACKAGES), never(several_ranks)),
    "the optimizer state in the checkpoint is for other parameters: the optimizer here has more or fewer, or other "
    "groups",
    "The model was changed since it was saved (layers, a head, frozen parts), the optimizer was made from other "
    "parameters or in other groups, or this state is another optimizer's (of a second network).",
    (Fix("Compare the two.",
         ("print([len(g['params']) for g in checkpoint['optimizer']['param_groups']])",
          "print([len(g['params']) for g in optimizer.param_groups])")),
     Fix("Or load the weights only, and start with a new optimizer.",
         ("model.load_state_dict(checkpoint['model'])  # not optimizer.load_state_dict(...)",))),
    'Traceback (most recent call last):\n  File "/x/fit.py", line 9, in main\n    opt.load_state_dict(ck["opt"])\n'
    '  File "/x/site-packages/torch/optim/optimizer.py", line 9, in load_state_dict\n    raise ValueError(\n'
    "ValueError: loaded state dict contains a parameter group that doesn't match the size of optimizer's group",
    "https://docs.pytorch.org/docs/stable/generated/torch.optim.Optimizer.load_state_dict.html")
NO_PROBABILITIES = Case(
    said(r"probability tensor contains either"),
    "torch.multinomial() got probabilities that are NaN, infinite or below 0 ({the_place})",
    "What it draws from is computed from the model's output, and that output was NaN or infinite, or is not a "
    "probability: fp16 that overflows (models that were trained in bf16 do in fp16), weights that are NaN after a "
    "training that diverged, a temperature of 0, a row in which everything is masked, or scores without softmax().",
    (Fix("Print the output and the probabilities of that step, and go back to the first that is not finite.",
         ("print(logits.isfinite().all(), probs.min(), probs.sum(-1))",)),
     Fix("Compute in bf16 or fp32, to compare.", ("model.to(torch.bfloat16)", "model.float()")),
     Fix("If the weights are NaN, use an earlier checkpoint.",
         ("print([n for n, p in model.named_parameters() if not p.isfinite().all()])",))),
    'Traceback (most recent call last):\n  File "/x/talk.py", line 9, in draw\n    nxt = torch.multinomial(probs, 1)\n'
    "RuntimeError: probability tensor contains either `inf`, `nan` or element < 0",
    "https://docs.pytorch.org/docs/stable/generated/torch.multinomial.html")
CUBLAS_HANDLE = (
    Case(said(r"cublasCreate"),
         "cuBLAS could not create its handle on the GPU: probably the GPU's memory is full",
         "The first matrix product of a process needs memory beside what torch holds. If there is enough, an earlier "
         "kernel failed (an index out of range, such as a label that is not below the number of classes), or a cuBLAS "
         "other than torch's was loaded.",
         (Fix("Look at the GPU's memory, and use a smaller batch or another GPU.", ("nvidia-smi",)),
          Fix("Run one step on the CPU: it reports an index that is out of range with its line.",
              ("CUDA_VISIBLE_DEVICES= python train.py",)),
          Fix("Check whether another cuBLAS is loaded first.", ("mgpu doctor --only library_path_shadows_wheels",))),
         "RuntimeError: CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`",
         "https://docs.nvidia.com/cuda/cublas/index.html#cublascreate"),
)
# fmt: on
