"""What torch's messages of sizes and types say in scripts of all kinds: which index, which type, which dimension.

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

LOSS = ("torch/nn/functional.py", "f", "return torch._C._nn.f(input, target)")
CONV = ("torch/nn/modules/conv.py", "_conv_forward", "return F.conv2d(")
COLLATE = ("torch/utils/data/_utils/collate.py", "default_collate", "raise TypeError(")
LOADER = ("torch/utils/data/dataloader.py", "_next_data", "data = self._dataset_fetcher.fetch(index)")
BACKWARD = ("torch/_tensor.py", "backward", "torch.autograd.backward(")
BEYOND = "IndexError: index {} is out of bounds for {} {} with size {}"
LACKS = "RuntimeError: \"{}\" not implemented for '{}'"
COLLATED = "TypeError: default_collate: batch must contain tensors, numpy arrays, numbers, dicts or lists; found {}"
CASES = [
    # Which of several indices: numpy counts all dimensions, torch not those that an int or a slice took away.
    ("v = table[:, j]", (), BEYOND.format(3, "dimension", 1, 3), "j is, or holds, 3, and table has 3 elements in that",
     "numbers from 1 on are one too high"),
    ("p = logp[torch.arange(n), y]", (), BEYOND.format(12, "dimension", 1, 10), "y is, or holds, 12", "print(logp"),
    ("p = q[b, acts]", (), BEYOND.format(12, "dimension", 0, 10), "b or acts is, or holds, 12", "print(q.shape)"),
    ("p = q[np.arange(n), y]", (), BEYOND.format(12, "axis", 1, 10), "y is, or holds, 12", "print(q.shape)"),
    ("p = f(q)[y] + r[z]", (), BEYOND.format(12, "dimension", 0, 10), "the dimension has 10 elements (fit.py:7",
     'The line is "p = f(q)[y] + r[z]"'),
    # Which type: what to convert.
    ("y = a % 2", (), LACKS.format("remainder_cuda", "ComplexFloat"), "the type ComplexFloat", "view_as_real"),
    ("y = a.histc(9)", (), LACKS.format("histc_cuda", "Long"), "the type Long", "x.float()"),
    ("y = a.cumsum(0)", (), LACKS.format("cumsum_cuda", "Bool"), "the type Bool", "mask.float()"),
    ("y = a & b", (), LACKS.format("bitwise_and_cpu", "Float"), "the type Float", "mask.bool()"),
    ("loss = F.nll_loss(o.argmax(1), y)", (LOSS,), LACKS.format("nll_loss_out_frame", "Long"),
     "the loss got an output of the type Long", "argmax()"),
    ("loss = F.nll_loss(o, y)", (LOSS,), LACKS.format("nll_loss_forward_reduce_cuda_kernel_2d_index", "Int"),
     "the labels of the loss have the type Int", "labels.long()"),
    ("u = self.users(x[:, 0])", (LOSS,), "RuntimeError: Expected tensor for argument #1 'indices' to have one of the "
     "following scalar types: Long, Int; but got torch.FloatTensor instead (while checking arguments for embedding)",
     "the indices of an embedding are of the type Float", "users, items"),
    ("loss.backward()", (BACKWARD,), "RuntimeError: Found dtype Long but expected Float",
     "a loss got integer labels (Long)", "CrossEntropyLoss"),
    ("y = conv(x.half())", (CONV,), LACKS.format("slow_conv2d_cpu", "Half"),
     "torch has no slow_conv2d_cpu for the type Half on the CPU", "model.float()"),
    ("q, r = torch.linalg.qr(a)", (), LACKS.format("geqrf_cuda", "BFloat16"), "BFloat16 on a GPU", "y = f(x.float())"),
    # numpy: which of its three reasons.
    ("a = x.numpy()", (), "TypeError: can't convert mps:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
     "tensor to host memory first.", "a tensor on mps:0 is converted", ".cpu()"),
    ("plt.plot(losses)", (), "RuntimeError: Can't call numpy() on Tensor that requires grad. Use "
     "tensor.detach().numpy() instead.", "a tensor that requires gradients is converted", "loss.item()"),
    ("a = x.numpy()", (), "TypeError: Got unsupported ScalarType BFloat16", "of the type BFloat16", ".float()"),
    # Shapes: what the numbers say.
    ("x = x.view(-1, 16 * 5 * 5)", (), "RuntimeError: shape '[-1, 400]' is invalid for input of size 179776",
     "a tensor of 179776 elements", "the batch size is not at fault"),
    ("x = x.view(64, 100)", (), "RuntimeError: shape '[64, 100]' is invalid for input of size 1600",
     "[64, 100] (fit.py:7", "would have 16 in place of 64"),
    ("x = x.view(8, 30)", (), "RuntimeError: shape '[8, 30]' is invalid for input of size 256",
     "[8, 30]", "240 elements, and the tensor 256"),
    ("m, v = torch.split(h, [64, 64], 1)", (), "RuntimeError: split_with_sizes expects split_sizes to sum exactly to "
     "64 (input tensor's size at dimension 1), but got split_sizes=[64, 64]", "which have the sum 128", "chunk(2"),
    ("y = net(x)", (MODULE, CONV), "RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got "
     "input of size: [64, 784]", "too few dimensions", "flattened"),
    ("y = net(x)", (MODULE, CONV), "RuntimeError: Expected 3D (unbatched) or 4D (batched) input to conv2d, but got "
     "input of size: [2, 8, 3, 9, 9]", "too many dimensions", "x.flatten(0, 1)"),
    ("loss = bce(out, real)", (LOSS,), "ValueError: Target size (torch.Size([128])) must be the same as input size "
     "(torch.Size([100]))", "the shape [128], but predictions [100]", "torch.ones_like(out)"),
    ("loss = bce(out, m)", (LOSS,), "ValueError: Target size (torch.Size([4, 1, 256, 256])) must be the same as input "
     "size (torch.Size([4, 1, 252, 252]))", "[4, 1, 256, 256]", "F.interpolate"),
    ("loss = bce(out, y)", (LOSS,), "ValueError: Target size (torch.Size([8])) must be the same as input size "
     "(torch.Size([8, 5]))", "[8], but predictions [8, 5]", "F.one_hot"),
    ("loss = bce(out, y)", (LOSS,), "ValueError: Target size (torch.Size([8])) must be the same as input size "
     "(torch.Size([8, 1]))", "[8], but predictions [8, 1]", "out.squeeze(-1)"),
    ("loss = bce(out, y)", (LOSS,), "ValueError: Target size (torch.Size([8, 4])) must be the same as input size "
     "(torch.Size([8, 5]))", "[8, 4], but predictions [8, 5]", "y.shape[1]"),
    ("loss = ce(out, y)", (LOSS,), "ValueError: Expected input batch_size (1024) to match target batch_size (64).",
     "1024 predictions and 64 labels", "exactly 16 rows of the output for each label"),
    ("loss = ce(out, y)", (LOSS,), "ValueError: Expected input batch_size (16) to match target batch_size (64).",
     "16 predictions and 64 labels", "exactly 4 labels"),
    ("loss = ce(out, y)", (LOSS,), "ValueError: Expected input batch_size (60) to match target batch_size (64).",
     "60 predictions and 64 labels", "different numbers of samples"),
    ("x = torch.tensor(rows)", (), "ValueError: expected sequence of length 5 at dim 1 (got 4)",
     "a list whose rows have different lengths is made into a tensor", "len(row)"),
    # What cannot be joined, drawn or sent.
    ("for x, y in loader:", (LOADER, COLLATE), COLLATED.format("<class 'PIL.Image.Image'>"), "PIL.Image", "ToTensor"),
    ("for x, y in loader:", (LOADER, COLLATE), COLLATED.format("<class 'NoneType'>"), "NoneType", "s is not None"),
    ("for x, y in loader:", (LOADER, COLLATE), COLLATED.format("object"), "returns object", "astype('float32')"),
    ("for x, y in loader:", (LOADER, COLLATE), COLLATED.format("<class 'geo.Graph'>"), "geo.Graph", "samples: samples"),
    ("x = torch.randn(4, device=d, generator=g)", (), "RuntimeError: Expected a 'cuda' device type for generator but "
     "found 'cpu'", "fit.py:7 in main passes is on cpu", "on its own device only"),
    ("x = torch.randn(4, device=d, generator=g)", (), "RuntimeError: Expected a 'mps:0' generator device but found "
     "'cpu'", "passes is on cpu, and the numbers are drawn on mps", "generator.device"),
    ("pool.map(lambda f: work(f), files)", (), "_pickle.PicklingError: Can't pickle <function <lambda> at 0x7f1>: "
     "attribute lookup <lambda> on __main__ failed", "what another process should run", "pickle.dumps(argument)"),
    ("best = copy.deepcopy(out)", (), "RuntimeError: Only Tensors created explicitly by the user (graph leaves) "
     "support the deepcopy protocol at the moment.", "is a tensor of a graph, or holds one", "x.detach().clone()"),
]  # fmt: skip


@pytest.mark.parametrize(("code", "below", "error", "title", "words"), CASES)
def test_the_values_of_the_message_decide(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, why = explained(tmp_path, frames((SCRIPT, "main", code), *below) + f"{error}\n")
    assert title in found and words in f"{found} {why}", (found, why)


TRANSFORMERS = ("transformers/models/bert/modeling_bert.py", "forward", "x = x.view(shape)")


@pytest.mark.parametrize(
    ("code", "below", "error", "words"),
    [
        # In a framework's own code, its reasons are kept.
        ("y = model(x)", (TRANSFORMERS,), BEYOND.format(512, "dimension", 0, 512), "position"),
        ("y = model(x)", (TRANSFORMERS,), "RuntimeError: shape '[4, -1, 64]' is invalid for input of size 1000",
         "per rank"),
        ("loss = model(x)", (TRANSFORMERS, LOSS),
         "ValueError: Expected input batch_size (60) to match target batch_size (64).", "shift labels"),
        ("trainer.train()", (TRANSFORMERS,), "ValueError: expected sequence of length 5 at dim 1 (got 4)", "collator"),
        ("for x in loader:", (LOADER,), "AttributeError: Can't pickle local object 'main.<locals>.<lambda>'",
         "num_workers=0"),
        ("for x in loader:", (LOADER,), "RuntimeError: Expected a 'cuda' device type for generator but found 'cpu'",
         "set_default_device"),
        # The optimizer's case says more than the operation's name.
        ("optimizer.step()", (("torch/optim/adam.py", "_single_tensor_adam", "lerp()"),),
         LACKS.format("lerp_kernel_scalar", "Half"), "outside of autocast"),
    ],
)  # fmt: skip
def test_a_framework_keeps_its_reasons(
    code: str, below: tuple[tuple[str, str, str], ...], error: str, words: str, tmp_path: Path
) -> None:
    _, found, why = explained(tmp_path, frames((SCRIPT, "main", code), *below) + f"{error}\n")
    assert words in why, (found, why)
