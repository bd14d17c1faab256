"""What do rows of runs on several ranks mean in a script of one process, without a trainer? Their cases."""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import every, line_of, never, own_line, raised_alone, said, several_ranks, shown, through, within

_TRAINERS = ("accelerate", "transformers", "deepspeed", "trl", "pytorch_lightning", "lightning", "verl", "swift")
_SCRIPT = 'Traceback (most recent call last):\n  File "/home/ada/train.py", line 12, in main\n    {line}\n'
_SHAPES = "https://docs.pytorch.org/docs/stable/generated/torch.squeeze.html"
PLAIN = every(own_line(r"\S"), never(through(*_TRAINERS)), never(shown("hugging_face")))
ALONE = every(PLAIN, raised_alone, never(several_ranks))
# fmt: off
SCHEDULER_RAN_OUT = Case(
    PLAIN,
    "the learning rate scheduler was stepped {step} times, but was created for {total} steps",
    "OneCycleLR gets its number of steps when it is made: total_steps, or epochs x steps_per_epoch. The loop takes "
    "more: more epochs or batches than assumed, step() after each batch where epochs were counted, two calls per step, "
    "or a resumed run that goes on beyond the old total.",
    (Fix("Make it for the steps that the loop takes, and call step() once for each.",
         ("OneCycleLR(optimizer, max_lr=1e-3, epochs=EPOCHS, steps_per_epoch=len(loader))",)),
     Fix("To train longer than the run that is resumed, make a new scheduler, and do not load the old one's state.")),
    _SCRIPT.format(line="scheduler.step()")
    + '  File "/x/site-packages/torch/optim/lr_scheduler.py", line 99, in get_lr\n    raise ValueError(\n'
    "ValueError: Tried to step 1002 times. The specified number of total steps is 1000",
    "https://docs.pytorch.org/docs/stable/generated/torch.optim.lr_scheduler.OneCycleLR.html")
SCALER_NOT_UPDATED = Case(
    PLAIN,
    "gradients were unscaled or applied twice, without the scaler's update() in between ({the_place})",
    "For each optimizer, the order is: backward(), unscale_() once at most (before clipping), step(), and update() "
    "once at the end. update() is missing or in a branch that did not run, the gradients are clipped twice, or clipped "
    "in a step that only accumulates.",
    (Fix("Keep that order, and call update() in each step that calls unscale_() or step().",
         ("scaler.unscale_(optimizer)", "scaler.step(optimizer); scaler.update(); optimizer.zero_grad()")),
     Fix("With several optimizers, unscale and step each of them once, then call update() once.")),
    _SCRIPT.format(line="scaler.unscale_(optimizer)")
    + '  File "/x/site-packages/torch/cuda/amp/grad_scaler.py", line 99, in unscale_\n    raise RuntimeError(\n'
    "RuntimeError: unscale_() has already been called on this optimizer since the last update().",
    "https://pytorch.org/docs/stable/notes/amp_examples.html")
LOSS_NOT_REDUCED = Case(
    PLAIN,
    "backward() was called on a tensor that is not a single number ({the_place})",
    "The loss has one value per sample or element: reduction='none', a model's output in place of a loss, or no mean() "
    "or sum() at the end. If the model is in nn.DataParallel and returns its loss, there is one per GPU.",
    (Fix("Make one number of it.", ("loss.mean().backward()", "print(loss.shape)")),
     Fix("If the gradient of each output is wanted, pass a weight for each.",
         ("out.backward(torch.ones_like(out))", "torch.autograd.grad(out, x, torch.ones_like(out))"))),
    _SCRIPT.format(line="loss.backward()")
    + '  File "/x/site-packages/torch/autograd/__init__.py", line 99, in _make_grads\n    raise RuntimeError(\n'
    "RuntimeError: grad can be implicitly created only for scalar outputs",
    "https://pytorch.org/docs/stable/generated/torch.autograd.backward.html")
LOOP_OVER_NUMBER = Case(
    own_line(r"^for .* in |\bfor \w+ in |\b(?:enumerate|zip|list|tuple|map|sorted|set|max|min)\("),
    "a loop goes over a tensor with a single value, which has no dimensions ({the_place})",
    "squeeze() without a dimension removes that of the batch, too, if the batch has one sample (the last one). An "
    "index, mean() or argmax() over everything leaves one number as well.",
    (Fix("Name the dimension that is removed, or give the number a dimension.",
         ("x = x.squeeze(-1)  # not squeeze()", "x = x.reshape(-1)", "print(x.shape)")),),
    _SCRIPT.format(line="for one in predictions.squeeze():") + "TypeError: iteration over a 0-d tensor", _SHAPES)
