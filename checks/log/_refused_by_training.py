"""What do torch's losses, autograd, optimizers, loaders and distributions refuse, and what did the script give them?

As in `_refused_by_layers.py`: one reason for a class of messages. Texts for `exceptions.py`.
"""

from __future__ import annotations

from mgpu.check import Fix

from ._refused_by_layers import alike

# fmt: off
_TARGETS = alike(
    "cross_entropy takes either class numbers, of type int64 and without the dimension of the classes, or one "
    "probability per class, floating point numbers in the shape of the output. The classes are dimension 1 of the "
    "output: (batch, classes, ...).",
    (Fix("Print both, then convert the labels or move the classes to dimension 1.",
         ("print(out.shape, y.shape, y.dtype)", "F.cross_entropy(out, y.long())",
          "F.cross_entropy(out.transpose(1, 2), y)  # (batch, length, classes)")),
     Fix("If the labels are numbers to predict, or several classes at once, use another loss.",
         ("nn.MSELoss()", "nn.BCEWithLogitsLoss()"))),
    (r"expected target dtype to be Long or Byte, but got (?P<got>\w+)",
     "the labels of the loss have the type {got}, and class numbers are int64{at}"),
    (r"Expected target size \[(?P<wanted>[\d, ]+)\], got \[(?P<got>[\d, ]+)\]",
     "the loss takes labels of the shape [{wanted}] for this output, and gets [{got}]{at}"),
    (r"only batches of spatial targets supported \((?P<wanted>\dD) tensors\) but got targets of "
     r"(?:size|dimension):? ?:? "
     r"?(?P<got>[\d\[\], ]+)", "the loss takes labels of {wanted} for this output, and gets {got}{at}"),
    (r"\b(?P<call>\w+): target tensor should be 1-D with size equal to the number of input samples",
     "{call}() takes one class number per sample, and the labels have another shape{at}"),
) + alike(
    "cross_entropy takes class numbers without the dimension of the classes, or one probability per class, floating "
    "point numbers in the shape of the output.",
    (Fix("Print both, then give it class numbers, or use a loss for several classes at once.",
         ("print(out.shape, y.shape)", "F.cross_entropy(out, y.argmax(1))  # one-hot",
          "nn.BCEWithLogitsLoss()(out, y.float())  # several classes at once")),),
    (r"Expected floating point type for target with class probabilities, got (?P<got>\w+)",
     "the labels have the shape of the output, so the loss takes them as probabilities, but they have the type "
     "{got}{at}"),
) + alike(
    "This loss compares each output with its label, so both need the same shape. A dimension of size 1 is there on one "
    "side only, or labels are class numbers where the output has one value per class.",
    (Fix("Print both shapes, and give them the same.",
         ("print(out.shape, y.shape)", "loss_fn(out.squeeze(-1), y.float())")),),
    (r"Using a target size \(torch\.Size\((?P<y>\[[\d, ]*\])\)\) that is different to the input size \(torch\.Size\("
     r"(?P<out>\[[\d, ]*\])\)\)", "the labels of the loss have the shape {y}, and the output {out}{at}"),
    (r"^var is of incorrect size", "the variance for GaussianNLLLoss has another shape than the output{at}"),
) + alike(
    "The value is outside of what the loss is defined for.",
    (Fix("Change the option, or compute the value so that it fits.",
         ("nn.CrossEntropyLoss(label_smoothing=0.1)", "var = F.softplus(raw) + 1e-6")),),
    (r"label_smoothing must be between 0\.0 and 1\.0\. Got: (?P<got>\S+)", "label_smoothing is {got}, not 0 to 1{at}"),
    (r"^(?P<got>\w+) is not a valid value for reduction", "reduction is {got}, not mean, sum or none{at}"),
    (r"\b(?P<call>\w+) does not support non-positive values for (?P<name>\w+)", "{name} of {call} is not above 0{at}"),
    (r"^var has negative entry", "the variance for GaussianNLLLoss has negative values{at}"),
    (r"^blank must be in label range", "blank of the CTC loss is not below the number of classes{at}"),
) + alike(
    "The CTC loss takes the output as (length, batch, classes), one length per sample for outputs and labels, and "
    "labels of (batch, longest label).",
    (Fix("Print the shapes, and take the lengths from the unpadded samples.",
         ("print(log_probs.shape, targets.shape, input_lengths, target_lengths)", "log_probs.transpose(0, 1)")),),
    (r"Expected tensor to have size at least (?P<wanted>\d+) at dimension 1, but got size (?P<got>\d+) for argument #2 "
     r"'targets'", "the CTC loss gets a label length of {wanted}, and the labels have {got} columns{at}"),
    (r"^(?P<which>input_lengths|target_lengths) must be of size batch_size",
     "the CTC loss gets another number of {which} than samples{at}"),
)
_GRADIENTS = alike(
    "A gradient has the shape and the type of its tensor.",
    (Fix("Print both. Correct what computes the gradient (a transposed weight, another parameter); do not reshape it.",
         ("print(p.shape, p.dtype, g.shape, g.dtype)", "assert g.shape == p.shape",
          "p.grad = g.to(p.dtype)  # same shape, another type")),),
    (r"attempting to assign a gradient of size '\[(?P<got>[\d, ]*)\]' to a tensor of size '\[(?P<wanted>[\d, ]*)\]'",
     "a gradient of the shape [{got}] is set for a tensor of the shape [{wanted}]{at}"),
    (r"attempting to assign a gradient with dtype '(?P<got>\w+)' to a tensor with (?:grad_)?dtype '(?P<wanted>\w+)'",
     "a gradient of the type {got} is set for a tensor of the type {wanted}{at}"),
) + alike(
    "autograd.grad() needs a path from the output to each input. The input has no requires_grad, was detached, or was "
    "changed after the output was computed; a layer of the list is not used.",
    (Fix("Request gradients before the forward pass, and allow what is not used.",
         ("x.requires_grad_()  # before model(x)", "torch.autograd.grad(loss, inputs, allow_unused=True)")),),
    (r"One of the differentiated Tensors does not require grad",
     "the gradient of a tensor is requested that has no requires_grad{at}"),
    (r"The differentiated Tensor at index (?P<item>\d+) appears to not have been used in the graph",
     "the gradient of item {item} of the list is requested, and the output does not use it{at}"),
) + alike(
    "unbind, split, chunk and a loop over a tensor return several views of it at once. Autograd cannot follow a change "
    "in place of one of them.",
    (Fix("Compute out of place, or change the whole tensor under no_grad().",
         ("a = a + 1  # not a += 1", "with torch.no_grad(): w.mul_(2)")),),
    (r"Output (?P<item>\d+) of (?P<call>\w+) is a view and is being modified inplace\. This view is the output of a "
     r"function that returns multiple views", "a view that {call} returned is changed in place{at}"),
) + alike(
    "A custom autograd.Function returned a tensor that shares memory with its input. Full backward hooks "
    "(BackwardHookFunction) and DistributedDataParallel (_DDPSink) wrap tensors in such a Function. The next line or "
    "layer changes it in place: +=, relu_(), nn.ReLU(inplace=True).",
    (Fix("Compute out of place, or copy the output first.",
         ("nn.ReLU(inplace=False)", "out = out.clone()", "x = x + 1  # not x += 1")),),
    (r"Output \d+ of (?P<call>\w+) is a view and is being modified inplace\. This view was created inside a custom "
     r"Function", "the output of {call} is changed in place, which autograd does not allow{at}"),
) + alike(
    "Only a tensor that was made directly has a requires_grad that can be turned off. A computed one follows from its "
    "inputs.",
    (Fix("Detach it, or freeze the parameters.", ("x = x.detach()", "model.requires_grad_(False)")),),
    (r"you can only change requires_grad flags of leaf variables",
     "requires_grad of a computed tensor is turned off{at}"),
) + alike(
    "backward() of an autograd.Function returns one value for each argument of forward() after ctx: a gradient in its "
    "shape, or None. forward() and backward() are static, it is called with .apply(), and save_for_backward() takes "
    "tensors only (keep other values as ctx.value).",
    (Fix("Correct the class.", ("return grad_x, None", "ctx.low = low", "y = Clip.apply(x, 0.0)")),),
    (r"function (?P<name>\w+) returned an incorrect number of gradients \(expected (?P<wanted>\d+), got (?P<got>\d+)\)",
     "{name} returns {got} gradients, and forward() has {wanted} arguments{at}"),
    (r"Legacy autograd function with non-static forward method",
     "an autograd.Function has a forward() that is not static, or is called without .apply(){at}"),
    (r"save_for_backward can only save variables, but argument (?P<item>\d+) is of type (?P<got>\w+)",
     "save_for_backward() gets a {got} as argument {item}, and saves tensors only{at}"),
) + alike(
    "A full backward hook returns nothing, or one gradient for each input of the module.",
    (Fix("Return a tuple of that length, or nothing.", ("return (grad_input[0] * 0.5,)",)),),
    (r"Backward hook returned an invalid number of grad_input, got (?P<got>\d+), but expected (?P<wanted>\d+)",
     "a backward hook returns {got} gradients, and the module has {wanted} inputs with gradients{at}"),
) + alike(
    "vmap runs the function on all samples at once: each input has the samples in the mapped dimension, and a value "
    "cannot become a Python number in between.",
    (Fix("Compute with tensors only, and map equal sizes.", ("torch.vmap(f, in_dims=(0, None))(x, shared)",)),),
    (r"vmap: It looks like you're calling \.item\(\) on a Tensor", "item() is called within vmap(){at}"),
    (r"vmap: Expected all tensors to have the same size in the mapped dimension, got sizes \[(?P<got>[\d, ]+)\]",
     "vmap() gets different numbers of samples: [{got}]{at}"),
)
_OPTIMIZERS = alike(
    "An optimizer takes an iterable of parameters, or a list of dicts with the key 'params'. They must be tensors that "
    "were made directly, and each may be in one group only.",
    (Fix("Pass the parameters themselves.",
         ("torch.optim.AdamW(model.parameters(), lr=1e-3)",
          "torch.optim.AdamW([{'params': body}, {'params': head, 'lr': 1e-3}], lr=1e-4)",
          "[*a.parameters(), *b.parameters()]  # of two models")),),
    (r"optimizer can only optimize Tensors, but one of the params is (?P<got>[\w.]+)",
     "the optimizer gets a {got} among its parameters{at}"),
    (r"params argument given to the optimizer should be an iterable of Tensors or dicts, but got (?P<got>[\w.]+)",
     "the optimizer gets one {got}, and takes a list of parameters{at}"),
) + alike(
    "The option has a value that the optimizer or the scheduler is not defined for, or two options exclude each other. "
    "YAML reads 1e-4 as a text: write 1.0e-4.",
    (Fix("Change it.", ("torch.optim.SGD(params, lr=0.1, momentum=0.9, nesterov=True)", "float(config['lr'])")),),
    (r"Invalid (?P<name>learning rate|momentum value|weight_decay value|epsilon value|beta parameter at index \d): "
     r"(?P<got>\S+)", "the optimizer gets an invalid {name}: {got}{at}"),
    (r"Nesterov momentum requires a momentum and zero dampening", "nesterov=True needs momentum above 0{at}"),
    (r"^Factor should be < 1\.0", "factor of ReduceLROnPlateau is not below 1{at}"),
    (r"^(?P<name>mode|threshold mode) (?P<got>\w+) is unknown!", "the scheduler does not have the {name} {got}{at}"),
    (r"Expected positive integer (?P<name>\w+), but got (?P<got>\S+)", "the scheduler gets {name}={got}{at}"),
    (r"You must define either total_steps OR", "OneCycleLR gets neither total_steps nor epochs and "
                                               "steps_per_epoch{at}"),
    (r"Expected (?P<wanted>\d+) (?P<name>lr_lambdas|max_lr|base_lr|max_momentum), but got (?P<got>\d+)|"
     r"expected (?P<values>\d+) values for (?P<option>\w+), got (?P<other>\d+)",
     "the scheduler gets {got}{other} values for {name}{option}, and the optimizer has {wanted}{values} groups{at}"),
    (r"Sequential Schedulers expects number of schedulers provided to be one more than the number of milestone",
     "SequentialLR needs one milestone less than schedulers{at}"),
) + alike(
    "CyclicLR and OneCycleLR also change momentum, or the first of Adam's betas, unless cycle_momentum is False.",
    (Fix("Leave the momentum as it is.", ("CyclicLR(optimizer, base_lr=1e-4, max_lr=1e-3, cycle_momentum=False)",)),),
    (r"optimizer must support momentum (?:or beta1 )?with `?cycle_momentum`? option",
     "the scheduler's cycle_momentum needs an optimizer with momentum or betas{at}"),
) + alike(
    "A scheduler takes the optimizer itself, an object of torch.optim.Optimizer: not the model, and not a wrapper "
    "around the optimizer.",
    (Fix("Make the scheduler before the optimizer is wrapped.", ("StepLR(optimizer, step_size=30)",)),),
    (r"^(?P<got>\w+) is not an Optimizer", "the scheduler gets a {got}, which is no torch.optim.Optimizer{at}"),
)
_AUTOCAST = alike(
    "autocast takes the name of a device type as text, first.",
    (Fix("Pass the type of the device.", ("torch.autocast(device.type, dtype=torch.bfloat16)",)),),
    (r"Expected `?device_type`? of type `?str`?, got: `?(?P<got>.{1,40}?)`?$", "autocast gets a {got} as "
                                                                               "device_type{at}"),
)
_STEPS = alike(
    "The two do not belong together.",
    (Fix("Use the same optimizer for all, and one for this kind of gradients.",
         ("SequentialLR(optimizer, [LinearLR(optimizer), CosineAnnealingLR(optimizer, 90)], milestones=[10])",
          "torch.optim.SparseAdam(embedding.parameters())  # nn.Embedding(..., sparse=True) only")),),
    (r"SequentialLR expects all schedulers to belong to the same optimizer",
     "the schedulers of SequentialLR are for different optimizers{at}"),
    (r"SparseAdam does not support dense gradients",
     "SparseAdam gets a parameter that is not a sparse embedding: use Adam for it{at}"),
) + alike(
    "It multiplies the loss by the scale, and the result must have its graph: no item(), and no number of Python.",
    (Fix("Give it the loss itself.", ("scaler.scale(loss).backward()",)),),
    (r"^outputs must be a Tensor or an iterable of Tensors", "GradScaler.scale() gets something that is no tensor{at}"),
)
_BETWEEN_TWO_RANKS = alike(
    "With device_id in init_process_group, NCCL's communicator of all ranks is made at once, and those of two "
    "ranks are split off it. Here the group has none for the tensor's device: the rank uses another device than "
    "the one that it named, or the group is of ranks that named none.",
    (Fix("Name the device that the rank really uses, before the group is made.",
         ("torch.cuda.set_device(local_rank)",
          "dist.init_process_group('nccl', device_id=torch.device('cuda', local_rank))")),
     Fix("Or exchange in one batch, which uses the group's own communicator.",
         ("dist.batch_isend_irecv([dist.P2POp(dist.isend, x, dst), dist.P2POp(dist.irecv, y, src)])",))),
    (r"Parent communicator missing in eager initialization mode",
     "a send or receive between two ranks finds no NCCL communicator for its device{at}"),
)
_FILES = alike(
    "The path is not that of a file of this kind.",
    (Fix("Look at what is there.", ("ls -ld PATH", "file PATH")),),
    (r"^The provided filename (?P<got>\S+) does not exist", "the file {got} of torch.jit.load does not exist{at}"),
    (r"open file failed with strerror: (?P<got>Is a directory)", "torch.save gets the path of a folder{at}"),
    (r"file in archive is not in a subdirectory: (?P<got>\S+)",
     "the file is a zip archive, but not one that torch.save wrote (it has {got}){at}"),
)
_CAPTURES = alike(
    "A tracer runs forward() once, without values. A branch or loop that depends on the values of a tensor has no "
    "single course.",
    (Fix("Compute both sides, or decide by shapes and options.",
         ("torch.where(x.sum() > 0, x + 1, x)", "torch.cond(x.sum() > 0, f, g, (x,))")),),
    (r"symbolically traced variables cannot be used as inputs to control flow",
     "forward() branches on a tensor's value, which torch.fx cannot trace{at}"),
    types="TraceError",
) + alike(
    "The compiler runs the code once, without values. A number that comes out of a tensor (item(), tolist(), "
    "nonzero()) is unknown there, so a branch on it has no single course.",
    (Fix("Compute both sides, or say what is certain about the number.",
         ("torch.where(x.sum() > 0, x + 1, x)", "torch.cond(x.sum() > 0, f, g, (x,))",
          "torch._check(n <= x.shape[0])  # what is certain of n = t.item()")),),
    (r"Could not guard on data-dependent expression",
     "a size or a branch depends on a tensor's value, which the compiler cannot know{at}"),
    types="GuardOnDataDependentSymNode UserError RuntimeError",
) + alike(
    "The mode of torch.compile is one of these names.",
    (Fix("Use one of them.", ("torch.compile(model, mode='max-autotune')",)),),
    (r"^Unrecognized mode=(?P<got>[\w-]+), should be one of: (?P<wanted>[\w, -]+)",
     "torch.compile has no mode {got}: {wanted}{at}"),
    types="RuntimeError",
)
_LOADERS = alike(
    "A total batch that is divided by the number of ranks with // gives 0 if it is smaller than that number. So does "
    "the length of a dataset that is empty, if it is the batch size.",
    (Fix("Print both numbers of the division; use a larger total batch, or fewer ranks.",
         ("print(total_batch, world_size)", "assert total_batch >= world_size")),),
    (r"batch_size should be a positive integer value, but got batch_size=0(?!\S)",
     "the DataLoader gets batch_size=0: each rank's share of the batch is less than one sample, or the dataset is "
     "empty{at}"),
) + alike(
    "The number must be a whole one of the right size. / gives floating point numbers, and a length of 0 comes from an "
    "empty dataset: a path, a filter or a split without samples.",
    (Fix("Print the length of the dataset, and use // for sizes.",
         ("print(len(dataset))", "DataLoader(dataset, batch_size=total // ranks)")),),
    (r"batch_size should be a positive integer value, but got batch_size=(?!0(?:\s|$))(?P<got>\S+)",
     "the DataLoader gets batch_size={got}{at}"),
    (r"num_samples should be a positive integer value, but got num_samples=(?!0(?:\s|$))(?P<got>\S+)",
     "the sampler has {got} samples to draw from{at}"),
    (r"(?P<name>timeout|num_workers) option should be non-negative", "the DataLoader gets a negative {name}{at}"),
    (r"drop_last should be a boolean value, but got drop_last=(?P<got>\S+)", "drop_last is {got}, not True or "
                                                                             "False{at}"),
    (r"weights should be a 1d sequence but given weights have shape \(?(?P<got>[\d, ]+)",
     "the sampler gets weights of the shape ({got}), and takes one per sample{at}"),
) + alike(
    "It joins the datasets of a list, and the list is empty: nothing was found at the path, or no entry has the name, "
    "release, subject, task or split that the script asks for.",
    (Fix("See what is at the path that the data is read from, and print the list.",
         ("ls PATH", "print(len(datasets))")),),
    (r"datasets should not be an empty iterable", "ConcatDataset gets no datasets: no data was found{at}"),
) + alike(
    "A DataLoader is iterated. It has no items by index, no next of its own, and its sizes are fixed when it is made.",
    (Fix("Take a batch from an iterator, a sample from the dataset, or make a new loader.",
         ("batch = next(iter(loader))", "sample = loader.dataset[0]")),),
    (r"'DataLoader' object is not (?P<what>subscriptable|an iterator)", "a DataLoader is used as if it were "
                                                                        "{what}{at}"),
    (r"DataLoaderIter' object has no attribute '(?P<what>next)'", "an iterator has no {what}() since Python 3{at}"),
    (r"^(?P<what>\w+) attribute should not be set after \w+ is initialized", "{what} of a DataLoader is changed{at}"),
) + alike(
    "A Dataset needs __len__ and __getitem__ with an index from 0 to len - 1, an IterableDataset __iter__ that returns "
    "an iterator (yield). A stream has no length.",
    (Fix("Give the class what it lacks, or do not ask a stream for its length.",
         ("def __getitem__(self, index): ...", "def __len__(self): return len(self.files)",
          "DataLoader(stream, batch_size=8)  # no shuffle, no len()")),),
    (r"Subclasses of Dataset should implement __getitem__", "the Dataset has no __getitem__{at}"),
    (r"iter\(\) returned non-iterator of type '(?P<got>\w+)'", "__iter__ returns a {got}: use yield or iter(){at}"),
    (r"ConcatDataset does not support IterableDataset", "ConcatDataset gets an IterableDataset: use ChainDataset{at}"),
) + alike(
    "random_split takes whole numbers with the sum of the dataset's length, or fractions with the sum 1.",
    (Fix("Compute the last part from the others.", ("random_split(data, [n, len(data) - n])", "[0.8, 0.2]")),),
    (r"Sum of input lengths does not equal the length of the input dataset",
     "the parts of random_split() do not add up to the dataset{at}"),
) + alike(
    "Samples that are combined must have the same form: equal lengths of lists, tensors with the same first size.",
    (Fix("Print the lengths, or collate the batch yourself.",
         ("print([len(t) for t in tensors])", "DataLoader(..., collate_fn=collate)")),),
    (r"^Size mismatch between tensors", "TensorDataset gets tensors with different numbers of samples{at}"),
    of_code=False,
) + alike(
    "A worker puts the samples of a batch into one tensor, in shared memory. Tensors that are a part of a graph cannot "
    "be put there.",
    (Fix("Compute without gradients in the dataset.", ("with torch.no_grad(): ...", "return x.detach()")),),
    (r"stack\(\): functions with out=\.\.\. arguments don't support automatic differentiation",
     "a sample of the dataset has gradients{at}"),
    within=r"utils/data/_utils/collate\.py",
)
_DISTRIBUTIONS = alike(
    "The parameters of a distribution must broadcast, and a value needs the shape batch_shape + event_shape. "
    "Categorical, Dirichlet and mixtures have their classes in the last dimension.",
    (Fix("Print the shapes.", ("print(dist.batch_shape, dist.event_shape, value.shape)",)),),
    (r"`(?P<name>\w+)` parameter must be at least (?P<wanted>[\w-]+)-dimensional",
     "{name} of a distribution must be at least {wanted}-dimensional{at}"),
    (r"Value is not broadcastable with batch_shape\+event_shape: torch\.Size\((?P<got>\[[\d, ]*\])\) vs torch\.Size\("
     r"(?P<wanted>\[[\d, ]*\])\)", "log_prob() gets a value of the shape {got}, and the distribution has {wanted}{at}"),
    (r"Either `(?P<one>\w+)` (?:or|and) `(?P<other>\w+)` must be specified, but not both",
     "a distribution takes either {one} or {other}, and gets both or none{at}"),
    (r"Expected reinterpreted_batch_ndims <= len\(base_distribution\.batch_shape\), actual (?P<got>\d+) vs "
     r"(?P<has>\d+)",
     "Independent() takes {got} batch dimensions, and the distribution has {has}{at}"),
    (r"`mixture_distribution component` \((?P<one>\d+)\) does not equal `component_distribution\.batch_shape\[-1\]` "
     r"\((?P<other>\d+)\)", "the mixture has {one} weights for {other} components{at}"),
    (r"No KL\(p \|\| q\) is implemented for p type (?P<one>\w+) and q type (?P<other>\w+)",
     "torch has no formula for the KL divergence of {one} and {other}{at}"),
)
OF_TRAINING = (*_TARGETS, *_GRADIENTS, *_OPTIMIZERS, *_AUTOCAST, *_STEPS, *_BETWEEN_TWO_RANKS, *_FILES, *_CAPTURES,
               *_LOADERS, *_DISTRIBUTIONS)
# fmt: on
