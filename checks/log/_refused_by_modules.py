"""What do torch's modules refuse when a model is built: a size, an option, a member of another type?

As in `_refused_by_layers.py`: one reason for a class of messages. Texts for `exceptions.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refusal import Refusal
from ._refused_by_layers import alike

# fmt: off
_MEMBERS = alike(
    "A module keeps parameters, buffers and layers by name, and each name stays of its kind. Values of a parameter are "
    "changed within it, and a function is no layer.",
    (Fix("Assign an object of that kind, or change the values.",
         ("self.weight = nn.Parameter(tensor)", "with torch.no_grad(): self.weight.copy_(tensor)",
          "model.head = nn.Identity()  # not a lambda", "torch.tensor(values)  # for a buffer or class weights")),),
    (r"cannot assign '(?P<got>[\w.<>]+)' (?:object )?(?:as|to) (?P<kind>parameter|child module|buffer) "
     r"'(?P<name>\w+)' \((?P<wanted>[\w. ]+?) (?:expected|required)\)",
     "{name} of the module is a {kind} and gets a {got}, not a {wanted}{at}"),
    (r"(?<![\w.])(?P<got>[\w.]+) is not a Module subclass",
     "a {got} is given as a layer, and only modules are layers{at}"),
) + alike(
    "__init__ of a model begins with super().__init__(), which makes the places for layers and parameters.",
    (Fix("Call it first.", ("super().__init__()",)),),
    (r"cannot assign (?P<kind>module|parameter|buffer)s? before Module\.__init__\(\) call",
     "a {kind} is assigned before super().__init__(){at}"),
) + alike(
    "Names of layers become parts of the keys of a checkpoint, which a dot separates.",
    (Fix("Replace the dot.", ("name.replace('.', '_')",)),),
    (r"(?P<kind>module|parameter|buffer) name can\\?'t contain \"\.\", got: (?P<got>[\w.]+)",
     "the name of a {kind} has a dot: {got}{at}"),
    (r"(?P<kind>module|parameter|buffer) name can\\?'t contain \"\.\"", "the name of a {kind} has a dot{at}"),
)
_OPTIONS = alike(
    "The value comes from the code or a config, and the layer is not defined for it. Probabilities are 0.1, not "
    "10 (for "
    "10 percent).",
    (Fix("Change it in the code or the config that makes the layer.", ("nn.Dropout(0.1)", "nn.GroupNorm(8, 48)")),),
    (r"dropout (?:probability has|rate) .{0,20}?between 0 and 1, but got (?P<got>\S+)",
     "a dropout is {got}, and must be between 0 and 1{at}"),
    (r"dropout should be a number in range \[0, 1\]", "a dropout is not a number between 0 and 1{at}"),
    (r"[Pp]adding_idx must be within num_embeddings",
     "padding_idx of an embedding is not one of its rows: raise num_embeddings, or use another{at}"),
    (r"Embeddings parameter is expected to be 2-dimensional",
     "from_pretrained() of an embedding takes a table of 2 dimensions{at}"),
    (r"padding='same' is not supported for strided convolutions",
     "padding='same' of a convolution is possible only with stride 1{at}"),
    (r"proj_size has to be smaller than hidden_size", "proj_size of an LSTM is not below its hidden_size{at}"),
    (r"activation should be relu/gelu, not (?P<got>\S+)",
     "the Transformer layer takes relu, gelu or a function as activation, not the text {got}{at}"),
    (r"Unsupported nonlinearity (?P<got>\w+)",
     "calculate_gain() and kaiming_normal_() do not have the nonlinearity {got}: use relu for it{at}"),
    (r"Fan in and fan out can not be computed for tensor with fewer than 2 dimensions|Only tensors with 2 or more "
     r"dimensions are supported", "an initialization for matrices gets a bias or a norm's weight (1 dimension){at}"),
)
_PLACES = alike(
    "A tensor or a model is on one device. Several GPUs are used by one process each (torchrun, mgpu launch), or by "
    "nn.DataParallel in one process.",
    (Fix("Name one device, and start one process per GPU.",
         ("device = torch.device('cuda:0')", "CUDA_VISIBLE_DEVICES=0,1 mgpu launch train.py")),
     Fix("Or let DataParallel use several in one process.", ("model = torch.nn.DataParallel(model, [0, 1])",))),
    (r"Invalid device string: '(?P<got>(?:cuda|xpu|npu):\d+(?:, ?(?:cuda:)?\d+)+)'",
     "'{got}' names several devices where one is needed{at}"),
) + alike(
    "A device is cpu, cuda, cuda:0, mps and so on. It was read from an option or a config in another form.",
    (Fix("Write the device as torch does.", ("torch.device('cuda:0')", "device = f'cuda:{local_rank}'")),),
    (r"Invalid device string: '(?P<got>[^']{1,60})'", "'{got}' is not a device{at}"),
) + alike(
    "The name is right, and this release of torch is older than its support: mps (Apple's GPUs) is in torch 1.12 and "
    "later, the others came with later releases, too.",
    (Fix("Install a newer torch, or use the CPU.", ("pip show torch", "pip install --upgrade torch",
                                                    "device = torch.device('cpu')")),),
    (r"Expected one of cpu, cuda, .{0,300} device type at start of device string: (?P<got>mps|xpu|hpu|ipu|mtia|meta)\b",
     "this torch is too old for the device '{got}'{at}"),
) + alike(
    "A device is cpu, cuda, cuda:0, mps and so on. It was read from an option or a config in another form. npu, musa "
    "and others exist only after their package is imported (import torch_npu).",
    (Fix("Write the device as torch does.", ("torch.device('cuda:0')", "device = f'cuda:{local_rank}'")),),
    (r"Expected one of cpu, cuda, .{0,300} device type at start of device string: (?P<got>\S+)",
     "torch does not know the device '{got}'{at}"),
) + alike(
    "torch has its own types (torch.float32). Here is a name as text, or a type of numpy or Python.",
    (Fix("Take torch's type.", ("getattr(torch, 'float32')", "torch.float32  # not np.float32 or float")),),
    (r"argument 'dtype' (?:\(position \d+\) )?must be torch\.dtype, not (?P<got>\w+)",
     "dtype is a {got}, not a torch.dtype{at}"),
) + alike(
    "Weights are floating point numbers; integers are for ids and labels.",
    (Fix("Convert it to a type of floating point numbers.", ("model.to(torch.bfloat16)",)),),
    (r"nn\.Module\.to only accepts floating point or complex dtypes, but got desired dtype=(?P<got>[\w.]+)",
     "a model cannot be converted to {got}{at}"),
)
_SIZES = alike(
    "A size is a whole number. / gives 64.0, a config or an option can have a text, and a tensor of sizes is no list.",
    (Fix("Use // or int().", ("nn.Linear(dim // 2, 10)", "int(config['dim'])", "torch.zeros(*sizes.tolist())")),),
    (r"\b(?P<call>\w+)\(\): argument 'size' failed to unpack the object at pos (?P<item>\d+) with error \"type must be "
     r"tuple of ints, ?but got (?P<got>\w+)\"", "a size is a {got}, not a whole number (item {item}){at}"),
    (r"\b(?P<call>\w+)\(\): argument 'size' \(position \d+\) must be tuple of ints, (?:but found element of type "
     r"(?P<got>\w+) at pos (?P<item>\d+)|not (?P<other>\w+))", "a size is a {got}{other}, not a whole number{at}"),
    types="TypeError",
)
_STATES = alike(
    "load_state_dict() takes the dict of weights. A path has to be loaded first, a checkpoint has the weights "
    "under one "
    "of its keys, and a model gives them with state_dict().",
    (Fix("Load the file, and look at its keys.",
         ("state = torch.load(path, map_location='cpu')", "print(state.keys())",
          "model.load_state_dict(state['model'])")),),
    (r"Expected state_dict to be dict-like, got <class '(?P<got>[\w.]+)'>",
     "load_state_dict() gets a {got} instead of the weights{at}"),
)
# Of a layer in a model of transformers: there the number is the tokenizer's.
_VOCABULARY = (
    Refusal("AssertionError", r"^Padding_idx must be within num_embeddings",
            "the id of the padding token is not below the size of the vocabulary{at}",
            "A token was added to the tokenizer and its id written to the config (pad_token_id), while vocab_size is "
            "still the old one.",
            (Fix("Compare them. Load first, then resize, then set the id.",
                 ("print(config.pad_token_id, config.vocab_size, len(tokenizer))",
                  "model.resize_token_embeddings(len(tokenizer)); model.config.pad_token_id = "
                  "tokenizer.pad_token_id")),),
            of_code=True, within=r"^transformers/models/"),
)
OF_MODULES = (*_MEMBERS, *_VOCABULARY, *_OPTIONS, *_PLACES, *_SIZES, *_STATES)
# fmt: on