DATASET_EMPTY = Case(
    ALONE,
    "the dataset is empty: there are no samples to draw ({the_place})",
    "Its folder or file has no samples, a pattern or an extension does not match (.JPG is not .jpg), a relative path "
    "starts in another folder, or a filter or a split removed all.",
    Fix("Print the length where the dataset is made, and see what is in its folder.",
        ("print(len(dataset))", "ls DATA | head")),
    _SCRIPT.format(line="loader = DataLoader(dataset, shuffle=True)")
    + '  File "/x/site-packages/torch/utils/data/sampler.py", line 99, in __init__\n    raise ValueError(\n'
    "ValueError: num_samples should be a positive integer value, but got num_samples=0",
    "https://docs.pytorch.org/docs/stable/data.html")
LENGTH_OF_STREAM = Case(
    every(own_line(r"\blen\("), PLAIN),
    "the script asks for the length of a stream of data, which has none ({the_place})",
    "An IterableDataset gives samples until it ends. len() of it, or of a DataLoader with it, works only if its class "
    "has __len__.",
    (Fix("Count steps in the loop, or set their number.", ("for step, batch in zip(range(STEPS), loader): ...",)),
     Fix("If the number of samples is known, let the class return it.", ("def __len__(self): return SAMPLES",))),
    _SCRIPT.format(line="steps = len(loader)")
    + '  File "/x/site-packages/torch/utils/data/dataloader.py", line 99, in __len__\n    length = len(self.dataset)\n'
    "TypeError: object of type 'IterableDataset' has no len()",
    "https://docs.pytorch.org/docs/stable/data.html#iterable-style-datasets")
BYTES_NO_IMAGE = Case(
    said(r"cannot identify image file <"),
    "bytes that should be an image are none that Pillow can read ({the_place})",
    "They come from a download, an archive, a table or a text: often an error page or an empty answer in place of the "
    "image, a stream that was read to its end before, or a format that Pillow lacks (SVG, HEIC).",
    Fix("Print their beginning, and for a download its status.",
        ("print(len(data), data[:60])", "response.raise_for_status(); print(response.headers.get('content-type'))")),
    _SCRIPT.format(line="image = Image.open(BytesIO(answer.content))")
    + '  File "/x/site-packages/PIL/Image.py", line 99, in open\n    raise UnidentifiedImageError(msg)\n'
    "PIL.UnidentifiedImageError: cannot identify image file <_io.BytesIO object at 0x7f1c>",
    "https://pillow.readthedocs.io/en/stable/PIL.html")
FILE_NO_IMAGE = Case(
    said(r"cannot identify image file '"),
    "a file that should be an image is none that Pillow can read",
    "It is empty or damaged, an error page or a pointer (Git LFS) that was saved under its name, a hidden file (._name "
    "of macOS, Thumbs.db), or of a format that Pillow lacks (SVG, HEIC).",
    (Fix("See what it is.", ("file PATH; ls -l PATH; head -c 100 PATH",)),
     Fix("Find all of them, and remove or replace them.",
         ("python -c \"import sys; from PIL import Image; [Image.open(f).load() for f in sys.argv[1:]]\" DATA/*",))),
    _SCRIPT.format(line="image = Image.open(path)")
    + '  File "/x/site-packages/PIL/Image.py", line 99, in open\n    raise UnidentifiedImageError(msg)\n'
    "PIL.UnidentifiedImageError: cannot identify image file '/data/a.jpg'",
    "https://pillow.readthedocs.io/en/stable/PIL.html")
FILES_NOT_CLOSED = Case(
    every(line_of("log_files_exhausted", r"\[Errno 24\] Too many open files: '"),
          own_line(r"\b(?:\w*open|load|read\w*)\("), never(within(r"^torch/|multiprocessing/"))),
    "the process reached its limit on open files, at a file that the script opens ({the_place})",
    "Each open file counts until it is closed: files that are opened in a loop or in each sample and never closed, and "
    "memory maps, add up. Connections and the tensors of a DataLoader's workers count, too. The limit is often 1024, "
    "and 256 on macOS.",
    (Fix("Close each file, or copy what is needed of it.", ("with open(path) as f: ...", "np.load(path)['x'].copy()")),
     Fix("See what is open, and raise the limit.", ("lsof -p PID | tail -50", "ulimit -n 4096"))),
    _SCRIPT.format(line="data = open(path).read()") + "OSError: [Errno 24] Too many open files: 'a.txt'",
    "https://docs.python.org/3/library/functions.html#open")
