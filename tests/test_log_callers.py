"""Who made the call that failed, and on which value: the script, a wrapper, a package, another process of the run?

The tracebacks are written here.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from mgpu.readers.log import read
from tests.test_log_meanings import explained

PACKAGES = "/opt/env/lib/python3.11/site-packages"
SCRIPT = "/home/ada/fit.py"


def frames(*calls: tuple[str, str, str], prefix: str = "") -> str:
    """A traceback's frames: file (in an installed package without a leading slash), function, line of code."""
    lines = [f"{prefix}Traceback (most recent call last):"]
    for file, function, code in calls:
        path = file if file.startswith("/") else f"{PACKAGES}/{file}"
        lines += [f'{prefix}  File "{path}", line 7, in {function}', f"{prefix}    {code}"]
    return "".join(f"{line}\n" for line in lines)


MAIN = (SCRIPT, "main", "out = denoiser(x, hint=h)")
MODULE = ("torch/nn/modules/module.py", "_call_impl", "return forward_call(*args, **kwargs)")
PREPARED = ("accelerate/utils/operations.py", "forward", "return model_forward(*args, **kwargs)")
PEFT = ("peft/peft_model.py", "forward", "return self.base_model(**kwargs)")


@pytest.mark.parametrize(
    ("calls", "error", "title", "words"),
    [
        # Wrappers pass on what the script gives them.
        ((MAIN, MODULE, PREPARED, MODULE), "TypeError: TinyDenoiser.forward() got an unexpected keyword argument "
                                           "'hint'",
         "your call at fit.py:7 in main passes hint to TinyDenoiser.forward()", "grep -n TinyDenoiser fit.py"),
        (((SCRIPT, "main", "net(x, mask=m)"), MODULE, ("torch/nn/parallel/distributed.py", "forward", "x"), MODULE),
         "TypeError: Net.forward() got an unexpected keyword argument 'mask'", "your call at fit.py:7 in main",
             "misspelled"),
        (((SCRIPT, "main", "net(x, mask=m)"), MODULE, ("deepspeed/runtime/engine.py", "forward", "x"), MODULE),
         "TypeError: Net.forward() got an unexpected keyword argument 'mask'", "your call at fit.py:7 in main",
             "misspelled"),
        # A package's own call is still one between packages.
        ((MAIN, ("trl/trainer/x.py", "step", "f(a=1)")), "TypeError: f() got an unexpected keyword argument 'a'",
         "the installed trl does not fit the code that uses it", "pip show"),
        # A model without a head takes no labels, whoever passes them.
        (((SCRIPT, "forward", "h = self.body(ids)"), MODULE, PEFT, MODULE),
         "TypeError: BertModel.forward() got an unexpected keyword argument 'labels'",
         "BertModel is a model without a head: its forward() takes no labels", "FEATURE_EXTRACTION"),
        ((("transformers/trainer.py", "compute_loss", "outputs = model(**inputs)"), MODULE),
         "TypeError: RobertaModel.forward() got an unexpected keyword argument 'labels'", "a model without a head",
         'labels = batch.pop("labels")'),
        # Python before 3.10 does not name the class. The line does.
        (((SCRIPT, "main", "conf = TrainingArguments("),),
         "TypeError: __init__() got an unexpected keyword argument 'local_process_index'",
         "local_process_index is no argument of TrainingArguments(): the launcher sets it",
             "Remove local_process_index"),
        (((SCRIPT, "main", "net = TinyNet("),), "TypeError: __init__() got an unexpected keyword argument 'depth'",
         "your call at fit.py:7 in main passes depth to TinyNet()", "grep -n TinyNet fit.py"),
        # A package that does not find a part of itself.
        (((SCRIPT, "main", "import deepspeed"), ("deepspeed/ops/adam.py", "<module>", "from deepspeed.gears import x")),
         "ModuleNotFoundError: No module named 'deepspeed.gears'",
         "the installed deepspeed is probably incomplete or mixed with another release",
         "--force-reinstall --no-deps deepspeed"),
        (((SCRIPT, "main", "import torch"), ("torch/_inductor/a.py", "<module>", "from .b import c")),
         "ImportError: cannot import name 'c' from 'torch._inductor.b' (/x/torch/_inductor/b.py)",
         "the installed torch is probably incomplete or mixed", "python -m venv"),
        # A folder of a repository's name is not its package.
        ((("/work/verl/tools/my_sft.py", "main", "t = SFTTrainer("),),
         "TypeError: SFTTrainer.__init__() got an unexpected keyword argument 'tokenizer'",
         "trl 0.16 (2025-03) removed the argument tokenizer of SFTTrainer()", "processing_class"),
        # Devices and dtypes, with the module's name.
        (((SCRIPT, "main", "z = vision_tower(px.to(device)).last"), MODULE),
         "RuntimeError: Input type (torch.cuda.HalfTensor) and weight type (torch.FloatTensor) should be the same",
         "the weights of vision_tower are on the CPU, and its input is on the GPU (fit.py:7 in main)",
         "vision_tower.to(device)"),
        (((SCRIPT, "main", "z = net(px)"), MODULE),
         "RuntimeError: Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same",
         "the input of net is on the CPU, and its weights are on the GPU", "x = x.to(next("),
        (((SCRIPT, "main", "z = self.vae.encode(px)"), MODULE),
         "RuntimeError: Input type (torch.cuda.FloatTensor) and weight type (CUDABFloat16Type) should be the same",
         "the input of self.vae.encode has another dtype than its weight", "autocast"),
        # The option that a path came from.
        (((SCRIPT, "main", "c = Config(os.path.abspath(args.recipe))"), ("/home/ada/conf.py", "__init__",
            "open(name)")),
         "IsADirectoryError: [Errno 21] Is a directory: '/home/ada'",
         "the option recipe names a folder (/home/ada), and the script opens it as a file", "--recipe FILE"),
        # A field of a config with the wrong type.
        (((SCRIPT, "main", "log.start(id=1)"),),
         "pydantic_core._pydantic_core.ValidationError: 1 validation error for Options\nrun_name\n  Input should be a "
         "valid string [type=string_type, input_value=20240102, input_type=int]",
         "Options wants a string in the field run_name, and got the int 20240102", "run_name: \"20240102\""),
        # A later failure of packages is a consequence of one that is known.
        (((SCRIPT, "main", "serve()"), ("swift/llm/infer.py", "run", "x")),
         "ValueError: max_tokens must be at least 1, got -9.\n\n"
         + frames(("swift/llm/rollout.py", "infer", "for r in out:")) + "TypeError: 'NoneType' object is not iterable",
         "the engine is asked for -9 tokens", "max_model_len"),
    ],
)  # fmt: skip
def test_the_one_who_called_is_named(
    calls: tuple[tuple[str, str, str], ...], error: str, title: str, words: str, tmp_path: Path
) -> None:
    _, found, text = explained(tmp_path, f"{frames(*calls)}{error}\n")
    assert title in found, (found, text)
    assert words in text, (found, text)


