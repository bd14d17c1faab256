"""checks/config: texts of config files, as the reader understands them, and the place each problem names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mgpu import engine
from mgpu.config import reading
from mgpu.snapshot import ConfigFault, LoaderVerdict, Mark, Snapshot
from tests.checks.configs import BROKEN, REFUSED, refused, said, without
from tests.checks.facts import (
    YAML,
    Case,
    config,
    facts,
    fails,
    informs,
    problem,
    skips,
    table,
    warns,
    well,
)
from tests.conftest import CHECKS

CASES = (
    # config_unreadable
    fails("config_unreadable", "the bracket that opens here is never closed", "Close it", at=(1, 19), config=BROKEN),
    fails("config_unreadable", "not YAML: a tab", "spaces.", at=(2, 1), config=config("debug: true\n\tx: 1\n")),
    fails("config_unreadable", "unresolved merge conflict (<<<<<<< HEAD)", "Keep one of the two",
        at=(2, 1), config=config("debug: true\n<<<<<<< HEAD\nuse_cpu: true\n=======\n>>>>>>> main\n")),
    fails("config_unreadable", "a second document begins here (---)", "everything after it.",
        at=(2, 1), config=config("debug: true\n---\nuse_cpu: true\n")),
    fails("config_unreadable", "unrendered template: {{ }}", "Fill in the template",
        at=(1, 16), config=config("num_processes: {{ gpus }}\n")),
    fails("config_unreadable", "'2024-13-45' is not a date", "mgpu configure",
        at=(1, 8), config=config("debug: 2024-13-45\n")),
    fails("config_unreadable", "tag 'tag:yaml.org,2002:python/object:os.system' is not allowed", "Delete the tag",
        at=(1, 8), config=config("debug: !!python/object:os.system x\n")),
    fails("config_unreadable", "its aliases expand to more than 20,000 values", "mgpu configure",
        at=(1, 1), config=config("".join(f"a{n}: &a{n} [{f'*a{n - 1},' * 9 if n else ''}]\n" for n in range(9)))),
    fails("config_unreadable", "the file is empty", "mgpu configure", config=config("# nothing\n")),
    fails("config_unreadable", "got a list", "mgpu configure", at=(1, 1), config=config("- a\n- b\n")),
    fails("config_unreadable", "got a single value", "mgpu configure", at=(1, 1), config=config("MULTI_GPU\n")),
    well("config_unreadable", "5 keys in mgpu.yaml"),
    # config_byte_order_mark
    informs("config_byte_order_mark", "the file begins with a byte order mark", "sed -i", at=(1, 1),
        config=replace(config(), faults=(ConfigFault("x", Mark(1, 1), kind="bom"),))),
    well("config_byte_order_mark", "no byte order mark"),
    skips("config_byte_order_mark", "cannot be read", config=BROKEN),
    # config_key_twice
    warns("config_key_twice", "num_processes: duplicate key, also in line 4. The last one wins", "Delete the one",
        at=(6, 1), config=config(YAML + "num_processes: 2\n")),
    warns("config_key_twice", "fsdp_config.fsdp_version: duplicate key, also in line 7", "Delete",
        at=(8, 3), config=config(YAML + "fsdp_config:\n  fsdp_version: 1\n  fsdp_version: 2\n")),
    well("config_key_twice", "no duplicate keys"),
    skips("config_key_twice", "cannot be read", config=BROKEN),
    # config_key_unknown
    fails("config_key_unknown", "unknown key 'num_procceses'. Did you mean num_processes?", "Correct the name",
        at=(6, 1), config=refused(num_procceses="4")),
    fails("config_key_unknown", "unknown key 'xyz'", "delete the line",
        at=(6, 1), config=config(YAML + "xyz: 4\n", loader=None)),
    fails("config_key_unknown", "unknown key 'Machine_Rank'. Did you mean machine_rank?", "Write machine_rank.",
        at=(6, 1), config=refused(Machine_Rank="0")),
    fails("config_key_unknown", "unknown key 'master_port'. accelerate calls it main_process_port",
        "Write main_process_port.", at=(6, 1), config=refused(master_port="29500")),
    fails("config_key_unknown", "'num_gpus'. accelerate calls it num_processes", "Write num_processes.",
        config=config("distributed_type: MULTI_GPU\nnum_gpus: 4\n", loader=None)),
    fails("config_key_unknown", "unknown key 'num_gpus'", "delete the line",
        config=config("distributed_type: MULTI_GPU\nnum_gpus: 4\nnum_machines: 2\n", loader=None)),
    fails("config_key_unknown", "'use_npu': distributed_type selects the hardware", "Delete the line",
        config=refused(use_npu="false")),
    fails("config_key_unknown", "'bf16': use mixed_precision for the precision", "mixed_precision sets the precision",
        config=refused(bf16="true")),
    fails("config_key_unknown", "'rdzv_endpoint': accelerate builds it from main_process_ip", "Delete the key",
        config=refused(rdzv_endpoint="a:1")),
    fails("config_key_unknown", "'kt_config': it exists only in LLaMA-Factory's fork of accelerate", "Delete the key",
        config=refused(kt_config="{enabled: true}")),
    well("config_key_unknown", "5 keys, all known"),
    well("config_key_unknown", "accelerate 1.15.0 accepts new_in_2027", config=config(YAML + "new_in_2027: 4\n")),
    skips("config_key_unknown", "SageMaker", config=said(compute_environment="AMAZON_SAGEMAKER")),
    skips("config_key_unknown", "cannot be read", config=BROKEN),
    # config_key_removed
    fails("config_key_removed", "ipex_config was removed in accelerate 1.13.0", "Delete it",
        at=(6, 1), config=refused(ipex_config="{ipex: false}")),
    fails("config_key_removed", "tp_config was removed in accelerate 1.7.0", "Delete it",
        at=(6, 1), config=refused(tp_config="{tp_size: 2}")),
    well("config_key_removed", "no keys of older accelerate"),
    well("config_key_removed", "no keys of older accelerate", config=said(ipex_config="{}")),
    skips("config_key_removed", "cannot be read", config=BROKEN),
    # config_key_of_the_command_line
    fails("config_key_of_the_command_line", "max_restarts is an option of accelerate launch",
        "accelerate launch --max_restarts 3 ...", at=(6, 1), config=refused(max_restarts="3")),
    fails("config_key_of_the_command_line", "module is an option", "accelerate launch --module ...",
        at=(6, 1), config=refused(module="true")),
    fails("config_key_of_the_command_line", "log_dir is an option", "it has no effect.",
        at=(6, 1), config=refused(log_dir="null")),
    fails("config_key_of_the_command_line", "multi_gpu is an option", "distributed_type already sets this.",
        at=(6, 1), config=refused(multi_gpu="true")),
    fails("config_key_of_the_command_line", "use_fsdp is an option", "Write distributed_type: FSDP",
        at=(6, 1), config=refused(use_fsdp="true")),
    well("config_key_of_the_command_line", "no command-line options"),
    skips("config_key_of_the_command_line", "cannot be read", config=BROKEN),
    # config_key_outside_its_section
    fails("config_key_outside_its_section", "zero_stage belongs under deepspeed_config", "the type does not use it",
        at=(6, 1), config=refused(zero_stage="2")),
    fails("config_key_outside_its_section", "gradient_accumulation_steps belongs under deepspeed_config",
        "Accelerator(gradient_accumulation_steps=N)", at=(6, 1), config=refused(gradient_accumulation_steps="4")),
    fails("config_key_outside_its_section", "fsdp_sharding_strategy belongs under fsdp_config",
        "Move it to fsdp_config", at=(6, 1),
        config=refused(fsdp_sharding_strategy="FULL_SHARD", distributed_type="FSDP")),
    fails("config_key_outside_its_section", "megatron_lm_tp_size belongs under megatron_lm_config",
        "Write it as megatron_lm_config.megatron_lm_tp_degree",
        at=(6, 1), config=refused(megatron_lm_tp_size="2", distributed_type="MEGATRON_LM")),
    fails("config_key_outside_its_section", "megatron_lm_reduce_scatter belongs under", "it has no such key",
        at=(6, 1), config=refused(megatron_lm_reduce_scatter="true", distributed_type="MEGATRON_LM")),
    well("config_key_outside_its_section", "every key is in the right section"),
    skips("config_key_outside_its_section", "cannot be read", config=BROKEN),
    # config_environment_unknown
    fails("config_environment_unknown", "compute_environment: 'SLURM', not LOCAL_MACHINE", "Write LOCAL_MACHINE",
        at=(1, 1), config=said(compute_environment="SLURM")),
    fails("config_environment_unknown", "'local_machine'", "Write LOCAL_MACHINE",
        at=(1, 1), config=said(compute_environment="local_machine")),
    fails("config_environment_unknown", "'AMAZON_SAGEMAKER'", "For your own machines, write a new config.",
        at=(1, 1), config=said(compute_environment="AMAZON_SAGEMAKER")),
    well("config_environment_unknown", "LOCAL_MACHINE"),
    well("config_environment_unknown", "LOCAL_MACHINE", config=without("compute_environment")),
    skips("config_environment_unknown", "cannot be read", config=BROKEN),
    # config_refused_by_accelerate
    fails("config_refused_by_accelerate", "accelerate 1.15.0: ValueError: unknown keys", "mgpu configure --yes",
        config=config(loader=REFUSED)),
    fails("config_refused_by_accelerate", "no attribute 'lower'", "mgpu configure --yes", at=(5, 1),
        config=config(loader=LoaderVerdict(False, "AttributeError: 'bool' object has no attribute 'lower'", "1.15.0"))),
    well("config_refused_by_accelerate", "accelerate 1.15.0 accepts it"),
    skips("config_refused_by_accelerate", "could not be run", config=config(loader=None)),
    skips("config_refused_by_accelerate", "cannot be read", config=config("- a\n", loader=None)),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()


@pytest.mark.parametrize(
    ("check", "text", "places"),
    [
        ("config_key_twice", "debug: true\nuse_cpu: true\ndebug: false\nuse_cpu: false\n", {"debug": 3, "use_cpu": 4}),
        ("config_key_unknown", "distributed_type: FSDP\naaa: 1\nbbb: 2\n", {"aaa": 2, "bbb": 3}),
        ("config_boolean_is_text", "debug: 'no'\nuse_cpu: 'yes'\n", {"debug": 1, "use_cpu": 2}),
        (
            "config_key_never_applied",
            "rdzv_backend: etcd\n\ndowncast_bf16: 'yes'\n",
            {"rdzv_backend": 1, "downcast_bf16": 3},
        ),
        ("config_gpu_ids_idle", "distributed_type: 'NO'\ngpu_ids: 0,1,2\n", {"gpu_ids": 2}),
        ("config_number_misread", "num_processes: 010\nmain_process_port: 1:30\n",
         {"num_processes": 1, "main_process_port": 2}),
    ],
)  # fmt: skip
def test_every_fault_of_a_file_is_told_with_its_own_line(check: str, text: str, places: dict[str, int]) -> None:
    outcomes = engine.run_check(CHECKS[check], Snapshot(**facts(config=config(text, loader=REFUSED))))
    found = {o.problem.place.key: o.problem.place.line for o in outcomes if o.problem and o.problem.place}
    assert found == places
    assert {o.problem.place.file for o in outcomes if o.problem and o.problem.place} == {"mgpu.yaml"}


def test_the_nearest_name_is_proposed() -> None:
    assert "Did you mean MULTI_GPU?" in problem("config_type_invalid", config=said(distributed_type="MULTI_GPUS")).title
    assert "Did you mean" not in problem("config_type_invalid", config=said(distributed_type="horovod")).title


def test_what_accelerate_says_is_cut_in_the_title_and_whole_in_the_evidence() -> None:
    verdict = LoaderVerdict(False, "ValueError: " + "x" * 500, "1.15.0")
    found = problem("config_refused_by_accelerate", config=config(loader=verdict))
    assert len(found.title) == 200
    assert found.evidence["error"] == verdict.error


@pytest.mark.parametrize(
    ("text", "precision"),
    [("fp16: true", "fp16"), ("fp16: false", "no"), ("fp16: true\nmixed_precision: BF16", "bf16"),
     ("fp16: true\nmixed_precision: null", "no"), ("debug: true", "no")],
)  # fmt: skip
def test_the_precision_is_what_accelerate_makes_of_new_and_old_files(text: str, precision: str) -> None:
    assert config(text).precision == precision


def test_the_place_is_that_of_the_key_in_a_file_with_comments() -> None:
    text = "# a comment\n\n" + YAML.replace("num_processes: 4", "num_processes:   8  # too many")
    place = problem("config_more_ranks_than_gpus", config=config(text)).place
    assert place is not None
    assert (place.line, place.column, place.key) == (6, 1, "num_processes")


@pytest.mark.parametrize(
    ("raw", "name", "words", "at", "fix"),
    [
        ("debug: true".encode("utf-16"), "a.yaml", "the file is UTF-16", (1, 1), "iconv -f UTF-16 -t UTF-8 a.yaml"),
        (b"a: 1\nb: caf\xe9\n", "a.yaml", "not UTF-8: byte 0xe9", (2, 7), "iconv -f LATIN1"),
        (b'{"debug": true,\n}', "a.json", "trailing comma before", (1, 15), "Delete the comma"),
        (b"debug: true\n", "a.json", "the file contains YAML", (1, 1), "end in .yaml"),
        (b'\xef\xbb\xbf{"debug": true}', "a.json", "byte order mark", (1, 1), "without a byte order mark"),
        (b'{"debug" true}', "a.json", "not JSON: Expecting ':' delimiter", (1, 10), "mgpu configure"),
        (b'{\n  // two\n  "debug": true}', "a.json", "comments are not allowed", (2, 3), "start comments with #"),
        (b"{'debug': true}", "a.json", "strings need double quotes", (1, 2), "Correct the line"),
        (b'{"debug": True}', "a.json", "True is Python. Use true", (1, 11), "Correct the line"),
        (b"a: 1\n{% if x %}\nb: 2\n{% endif %}", "a.yaml", "{% %} was not replaced", (2, 1), "Fill in the template"),
        (b"a: 1\nb 2\n", "a.yaml", "a colon followed by a space is missing", (2, 1), "with an ASCII colon"),
        (b"$ cat a.yaml\na: 1\n", "a.yaml", "a shell command pasted with the file", (1, 1), "Delete the line."),
        (b"me@box:~/x$ cat a.yaml\na: 1\n", "a.yaml", "a shell command pasted", (1, 1), "Delete the line."),
        (b"cat a.yaml\na: 1\n", "a.yaml", "a shell command pasted", (1, 1), "Delete the line."),
        (b"a 1\nb: 2\n", "a.yaml", "a colon followed by a space is missing", (1, 1), "with an ASCII colon"),
        ("a: 1\nb\uff1a 2\n".encode(), "a.yaml", "(this one is U+FF1A)", (2, 1), "with an ASCII colon"),
        (b"a:1\nb:2\n", "a.yaml", "no space after the colon", (1, 1), "with an ASCII colon"),
        (b"a:\t1\n", "a.yaml", "a tab after the colon", (1, 3), "Replace it with a space"),
        (b"  a: 1\n b: 2\n", "a.yaml", "indentation does not match", (2, 2), "the same number of spaces"),
        (b"a: 1\n# x\n  b: 2\n", "a.yaml", "indentation does not match", (3, 3), "the same number of spaces"),
        (b"a: b: c\n", "a.yaml", "a second colon in the line", (1, 5), "in quotes"),
        (b"a: %N%\n", "a.yaml", "value that starts with % needs quotes", (1, 4), "in quotes"),
        (b"a: *x\n", "a.yaml", "value that starts with * needs quotes", (1, 4), "in quotes"),
        (b"```yaml\na: 1\n```\n", "a.yaml", "a Markdown code fence", (1, 1), "Delete the lines"),
        (b"a: 'x\nb: 3\n", "a.yaml", "the quote opened here is never closed", (1, 4), "same kind of quote"),
        (b'a: "C:\\Users"\n', "a.yaml", "invalid backslash escape", (1, 9), "single quotes"),
        (b"", "a.json", "the file is empty", (1, 1), "mgpu configure"),
        (b"[1]", "a.json", "got a list", (1, 1), "mgpu configure"),
        (b"debug: \x00\n", "a.yaml", "the character U+0000 is not allowed", (1, 8), "mgpu configure"),
        (b"[" * 5000, "a.yaml", "it is nested more than 64 levels deep", (1, 1), "mgpu configure"),
        (b"a: &a [*a]", "a.yaml", "a value contains itself", (1, 1), "mgpu configure"),
        (b"- 1\n" * 30000, "a.yaml", "it has more than 20,000 values", (1, 1), "mgpu configure"),
    ],
)  # fmt: skip
def test_what_spoils_a_file_is_named_where_it_stands(
    raw: bytes, name: str, words: str, at: tuple[int, int], fix: str
) -> None:
    found = problem("config_unreadable", config=reading.parse_config(raw, name))
    assert words in found.title
    assert found.place is not None
    assert (found.place.line, found.place.column) == at
    assert fix in " ".join([found.fixes[0].text, *found.fixes[0].commands])


@pytest.mark.parametrize(
    "raw",
    [
        b"\xef\xbb\xbfdebug: true\r\nnum_processes: 4\r\n",
        b"{debug: true, num_processes: 4}\n",
        b'{"debug": true, "num_processes": 4}',
        b"base: &b {debug: true}\n<<: *b\nnum_processes: 4\n",
        b"%YAML 1.1\n---\ndebug: true\nnum_processes: 4\n...\n",
    ],
)  # fmt: skip
def test_unusual_files_that_accelerate_reads_are_read(raw: bytes) -> None:
    found = reading.parse_config(raw, "a.yaml")
    assert found.values["debug"] is True and found.values["num_processes"] == 4
    assert set(found.marks) >= {"debug", "num_processes"}
    assert not any(fault.fatal for fault in found.faults)


def test_json_with_tabs_is_read_with_its_places() -> None:
    found = reading.parse_config(b'{\n\t"debug": true,\n\t"fsdp_config": {"a":\t1}\n}', "a.json")
    assert found.values == {"debug": True, "fsdp_config": {"a": 1}}
    assert (found.marks["debug"].line, found.marks["fsdp_config.a"].line) == (2, 3)


def test_the_line_of_an_earlier_key_can_be_dropped_only_where_it_has_the_line_to_itself() -> None:
    def stale(text: str) -> list[int | None]:
        return [fault.stale_line for fault in config(text).faults]

    assert stale("a: 1\nb: 2\na: 3\na: 4\n") == [1, 3]
    assert stale("a:\n  b: 1\na: 3\n") == [None]
    assert stale("{a: 1, a: 2}\n") == [None]
    assert stale("a: |\n  text\na: 3\n") == [None]
