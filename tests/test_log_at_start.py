"""Downloads, runs to resume, dataclasses, names made of values, ids in 16 bits, garbled paths: what do they mean?"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

LIB = "/x/lib/python3.11/site-packages"
URLLIB = ("/usr/lib/python3.11/urllib/request.py", "http_error_default", "raise HTTPError(url, code, msg, hdrs, fp)")


def words(text: str, folder: Path) -> str:
    return " | ".join(explained(folder, text))


@pytest.mark.parametrize(("data", "code"), [("mnist", "403: Forbidden"), ("omniglot", "404: Not Found")])
def test_the_server_of_a_data_set_refuses_the_download(data: str, code: str, tmp_path: Path) -> None:
    called = (
        (f"{LIB}/torchvision/datasets/{data}.py", "download", "download_and_extract_archive(url, root)"),
        (f"{LIB}/torchvision/datasets/utils.py", "download_url", "opener.retrieve(url, path)"),
    )
    error = f"urllib.error.HTTPError: HTTP Error {code}\n"
    found = words(f"{frames((SCRIPT, 'main', 'rows = Data(root)'), *called, URLLIB)}{error}", tmp_path)
    assert "server of a torchvision data set refused the download" in found
    assert "pip show torch torchvision" in found
    own = words(f"{frames((SCRIPT, 'main', 'urlretrieve(url)'), URLLIB)}{error}", tmp_path)
    assert "torchvision" not in own


@pytest.mark.parametrize(
    ("error", "title"),
    [
        (
            "No runs present in the directory: '/home/u/logs/rsl_rl/walker' match: '.*'.",
            "/home/u/logs/rsl_rl/walker has no run whose folder matches '.*'",
        ),
        (
            "No checkpoints in the directory: '/w/logs/skrl/arm/2026-11-02' match 'model_.*.pt'.",
            "has no checkpoint that matches 'model_.*.pt': /w/logs/skrl/arm/2026-11-02",
        ),
    ],
)
def test_a_run_to_resume_that_does_not_exist(error: str, title: str, tmp_path: Path) -> None:
    text = f"{frames((SCRIPT, 'get_checkpoint_path', 'raise ValueError(text)'))}ValueError: {error}\n"
    found = words(text, tmp_path)
    assert title in found and "--load_run RUN" in found
    assert "to resume" not in words(text.replace("in the directory", "in the table"), tmp_path)


def test_a_dataclass_of_a_module_that_is_not_entered(tmp_path: Path) -> None:
    def found(line: str) -> str:
        inner = ("/usr/lib/python3.12/dataclasses.py", "_is_type", line)
        error = "AttributeError: 'NoneType' object has no attribute '__dict__'. Did you mean: '__dir__'?\n"
        return words(f"{frames((SCRIPT, '<module>', '@dataclass'), inner)}{error}", tmp_path)

    known = found("ns = sys.modules.get(cls.__module__).__dict__")
    assert "without an entry in sys.modules" in known and "sys.modules[spec.name] = mod" in known
    assert "Follow the error message" not in known and "an option that was not set" not in known
    assert "sys.modules" not in found("ns = owner.__dict__")


@pytest.mark.parametrize(
    ("error", "line"),
    [
        ("'Pyramid' object has no attribute 'level6'", 'x = getattr(self, f"level{i}")(x)'),
        ("WordTokenizer has no attribute cell_9. Did you mean: 'cell_1'?", "t = getattr(tok, 'cell_' + str(n))"),
    ],
)
def test_a_name_that_is_made_of_values(error: str, line: str, tmp_path: Path) -> None:
    found = words(f"{frames((SCRIPT, 'forward', line))}AttributeError: {error}\n", tmp_path)
    assert "a name that the line makes of values" in found and "Register as many" in found
    assert "Follow the error message" not in found
    plain = words(f"{frames((SCRIPT, 'forward', 'x = self.level6(x)'))}AttributeError: {error}\n", tmp_path)
    assert "makes of values" not in plain


@pytest.mark.parametrize("owner", ["Detector", "myNet"])
def test_an_attribute_that_a_class_of_the_script_lacks(owner: str, tmp_path: Path) -> None:
    torch = (f"{LIB}/torch/nn/modules/module.py", "__getattr__", "raise AttributeError(text)")
    error = f"AttributeError: '{owner}' object has no attribute 'make_head'\n"
    found = words(f"{frames((SCRIPT, '__init__', 'self.head = self.make_head'), torch)}{error}", tmp_path)
    assert f"{owner} has no attribute make_head" in found and "def make_head" in found


@pytest.mark.parametrize(
    ("got", "cast"), [("CUDABFloat16Type", True), ("torch.cuda.HalfTensor", True), ("torch.cuda.FloatTensor", False)]
)
def test_ids_that_were_cast_to_16_bits(got: str, cast: bool, tmp_path: Path) -> None:
    inner = (f"{LIB}/torch/nn/functional.py", "embedding", "return torch.embedding(weight, input, padding_idx)")
    error = (
        "RuntimeError: Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; "
        f"but got {got} instead (while checking arguments for embedding)\n"
    )
    library = (f"{LIB}/transformers/generation/utils.py", "generate", "outputs = self(**model_inputs)")
    found = words(f"{frames((SCRIPT, 'answer', 'out = net.generate(**batch)'), library, inner)}{error}", tmp_path)
    assert ("is_floating_point" in found) is cast


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("caf\u00c3\u00a9_2.jpg", True),
        ("s\u00e3\\xado.wav", True),
        ("caf\u00e9_2.jpg", False),
        ("S\u00e3o.wav", False),
    ],
)
def test_a_path_with_garbled_letters(name: str, wrong: bool, tmp_path: Path) -> None:
    text = f"{frames((SCRIPT, '__getitem__', 'x = open(path)'))}FileNotFoundError: [Errno 2] No such file or directory"
    assert ("garbled" in words(f"{text}: '/data/set/{name}'\n", tmp_path)) is wrong


@pytest.mark.parametrize(("missing", "early"), [("'params'", True), ("'optimizer'", True), ("'dim'", False)])
def test_an_optimizer_of_the_config_that_is_created_alone(missing: str, early: bool, tmp_path: Path) -> None:
    text = (
        "Error in call to target 'torch.optim.sgd.SGD':\n"
        f'TypeError("SGD.__init__() missing 1 required positional argument: {missing}")\nfull_key: net.optim\n'
    )
    assert ("_partial_: true" in words(text, tmp_path)) is early


@pytest.mark.parametrize(
    ("line", "spectra"),
    [
        ("y = torch.fft.irfft(u_f * k_f, n=size)", True),
        ("out = fft.irfft(fft.rfft(x) * self.filter, dim=-1)", True),
        ("y = u * k", False),
        ("y = torch.fft.rfft(x) + bias", False),
    ],
)
def test_spectra_of_different_lengths(line: str, spectra: bool, tmp_path: Path) -> None:
    error = "The size of tensor a (513) must match the size of tensor b (769) at non-singleton dimension 2"
    found = words(f"{frames((SCRIPT, 'forward', line))}RuntimeError: {error}\n", tmp_path)
    channels = words(f"{frames((SCRIPT, 'forward', line))}RuntimeError: {error.replace('769', '64')}\n", tmp_path)
    assert "frequencies" not in channels
    assert ("513 are of 1024 values (or 1025), 769 of 1536 (or 1537)" in found) is spectra


@pytest.mark.parametrize("key", ["observation.language.tokens", "observation.language.attention_mask"])
def test_a_batch_whose_task_was_not_tokenized(key: str, tmp_path: Path) -> None:
    text = f"{frames((SCRIPT, 'forward', 'tokens = batch[KEY]'))}KeyError: '{key}'\n"
    assert "batch = preprocessor(batch)" in words(text, tmp_path)
    assert "preprocessor" not in words(text.replace("language", "image"), tmp_path)