def test_of_torn_tracebacks_the_fullest_is_used(tmp_path: Path) -> None:
    """Two ranks wrote to one file at the same time; a third one's traceback is whole."""
    error = "IsADirectoryError: [Errno 21] Is a directory: '/home/ada'\n"
    torn = frames((SCRIPT, "main", "with open(name) as f:")) + error
    whole = (
        frames((SCRIPT, "main", "c = Config(args.recipe)"), ("/home/ada/conf.py", "read", "with open(n) as f:")) + error
    )
    assert "the option recipe" in explained(tmp_path, torn + whole)[1]


def test_a_message_that_several_processes_wrote_together_is_found(tmp_path: Path) -> None:
    text = (
        frames((SCRIPT, "main", "m = load()"), ("transformers/quantizers/quantizer_bnb_8bit.py", "validate_environment",
                                                 "raise ImportError(raise ImportError("))
        + "ImportError\n\n: ImportErrorUsing `bitsandbytes` 4-bit quantization requires the latest version of "
          "bitsandbytes"
        "ImportError: : \n"
    )  # fmt: skip
    row, title, _ = explained(tmp_path, text)
    assert row == "log_bitsandbytes_without_cuda" and "not installed in this Python, or torch has no GPU" in title


def test_exceptions_after_which_their_own_process_went_on_are_no_cause(tmp_path: Path) -> None:
    prefix = "(RolloutWorker pid=4711) "
    one = frames(("/home/ada/env.py", "step", "a, b = parse(text)"), prefix=prefix)
    path = tmp_path / "run.log"
    several = "".join(f"{one}{prefix}TypeError: cannot unpack non-iterable NoneType object, {n}\n" for n in range(3))
    path.write_text(several + f"{prefix}answer: none\n" * 12, "utf-8")
    assert all(found.caught for found in read.read_logs([path]).raised)
    driver = frames((SCRIPT, "main", "ray.get(job)")) + "TypeError: cannot unpack non-iterable NoneType object, 2\n"
    path.write_text(several + driver + f"{prefix}answer: none\n" * 12, "utf-8")
    assert [found.message[-1] for found in read.read_logs([path]).raised if not found.caught]


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        # The log was cut in the prefix of a process: that is not an exception.
        ("(Actor pid=1) " + "(Actor pid=1) ".join(frames(("vllm/v1/core.py", "rpc", "self.run(x)")).splitlines(True))
         + "(Actor pid=1) (Engine\n", "vllm/v1/core.py:7 in rpc", ""),
        # Ray repeats the type of the worker's exception, whose traceback follows and is cut.
        ("ray.exceptions.ActorDiedError: The actor died because of an error raised in its creation task, "
         "ray::Manager.__init__() (pid=9, ip=10.0.0.1)\n" + frames(
             ("slime/utils/client.py", "start", "n = args.rate * args.num_engines // args.per_engine")).split(
                 "\n", 1)[1],
         "slime/utils/client.py:7 in start", "args.rate, args.num_engines and args.per_engine"),
        # Another process began the same traceback within it.
        (frames((SCRIPT, "<module>", "main()"), ("megatron/training/training.py", "train_step", ""))
         + frames(("deepspeed/runtime/pipe/engine.py", "run", "go()"), (SCRIPT, "<module>", "main()"),
                  (SCRIPT, "main", "train()")), "deepspeed/runtime/pipe/engine.py:7 in run", ""),
    ],
)  # fmt: skip
def test_where_a_cut_traceback_had_arrived(text: str, place: str, words: str, tmp_path: Path) -> None:
    row, title, cause = explained(tmp_path, text)
    assert row == "log_traceback_cut" and place in title and words in cause


