"""What torch refuses in a script of the user's own: per class of messages, what applies and what must not.

The messages are torch's own, from scripts that provoked them (torch 2.13 on the CPU).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE, SCRIPT, frames
from tests.test_log_meanings import explained

_NORM = ("torch/nn/modules/normalization.py", "forward", "return F.layer_norm(")
_BATCH_NORM = ("torch/nn/modules/batchnorm.py", "_check_input_dim", "raise ValueError(")
_ATTENTION = ("torch/nn/modules/activation.py", "forward", "F.multi_head_attention_forward(")
_SEQUENCE = ("torch/nn/modules/container.py", "forward", "input = module(input)")
_RNN = ("torch/nn/modules/rnn.py", "forward", "self.check_forward_args(input, hx, batch_sizes)")
_COLLATE = ("torch/utils/data/_utils/collate.py", "collate", "elem_size = len(next(it))")
_LOADING = ("torch/serialization.py", "_legacy_load", "magic_number = pickle_module.load(f)")
_MADE = ("torch/nn/modules/module.py", "__setattr__", "raise TypeError(")
_LOSS = ("torch/nn/functional.py", "mse_loss", "return torch._C._nn.mse_loss(")
_FSDP = ("torch/distributed/fsdp/fully_sharded_data_parallel.py", "forward", "self._fsdp_wrapped_module(*args)")
Frames = tuple[tuple[str, str, str], ...]


def answer(folder: Path, code: str, below: Frames, error: str) -> tuple[str, str]:
    """The title of the first cause, and all of its texts."""
    found = explained(folder, f"{frames((SCRIPT, 'forward', code), *below)}{error}\n")
    return found[1], " | ".join(found)


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        # Features: the layer as the line calls it, and both sizes.
        ("x = self.norm(x)", (MODULE, _NORM),
         "RuntimeError: Given normalized_shape=[21], expected input with shape [*, 21], but got input of size[4, 20]",
         "self.norm normalizes over the last sizes [21], and its input has the shape [4, 20] (fit.py:7 in forward)",
         "nn.LayerNorm(x.shape[-1])"),
        ("x = F.layer_norm(x, n)", (), "RuntimeError: Given normalized_shape=[32], expected input with shape "
                                       "[*32], but "
         "got input of size[4, 20]", "the layer normalizes over the last sizes [32]", "print(x.shape)"),
        ("x = self.body(x)", (MODULE, _SEQUENCE, MODULE, _NORM), "RuntimeError: Given normalized_shape=[8], expected "
         "input with shape [*, 8], but got input of size[4, 20]", "a layer in self.body normalizes", "another order"),
        ("x, _ = self.att(x, x, x)", (MODULE, _ATTENTION),
         "AssertionError: was expecting embedding dimension of 64, but got 32",
         "self.att is made for 64 features per token (embed_dim), and the query has 32", "config"),
        # Channels.
        ("x = self.bn(x)", (MODULE, _BATCH_NORM), "RuntimeError: running_mean should contain 32 elements not 16",
         "the layer is made for 16 channels, and its input has 32", "dimension 1"),
        ("x = self.act(x)", (), "RuntimeError: Mismatch of parameter numbers and input channel size. Found parameter "
         "numbers = 16 and channel size = 8.", "the layer has 16 parameters, and its input 8 channels", "movedim"),
        # Dimensions.
        ("x = self.bn(x)", (MODULE, _BATCH_NORM), "ValueError: expected 4D input (got 2D input)",
         "the layer takes 4D input, and gets 2D", "flatten(1)"),
        ("x = self.bn(x)", (MODULE, _BATCH_NORM), "ValueError: expected 2D or 3D input (got 4D input)",
         "the layer takes 2D or 3D input, and gets 4D", "unsqueeze(0)"),
        ("x = F.softmax(x, dim=2)", (), "IndexError: Dimension out of range (expected to be in range of [-2, 1], "
                                        "but got "
         "2)", "an operation uses dimension 2 of a tensor that has 2 dimensions", "-2 to 1 is possible"),
        ("x = x.unsqueeze(3)", (), "IndexError: Dimension out of range (expected to be in range of [-2, 1], but got 3)",
         "a new dimension is put at 3 of a tensor that has 1 dimension", "-2 to 1 is possible"),
        # Batches, states, masks.
        ("x = self.cell(x, h)", (), "RuntimeError: Input batch size 4 doesn't match hidden0 batch size 3",
         "the input of the layer has 4 samples, and the hidden state 3", "drop_last"),
        ("x = self.tf(s, t)", (), "RuntimeError: the batch number of src and tgt must be equal",
         "different batch sizes", "batch_first=True"),
        ("y = self.rnn(x, h)", (MODULE, _RNN), "RuntimeError: For batched 3-D input, hx should also be 3-D but got 2-D "
         "tensor", "the input of self.rnn is 3-D, and hx must be 3-D, not 2-D", "(h, c)"),
        ("y = self.rnn(x, h)", (MODULE, _RNN), "IndexError: index 1 is out of bounds for dimension 0 with size 1",
         "an LSTM gets one tensor as its state, and takes two: (h, c)", "zeros_like(h0)"),
        ("x = self.att(x, x, x, m)", (), "AssertionError: only bool and floating types of key_padding_mask are "
                                         "supported",
         "key_padding_mask of the layer has neither bools nor floating point numbers", "mask == 0"),
        ("x = F.scaled_dot_product_attention(q, k, v, m)", (), "RuntimeError: Expected attn_mask dtype to be bool or "
         "float or to match query dtype, but got attn_mask.dtype: long int and  query.dtype: float instead.",
         "the attention mask has the type long int, and the query float", ".bool()"),
        ("x = self.att(x, x, x, m)", (MODULE, _ATTENTION), "RuntimeError: The shape of the 2D attn_mask is "
         "torch.Size([12, 12]), but should be (10, 10).", "the 2D attn_mask has the shape [12, 12], and must be "
                                                          "[10, 10]",
         "key_padding_mask"),
        # Lengths.
        ("x = F.pad(x, p, mode='reflect')", (), "RuntimeError: Argument #4: Padding size should be less than the "
         "corresponding input dimension, but got: padding (20, 20) at dimension 3 of input [2, 3, 16, 16]",
         "padding of (20, 20) by reflection is not smaller than dimension 3 of the input [2, 3, 16, 16]", "x.shape"),
        ("x = self.conv(x)", (MODULE, ("torch/nn/modules/conv.py", "forward", "return self._conv_forward(input)")),
         "RuntimeError: Calculated padded input size per channel: (4 x 4). Kernel size: (7 x 7). Kernel size can't be "
         "greater than actual input size", "the input of self.conv, (4 x 4) with its padding, is smaller than "
                                           "the kernel "
         "(7 x 7)", "Resize"),
    ],
)
def test_layers(code: str, below: Frames, error: str, title: str, words: str, tmp_path: Path) -> None:
    found, texts = answer(tmp_path, code, below, error)
    assert title in found
    assert words in texts


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("y = torch.bmm(a, b)", (), "RuntimeError: batch1 must be a 3D tensor", "bmm() takes 3D tensors", "a @ b"),
        ("y = torch.mv(a, b)", (), "RuntimeError: size mismatch, got input (4), mat (4x5), vec (4)",
         "a matrix of 4x5 is multiplied with a vector of 4 elements", "print(a.shape, b.shape)"),
        ("x = x.t()", (), "RuntimeError: t() expects a tensor with <= 2 dimensions, but self is 3D",
         "t() transposes matrices, and the tensor has 3 dimensions", "transpose(-1, -2)"),
        ("n = len(loss)", (), "TypeError: len() of a 0-d tensor", "which has no dimensions", "squeeze(-1)"),
        ("x = x.reshape(-1, -1)", (), "RuntimeError: only one dimension can be inferred", "-1 twice", "x.shape[0]"),
        ("x = x.gather(1, i)", (), "RuntimeError: gather(): Expected dtype int32/int64 for index",
         "the index of gather() does not hold integers of the type that it takes", "index.long()"),
        ("x = x[i, j]", (), "IndexError: shape mismatch: indexing tensors could not be broadcast together with shapes "
         "[6], [5]", "two indices of the shapes [6], [5] are used together", "values.shape"),
        ("x = 1 - mask", (), "RuntimeError: Subtraction, the `-` operator, with a bool tensor is not supported. If you "
         "are trying to invert a mask, use the `~` or `logical_not()` operator instead.",
         "a bool tensor in a subtraction", "~mask"),
        ("x = x.masked_fill(m, 0)", (), "RuntimeError: masked_fill_ only supports boolean masks, but got mask "
                                        "with dtype "
         "float", "the mask of masked_fill() has the type float, not bool", "mask.bool()"),
        ("x = x + [1]", (), "TypeError: unsupported operand type(s) for +: 'Tensor' and 'list'",
         "a tensor and a list are combined with +", "torch.tensor(values)"),
        ("x = torch.tensor(v)", (), "RuntimeError: Could not infer dtype of NoneType",
         "a tensor is made of None, or of a list with None in it", "print(repr(values))"),
        ("n = x[k]", (), "TypeError: only integer tensors of a single element can be converted to an index",
         "not one whole number is used as a count or an index", "int(n)"),
        ("m = x.max()", (), "RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0. "
                            "Specify "
         "the reduction dim with the 'dim' argument.", "max() of a tensor without elements", "if y.numel()"),
        ("m = x.argmax(0)", (), "IndexError: argmax(): Expected reduction dim 0 to have non-zero size.",
         "argmax() of a tensor without elements", "x.shape"),
        ("v = x.topk(5)", (), "RuntimeError: selected index k out of range", "topk() asks for more elements", "min(k"),
        ("i = torch.multinomial(p, 1)", (), "RuntimeError: invalid multinomial distribution (sum of "
                                            "probabilities <= 0)",
         "weights that are all 0", "isnan"),
        ("x = batch['ids']", (), "IndexError: too many indices for tensor of dimension 2",
         "batch is a tensor, and fit.py:7 in forward reads its key 'ids' as if it were a dict", "return {'ids'"),
        ("n /= 2", (), "RuntimeError: result type Float can't be cast to the desired output type Long",
         "a result of the type Float cannot be written into a tensor of the type Long", "x = x / 2"),
        ("x += 1", (), "RuntimeError: unsupported operation: more than one element of the written-to tensor "
                       "refers to a "
         "single memory location. Please clone() the tensor before performing the operation.",
         "an expanded tensor is changed in place", "clone()"),
        ("a = float(x)", (), "ValueError: only one element tensors can be converted to Python scalars",
         "a tensor with several values is used as one number", "mean().item()"),
        ("a = x.item()", (), "RuntimeError: a Tensor with 4 elements cannot be converted to Scalar",
         "a tensor with 4 elements is used as one number", "torch.stack"),
        ("x = torch.zeros(n, 2)", (), "RuntimeError: Trying to create tensor with negative dimension -1: [-1, 2]",
         "a tensor with the negative size -1 is made: [-1, 2]", "max(0, n)"),
        ("y = a @ b", (), "RuntimeError: mat1 and mat2 must have the same dtype, but got Half and Float",
         "have the types Half and Float", "autocast"),
    ],
)
def test_operations(code: str, below: Frames, error: str, title: str, words: str, tmp_path: Path) -> None:
    found, texts = answer(tmp_path, code, below, error)
    assert title in found
    assert words in texts


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words"),
    [
        ("loss = F.cross_entropy(o, y)", (), "RuntimeError: expected target dtype to be Long or Byte, but got Float",
         "the labels of the loss have the type Float, and class numbers are int64", "y.long()"),
        ("loss = F.cross_entropy(o, y)", (), "RuntimeError: Expected target size [2, 4], got [2, 3]",
         "the output needs labels of the shape (2, 4), and they are (2, 3)", "transpose(1, 2)"),
        ("loss = bce(o, y)", (), "ValueError: Using a target size (torch.Size([6])) that is different to the "
                                 "input size "
         "(torch.Size([6, 4])) is deprecated. Please ensure they have the same size.",
         "the labels of the loss have the shape [6], and the output [6, 4]", "squeeze(-1)"),
        ("out.backward(g)", (("torch/_tensor.py", "backward", "torch.autograd.backward("),),
         "RuntimeError: Mismatch in shape: grad_output[0] has a shape of torch.Size([6]) and output[0] has a shape of "
         "torch.Size([6, 4]).", "backward() gets a gradient of the shape [6] for an output of the shape [6, 4]",
         "ones_like(out)"),
        ("g = torch.autograd.grad(y, x)", (), "RuntimeError: One of the differentiated Tensors does not require grad",
         "the gradient of a tensor is requested that has no requires_grad", "requires_grad_()"),
        ("row.mul_(2)", (), "RuntimeError: Output 0 of Unbind is a view and is being modified inplace. This view "
                            "is the "
         "output of a function that returns multiple views.", "a view that Unbind returned is changed", "no_grad"),
        ("loss.backward()", (), "RuntimeError: function ClipBackward returned an incorrect number of gradients "
                                "(expected "
         "2, got 1)", "ClipBackward returns 1 gradients, and forward() has 2 arguments", "grad_x, None"),
        ("opt = SGD(model.state_dict(), lr=1)", (), "TypeError: optimizer can only optimize Tensors, but one of the "
         "params is str", "the optimizer gets a str among its parameters", "model.parameters()"),
        ("opt = Adam(p, lr=-1)", (), "ValueError: Invalid learning rate: -1",
         "the optimizer gets an invalid learning rate: -1", "float(config['lr'])"),
        ("s = StepLR(model, 1)", (), "TypeError: Linear is not an Optimizer",
         "the scheduler gets a Linear, which is no torch.optim.Optimizer", "is wrapped"),
        ("loader = DataLoader(d, 8 / 2)", (), "ValueError: batch_size should be a positive integer value, but got "
         "batch_size=4.0", "the DataLoader gets batch_size=4.0", "// ranks"),
        ("x = loader[0]", (), "TypeError: 'DataLoader' object is not subscriptable",
         "a DataLoader is used as if it were subscriptable", "next(iter(loader))"),
        ("a, b = random_split(d, [6, 5])", (), "ValueError: Sum of input lengths does not equal the length of "
                                               "the input "
         "dataset!", "the parts of random_split() do not add up", "len(data) - n"),
        ("for x in loader:", (_COLLATE,), "TypeError: object of type 'NoneType' has no len()",
         "one sample of a batch is None", "range(len(dataset))"),
        ("for x in loader:", (_COLLATE,), "KeyError: 'b'", "the samples of a batch have different keys: one has no 'b'",
         "the first sample"),
        ("d.log_prob(torch.zeros(4))", (), "ValueError: Value is not broadcastable with batch_shape+event_shape: "
         "torch.Size([4]) vs torch.Size([3]).", "a value of the shape [4], and the distribution has "
                                                "[3]", "event_shape"),
        ("d.log_prob(x)", (("torch/distributions/distribution.py", "_validate_sample", "raise ValueError("),),
         "ValueError: Expected value argument (Tensor of shape (1,)) to be within the support (IntegerInterval("
         "lower_bound=0, upper_bound=2)) of the distribution Categorical(probs: torch.Size([3])), but found invalid "
         "values:\ntensor([3])", "log_prob() of Categorical gets NaN or a value outside of its support", "value.max()"),
        ("self.mean = [1]", (_MADE,), "TypeError: cannot assign 'list' object to buffer 'mean' (torch Tensor or None "
         "required)", "mean of the module is a buffer and gets a list, not a torch Tensor or None", "torch.tensor"),
        ("self.fc = nn.Linear(2, 2)", (_MADE,), "AttributeError: cannot assign module before Module.__init__() call",
         "a module is assigned before super().__init__()", "super().__init__()"),
        ("d = nn.Dropout(10)", (), "ValueError: dropout probability has to be between 0 and 1, but got 10",
         "a dropout is 10, and must be between 0 and 1", "nn.Dropout(0.1)"),
        ("device = torch.device(name)", (), "RuntimeError: Invalid device string: 'cuda0'", "'cuda0' is not a device",
         "cuda:0"),
        ("c = nn.Conv2d(3, 64 / 2, 3)", (), "TypeError: empty(): argument 'size' (position 1) must be tuple of "
                                            "ints, but "
         "found element of type float at pos 0", "a size is a float, not a whole number", "dim // 2"),
        ("model.load_state_dict(path)", (), "TypeError: Expected state_dict to be dict-like, got <class 'str'>.",
         "load_state_dict() gets a str instead of the weights", "torch.load"),
        ("state = torch.load(path)", (_LOADING,), "EOFError", "torch.load finds no data, or the data ends too early",
         "seek(0)"),
    ],
)
def test_training(code: str, below: Frames, error: str, title: str, words: str, tmp_path: Path) -> None:
    found, texts = answer(tmp_path, code, below, error)
    assert title in found
    assert words in texts


@pytest.mark.parametrize(
    ("code", "below", "error", "title"),
    [
        # The script's own checks say similar things.
        ("raise ValueError(text)", (), "ValueError: expected 4D input, but there is no image", "the script's own "
                                                                                               "code stopped the run"),
        ("raise ValueError(text)", (), "ValueError: was expecting embedding of 64", "the script's own code "
                                                                                    "stopped the run"),
        ("raise ValueError(text)", (), "ValueError: the batch number 7 must be equal to 3", "the script's own "
                                                                                            "code stopped the run"),
        ("raise RuntimeError(text)", (), "RuntimeError: Dimension out of range for the plan", "the script's own "
                                                                                              "code stopped the run"),
        ("raise ValueError(text)", (), "ValueError: Expected target size to be 4", "the script's own code "
                                                                                   "stopped the run"),
        ("raise ValueError(text)", (), "ValueError: Float did not match Double in column 3", "the script's own "
                                                                                             "code stopped the run"),
        ("raise ValueError(text)", (), "ValueError: batch_size should be a number", "the script's own code "
                                                                                    "stopped the run"),
        # A key that the script's own collate function reads, and a file that is no checkpoint.
        ("y = sample['b']", (), "KeyError: 'b'", "sample has no key 'b'"),
        ("message = conn.recv()", (("/usr/lib/python3.11/multiprocessing/connection.py", "_recv", "raise EOFError"),),
         "EOFError", "the process at the other end of the pipe has ended"),
        # With a framework among the frames, the rows of frameworks explain the message.
        ("y = model(x)", (_FSDP, ("torch/nn/modules/linear.py", "forward", "return F.linear(input, self.weight)")),
         "RuntimeError: size mismatch, got input (20), mat (20x896), vec (3584)", "FSDP's weights are empty"),
        ("trainer.train()", (("transformers/trainer.py", "training_step", "self.accelerator.backward(loss)"),),
         "RuntimeError: a Tensor with 8 elements cannot be converted to Scalar", "is used as a single one"),
        # Labels of a loss stay labels of a loss.
        ("loss = F.mse_loss(out, y)", (_LOSS,), "RuntimeError: result type Float can't be cast to the desired output "
         "type Long", "a loss got integer labels"),
        ("x = rows[0, 0]", (), "IndexError: too many indices for tensor of dimension 1", "rows has 1 dimension"),
        ("y = table[j]", (), "IndexError: index 1 is out of bounds for dimension 0 with size 1", "an index is "
                                                                                                 "too large"),
    ],
)
def test_other_messages(code: str, below: Frames, error: str, title: str, tmp_path: Path) -> None:
    assert title in answer(tmp_path, code, below, error)[0]


def test_whole_checkpoint(tmp_path: Path) -> None:
    text = (
        "RuntimeError: Error(s) in loading state_dict for Net:\n"
        '\tMissing key(s) in state_dict: "fc1.weight", "fc1.bias".\n\tUnexpected key(s) in state_dict: {}.'
    )
    call = ("torch/nn/modules/module.py", "load_state_dict", "raise RuntimeError(")
    found, texts = answer(tmp_path, "net.load_state_dict(c)", (call,), text.format('"state_dict", "epoch"'))
    assert found == "the whole checkpoint is given to Net, and its weights are probably under the key 'state_dict'"
    assert "model.load_state_dict(checkpoint['state_dict'])" in texts
    names = '"model.conv.weight", "model.conv.bias"'
    other, _ = answer(tmp_path, "net.load_state_dict(c)", (call,), text.format(names))
    assert "saved from another model" in other
# fmt: on
