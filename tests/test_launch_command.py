"""What would be launched, and what of it may be seen? Pure: no process is started."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mgpu import known_launchers, secrets_masking
from mgpu.cli import early_probes
from mgpu.config import facts
from mgpu.errors import USAGE, MgpuError
from mgpu.launch import output_folders, start_run
from mgpu.launch.request import LAUNCHERS, Request
from mgpu.launchers import argv as launchers_argv
from mgpu.launchers import choice as launchers_choice
from mgpu.launchers import gpu_selection, port, table
from mgpu.probes import prefetch, runner
from mgpu.process import command
from mgpu.snapshot import Config, Script, Snapshot
from tests.checks import facts as known
from tests.conftest import Run, environment
from tests.scripts import write_config

PYTHON = replace(known.python(), executable="python")
BASE = "compute_environment: LOCAL_MACHINE\nmixed_precision: bf16\n"


def config(folder: Path, text: str) -> Config:
    return facts(write_config(folder, BASE + text), ask_loader=False)


def built(config: Config, *target: str, **options: Any) -> command.Command:
    return launchers_argv.build(config, known.driver(), target or ("train.py",), python=PYTHON, **options)


def flags(made: command.Command) -> list[str]:
    """Between the config and the script."""
    return list(made.argv[6 : made.argv.index("train.py")])


# accelerate's launcher


def test_deepspeed_writes_no_environment_file(tmp_path: Path) -> None:
    """Every node is started by hand: accelerate is kept from writing tokens to ./.deepspeed_env."""
    text = "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 2\nmain_process_ip: 10.0.0.1\n"
    several = config(tmp_path, text)
    assert flags(built(several, node=1)) == ["--deepspeed_multinode_launcher", "standard", "--machine_rank", "1"]
    assert flags(built(config(tmp_path, text.replace("machines: 2", "machines: 1")))) == []


@pytest.mark.parametrize(
    ("launcher", "accelerate", "refused"),
    [("pdsh", "1.0.1", True), ("pdsh", "1.15.0", False), ("standard", "1.0.1", False), (None, "1.0.1", False)],
)
def test_an_accelerate_that_goes_by_the_file_is_refused(
    tmp_path: Path, launcher: str | None, accelerate: str, refused: bool
) -> None:
    section = f"deepspeed_config:\n  deepspeed_multinode_launcher: {launcher}\n" if launcher else ""
    text = f"distributed_type: DEEPSPEED\nnum_processes: 4\nnum_machines: 2\nmachine_rank: 0\n{section}"
    config = facts(write_config(tmp_path, text), ask_loader=False)
    why = launchers_argv.writes_environment(config, accelerate)
    assert ("set  deepspeed_multinode_launcher: standard" in (why or "").lower()) is refused
    assert (why is None) is not refused


def test_accelerate_takes_the_launcher_from_the_command_line(tmp_path: Path) -> None:
    """… also where the file says something else."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser

    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 8\nnum_machines: 2\nmain_process_ip: 10.0.0.1\n"
        "deepspeed_config:\n  deepspeed_multinode_launcher: pdsh\n  zero_stage: 2\n"
    )
    made = built(config(tmp_path, text), node=0)
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(list(made.argv[4:])))
    assert args.deepspeed_multinode_launcher == "standard"


@pytest.mark.parametrize(
    ("section", "wanted"),
    [
        ("fsdp_version: 1\n  fsdp_reshard_after_forward: SHARD_GRAD_OP", ["--fsdp_sharding_strategy", "SHARD_GRAD_OP"]),
        ("fsdp_reshard_after_forward: HYBRID_SHARD", ["--fsdp_sharding_strategy", "HYBRID_SHARD"]),
        ("fsdp_sharding_strategy: FULL_SHARD\n  fsdp_reshard_after_forward: SHARD_GRAD_OP", []),
        ("fsdp_version: 2\n  fsdp_reshard_after_forward: false", []),
        ("fsdp_version: 1\n  fsdp_reshard_after_forward: true", []),
    ],
)
def test_a_sharding_strategy_under_the_wrong_key(tmp_path: Path, section: str, wanted: list[str]) -> None:
    text = f"distributed_type: FSDP\nnum_processes: 4\nnum_machines: 1\nfsdp_config:\n  {section}\n"
    assert flags(built(config(tmp_path, text))) == wanted


