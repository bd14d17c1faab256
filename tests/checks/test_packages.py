"""checks/packages/, except known_faults.py"""

from __future__ import annotations

import pytest

from mgpu.snapshot import Libraries
from tests.checks.facts import Case, fails, informs, libraries, python, pytorch, skips, table, warns, well

SITE = "/opt/env/lib/python3.11/site-packages"
OWN = "/home/ada/.local/lib/python3.11/site-packages"
CONDA = python(environment="conda", user_site=OWN)
STACK = {"torch": "2.9.0", "accelerate": "1.15.0"}


def asking(**requires: tuple[str, ...]) -> Libraries:
    return libraries(requires=requires)


def torch_in(*copies: str) -> Libraries:
    return libraries(twice={"torch": copies})


def built(**tags: str) -> Libraries:
    return libraries(built_with={name.replace("_", "-"): tag for name, tag in tags.items()})


CASES = (
    fails("accelerate_missing", "no accelerate in /opt/env/bin/python", "/opt/env/bin/python -m pip install accelerate",
        packages={}),
    well("accelerate_missing", "accelerate 1.15.0"),
    skips("accelerate_missing", "no environment in sight",
        packages={}, python=python(chosen="no environment in sight")),
    # accelerate_too_old: 1.0
    warns("accelerate_too_old", "accelerate 0.34.2, 1.0 or newer required", "pip install --upgrade accelerate",
        packages={"accelerate": "0.34.2"}),
    well("accelerate_too_old", "accelerate 1.0", packages={"accelerate": "1.0"}),
    well("accelerate_too_old", "accelerate 1.0.0", packages={"accelerate": "1.0.0"}),
    well("accelerate_too_old", "accelerate 1.0.0rc1", packages={"accelerate": "1.0.0rc1"}),
    well("accelerate_too_old", "accelerate 1.16.0.dev0", packages={"accelerate": "1.16.0.dev0"}),
    skips("accelerate_too_old", "not installed", packages={}),
    # accelerate_of_another_python
    informs("accelerate_of_another_python",
        "accelerate on PATH runs /usr/bin/python3", "/opt/env/bin/python -m accelerate.commands.launch",
        python=python(accelerate_on_path="/usr/bin/python3")),
    well("accelerate_of_another_python", "this interpreter's"),
    well("accelerate_of_another_python", "this interpreter's",
        python=python(accelerate_on_path="/opt/env/bin/python3.11")),
    skips("accelerate_of_another_python", "no accelerate command on PATH", python=python(accelerate_on_path=None)),
    skips("accelerate_of_another_python", "not installed here",
        python=python(accelerate_on_path="/usr/bin/python3"), packages={}),
    # accelerate_default_config_left
    informs("accelerate_default_config_left",
        "a default_config.yaml is in the cache", "cat /home/ada/.cache/huggingface/accelerate/default_config.yaml",
        python=python(accelerate_default_config="/home/ada/.cache/huggingface/accelerate/default_config.yaml")),
    informs("accelerate_default_config_left", "in the cache: distributed_type MULTI_GPU, num_processes 2", "cat",
        python=python(accelerate_default_config="/d.yaml",
                      accelerate_default_settings={"num_processes": "2", "distributed_type": "MULTI_GPU"})),
    well("accelerate_default_config_left", "no leftover"),
    # accelerate_default_config_misfits
    *(
        informs("accelerate_default_config_misfits", f"starts {ranks} here, 4 GPUs visible", "mv /d.yaml /d.yaml.old",
            python=python(accelerate_default_config="/d.yaml", accelerate_default_settings=settings))
        for ranks, settings in (
            ("1 rank", {"num_processes": "1"}), ("8 ranks", {"num_processes": "16", "num_machines": "2"}),
        )
    ),
    well("accelerate_default_config_misfits", "4 ranks, 4 visible GPUs",
        python=python(accelerate_default_config="/d.yaml", accelerate_default_settings={"num_processes": "4"})),
    skips("accelerate_default_config_misfits", "no default config"),
    skips("accelerate_default_config_misfits", "no default config",
        python=python(accelerate_default_config="/d.yaml", accelerate_default_settings={"num_processes": "many"})),
    # accelerate_command_missing
    informs("accelerate_command_missing", "no `accelerate` on PATH", "/opt/env/bin/python -m accelerate",
        python=python(accelerate_command=None, accelerate_on_path=None)),
    well("accelerate_command_missing", "accelerate is /opt/env/bin/accelerate"),
    well("accelerate_command_missing", "accelerate is /home/ada/.pyenv/shims/accelerate",  # a wrapper
        python=python(accelerate_command="/home/ada/.pyenv/shims/accelerate", accelerate_on_path=None)),
    skips("accelerate_command_missing", "not installed here", packages={}),
    # python_on_path_is_another
    informs("python_on_path_is_another", "python on PATH is /usr/bin/python3", "-m torch.distributed.run",
        python=python(on_path="/usr/bin/python3")),
    informs("python_on_path_is_another", "torchrun on PATH is /opt/conda/bin/python", "Activate",
        python=python(torchrun_on_path="/opt/conda/bin/python")),
    well("python_on_path_is_another", "python and torchrun on PATH are this interpreter's"),
    well("python_on_path_is_another", "python on PATH is this interpreter's", python=python(torchrun_on_path=None)),
    skips("python_on_path_is_another", "wrappers", python=python(on_path=None, torchrun_on_path=None)),
    # environment_package_hidden
    warns("environment_package_hidden", f"torch 2.4.1 from {OWN}", "export PYTHONNOUSERSITE=1",
        python=CONDA, libraries=torch_in(f"{OWN}/torch-2.4.1.dist-info", f"{SITE}/torch-2.9.0.dist-info")),
    warns("environment_package_hidden", "torch ? from /apps/pytorch", "unset PYTHONPATH",
        libraries=torch_in("/apps/pytorch/torch", f"{SITE}/torch-2.9.0.dist-info")),
    well("environment_package_hidden", "1 package in several places",  # the environment's own comes first
        libraries=torch_in(f"{SITE}/torch-2.9.0.dist-info", "/usr/lib/python3/torch-2.1.0.dist-info")),
    well("environment_package_hidden", "1 package in several places",  # the same version twice
        libraries=torch_in(f"{OWN}/torch-2.9.0.dist-info", f"{SITE}/torch-2.9.0.dist-info")),
    well("environment_package_hidden", "0 packages"),
    skips("environment_package_hidden", "no virtual environment", python=python(environment="system")),
    skips("environment_package_hidden", "unknown kind of environment", python=python(environment=None)),
    # package_installed_over_another
    warns("package_installed_over_another", "torch 2.5.1 and 2.9.0 in one directory", "pip uninstall -y torch",
        libraries=torch_in(f"{SITE}/torch-2.5.1-py3.11.egg-info", f"{SITE}/torch-2.9.0.dist-info")),
    well("package_installed_over_another", "no package is recorded twice",
        libraries=torch_in(f"{OWN}/torch-2.4.1.dist-info", f"{SITE}/torch-2.9.0.dist-info")),
    well("package_installed_over_another", "no package"),
    # user_site_mixed_in
    informs("user_site_mixed_in", f"numpy 1.26.4 from {OWN}", "export PYTHONNOUSERSITE=1",
        python=python(environment="conda", user_site=OWN, user_packages={"numpy": "1.26.4"})),
    well("user_site_mixed_in", "no training packages in /home/ada/.local/lib/python3.11/site-packages", python=CONDA),
    well("user_site_mixed_in", "not mixed into an environment"),
    well("user_site_mixed_in", "not mixed into an environment",  # where everything is installed with --user
        python=python(environment="system", user_site=OWN, user_packages={"torch": "2.9.0"})),
    skips("user_site_mixed_in", "unknown kind of environment", python=python(environment=None)),
    # module_shadowed_here
    warns("module_shadowed_here", "random.py shadows the module of the same name", "mv /work/run/random.py",
        libraries=libraries(shadowed={"random": "/work/run/random.py"})),
    warns("module_shadowed_here", "queue.py and torch.py shadow the modules of the same name",
        "mv /work/run/torch.py /work/run/my_torch.py",
        libraries=libraries(shadowed={"queue": "/work/run/queue.py", "torch": "/work/run/torch.py"})),
    warns("module_shadowed_here", "accelerate/ shadows the module of the same name",
        "mv /work/run/accelerate /work/run/my_accelerate",
        libraries=libraries(shadowed={"accelerate": "/work/run/accelerate"})),
    well("module_shadowed_here", "no file or directory here shadows a module"),
    # requirement_not_met
    warns("requirement_not_met", "torchvision 0.24.1 requires torch==2.9.1, but 2.9.0 is installed",
        "torch==2.9.1 torchvision",
        packages=STACK | {"torchvision": "0.24.1"}, libraries=asking(torchvision=("torch==2.9.1",))),
    warns("requirement_not_met", "torch 2.9.0 requires triton==3.5.0, which is missing", "pip install triton==3.5.0",
        libraries=asking(torch=("triton==3.5.0",))),
    warns("requirement_not_met", "transformers 4.57.0 requires huggingface-hub<1.0,>=0.34.0, but 1.1.0 is installed",
        "'huggingface-hub<1.0,>=0.34.0'", packages=STACK | {"transformers": "4.57.0", "huggingface-hub": "1.1.0"},
        libraries=asking(transformers=("huggingface-hub<1.0,>=0.34.0",))),
    warns("requirement_not_met", "trl 1.0 requires python>=3.12, but 3.11.9 is installed", "pip check",
        packages=STACK | {"trl": "1.0"}, libraries=asking(trl=("python>=3.12",))),
    well("requirement_not_met", "3 requirements of 2 packages met"),
    well("requirement_not_met", "1 requirement of 1 package met",  # a CUDA build, and NVIDIA's own builds
        packages={"torch": "2.9.1+cu130", "torchvision": "0.24.1"}, libraries=asking(torchvision=("torch==2.9.1",))),
    well("requirement_not_met", "met",
        packages={"torch": "2.9.0a0+145a3a7bda.nv25.10", "torchvision": "0.24"},
        libraries=asking(torchvision=("torch==2.9.0",), accelerate=("torch>=2.9",))),
    well("requirement_not_met", "met",  # what cannot be compared is no fault
        packages=STACK | {"torch": "git"}, libraries=asking(accelerate=("torch>=2.0.0",))),
    well("requirement_not_met", "met", libraries=asking(torch=("nvidia-nccl-cu13==2.0", "cuda-toolkit[x]==13.0.2"))),
    skips("requirement_not_met", "no package requirements known", libraries=libraries(requires={})),
    # versions_known_bad_together: the edges of every row
    warns("versions_known_bad_together", "numpy 2.1.0 with torch 2.2.2: torch was compiled for NumPy 1", "'numpy<2'",
        packages={"numpy": "2.1.0", "torch": "2.2.2"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"numpy": "1.26.4", "torch": "2.2.2"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"numpy": "2.0.0", "torch": "2.3.0"}),
    warns("versions_known_bad_together", "deepspeed 0.14.2 with torch 2.4.0", "--upgrade deepspeed",
        packages={"deepspeed": "0.14.2", "torch": "2.4.0"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"deepspeed": "0.14.4", "torch": "2.4.0"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"deepspeed": "0.14.2", "torch": "2.3.1"}),
    warns("versions_known_bad_together", "peft 0.17.1 with transformers 5.0.0", "--upgrade peft",
        packages={"peft": "0.17.1", "transformers": "5.0.0"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"peft": "0.18.0", "transformers": "5.0.0"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"peft": "0.17.1", "transformers": "4.57.6"}),
    warns("versions_known_bad_together", "transformers 4.52.0 with accelerate 1.2.1", "--upgrade accelerate",
        packages={"transformers": "4.52.0", "accelerate": "1.2.1"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"transformers": "4.52.0", "accelerate": "1.3.0"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"transformers": "4.51.3", "accelerate": "1.2.1"}),
    warns("versions_known_bad_together", "transformers 4.52.4 with torch 2.5.1", "--upgrade torch",
        packages={"transformers": "4.52.4", "torch": "2.5.1+cu124"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"transformers": "4.52.4", "torch": "2.6.0"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"transformers": "4.51.3", "torch": "2.5.1"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)",
        packages={"torch": "99.0", "numpy": "99", "peft": "99"}),
    well("versions_known_bad_together", "no known bad combination (5 rules checked)", packages={}),
    # extension_built_for_another_torch
    warns("extension_built_for_another_torch", "flash-attn is built for cu12torch2.4cxx11abiFALSE; torch is 2.9.0",
        "--no-build-isolation", libraries=built(flash_attn="cu12torch2.4cxx11abiFALSE")),
    warns("extension_built_for_another_torch", "torch-scatter is built for pt28cu128", "torch-scatter",
        libraries=built(torch_scatter="pt28cu128")),
    warns("extension_built_for_another_torch", "built for cu12torch2.9", "flash-attn",  # the other CUDA
        libraries=built(flash_attn="cu12torch2.9cxx11abiTRUE")),
    well("extension_built_for_another_torch", "flash-attn for cu13torch2.9cxx11abiTRUE",
        libraries=built(flash_attn="cu13torch2.9cxx11abiTRUE")),
    well("extension_built_for_another_torch", "for pt29cu130", libraries=built(torch_scatter="pt29cu130")),
    well("extension_built_for_another_torch", "for pt210cu130",
        libraries=built(torch_scatter="pt210cu130"), pytorch=pytorch(version="2.10.0+cu130")),
    well("extension_built_for_another_torch", "for d20250901", libraries=built(xformers="d20250901")),
    skips("extension_built_for_another_torch", "no extension reports what it was built for"),
    skips("extension_built_for_another_torch", "unknown torch version",
        libraries=built(flash_attn="cu13torch2.9"), pytorch=pytorch(version=None)),
    # pynvml_redirector_installed: a pointer since 12
    informs("pynvml_redirector_installed", "pynvml 13.0.1 is installed alongside nvidia-ml-py",
        "pip uninstall -y pynvml",
        packages={"pynvml": "13.0.1", "nvidia-ml-py": "13.580.82"}),
    informs("pynvml_redirector_installed", "pynvml 11.5.3 is installed instead of nvidia-ml-py", "nvidia-ml-py",
        packages={"pynvml": "11.5.3"}),
    well("pynvml_redirector_installed", "not installed"),
)  # fmt: skip


@pytest.mark.parametrize("case", table(CASES))
def test_answer(case: Case) -> None:
    case.verify()
