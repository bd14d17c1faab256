"""Programs of accelerate, transformers, Lightning and FSDP2 that hang: `python libraries.py NAME`."""

from __future__ import annotations

import os
import tempfile
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, TensorDataset

from tests.hangs.training import main, program


def _accelerated() -> tuple[Any, Any, Any, Any]:
    from accelerate import Accelerator
    from accelerate.utils import ProjectConfiguration

    folder = ProjectConfiguration(f"/tmp/mgpu-hang-{os.getppid()}", automatic_checkpoint_naming=True)
    accelerator = Accelerator(cpu=True, project_config=folder)
    model = torch.nn.Linear(20, 20)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    data = DataLoader(TensorDataset(torch.randn(64, 20)), batch_size=4)
    return accelerator, *accelerator.prepare(model, optimizer, data)


def _accelerate(rank: int, at_step_4: Any) -> None:
    accelerator, model, optimizer, data = _accelerated()
    for step, (batch,) in enumerate(data):
        loss = model(batch).sum()
        accelerator.backward(loss)  # THERE
        optimizer.step()
        if step == 4 and rank == 0:
            at_step_4(accelerator, loss)
    accelerator.wait_for_everyone()


@program
def start_accelerate_gather(rank: int) -> None:
    _accelerate(rank, lambda accelerator, loss: accelerator.gather(loss))  # HERE


@program
def start_accelerate_wait(rank: int) -> None:
    _accelerate(rank, lambda accelerator, loss: accelerator.wait_for_everyone())  # HERE


@program
def start_accelerate_save(rank: int) -> None:
    _accelerate(rank, lambda accelerator, loss: accelerator.save_state())  # HERE


@program
def fsdp2(rank: int) -> None:
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    model = torch.nn.Sequential(torch.nn.Linear(20, 20), torch.nn.Linear(20, 20))
    fully_shard(model, mesh=init_device_mesh("cpu", (dist.get_world_size(),)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        if step == 5 and rank == 1:
            time.sleep(1000)  # HERE
        model(torch.randn(4, 20)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


@program
def start_trainer(rank: int) -> None:
    import transformers as hf

    class Model(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(20, 1)

        def forward(self, x: Any, labels: Any = None) -> Any:
            return {"loss": self.layer(x).pow(2).mean()}

    class Saves(hf.TrainerCallback):  # type: ignore[misc]
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if state.global_step == 5 and state.is_world_process_zero:
                dist.barrier()  # HERE

    data = [{"x": torch.randn(20), "labels": torch.zeros(1)} for _ in range(64)]
    folder = tempfile.mkdtemp()
    given = hf.TrainingArguments(folder, use_cpu=True, max_steps=12, report_to=[], per_device_train_batch_size=4)
    hf.Trainer(Model(), given, train_dataset=data, callbacks=[Saves()]).train()  # THERE


@program
def start_lightning(rank: int) -> None:
    import lightning

    class Model(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(20, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            if number == 5 and self.global_rank == 1:
                time.sleep(1000)  # HERE
            return self.layer(batch[0]).pow(2).mean()

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    data = DataLoader(TensorDataset(torch.randn(64, 20)), batch_size=4)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **quiet).fit(Model(), data)


if __name__ == "__main__":
    main()