@pytest.mark.parametrize(
    "warning",
    [
        'Lmod has detected the following error: The following module(s) are unknown: "cuda/99"',
        "UserWarning: This DataLoader will create 8 worker processes in total. Our suggested max number of worker in "
        "current system is 2, which is smaller than what this DataLoader is going to create.",
    ],
)
def test_a_warning_before_the_start_is_no_cause_once_the_run_takes_steps(warning: str, tmp_path: Path) -> None:
    path = tmp_path / "run.log"
    path.write_text(f"{warning}\n iteration 1/ 90 | lm loss: 9.1\n iteration 2/ 90 | lm loss: 9.0\n", "utf-8")
    assert all(found.survived for found in read.read_logs([path]).seen)


TIMEOUT = (
    "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=12, OpType=ALLREDUCE, "
    "NumelIn=900, "
    "NumelOut=900, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.\n"
)
OLD_KERNEL = "Detected kernel version 3.10.0, which is below the recommended minimum of 5.5.0; this can cause a hang.\n"
NO_CUDA = (
    "UserWarning: CUDA initialization: CUDA unknown error - this may be due to an incorrectly set up environment\n"
)


@pytest.mark.parametrize(
    ("text", "row"),
    [
        (OLD_KERNEL + TIMEOUT, "log_collective_timed_out"),  # the warning is in most logs of such a cluster
        (NO_CUDA + frames((SCRIPT, "main", "f()")) + "ValueError: fp16 mixed precision requires a GPU\n",
         "log_cuda_start_failed"),
        (NO_CUDA + frames((SCRIPT, "main", "f()")) + "RuntimeError: No CUDA GPUs are available\n",
            "log_cuda_start_failed"),
        (frames((SCRIPT, "main", "f()")) + "ValueError: fp16 mixed precision requires a GPU\n", "log_gpu_wanted"),
    ],
)  # fmt: skip
def test_an_earlier_warning_counts_if_it_explains_the_failure(text: str, row: str, tmp_path: Path) -> None:
    assert explained(tmp_path, text)[0] == row