def test_offload_paths_reach_the_ranks(tmp_path: Path) -> None:
    text = (
        "distributed_type: DEEPSPEED\nnum_processes: 4\nnum_machines: 1\ndeepspeed_config:\n  zero_stage: 3\n"
        "  offload_param_device: nvme\n  offload_param_nvme_path: /scratch/nvme\n"
    )
    name = "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_NVME_PATH"
    assert built(config(tmp_path, text)).env_added == {name: "/scratch/nvme"}
    from_a_file = text.replace("  zero_stage: 3\n", "  deepspeed_config_file: ds.json\n")
    assert built(config(tmp_path, from_a_file)).env_added == {}


# torchrun, and none


def test_torchrun_gets_what_it_takes(tmp_path: Path) -> None:
    text = "distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 1\ngpu_ids: '1,3'\n"
    made = launchers_argv.torchrun(config(tmp_path, text), ["-m", "train", "-x"], python=PYTHON, port=4711)
    assert made.argv == (
        "python", "-P", "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port", "4711",
        "-m", "train", "-x",
    )  # fmt: skip
    assert made.env_added == {"CUDA_VISIBLE_DEVICES": "1,3"}
    assert (made.launcher, made.ranks, made.script, made.arguments) == ("torchrun", 2, "train", ("-x",))


def test_torchrun_gets_the_gpus_of_each_of_several_machines(tmp_path: Path) -> None:
    """As accelerate's launcher, which puts gpu_ids into CUDA_VISIBLE_DEVICES on every machine."""
    from accelerate.commands.launch import _validate_launch_command, launch_command_parser
    from accelerate.utils.launch import prepare_multi_gpu_env

    text = "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 2\nmain_process_ip: 10.0.0.1\ngpu_ids: '1,3'\n"
    several = config(tmp_path, text)
    made = launchers_argv.torchrun(several, ["train.py"], python=PYTHON, node=1)
    args, *_ = _validate_launch_command(launch_command_parser().parse_args(list(built(several, node=1).argv[4:])))
    assert made.env_added["CUDA_VISIBLE_DEVICES"] == prepare_multi_gpu_env(args)["CUDA_VISIBLE_DEVICES"] == "1,3"


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("", ["--master-addr", "10.0.0.1", "--master-port", "29500"]),
        ("main_process_port: 4711\n", ["--master-addr", "10.0.0.1", "--master-port", "4711"]),
        (
            "rdzv_backend: c10d\n",
            ["--rdzv-backend", "c10d", "--rdzv-endpoint", "10.0.0.1:29500", "--rdzv-id", "mgpu"],
        ),
    ],
)
def test_torchrun_on_several_machines(tmp_path: Path, more: str, wanted: list[str]) -> None:
    text = f"distributed_type: MULTI_GPU\nnum_processes: 8\nnum_machines: 2\nmain_process_ip: 10.0.0.1\n{more}"
    made = launchers_argv.torchrun(config(tmp_path, text), ["train.py"], python=PYTHON, node=1)
    head = ["--nproc-per-node", "4", "--nnodes", "2", "--node-rank", "1"]
    assert list(made.argv[4:]) == [*head, *wanted, "train.py"]
    from torch.distributed.run import get_args_parser

    assert get_args_parser().parse_args(list(made.argv[4:])).training_script == "train.py"


def test_every_launcher_that_is_offered_has_its_records() -> None:
    assert set(table.WAYS) == set(known_launchers.STARTED)
    assert LAUNCHERS == ("auto", "accelerate", "torchrun", "python")


DDP, BF16 = "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 1\n", "mixed_precision bf16"


@pytest.mark.parametrize(
    ("text", "speaks", "given", "wanted", "unheard"),
    [
        (DDP, "accelerate", "", "accelerate", ()),
        (DDP, "trainer", "", "accelerate", ()),
        (DDP, "nothing", "", "accelerate", ()),
        (DDP, None, "", "accelerate", ()),
        (DDP, "ddp", "", "torchrun", (BF16,)),
        (DDP, "lightning", "", "torchrun", (BF16,)),
        (DDP.replace("MULTI_GPU", "DEEPSPEED"), "deepspeed", "", "torchrun", ("DeepSpeed", BF16)),
        (DDP.replace("MULTI_GPU", "FSDP"), "ddp", "accelerate", "accelerate", ("FSDP", BF16)),
        (DDP, "accelerate", "torchrun", "torchrun", (BF16,)),
    ],
)  # fmt: skip
def test_the_launcher_fits_the_script(
    tmp_path: Path, text: str, speaks: Any, given: str, wanted: str, unheard: tuple[str, ...]
) -> None:
    script = replace(Script("train.py"), speaks=speaks)
    choice = launchers_choice.choose(config(tmp_path, text), script, given or "auto")
    assert (choice.launcher, choice.lost_settings) == (wanted, unheard)
    assert bool(choice.why) is (wanted != "accelerate" or bool(given))