STEPS_ON_GPU = Case(
    said(r"If capturable=False, state_steps should not be CUDA tensors"),
    "Adam's step counters are on the GPU, where it refuses them: probably a bug of torch 1.12.0",
    "load_state_dict() of that release moves the counters of a loaded state to the GPU, and step() then refuses them. "
    "torch 1.12.1 corrected it. Code that moves everything in optimizer.state to the GPU does the same.",
    (Fix("Install the release that corrected it, or a newer one.", ("pip show torch", "pip install torch==1.12.1")),
     Fix("Or let Adam accept them, after the state was loaded.",
         ("for group in optimizer.param_groups: group['capturable'] = True",))),
    _SCRIPT.format(line="optimizer.step()")
    + '  File "/x/site-packages/torch/optim/adam.py", line 99, in _single_tensor_adam\n    assert not step.is_cuda\n'
    "AssertionError: If capturable=False, state_steps should not be CUDA tensors.",
    "https://github.com/pytorch/pytorch/issues/80809")
RESULT_NOT_COMPUTED = Case(
    every(PLAIN, own_line(r"\[['\"]eval_")),
    "the script reads a result of an evaluation that is not there ({the_place})",
    "The names of the results are those that the code gives them: it is called otherwise, is computed only in some "
    "settings, or the evaluation did not run.",
    Fix("Print the names before that line.", ("print(metrics.keys())",)),
    _SCRIPT.format(line="best = metrics['eval_acc']") + "KeyError: 'eval_acc'",
    "https://docs.python.org/3/library/exceptions.html#KeyError")
NO_ROWS = Case(
    every(PLAIN, through("datasets"), said(r"Invalid key: (?:0|-1) is out of bounds for size 0\b")),
    "the dataset has no rows ({the_place})",
    "A filter or a split left none, a file is empty, or all columns were removed, and the rows with them.",
    Fix("Print it after each step.", ("print(dataset)",)),
    _SCRIPT.format(line="first = dataset[0]")
    + '  File "/x/site-packages/datasets/formatting/formatting.py", line 99, in _check_valid_index_key\n    raise x\n'
    "IndexError: Invalid key: 0 is out of bounds for size 0",
    "https://huggingface.co/docs/datasets/access")
OWN_POOL = Case(
    every(PLAIN, never(through("torch", "datasets", "tokenizers"))),
    "a process of a pool that the script uses was killed or crashed ({the_place})",
    "Host memory ran out (each process has its own copy of what it works on), a compiled library crashed, or the "
    "process ended by itself (os._exit). On Windows and macOS also if the script has no main guard.",
    (Fix("Check whether the kernel killed it, and use fewer processes.",
         ("sudo dmesg -T | grep -i 'killed process' | tail", "ProcessPoolExecutor(max_workers=2)")),
     Fix("Run the function without the pool, to see its own error.", ("results = [work(item) for item in items]",))),
    _SCRIPT.format(line="results = [one.result() for one in futures]")
    + "concurrent.futures.process.BrokenProcessPool: A process in the process pool was terminated abruptly while the "
    "future was running or pending.",
    "https://docs.python.org/3/library/concurrent.futures.html#concurrent.futures.process.BrokenProcessPool")
OF_SCIKIT_LEARN = Case(
    every(PLAIN, through("sklearn"), said(r"inconsistent numbers of samples")),
    "scikit-learn got inputs with different numbers of samples ({the_place})",
    "The inputs of one call belong together, row by row. They are of different parts of the data, one of them was "
    "filtered, flattened or has a dimension in another order, or one was collected in a loop that leaves out a batch.",
    Fix("Print the shapes just before that line, and where each is made.", ("print(np.shape(x), np.shape(y))",)),
    _SCRIPT.format(line="score = accuracy_score(y, predicted)")
    + '  File "/x/site-packages/sklearn/utils/validation.py", line 99, in check_consistent_length\n'
    "    raise ValueError(\nValueError: Found input variables with inconsistent numbers of samples: [100, 98]",
    "https://scikit-learn.org/stable/modules/model_evaluation.html")
# fmt: on
