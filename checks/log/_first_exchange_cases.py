"""What does it mean that the first exchange, the engine's connection or a memory segment of NCCL failed?"""

from __future__ import annotations

from mgpu.check import Fix
from mgpu.signature import Case

from ._circumstances import every, line_of, never, on_one_node, reported, shown

_ENV = "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html"
# fmt: off
PLUGIN_OF_ONE_NODE = Case(
    on_one_node("log_network_named_not_there"),
    "NCCL cannot find the network that it was configured to use on one of the nodes",
    "NCCL_NET or NCCL_NET_PLUGIN names the network (in the job, a module or the container), and NCCL does not use "
    "another one then. The setting is probably the same on all nodes.",
    Fix("Compare the network adapters and the plugin's library on that node with those of another one.",
        ("ls /sys/class/infiniband /sys/class/cxi /sys/class/net", "env | grep -E '^(NCCL|FI)_'",
         "NCCL_DEBUG=INFO NCCL_DEBUG_SUBSYS=INIT,NET mgpu launch train.py")),
    "".join(f"[rank{rank}]: Last error:\n[rank{rank}]: Failed to initialize any NET plugin\n" for rank in (2, 3)) +
    "srun: error: n7: tasks 2-3: Exited with exit code 1\nsrun: error: n6: tasks 0-1: Killed\n",
    "https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-net")
FIRST_COLLECTIVE = Case(
    every(line_of("log_collective_timed_out", r"\((?:SeqNum=1, ).*Numel(?:In|Out)=\d{1,2}[,)]|\(SeqNum=1, (?!.*Numel)"),
          line_of("log_collective_timed_out", r"^(?!.*PG (?:ID )?[1-9])")),
    "the first collective of the run never completed ({op}, SeqNum 1): the ranks have not exchanged anything",
    "NCCL's group was never usable. Either the GPUs or nodes cannot reach each other as NCCL tries it (wrong network "
    "interface, a firewall, direct exchange between GPUs that ACS, the IOMMU or a virtual machine blocks), or a rank "
    "did not get there: it failed or still loads, which its own output shows.",
    (Fix("Test the exchange alone: it is not the training code.", ("mgpu smoke-test", "mgpu doctor --only "
                                                                                      "network,links")),
     Fix("See what NCCL selects, and try without direct exchange between GPUs.",
         ("NCCL_DEBUG=INFO mgpu launch train.py", "NCCL_P2P_DISABLE=1 mgpu launch train.py", "ip -br addr")),
     Fix("If a rank's output ends much earlier than the others', look there first.",
         ("mgpu doctor --log rank0.log rank1.log ...",))),
    "[rank0]:[E] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
    "NumelIn=1, "
    "NumelOut=1, Timeout(ms)=600000) ran for 600020 milliseconds before timing out.", _ENV)
SCATTERED = Case(
    line_of("log_collective_timed_out", r"OpType=SCATTER\b"),
    "a rank waited in SCATTER until NCCL's timeout, probably for rank 0, which distributes the model's weights",
    "With FSDP2 (DTensor, cpu_ram_efficient_loading), rank 0 reads the weights and scatters every parameter to the "
    "others. It was still reading or converting them, failed, or ran out of host memory, or the ranks do not have the "
    "same parameters in the same order. Training itself does not use SCATTER.",
    (Fix("Look at what rank 0 did, and at the host memory of its node.",
         ("mgpu doctor --log rank0.log rank1.log ...", "sudo dmesg -T | grep -i 'killed process'")),
     Fix("Test it with every rank reading the weights itself.",
         ("export FSDP_CPU_RAM_EFFICIENT_LOADING=false", "accelerate launch --fsdp_cpu_ram_efficient_loading false "
                                                         "...")),
     Fix("If rank 0 only needs longer, raise the timeout.",
         ("InitProcessGroupKwargs(timeout=timedelta(hours=2))",), kind="stopgap",
         caveat="A real hang then takes that long to be detected.")),
    "[rank1]:[E] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=13, OpType=SCATTER, "
    "NumelIn=384, NumelOut=0, Timeout(ms)=1800000) ran for 1800085 milliseconds before timing out.",
    "https://github.com/axolotl-ai-cloud/axolotl/issues/3476")
ENGINE_SHARES_GPU = Case(
    shown("weights_sent_to_engine"),
    "the trainer and the vLLM server use the same GPU: they form one NCCL group to send weights, and NCCL refuses two "
    "ranks on one GPU",
    "Server and trainer are separate processes, and each takes the first visible GPU (cuda:0) if nothing else is set. "
    "With one GPU they cannot be separate.",
    (Fix("Give the server and the trainer different GPUs.",
         ("CUDA_VISIBLE_DEVICES=0 trl vllm-serve --model MODEL",
          "CUDA_VISIBLE_DEVICES=1,2,3 accelerate launch --num_processes 3 train.py")),
     Fix("Or let vLLM run inside the trainer, on the same GPUs.",
         ("GRPOConfig(use_vllm=True, vllm_mode='colocate')",))),
    "(APIServer pid=1) self.pynccl_comm = PyNcclCommunicator(group, device=device)\n"
    "NCCL WARN Duplicate GPU detected : rank 1 and rank 0 both on CUDA device 65000",
    "https://huggingface.co/docs/trl/main/en/vllm_integration")
ONE_GPU_FOR_ALL = Case(
    every(shown("local_processes"), shown("processes_on_first_gpu"), never(shown("process_on_later_gpu"))),
    "several processes of one node all use cuda:0: they see only one GPU",
    "Every process prints its device, and all have the same. The node has fewer GPUs than processes, or "
    "CUDA_VISIBLE_DEVICES (also of a container or a job) shows only one of them.",
    (Fix("Check how many GPUs the processes see.", ("nvidia-smi -L", "echo $CUDA_VISIBLE_DEVICES")),
     Fix("Start at most as many processes as there are GPUs, or give the job more GPUs.",
         ("accelerate launch --num_processes 1 train.py",))),
    "Distributed environment: MULTI_GPU  Backend: nccl\nNum processes: 4\nProcess index: 3\nLocal process index: 3\n"
    "Device: cuda:0\n\nDuplicate GPU detected : rank 0 and rank 1 both on CUDA device 1000\n",
    "https://github.com/huggingface/accelerate/blob/main/src/accelerate/state.py")
SEGMENT_REFUSED = Case(
    every(reported(r"(?:shmutils|shm)\S*\.cc:\d+ NCCL WARN Cuda failure"), never(reported(r"No space left"))),
    "NCCL could not set up its segment in /dev/shm: CUDA did not accept it",
    "NCCL makes the segment and registers it with CUDA. The log does not show why that failed. Usually /dev/shm is "
    "smaller than the segments of all ranks (containers get 64 MB by default): then it works with fewer GPUs. "
    "Otherwise "
    "the driver or the container does not allow it.",
    (Fix("Give the container more shared memory, and check its size.",
         ("df -h /dev/shm", "docker run --ipc=host ...", "docker run --shm-size=8g ...",
          "mgpu doctor --only shm_too_small,shm_holds_leftovers")),
     Fix("Turn off shared memory in NCCL.", ("export NCCL_SHM_DISABLE=1",), kind="stopgap", caveat="Much slower.")),
    "[2] misc/shmutils.cc:103 NCCL WARN Cuda failure 'invalid argument'\n\n"
    "[2] misc/shmutils.cc:114 NCCL WARN Error while creating shared memory segment /dev/shm/nccl-AbCdEf (size 9637888)",
    "https://github.com/NVIDIA/nccl/blob/master/src/misc/shmutils.cc")
# fmt: on