def test_python_alone_starts_one_process(tmp_path: Path) -> None:
    with pytest.raises(MgpuError, match="Add --gpus 1") as error:
        launchers_choice.choose(config(tmp_path, DDP), None, "python")
    assert error.value.exit_code == USAGE


SPAWNS = """\
import argparse, os
import torch
import torch.distributed as dist
import torch.multiprocessing as mp
parser = argparse.ArgumentParser()
parser.add_argument("--multiprocessing-distributed", action="store_true")
args = parser.parse_args()


def work(rank, size):
    dist.init_process_group("gloo", rank=rank, world_size=size)


if __name__ == "__main__":
    world_size = torch.cuda.device_count()
    START
"""


@pytest.mark.parametrize(
    ("start", "given", "own"),
    [
        ("mp.spawn(work, args=(2,), nprocs=2)", (), "spawn"),
        ("for rank in range(2):\n        mp.Process(target=work, args=(rank, 2)).start()", (), "Process"),
        ("if 'RANK' in os.environ:\n        work(0, 2)\n    else:\n        mp.spawn(work, nprocs=2)", (), ""),
        ("if args.multiprocessing_distributed:\n        mp.spawn(work, nprocs=2)", (), ""),
        (
            "if args.multiprocessing_distributed:\n        mp.spawn(work, nprocs=2)",
            ("--multiprocessing-distributed",),
            "spawn",
        ),
        ("if args.old:\n        mp.spawn(work, nprocs=2)", (), ""),
        ("work(int(os.environ['RANK']), 2)", (), ""),
        ("mp.Process(target=print).start()", (), ""),
    ],
)
def test_a_script_that_starts_its_ranks_is_started_once(
    tmp_path: Path, start: str, given: tuple[str, ...], own: str
) -> None:
    """N copies of it would each start all ranks, and hang."""
    (tmp_path / "train.py").write_text(SPAWNS.replace("START", start))
    script = launchers_choice.read([str(tmp_path / "train.py"), *given])
    assert script is not None and script.error is None
    choice = launchers_choice.choose(config(tmp_path, DDP), script)
    assert (choice.launcher == "python", choice.own_ranks) == (bool(own), bool(own)), choice
    assert not own or choice.why == f"train.py starts its ranks itself ({own})"
    assert launchers_choice.choose(config(tmp_path, DDP), script, "torchrun").launcher == "torchrun"
    several = config(tmp_path, DDP.replace("machines: 1", "machines: 2"))
    assert launchers_choice.choose(several, script).launcher != "python"


def test_ranks_that_count_the_visible_gpus_see_those_of_the_config(tmp_path: Path) -> None:
    two = config(tmp_path, DDP.replace("processes: 4", "processes: 2"))
    few = gpu_selection.limit_visible(gpu_selection.Selection(Snapshot(**known.facts(config=two))))
    assert few.env["CUDA_VISIBLE_DEVICES"].count(",") == 1
    assert gpu_selection.limit_visible(few) is few
    every = gpu_selection.Selection(Snapshot(**known.facts(config=config(tmp_path, DDP))))
    assert gpu_selection.limit_visible(every) is every


@pytest.mark.parametrize(("given", "wanted"), [("-- x", "-- -- x"), ("x -- y", "x -- y"), ("--", "-- --"), ("", "")])
def test_a_first_argument_that_the_launchers_would_take(tmp_path: Path, given: str, wanted: str) -> None:
    ddp = config(tmp_path, DDP)
    for made in (
        built(ddp, "train.py", *given.split()),
        launchers_argv.torchrun(ddp, ["train.py", *given.split()], python=PYTHON),
    ):
        assert list(made.argv[made.argv.index("train.py") + 1 :]) == wanted.split()
        assert list(made.arguments) == given.split()


SPEAKS_ITSELF = """\
import json, os, sys
if os.environ.get("NEVER"):
    import torch.distributed as dist
    dist.init_process_group("gloo")
    dist.destroy_process_group()
if os.environ["RANK"] == "1":
    print(json.dumps([os.environ["WORLD_SIZE"], sys.argv[1:]]))
"""


