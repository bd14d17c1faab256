"""A model with a weight that its options leave out, and a loss that may have parameters of its own."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(6)


class Reader(nn.Module):
    def __init__(self, learn_scale):
        super().__init__()
        self.learn_scale = learn_scale
        self.scale = nn.Parameter(torch.ones(8))
        self.first = nn.Linear(4, 8)
        self.last = nn.Linear(8, 2)

    def scaled(self, h):
        return h * self.scale

    def forward(self, x):
        h = self.first(x).tanh()
        if self.learn_scale:
            h = self.scaled(h)
        return self.last(h)


class SplitLoss(nn.Module):
    def __init__(self, splits):
        super().__init__()
        if splits:
            self.weights = nn.Parameter(torch.ones(len(splits)))

    def forward(self, output, target):
        return nn.functional.cross_entropy(output, target)


model = Reader(learn_scale=False)
criterion = SplitLoss([])
if torch.cuda.is_available():
    model, criterion = model.cuda(), criterion.cuda()
params = list(model.parameters()) + list(criterion.parameters())
optimizer = torch.optim.SGD(params, lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.randint(0, 2, (32,))), batch_size=8, shuffle=True)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
    print("epoch {} loss {:.4f} scale {:.4f}".format(epoch, loss.item(), model.scale.mean().item()))
