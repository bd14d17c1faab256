"""A job script that went on in the wrong folder, options that are not set, and folders of an earlier run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.test_log_callers import SCRIPT, frames
from tests.test_log_meanings import explained

CD = "/var/spool/slurmd/job71/slurm_script: line 22: cd: ../tools/: No such file or directory\n"
NO_SCRIPT = "python3: can't open file 'pack.py': [Errno 2] No such file or directory\n"
NO_CONFIG = (
    "FileNotFoundError: The passed configuration file `conf/zero3.yaml` does not exist. Please pass an existing file "
    "to `accelerate launch`, or use the default one created through `accelerate config` and run `accelerate launch` "
    "without the `--config_file` argument.\n"
)
LAUNCH = frames(
    ("/opt/env/bin/accelerate", "<module>", "sys.exit(main())"),
    ("accelerate/commands/config/config_args.py", "load_config_from_file", "raise FileNotFoundError("),
)
MADE = f"{frames((SCRIPT, 'main', 'os.mkdir(out)'))}FileExistsError: [Errno 17] File exists: 'runs/7/data'\n"
FALLEN = (
    "E1121 10:12:01.408000 4711 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: "
    "1 (pid: 12) of binary: /usr/bin/python\n"
)
NONE = "https://huggingface.co/api/datasets/None/refs"


@pytest.mark.parametrize("failed", [NO_SCRIPT, LAUNCH + NO_CONFIG])
@pytest.mark.parametrize("cd", [CD, "train.sh: 3: cd: can't cd to ../tools\n"])
def test_a_folder_that_the_job_script_could_not_enter(failed: str, cd: str, tmp_path: Path) -> None:
    name, title, words = explained(tmp_path, cd + failed)
    assert name == "log_folder_not_entered" and "../tools" in title and "set -e" in words
    alone = explained(tmp_path, failed)
    assert (
        alone[0] in ("log_script_not_found", "log_accelerate_config_missing") and "compare the versions" not in alone[2]
    )


def test_a_folder_that_was_not_entered_does_not_explain_other_failures(tmp_path: Path) -> None:
    raised = (
        f"{frames((SCRIPT, 'main', 'x = y[3]'))}torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB\n"
    )
    assert explained(tmp_path, CD + raised)[0] == "log_gpu_memory_full"


def test_the_missing_config_of_accelerate_is_named(tmp_path: Path) -> None:
    name, title, words = explained(tmp_path, LAUNCH + NO_CONFIG)
    assert (
        name == "log_accelerate_config_missing" and "conf/zero3.yaml" in title and "pwd; ls -l conf/zero3.yaml" in words
    )


def test_a_folder_of_an_earlier_run_is_no_race(tmp_path: Path) -> None:
    name, title, words = explained(tmp_path, MADE)
    assert name == "log_cache_raced" and "from an earlier run" in title and "ls -ld runs/7/data" in words
    for raced in (MADE + FALLEN, MADE + MADE, "".join(f"[rank1]: {line}\n" for line in MADE.splitlines())):
        assert "several ranks created" in explained(tmp_path, raced)[1]


@pytest.mark.parametrize(
    "error",
    [
        f"requests.exceptions.HTTPError: 401 Client Error: Unauthorized for url: {NONE}",
        "OSError: None is not a local folder and is not a valid model identifier listed on 'https://huggingface.co/models'",
        f"huggingface_hub.errors.RepositoryNotFoundError: 404 Client Error. Repository Not Found for url: {NONE}.",
    ],
)
def test_a_name_that_is_not_set(error: str, tmp_path: Path) -> None:
    called = frames((SCRIPT, "main", "data = make_dataset(cfg)"))
    title, words = explained(tmp_path, f"{called}{error}\n")[1:]
    assert "is None: the option that holds it is not set" in title and "hf auth login" not in words
    assert "is None" not in explained(tmp_path, f"{called}{error.replace('None', 'acme/NoneSuch')}\n")[1]


def test_a_later_exception_does_not_make_a_path_a_placeholder(tmp_path: Path) -> None:
    missing = "FileNotFoundError: [Errno 2] No such file or directory: '/data/pick/meta/info.json'\n"
    unreachable = (
        "requests.exceptions.ConnectionError: (MaxRetryError(\"HTTPSConnectionPool(host='huggingface.co', port=443): "
        "Max retries exceeded (Caused by NewConnectionError('<urllib3.connection.HTTPSConnection object at 0x7f9b>: "
        "Failed to establish a new connection: [Errno 101] Network is unreachable'))\"))\n"
    )
    called = frames((SCRIPT, "main", "load(root)"))
    handled = "\nDuring handling of the above exception, another exception occurred:\n\n"
    for text in (f"{called}{missing}{handled}{called}{unreachable}", f"{called}{missing}"):
        name, title, _ = explained(tmp_path, text)
        assert name == "log_file_missing" and "placeholder" not in title
    assert "placeholder" in explained(tmp_path, f"{called}{missing.replace('/pick/', '/<your-run>/')}")[1]


@pytest.mark.parametrize(
    ("line", "command", "words"),
    [
        ("llamafactory-cli: error: the following arguments are required: --output_dir/--output-dir",
         "llamafactory-cli train CONFIG.yaml", "first argument"),
        ("run_sft.py: error: the following arguments are required: --output_dir/--output-dir",
         "python run_sft.py CONFIG.yaml", "first argument"),
        ("fit.py: error: the following arguments are required: --data", "python fit.py --help", "after the script"),
    ],
)  # fmt: skip
def test_a_missing_argument_names_its_program(line: str, command: str, words: str, tmp_path: Path) -> None:
    name, _, said = explained(tmp_path, f"usage: x\n{line}\n")
    assert name == "log_argument_missing" and command in said and words in said and "mgpu launch" not in said