def test_torchrun_itself(tmp_path: Path, mgpu: Run) -> None:
    """A real one, and the script has its arguments as they were given."""
    (tmp_path / "train.py").write_text(SPEAKS_ITSELF)
    write_config(tmp_path)
    arguments = ["--", "--help", "", "a b", "é", "--yes", "--", "$HOME"]
    done = mgpu("launch", "--unverified", "allow", "train.py", *arguments)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ["2", arguments]


# What nobody may read


def test_secrets_are_not_shown_and_handed_on() -> None:
    argv = ("python", "train.py", "--hub_token", "abc", "--api-key=def", "--pad_token", "<pad>", "--max_tokens", "5",
            "WANDB_API_KEY=ghi", "hf_abcdefghijklmnopqrst", "--label_key", "y", "--tokenizer", "bert")  # fmt: skip
    made = command.Command(argv, {"HF_TOKEN": "hf_x", "OMP_NUM_THREADS": "1"})
    assert made.masked() == (
        "HF_TOKEN='***' OMP_NUM_THREADS=1 python train.py --hub_token '***' '--api-key=***' --pad_token '<pad>' "
        "--max_tokens 5 'WANDB_API_KEY=***' '***' --label_key y --tokenizer bert"
    )
    for secret in ("abc", "def", "ghi", "hf_abcdefghijklmnopqrst", "hf_x"):
        assert secret in made.shell_text()


@pytest.mark.parametrize(
    ("word", "wanted"),
    [
        ("+wandb.api_key=abcdef12345", "+wandb.api_key=***"),
        ("++logger.password=hunter22", "++logger.password=***"),
        ("~group/token=abcd", "~group/token=***"),
        ('--cfg={"api_key": "abcdef12345"}', '--cfg={"api_key": "***"}'),
        ("--cfg={api_key:abcdef12345}", "--cfg={api_key:***"),
        ("--env=WANDB_API_KEY=abcdef12345", "--env=WANDB_API_KEY=***"),
        ('{"password": "hunter22"}', '{"password": "***"}'),
        ("--url=https://ada:p=w@host/x", "--url=https://***@host/x"),
        ("+model.pad_token=<pad>", "+model.pad_token=<pad>"),
        ("--steps={a: 1}=b", "--steps={a: 1}=b"),
        ("--api_key=", "--api_key="),
        ("a=" * 3000, "a=" * 3000),
    ],
)
def test_secrets_deep_in_a_word(word: str, wanted: str) -> None:
    assert secrets_masking.masked_argv(["train.py", word, "x"]) == ["train.py", wanted, "x"]


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("export WANDB_API_KEY=abcdef12 now", "export WANDB_API_KEY=*** now"),
        ("{'password': 'hunter22'}", "{'password': '***'}"),
        ("git clone https://ada:pw@host/x", "git clone https://***@host/x"),
        ("key error: tokens: 12345, KeyError: 'abcdef'", "key error: tokens: 12345, KeyError: 'abcdef'"),
        ("--token abcd --lr 1e-4", "--token *** --lr 1e-4"),
        ("password = None", "password = None"),
        ("using sk-abcdefghijklmnopqrstuv", "using ***"),
    ],
)
def test_secrets_in_a_text(text: str, wanted: str) -> None:
    assert secrets_masking.masked(text) == wanted


# Plain lines


@pytest.mark.parametrize(
    ("words", "wanted"),
    [
        ("--output_dir out --lr 1", ["out"]),
        ("--output-dir=out --save_dir out", ["out"]),
        ("trainer.default_root_dir=/data/x +a=1", ["/data/x"]),
        ("--out_dir --lr", []),
        ("--save_path /x/model.pt", ["/x"]),
        ("--output_dir s3://bucket/x --output_dir $HOME/x", []),
        ("output_dir x", []),
        ("--output_dir", []),
    ],
)
def test_where_the_script_writes(words: str, wanted: list[str]) -> None:
    assert output_folders.folders(words.split()) == [os.path.abspath(path) for path in wanted]


