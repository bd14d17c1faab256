"""checks/config: how many ranks a file starts, and where they meet."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.checks.configs import BROKEN, REFUSED, said, without
from tests.checks.facts import YAML, Case, config, fails, informs, problem, skips, table, warns, well
from tests.checks.sections import STAGE2, named

CASES = (
    # config_type_invalid
    fails("config_type_invalid", "distributed_type is missing", "write MULTI_GPU", at=(1, 1),
        config=without("distributed_type")),
    fails("config_type_invalid", "MPS does not exist. accelerate calls it NO", "Write 'NO', including the quotes.",
        at=(2, 1), config=said(distributed_type="MPS")),
    fails("config_type_invalid",
        "distributed_type: MULTI_GPUS does not exist. Did you mean MULTI_GPU?", "Write MULTI_GPU", at=(2, 1),
        config=said(distributed_type="MULTI_GPUS")),
    fails("config_type_invalid", "multi_gpu does not exist", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="multi_gpu")),
    fails("config_type_invalid", "distributed_type: YES does not exist", "write MULTI_GPU",
        at=(2, 1), config=said(distributed_type="YES")),
    fails("config_type_invalid", "distributed_type: 3 does not exist", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="3")),
    *(
        well("config_type_invalid", kind.strip("'"),
            config=said(distributed_type=kind))
        for kind in ("MULTI_GPU", "FSDP", "DEEPSPEED", "MULTI_CPU", "'NO'", "NO")
    ),
    skips("config_type_invalid", "cannot be read", config=BROKEN),
    # config_processes_invalid
    skips("config_processes_invalid", "left to the command line", config=without("num_processes")),
    *(
        fails("config_processes_invalid",
            f"num_processes: {shown} is not a whole number of at least 1", "Write the number", at=(4, 1),
            config=said(num_processes=text))
        for text, shown in (
            ("0", "0"), ("-2", "-2"), ("2.5", "2.5"), ("four", "four"), ("true", "true"), ("[4]", "[4]"),
        )
    ),
    fails("config_processes_invalid", "num_processes: \"0\"", "Write the number",
        at=(4, 1), config=said(num_processes="'0'")),
    fails("config_processes_invalid", "num_processes: \"²\"", "Write the number",
        at=(4, 1), config=said(num_processes="'²'")),
    well("config_processes_invalid", "4 processes"),
    well("config_processes_invalid", "1 processes", config=said(num_processes="1")),
    well("config_processes_invalid", "4 processes", config=said(num_processes="'4'")),
    skips("config_processes_invalid", "the type is not valid", config=without("distributed_type")),
    skips("config_processes_invalid", "cannot be read", config=BROKEN),
    fails("config_processes_invalid", 'num_processes: "4" is not a whole number', "Write 4.",
        at=(4, 1), config=said(num_processes='"4"', num_machines="2")),
    fails("config_processes_invalid", "num_processes: 2.0 is not a whole number", "Write 2.",
        at=(4, 1), config=said(num_processes="2.0")),
    fails("config_processes_invalid", "num_processes: auto is not", "Write the number",
        at=(4, 1), config=said(num_processes="auto", num_machines="2")),
    skips("config_processes_invalid", "left to the command line",
        config=said(distributed_type="'NO'", num_processes="-1")),
    well("config_processes_invalid", "NO starts one process, whatever num_processes is",
        config=said(distributed_type="'NO'", num_processes="0")),
    skips("config_processes_invalid", "num_processes: auto is not a number", config=said(num_processes="auto")),
    skips("config_processes_invalid", "is not a number", config=said(num_processes="$N")),
    # config_processes_left_open
    warns("config_processes_left_open", "num_processes: auto is counted at launch", "Write the number",
        at=(4, 1), config=said(num_processes="auto")),
    well("config_processes_left_open", "not left to torchrun"),
    well("config_processes_left_open", "not left to torchrun", config=said(num_processes="auto", use_cpu="true")),
    skips("config_processes_left_open", "cannot be read", config=BROKEN),
    # config_machines_invalid, config_machines_taken_as_one
    *(
        fails("config_machines_invalid", f"num_machines: {text} is not a whole number", fix,
            at=(3, 1), config=said(num_machines=text))
        for text, fix in (
            ("two", "Write the number"), ('"2"', "Write 2."), ("2.0", "Write 2."),
            ("[1]", "Write the number"),
        )
    ),
    well("config_machines_invalid", "1 node"),
    well("config_machines_invalid", "2 nodes", config=said(num_machines="2")),
    well("config_machines_invalid", "1 node", config=without("num_machines")),
    skips("config_machines_invalid", "contains a shell", config=said(num_machines="$NODES")),
    skips("config_machines_invalid", "left to the command line", config=said(num_machines="null")),
    skips("config_machines_invalid", "cannot be read", config=BROKEN),
    *(
        warns("config_machines_taken_as_one", f"num_machines: {text} is treated as 1", "Write 1",
            at=(3, 1), config=said(num_machines=text))
        for text in ("0", "-2", "true", "1.0", "0.5")
    ),
    well("config_machines_taken_as_one", "at least 1"),
    well("config_machines_taken_as_one", "covered by", config=said(num_machines="two")),
    skips("config_machines_taken_as_one", "cannot be read", config=BROKEN),
    # config_ranks_uneven
    fails("config_ranks_uneven", "num_processes: 3 is not a multiple of 2 nodes", "Write a multiple of 2",
        at=(4, 1), config=said(num_processes="3", num_machines="2")),
    fails("config_ranks_uneven", "num_processes: 1 is not a multiple of 2 nodes", "Write a multiple of 2",
        at=(4, 1), config=said(num_processes="1", num_machines="2")),
    well("config_ranks_uneven", "2 on each of 2 nodes", config=said(num_machines="2")),
    well("config_ranks_uneven", "4 on each of 1 node"),
    skips("config_ranks_uneven", "not known", config=said(num_processes="auto")),
    fails("config_ranks_uneven", "num_processes: 16 is not a multiple of 64 nodes", "Write a multiple of 64",
        config=said(num_processes="16", num_machines="64")),
    skips("config_ranks_uneven", "NO does not distribute ranks over nodes",
        config=said(distributed_type="'NO'", num_machines="2", num_processes="1")),
    # config_one_process_of_many
    warns("config_one_process_of_many", "distributed_type NO starts 1 process, not 4", "Write num_processes: 1 if one",
        at=(2, 1), config=said(distributed_type="'NO'")),
    warns("config_one_process_of_many", "distributed_type NO starts 1 process, not 4", "MULTI_GPU",
        at=(2, 1), config=said(distributed_type="NO")),
    warns("config_one_process_of_many", "starts 1 process, not 2.5", "MULTI_GPU",
        config=said(distributed_type="'NO'", num_processes="2.5")),
    warns("config_one_process_of_many", "distributed_type MULTI_CPU starts 1 process, not 4", "hostfile",
        at=(2, 1), config=said(distributed_type="MULTI_CPU")),
    well("config_one_process_of_many", "NO with 1 process", config=said(distributed_type="'NO'", num_processes="1")),
    well("config_one_process_of_many", "MULTI_GPU with 4 processes"),
    well("config_one_process_of_many", "MULTI_CPU with 4 processes",
        config=config(YAML.replace("GPU", "CPU") + "mpirun_config:\n  mpirun_hostfile: hosts\n")),
    skips("config_one_process_of_many", "not known", config=without("distributed_type")),
    # config_one_rank
    informs("config_one_rank", "MULTI_GPU with 1 process", "distributed_type: 'NO' for one",
        at=(4, 1), config=said(num_processes="1")),
    well("config_one_rank", "4 processes"),
    skips("config_one_rank", "not a config of several", config=said(distributed_type="'NO'", num_processes="1")),
    # config_options_missing, config_master_is_loopback
    warns("config_options_missing", "complete only with --num_processes", "--num_processes GPUS_OF_ALL_NODES ...",
        at=(1, 1), config=without("num_processes")),
    well("config_options_missing", "the file is complete",  # config_key_unknown reports the misspelled key
        config=replace(without("num_processes"), values={**without("num_processes").values, "num_processe": 2})),
    skips("config_options_missing", "rejects the file even", config=replace(without("num_processes"), loader=REFUSED)),
    *(
        warns("config_options_missing", "complete only with --num_processes", "--num_processes",
            at=(4, 1), config=said(num_processes=text))
        for text in ("null", "-1", "NUM_GPUS", "<gpus>", "'{{ gpus }}'", "''")
    ),
    warns("config_options_missing", "complete only with --num_processes", "distributed_type: 'NO' with quotes",
        at=(1, 1), config=config("distributed_type: NO\n")),
    warns("config_options_missing", "complete only with --num_processes and --num_machines", "--num_machines NODES",
        config=said(num_machines="HOST_NUM", num_processes="NODE_NUM")),
    warns("config_options_missing", "complete only with --main_process_port", "--main_process_port 29500",
        config=said(main_process_port="<port>")),
    *(
        warns("config_options_missing", "complete only with --main_process_ip and --machine_rank",
            "accelerate launch --main_process_ip ADDRESS_OF_FIRST_NODE --machine_rank RANK_OF_NODE ...",
            at=(3, 1), config=said(num_machines="2", **more))
        for more in ({}, {"main_process_ip": "' '"}, {"machine_rank": "0"})
    ),
    *(
        warns("config_options_missing", "complete only with --main_process_ip", "--main_process_ip ADDRESS", at=(6, 1),
            config=said(num_machines="2", main_process_ip=text, machine_rank="1"))
        for text in ("xx.xx.xx.xx", "<ip>", "MASTER_IP", "your-head-node")
    ),
    warns("config_options_missing", "complete only with --main_process_ip", "--main_process_ip ADDRESS", at=(3, 1),
        config=said(num_machines="2", main_process_ip="null", machine_rank="1")),
    warns("config_options_missing", "complete only with --gpu_ids", "accelerate launch --gpu_ids all ...", at=(6, 1),
        config=said(gpu_ids="'0,1'")),
    warns("config_options_missing", "complete only with --gpu_ids", "Or name one GPU for each rank", at=(6, 1),
        config=said(gpu_ids="'0,1'")),
    well("config_options_missing", "the file is complete", config=said(gpu_ids="'0,1'", num_processes="2")),
    well("config_options_missing", "complete", config=replace(said(gpu_ids="'0,1'"), given=("config_file",))),
    warns("config_options_missing", "complete only with --machine_rank", "--machine_rank RANK_OF_NODE",
        config=said(num_machines="2", main_process_ip="10.0.0.1", machine_rank="null")),
    warns("config_options_missing", "--main_process_ip, --main_process_port and --machine_rank", "--main_process_port",
        at=(3, 1), config=said(distributed_type="'NO'", num_machines="2", num_processes="1")),
    warns("config_options_missing", "--deepspeed_multinode_launcher, --main_process_ip and --machine_rank", "standard",
        at=(3, 1), config=said(distributed_type="DEEPSPEED", num_machines="2")),
    warns("config_options_missing", "complete only with --mixed_precision", "accelerate launch --mixed_precision no",
        at=(5, 1), config=said(mixed_precision="no")),
    warns("config_options_missing", "complete only with --mixed_precision", "Pass it on the command line.", at=(6, 1),
        config=named(STAGE2, more="mixed_precision: bf16\n")),
    warns("config_options_missing", "complete only with --num_processes and --mixed_precision",
        "--num_processes GPUS_OF_ALL_NODES --mixed_precision bf16", at=(1, 1), config=config(
            "distributed_type: DEEPSPEED\nmixed_precision: bf16\ndeepspeed_config: {deepspeed_config_file: d.json}\n")),
    well("config_options_missing", "complete", config=replace(said(mixed_precision="no"), given=("mixed_precision",))),
    well("config_options_missing", "complete", config=said(mixed_precision="'no'")),
    well("config_options_missing", "complete", config=named(STAGE2)),
    well("config_options_missing", "the file is complete", config=said(num_machines="2", main_process_ip="10.0.0.1")),
    well("config_options_missing", "the file is complete"),
    well("config_options_missing", "the file is complete", config=config("distributed_type: 'NO'\n")),
    well("config_options_missing", "the file is complete", config=config(
        "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\ndeepspeed_config: {deepspeed_hostfile: h}\n")),
    well("config_options_missing", "the file is complete",
        config=replace(said(num_machines="2"), given=("main_process_ip", "machine_rank"))),
    skips("config_options_missing", "cannot be read", config=BROKEN),
    *(
        warns("config_master_is_loopback", f"main_process_ip: {address} with 2 nodes", "ip -brief address",
            at=(6, 1), config=said(num_machines="2", main_process_ip=f"'{address}'"))
        for address in ("localhost", "127.0.0.1", "127.0.1.1", "::1")
    ),
    well("config_master_is_loopback", "10.0.0.1", config=said(num_machines="2", main_process_ip="10.0.0.1")),
    skips("config_master_is_loopback", "one node may", config=said(main_process_ip="127.0.0.1")),
    skips("config_master_is_loopback", "no address is set", config=said(num_machines="2")),
    skips("config_master_is_loopback", "cannot be read", config=BROKEN),
    # config_port_invalid
    *(
        fails("config_port_invalid", f"main_process_port: {shown}", "Write",
            at=(6, 1), config=said(main_process_port=text))
        for text, shown in (
            ('"29500"', '"29500"'), ("65536", "65536"), ("-1", "-1"), ("true", "true"), ("29500.0", "29500.0"),
        )
    ),
    fails("config_port_invalid", "main_process_port: 0", "29500",
        at=(6, 1), config=said(num_machines="2", main_process_port="0")),
    well("config_port_invalid", "port 65535", config=said(main_process_port="65535")),
    well("config_port_invalid", "port 1", config=said(main_process_port="1")),
    well("config_port_invalid", "port chosen at launch", config=said(main_process_port="0")),
    skips("config_port_invalid", "no port is set"),
    skips("config_port_invalid", "cannot be read", config=BROKEN),
    skips("config_port_invalid", "one process needs no port",
        config=said(distributed_type="'NO'", num_processes="1", main_process_port="'x'")),
    # config_master_invalid
    *(
        fails("config_master_invalid", f"main_process_ip: {text} {what}", fix,
            at=(6, 1), config=said(num_machines="2", main_process_ip=text))
        for text, what, fix in (
            ("10.0.0.1:29500", "includes a port", "Write main_process_ip: 10.0.0.1."),
            ("node1:29500", "includes a port", "Write main_process_ip: node1."),
            ("http://10.0.0.1", "is a URL", "Write main_process_ip: 10.0.0.1."),
            ('" 10.0.0.1 "', "has spaces around it", "Write main_process_ip: 10.0.0.1."),
            ("10.0.0.999", "is not an address", "Write only the address"),
            ("10.0.1", "is not an address", "Write only the address"),
            ("my host", "is not a host name", "Write only the address"),
            ("10", "is not an address", "Write only the address"),
        )
    ),
    *(
        well("config_master_invalid", address, config=said(num_machines="2", main_process_ip=f"'{address}'"))
        for address in ("10.0.0.1", "node-1.cluster.example", "gpu_01", "[fe80::1]", "2001:db8::7", "localhost")
    ),
    skips("config_master_invalid", "main_process_ip is not set or not used", config=said(main_process_ip="10.0.0.999")),
    *(
        skips("config_master_invalid", "main_process_ip is not set or not used",
            config=said(num_machines="2", main_process_ip=text))
        for text in ("0", "'0'", "x.x.x.x", "XXX.XXX.XXX.XXX", "your-master-ip", "TODO", "<ip>", "MASTER_IP", "'None'")
    ),
    skips("config_master_invalid", "cannot be read", config=BROKEN),
    # config_master_ignored
    informs("config_master_ignored", "main_process_ip: 10.0.0.1 has no effect with one node", "num_machines",
        at=(6, 1), config=said(main_process_ip="10.0.0.1")),
    well("config_master_ignored", "is this machine", config=said(main_process_ip="127.0.0.1")),
    well("config_master_ignored", "no unused address"),
    skips("config_master_ignored", "not a number", config=said(num_machines="$N", main_process_ip="10.0.0.1")),
    skips("config_master_ignored", "cannot be read", config=BROKEN),
    # config_port_privileged
    warns("config_port_privileged", "main_process_port: 80 can only be used by root", "1024 or above",
        at=(6, 1), config=said(main_process_port="80")),
    well("config_port_privileged", "port 1024", config=said(main_process_port="1024")),
    well("config_port_privileged", "no port is set"),
    skips("config_port_privileged", "cannot be read", config=BROKEN),
    # config_machine_rank_invalid, config_machine_rank_ignored, config_machine_rank_fixed
    *(
        fails("config_machine_rank_invalid", f"machine_rank: {text} of 2 nodes", "--machine_rank 0",
            at=(6, 1), config=said(num_machines="2", machine_rank=text))
        for text in ("2", "-1", "one", "[0]")
    ),
    well("config_machine_rank_invalid", "node 1 of 2", config=said(num_machines="2", machine_rank='"1"')),
    skips("config_machine_rank_invalid", "left to the command line", config=said(num_machines="2")),
    skips("config_machine_rank_invalid", "not used", config=said(machine_rank="7")),
    skips("config_machine_rank_invalid", "contains a shell", config=said(num_machines="2", machine_rank="$R")),
    warns("config_machine_rank_ignored", "machine_rank: 3 has no effect with one node", "num_machines",
        at=(6, 1), config=said(machine_rank="3")),
    well("config_machine_rank_ignored", "no unused machine_rank", config=said(machine_rank="0")),
    skips("config_machine_rank_ignored", "not a number", config=said(num_machines="$N", machine_rank="$R")),
    skips("config_machine_rank_ignored", "cannot be read", config=BROKEN),
    informs("config_machine_rank_fixed", "machine_rank: 1: the file works on that node only", "--machine_rank 1",
        at=(6, 1), config=said(num_machines="2", machine_rank="1")),
    informs("config_machine_rank_fixed", "machine_rank: 0: every other node needs --machine_rank", "--machine_rank 1",
        at=(7, 1), config=said(num_machines="2", main_process_ip="10.0.0.1", machine_rank="0")),
    well("config_machine_rank_fixed", "left to the command line", config=said(num_machines="2", machine_rank="0")),
    well("config_machine_rank_fixed", "not used", config=config(
        "distributed_type: DEEPSPEED\nnum_machines: 2\nnum_processes: 8\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\n"
        "deepspeed_config: {deepspeed_hostfile: h}\n")),
    well("config_machine_rank_fixed", "works on every node", config=said(num_machines="2", main_process_ip="10.0.0.1")),
    well("config_machine_rank_fixed", "works on every node", config=said(machine_rank="0")),
    *(  # accelerate launch reads rdzv_backend from its command line only
        informs("config_machine_rank_fixed", f"machine_rank: {rank}: ", "--machine_rank 1", config=said(
            num_machines="2", main_process_ip="10.0.0.1", machine_rank=rank, rdzv_backend="c10d"))
        for rank in ("0", "1")
    ),
    *(
        well("config_machine_rank_fixed", "the command line sets rdzv_backend", config=replace(said(
            num_machines="2", main_process_ip="10.0.0.1", machine_rank=rank, rdzv_backend="c10d"),
            given=("config_file", "rdzv_backend")))
        for rank in ("0", "1")
    ),
    informs("config_machine_rank_fixed", "machine_rank: 1: ", "--machine_rank 1", config=replace(
        said(num_machines="2", main_process_ip="10.0.0.1", machine_rank="1", rdzv_backend="static"),
        given=("rdzv_backend",))),
    skips("config_machine_rank_fixed", "the command line sets", config=replace(
        said(num_machines="2", main_process_ip="10.0.0.1", machine_rank="0"), given=("config_file", "machine_rank"))),
    skips("config_machine_rank_fixed", "cannot be read", config=BROKEN),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("address", "kind", "why"),
    [
        ("xx.xx.xx.xx", "MULTI_GPU", 'the placeholder "xx.xx.xx.xx": every node looks up a host with that name.'),
        ("<ip>", "'NO'", 'the placeholder "<ip>"'),
        ("null", "MULTI_GPU", 'Without main_process_ip, every node looks up a host named "None".'),
        ("null", "'NO'", "Without main_process_ip, accelerate stops with AssertionError."),
    ],
)
def test_a_placeholder_is_not_a_missing_address(address: str, kind: str, why: str) -> None:
    found = problem(
        "config_options_missing", config=said(num_machines="2", main_process_ip=address, distributed_type=kind)
    )
    assert why in found.cause
