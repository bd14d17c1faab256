"""The class that a script gets for plain torch.distributed, as text. It needs torch only."""

RANKS_CLASS = '''
class Ranks:
    """The ranks of this run, started by torchrun. One process without a launcher is rank 0 of 1."""

    def __init__(self):
        import os

        self.process_index = int(os.environ.get("RANK", 0))
        self.local_process_index = int(os.environ.get("LOCAL_RANK", 0))
        self.num_processes = int(os.environ.get("WORLD_SIZE", 1))
        self.is_main_process = self.process_index == 0
        self.is_local_main_process = self.local_process_index == 0
        self.device = torch.device("cpu")
        if torch.cuda.is_available():
            self.device = torch.device("cuda", self.local_process_index)
            torch.cuda.set_device(self.device)
        self._ends = None  # samples of the last batch of the loader being read, while it is the last batch
        if "RANK" in os.environ:
            torch.distributed.init_process_group("nccl" if self.device.type == "cuda" else "gloo")

    def prepare(self, *objects):
        """Models are wrapped, loaders give this rank its part of each batch, anything else stays as it is."""
        ready = [self._prepare(one) for one in objects]
        return ready[0] if len(ready) == 1 else tuple(ready)

    def _prepare(self, one):
        if isinstance(one, torch.nn.Module):
            one = one.to(self.device)
            if self.num_processes == 1 or not any(p.requires_grad for p in one.parameters()):
                return one
            devices = [self.device] if self.device.type == "cuda" else None
            return torch.nn.parallel.DistributedDataParallel(one, device_ids=devices)
        if isinstance(one, torch.utils.data.DataLoader):
            return self._loader(one)
        return one

    def _loader(self, loader):
        ranks = self

        class Part(torch.utils.data.Sampler):
            """This rank's part of each batch of a sampler. The last batch is filled up from the first one."""

            def __init__(self):
                self.batches = loader.batch_sampler

            def __len__(self):
                return len(self.batches)

            def __iter__(self):
                size, first = self.batches.batch_size, []
                for batch in self.batches:
                    first = first or list(batch)
                    while len(batch) < size:
                        batch = [*batch, *first][:size]
                    part = size // ranks.num_processes
                    yield batch[part * ranks.process_index : part * (ranks.process_index + 1)]

        class Loader(torch.utils.data.DataLoader):
            total_batch_size = loader.batch_size

            def __iter__(self):
                if generator is not None:  # the order of rank 0
                    state = generator.get_state().to(ranks.device)
                    torch.distributed.broadcast(state, 0)
                    generator.set_state(state.cpu())
                samples, steps = len(loader.dataset), len(self)
                rest = 0 if loader.drop_last else samples % loader.batch_size
                try:
                    for step, batch in enumerate(super().__iter__()):
                        ranks._ends = rest if step == steps - 1 and rest else None
                        yield ranks._moved(batch)
                finally:
                    ranks._ends = None

        if self.num_processes == 1:
            return loader
        if loader.batch_size is None or loader.batch_size % self.num_processes:
            raise ValueError(f"{self.num_processes} ranks must divide the batch size {loader.batch_size}")
        if isinstance(loader.dataset, torch.utils.data.IterableDataset):
            raise ValueError("an IterableDataset is not split between ranks: shard it in its __iter__ by RANK")
        generator = None
        if hasattr(loader.sampler, "generator"):
            if loader.sampler.generator is None:
                loader.sampler.generator = torch.Generator()
                loader.sampler.generator.manual_seed(torch.initial_seed())
            generator = loader.sampler.generator
        return Loader(
            loader.dataset,
            batch_sampler=Part(),
            num_workers=loader.num_workers,
            collate_fn=loader.collate_fn,
            pin_memory=loader.pin_memory,
            worker_init_fn=loader.worker_init_fn,
            persistent_workers=loader.persistent_workers,
        )

    def _moved(self, data):
        if isinstance(data, torch.Tensor):
            return data.to(self.device)
        if isinstance(data, dict):
            return {key: self._moved(value) for key, value in data.items()}
        if isinstance(data, (list, tuple)) and not hasattr(data, "_fields"):
            return type(data)(self._moved(value) for value in data)
        return data

    def unwrap_model(self, model):
        wrapped = isinstance(model, torch.nn.parallel.DistributedDataParallel)
        return model.module if wrapped else model

    def get_state_dict(self, model):
        return self.unwrap_model(model).state_dict()

    def reduce(self, tensor, reduction="mean"):
        tensor = tensor.detach().clone()
        if self.num_processes > 1:
            torch.distributed.all_reduce(tensor)
            if reduction == "mean":
                tensor = tensor / self.num_processes
        return tensor

    def gather_for_metrics(self, data):
        """The tensors of all ranks together, without the samples that filled up the last batch."""
        if isinstance(data, (list, tuple)):
            return type(data)(self.gather_for_metrics(value) for value in data)
        if isinstance(data, dict):
            return {key: self.gather_for_metrics(value) for key, value in data.items()}
        if self.num_processes == 1:
            return data
        data = data.detach()
        parts = [torch.empty_like(data, memory_format=torch.contiguous_format) for _ in range(self.num_processes)]
        torch.distributed.all_gather(parts, data.contiguous())
        return torch.cat(parts)[: self._ends]

    def print(self, *values, **options):
        if self.is_local_main_process:
            print(*values, **options)

    def save(self, value, path):
        if self.is_main_process:
            torch.save(value, path)

    def wait_for_everyone(self):
        if self.num_processes > 1:
            torch.distributed.barrier()

    def end_training(self):
        if torch.distributed.is_initialized():
            torch.distributed.destroy_process_group()
'''