@pytest.mark.parametrize(
    ("words", "named"),
    [
        ("launch train.py", ()),
        ("launch --yes train.py --output_dir out --help", (str(Path("out").absolute()),)),
        ("launch --status", None),
        ("launch --help", None),
        ("launch", None),
    ],
)
def test_probes_are_on_their_way(words: str, named: Sequence[str] | None, monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def start(probes: Any, **_: Any) -> list[Any]:
        asked.append(probes)
        return []

    monkeypatch.setattr(runner, "start", start)
    early_probes.start(words.split())
    prefetch.take()
    assert asked == ([] if named is None else [runner.launch_probes(named)])


def test_a_plain_launch_needs_no_parser(tmp_path: Path) -> None:
    """Nor anything else that takes long: the gate would not be done in time."""
    import subprocess
    import sys

    (tmp_path / "train.py").write_text("")
    write_config(tmp_path)
    code = (
        "import sys\nfrom mgpu import __main__\nsys.argv = ['mgpu', 'launch', '--unverified', 'allow', '--dry-run', "
        "'train.py']\ntry: __main__.main()\nexcept SystemExit: pass\n"
        "print([name for name in ('typer', 'pydantic', 'torch', 'rich', 'questionary', 'mgpu.smoke.run') "
        "if name in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment(tmp_path / "home"), capture_output=True, text=True,
        check=False, timeout=60,
    )  # fmt: skip
    assert "accelerate.commands.launch" in done.stdout, done.stdout + done.stderr  # it came through the gate
    assert done.stdout.splitlines()[-1] == "[]", done.stdout + done.stderr


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"launcher": "torchrn"}, "choose auto, accelerate, torchrun or python. Did you mean torchrun?"),
        ({"smoke": "yes"}, "--smoke yes: choose"),
        ({"port": "0"}, "expected auto or a number"),
        ({"port": "http"}, "expected auto or a number"),
        ({"gpus": "x"}, "--gpus x: give a number"),
        ({"dry_run": True, "print_command": True}, "omit --print-command"),
        ({"exec_": True, "detach": True}, "choose one"),
        ({"exec_": True, "timeout_s": 3.0}, "not enforce --timeout"),
        ({"exec_": True, "log_dir": "x"}, "not write --log-dir"),
        ({"exec_": True, "triage": False}, "omit --no-triage"),
        ({"dry_run": True, "json_result": "x"}, "--dry-run starts nothing, so there is no result: omit --json-result"),
        ({"print_command": True, "json_result": "x"}, "omit --json-result"),
        ({"smoke": "always", "gpus": "2"}, "mgpu smoke-test --gpus 2"),
        ({"dry_run": True, "exec_": True}, "omit --exec"),
    ],
)
def test_options_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(MgpuError) as error:
        Request(target=("x.py",), **options).check()
    assert words in error.value.message and error.value.exit_code == USAGE


# Where its files go


def test_machines_that_share_a_folder_of_logs(tmp_path: Path) -> None:
    several = config(tmp_path, "distributed_type: MULTI_GPU\nnum_processes: 4\nnum_machines: 2\n")
    alone = config(tmp_path, "distributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 1\n")
    asked = Request(target=("x.py",), log_dir=str(tmp_path / "logs"), node=1)
    assert start_run._plan_folder(asked, several) == tmp_path / "logs" / "node1"
    assert start_run._plan_folder(asked, alone) == tmp_path / "logs"
    assert not (tmp_path / "logs").exists()


# A module (-m)


def test_a_module_is_read_without_being_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its packages are not imported either, and what is next to it hides nothing."""
    package = tmp_path / "pkg" / "jobs"
    package.mkdir(parents=True)
    for folder in (package, package.parent):
        (folder / "__init__.py").write_text("raise SystemExit('imported')\n")
        (folder / "random.py").write_text("")
    training = "for x in range(3):\n    loss.backward()\n    optimizer.step()\n"
    (package / "train.py").write_text(training)
    (package / "__main__.py").write_text(training)
    monkeypatch.chdir(tmp_path)
    for name, file in (("pkg.jobs.train", "train.py"), ("pkg.jobs", "__main__.py")):
        script = launchers_choice.read(["-m", name, "--lr", "1"])
        assert script is not None and script.path == f"pkg/jobs/{file}"
        assert (script.speaks, script.arguments, script.shadowed) == ("nothing", ("--lr", "1"), {})
    for name in ("pkg.none", "pkg.jobs.train.more", "none", "torch.distributed.run", "a b", "pkg..jobs", "sys"):
        assert launchers_choice.read(["-m", name]) is None


def test_a_chosen_port_is_none_that_the_system_gives_away(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between choosing and binding it, no other program can be given it; a taken one is passed over."""
    low = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    assert all(1024 <= port.free_port() < min(low, 30000) for _ in range(20))
    with socket.socket() as taken:
        taken.bind(("", 0))
        number = taken.getsockname()[1]
        monkeypatch.setattr(port, "_FIRST", number)
        monkeypatch.setattr(port, "_END", number + 1)
        monkeypatch.setattr(port, "_first_automatic_port", lambda: number + 1)
        assert port.free_port() not in (0, number)
