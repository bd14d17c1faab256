"""Does each message of torch get the remedy that is right for it, and not that of a message that looks like it?

The messages are from scripts that provoked them (torch 2.13 on the CPU).
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import MODULE
from tests.test_log_refused_by_torch import Frames, answer

_COLLATE = ("torch/utils/data/_utils/collate.py", "collate_tensor_fn", "return torch.stack(batch, 0, out=out)")
_SAMPLES = ("torch/utils/data/_utils/collate.py", "collate", "elem_size = len(next(it))")
_SCHEDULER = ("torch/optim/lr_scheduler.py", "get_lr", "base_lr * lmbda(self.last_epoch)")
_SWA = ("torch/optim/swa_utils.py", "step", "x()")
_STEP = ("torch/optim/sgd.py", "step", "loss = closure()")
_DIVIDES = ("torch/optim/lr_scheduler.py", "get_lr", "pct = (step_num - start_step) / (end_step - start_step)")
_PLATEAU = ("torch/optim/lr_scheduler.py", "step", "current = float(metrics)")
_PACK = ("torch/nn/utils/rnn.py", "pad_packed_sequence", "max_seq_length = sequence.batch_sizes.size(0)")
_SAMPLE = ("torch/distributions/distribution.py", "_validate_sample", "raise ValueError(")
_STATE = ("torch/optim/optimizer.py", "load_state_dict", "groups = state['params']")
_RNN = ("torch/nn/modules/rnn.py", "forward", "raise RuntimeError(msg)")
_RELU = ("torch/nn/functional.py", "relu", "result = torch.relu_(input)")
_LOSS = ("torch/nn/functional.py", "mse_loss", "if not (target.size() == input.size()):")
_CONV = ("torch/nn/modules/conv.py", "forward", "return self._conv_forward(input)")
_POSITIONS = ("transformers/models/roberta/modeling_roberta.py", "forward", "ids = self.token_type_ids.expand(2, n)")
_ATTENTION = "F.scaled_dot_product_attention(q, k, v, m)"
_MASK = (
    "RuntimeError: Expected attn_mask dtype to be bool or float or to match query dtype, but got attn_mask.dtype: {} "
    "and  query.dtype: {} instead."
)
_VIEW = "RuntimeError: Output 0 of {} is a view and is being modified inplace. This view {}"
_SUPPORT = (
    "ValueError: Expected value argument (Tensor of shape (2,)) to be within the support ({}) of the distribution "
    "{}(probs: torch.Size([3])), but found invalid values:\ntensor([nan, 0.])"
)
_BIAS = "RuntimeError: Input type ({}) and bias type ({}) should be the same"
_RANGE = "IndexError: Dimension out of range (expected to be in range of [{}, {}], but got {})"
_EXPANDED = (
    "RuntimeError: The expanded size of the tensor ({0}) must match the existing size ({1}) at non-singleton dimension "
    "1.  Target sizes: [2, {0}].  Tensor sizes: [1, {1}]"
)


# fmt: off
@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words", "absent"),
    [
        # A mask of numbers is added; a mask of integers is yes or no.
        (_ATTENTION, (), _MASK.format("double", "float"), "has the type double, and the query float",
         "attn_mask.to(query.dtype)", ".bool()  #"),
        (_ATTENTION, (), _MASK.format("float", "c10::Half"), "has the type float, and the query c10::Half",
         "attn_mask.to(query.dtype)", ".bool()  #"),
        (_ATTENTION, (), _MASK.format("long int", "float"), "has the type long int", "mask[:, None, None, :].bool()",
         "attn_mask.to("),
        ("y = self.rnn(x, h)", (MODULE, _RNN), "RuntimeError: For batched 3-D input, hx and cx should also be 3-D but "
         "got (2-D, 2-D) tensors", "is 3-D, and hx and cx must be 3-D, not (2-D, 2-D)", "(h, c)", "not 2-D"),
        ("x = F.interpolate(x, s)", (), "RuntimeError: Input and output sizes should be greater than 0, but got input "
         "(H: 0, W: 4) output (H: 8, W: 8)", "an image without pixels: input (H: 0, W: 4), output (H: 8, W: 8)",
         "print(x.shape)", "would make"),
        ("x = self.gn(x)", (), "RuntimeError: mixed dtype (CPU): expect parameter to have scalar type of Float",
         "weights of another type than its input", "Normalization layers", "LayerNorm on"),
        # Gradients.
        ("p.grad = g", (), "RuntimeError: attempting to assign a gradient of size '[3, 2]' to a tensor of size '[2, 3]'"
         ". Please ensure that the gradient and the tensor are the same size", "shape [3, 2] is set for a tensor of",
         "assert g.shape == p.shape", "view_as"),
        ("row.mul_(2)", (), _VIEW.format("Unbind", "is the output of a function that returns multiple views."),
         "a view that Unbind returned", "no_grad", "DistributedDataParallel"),
        ("x = self.body(x)", (MODULE, _RELU), _VIEW.format("BackwardHookFunction", "was created inside a custom "
         "Function (or because an input was returned as-is) and the autograd logic"),
         "the output of BackwardHookFunction is changed in place", "nn.ReLU(inplace=False)", "unbind"),
        # Values of a distribution.
        ("d.log_prob(a)", (_SAMPLE,), _SUPPORT.format("IntegerInterval(lower_bound=0, upper_bound=2)", "Categorical"),
         "log_prob() of Categorical gets NaN or a value outside", "value.isnan().any()", "diverged"),
        ("d.log_prob(a)", (_SAMPLE,), _SUPPORT.format("Real()", "Normal"), "the policy or the model diverged",
         "isfinite", "clamp"),
        ("d.log_prob(a)", (_SAMPLE,), _SUPPORT.format("IndependentConstraint(Real(), 1)", "MultivariateNormal"),
         "the policy or the model diverged", "isfinite", "clamp"),
        # Labels.
        ("loss = F.cross_entropy(o, y)", (), "RuntimeError: Expected floating point type for target with class "
         "probabilities, got Long", "so the loss takes them as probabilities, but they have the type Long",
         "y.argmax(1)", "y.long()"),
        ("loss = F.mse_loss(o, y)", (_LOSS,), "AttributeError: 'tuple' object has no attribute 'size'",
         "a loss or layer gets a tuple", "torch.stack(losses).sum()", "as_tensor"),
        ("loss = a + losses", (), "TypeError: unsupported operand type(s) for +: 'Tensor' and 'list'",
         "a tensor and a list are combined", "keeps the gradients", "Make a tensor of it"),
        # Devices and types of a layer's input.
        ("y = self.conv(x)", (MODULE, _CONV), _BIAS.format("float", "c10::Half"), "has", "autocast", "CPU"),
        ("y = self.conv(x)", (MODULE, _CONV), _BIAS.format("torch.cuda.FloatTensor", "torch.cuda.HalfTensor"),
         "has fp16 weights and gets an input in fp32", "autocast", "on the CPU"),
        ("y = self.conv(x)", (MODULE, _CONV), _BIAS.format("torch.FloatTensor", "torch.cuda.FloatTensor"),
         "the input of self.conv is on the CPU, and its weights are on the GPU", "prepare", "Images are bytes"),
        ("y = self.conv(x)", (MODULE, _CONV), _BIAS.format("torch.cuda.FloatTensor", "torch.FloatTensor"),
         "the weights of self.conv are on the CPU", "Move it once", "Images are bytes"),
        ("n /= 2", (), "RuntimeError: result type Float can't be cast to the desired output type Bool",
         "written into a tensor of the type Bool", "integers or bools", "call path"),
        ("n += z", (), "RuntimeError: result type ComplexFloat can't be cast to the desired output type Float",
         "raised RuntimeError", "", "integers or bools"),
        # Dimensions.
        ("x = x.sum(1)", (), _RANGE.format(-1, 0, 1), "dimension 1 of a tensor that has 0 or 1 dimensions", "x.shape",
         "new dimension"),
        ("x = x.unsqueeze(0).sum(4)", (), _RANGE.format(-3, 2, 4), "uses dimension 4 of a tensor that has 3", "x.shape",
         "new dimension"),
        ("x = torch.stack([a, b], dim=4)", (), _RANGE.format(-3, 2, 4), "a new dimension is put at 4 of a tensor that "
         "has 2", "x.shape", "uses"),
        ("y = F.linear(x, w)", (), "RuntimeError: mat1 and mat2 shapes cannot be multiplied (4x256 and 512x10)",
         "two matrices cannot be multiplied", "transpose", "input features"),
        ("x = ids.expand(2, 600)", (_POSITIONS,), _EXPANDED.format(600, 514), "has positions for 512",
         "probably 514 (RoBERTa's", "max_length=514"),
        ("x = ids.expand(2, 600)", (_POSITIONS,), _EXPANDED.format(600, 512), "has positions for 512",
         "max_length=512", "RoBERTa"),
        # Indices and values.
        ("x[m] = v", (), "RuntimeError: shape mismatch: value tensor of shape [4] cannot be broadcast to indexing "
         "result of shape [3]", "values of the shape [4] are written", "print(x[mask].shape", "gather"),
        ("x.scatter_(1, i, v)", (), "RuntimeError: scatter(): Expected self.dtype to be equal to src.dtype",
         "scatter() writes values of one type", "src.to(x.dtype)", "unsqueeze"),
        ("x = x.narrow(0, 2, 4)", (), "RuntimeError: start (2) + length (4) exceeds dimension size (3).",
         "4 elements from 2 on are cut", "print(x.shape, start, length)", "gather"),
    ],
)
def test_layers_and_tensors(
    code: str, below: Frames, error: str, title: str, words: str, absent: str, tmp_path: Path
) -> None:
    found, texts = answer(tmp_path, code, below, error)
    assert title in found, found
    assert words in texts, texts
    assert absent not in texts, texts


@pytest.mark.parametrize(
    ("code", "below", "error", "title", "words", "absent"),
    [
        ("x = torch.tensor(v)", (), "RuntimeError: Could not infer dtype of numpy.float32",
         "torch does not recognize a number of numpy (numpy.float32)", "'numpy<2'", "fill them"),
        ("x = torch.tensor(v)", (), "RuntimeError: Could not infer dtype of Image", "a tensor is made of a Image",
         "ToTensor", "numpy<2"),
        ("x = torch.fft.fft(x)", (), "RuntimeError: Unsupported dtype BFloat16", "does not take the type BFloat16",
         "x.float()", "call path"),
        ("raise RuntimeError(text)", (), "RuntimeError: Unsupported dtype float12 in the plan",
         "the script's own code stopped the run", "", "x.float()"),
        ("v = x.quantile(q)", (), "RuntimeError: quantile() input tensor is too large", "16 million", "2**24",
         "topk"),
        ("v = x.quantile(50)", (), "RuntimeError: quantile() q must be in the range [0, 1] but got 50",
         "quantile() takes a q from 0 to 1", "torch.quantile(x, 0.5)", "topk"),
        ("v = x.topk(9)", (), "RuntimeError: selected index k out of range", "topk() asks for more", "min(k", "0.5"),
        ("v = torch.arange(3, 0)", (), "RuntimeError: upper bound and lower bound inconsistent with step sign",
         "arange() counts in the wrong direction", "print(start, end, step)", "topk"),
        ("n = torch.bincount(y)", (), "RuntimeError: bincount only supports 1-d non-negative integral inputs.",
         "bincount() gets negative numbers", "x != -100", "flatten()[x"),
        ("m = x.max()", (), "RuntimeError: max(): Expected reduction dim to be specified for input.numel() == 0. "
         "Specify the reduction dim with the 'dim' argument.", "max() of a tensor without elements",
         "all must call backward()", "Leave out batches"),
        ("if x.all() or x:", (), "RuntimeError: Boolean value of Tensor with no values is ambiguous",
         "an empty tensor is used as yes or no", "x.numel() > 0 and", "stack"),
        ("a = x.imag.numpy()", (), "RuntimeError: Can't call numpy() on Tensor that has negative bit set. Use "
         "tensor.resolve_neg().numpy() instead.", "a view of a conjugated tensor (imag)", "resolve_neg", "to_dense"),
        ("a = x.numpy()", (), "RuntimeError: Can't call numpy() on Tensor that has conjugate bit set. Use "
         "tensor.resolve_conj().numpy() instead.", "a conjugated tensor goes to numpy", "resolve_conj", "resolve_neg"),
        ("x = torch.tensor(i)", (), "ValueError: Overflow when unpacking long long", "too large for int64",
         "a table of its own", "float(value)"),
        # Models.
        ("model.to(torch.int8)", (), "TypeError: nn.Module.to only accepts floating point or complex dtypes, but got "
         "desired dtype=torch.int8", "a model cannot be converted to torch.int8", "torch.bfloat16", "getattr"),
        ("x = torch.zeros(2, dtype=t)", (), "TypeError: zeros(): argument 'dtype' must be torch.dtype, not type",
         "dtype is a type, not a torch.dtype", "np.float32", "bfloat16"),
        ("x = x.to(d)", (), "RuntimeError: Expected one of cpu, cuda, ipu, xpu, mkldnn, meta, privateuseone device "
         "type at start of device string: npu", "torch does not know the device 'npu'", "import torch_npu", "cuda0"),
        ("d = torch.device('cuda0')", (), "RuntimeError: Invalid device string: 'cuda0'", "'cuda0' is not a device",
         "cuda:0", "torch_npu"),
        ("self.register_buffer('a.b', x)", (), "KeyError: 'buffer name can\\'t contain \".\"'",
         "the name of a buffer has a dot (fit.py", "replace", "a dot: "),
        ("self.add_module('a.b', x)", (), "KeyError: 'module name can\\'t contain \".\", got: a.b'",
         "the name of a module has a dot: a.b", "replace", "a dot ("),
        # Compilers.
        ("f = torch.compile(m, mode=n)", (), "RuntimeError: Unrecognized mode=max-auto, should be one of: default, "
         "reduce-overhead, max-autotune", "torch.compile has no mode max-auto", "'max-autotune'", "torch.where"),
        ("torch.export.export(m, (x,))", (), "torch.fx.experimental.symbolic_shapes."
         "GuardOnDataDependentSymNode: Could not guard on data-dependent expression u0 > 2 (unhinted: u0 > 2).",
         "which the compiler cannot know", "torch._check", "autotune"),
        ("torch.export.export(m, (x,))", (), "torch._dynamo.exc.UserError: Consider annotating your code using "
         "torch._check*(). Could not guard on data-dependent expression u0 > 2 (unhinted: u0 > 2).",
         "which the compiler cannot know", "torch._check", "full graphs"),
        ("f = torch.compile(m, fullgraph=True)", (), "torch._dynamo.exc.UserError: Dynamic control flow is not "
         "supported at the moment.", "the script requires full graphs", "", "torch._check"),
        # Schedulers and optimizers.
        ("s = LambdaLR(opt, 0.9)", (_SCHEDULER,), "TypeError: 'float' object is not callable",
         "a scheduler gets one float where it takes a function", "lambda epoch", "step() of an optimizer"),
        ("opt.step(loss)", (_STEP,), "TypeError: 'Tensor' object is not callable",
         "step() of an optimizer gets a Tensor", "optimizer.step()", "LambdaLR"),
        ("s.step()", (_SWA,), "TypeError: 'float' object is not callable", "", "", "step() of an optimizer"),
        ("s.step()", (_DIVIDES,), "ZeroDivisionError: float division by zero", "a scheduler divides by 0", "pct_start",
         "is 0 in"),
        ("s.step(m)", (_PLATEAU,), "TypeError: float() argument must be a string or a real number, not 'dict'",
         "ReduceLROnPlateau.step() gets a dict", "metrics['val_loss']", "returned nothing"),
        ("opt.load_state_dict(s)", (_STATE,), "KeyError: 'params'", "", "", "a group of the optimizer has no"),
        ("s = StepLR(model, 1)", (), "TypeError: Linear is not an Optimizer", "no torch.optim.Optimizer",
         "before the optimizer is wrapped", "nesterov"),
        ("s = CyclicLR(opt, 1, 2)", (), "ValueError: optimizer must support momentum or beta1 with `cycle_momentum` "
         "option enabled", "needs an optimizer with momentum or betas", "cycle_momentum=False", "nesterov"),
        ("scaler.scale(1.0)", (), "ValueError: outputs must be a Tensor or an iterable of Tensors",
         "GradScaler.scale() gets something that is no tensor", "scaler.scale(loss)", "gets a number"),
        # Loaders and sequences.
        ("for x in loader:", (_COLLATE,), "RuntimeError: stack(): functions with out=... arguments don't support "
         "automatic differentiation, but one of the arguments requires grad.", "a sample of the dataset has gradients",
         "x.detach()", "call path"),
        ("torch.stack([x], out=y)", (), "RuntimeError: stack(): functions with out=... arguments don't support "
         "automatic differentiation, but one of the arguments requires grad.", "", "", "a sample of the dataset"),
        ("for x in loader:", (_SAMPLES,), "TypeError: object of type 'int' has no len()",
         "one sample of a batch is an int, or has an int in a field", "several ranks", "a int"),
        ("s = RandomSampler(d, n)", (), "ValueError: num_samples should be a positive integer value, but got "
         "num_samples=-1", "the sampler has -1 samples to draw from", "len(dataset)", "empty or"),
        ("s = RandomSampler(d)", (), "ValueError: num_samples should be a positive integer value, but got "
         "num_samples=0", "", "", "the sampler has 0"),
        ("x, n = pad_packed_sequence(out)", (_PACK,), "AttributeError: 'tuple' object has no attribute 'batch_sizes'",
         "gets the whole output of the layer, a tuple", "out, state", "plain tensor"),
    ],
)
def test_models_and_training(
    code: str, below: Frames, error: str, title: str, words: str, absent: str, tmp_path: Path
) -> None:
    found, texts = answer(tmp_path, code, below, error)
    assert title in found, found
    assert words in texts, texts
    assert absent not in texts, texts


@pytest.mark.parametrize(
    ("left", "key"),
    [('"epoch", "state_dict"', "state_dict"), ('"weights", "model", "step"', "model"), ('"state_dict"', "state_dict"),
     ('"weights", "step"', "weights"), ('"weights"', ""), ('"ema"', ""), ('"model.a", "state_dict"', "")],
)
def test_which_entry_of_a_checkpoint(left: str, key: str, tmp_path: Path) -> None:
    call = ("torch/nn/modules/module.py", "load_state_dict", "raise RuntimeError(")
    error = (
        'RuntimeError: Error(s) in loading state_dict for Net:\n\tMissing key(s) in state_dict: "fc1.weight", '
        f'"fc1.bias".\n\tUnexpected key(s) in state_dict: {left}.'
    )
    found, _ = answer(tmp_path, "net.load_state_dict(c)", (call,), error)
    assert ("its weights are probably under the key" in found) == bool(key), found
    assert f"'{key}'" in found or not key
# fmt: on
