"""A density model that is trained by a method of its own, past forward()."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(5)


class Density(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 6))

    def forward(self, x):
        return self.layers(x)

    def log_probs(self, x):
        mean, spread = self(x.flip(1)).chunk(2, dim=1)
        return -(((x - mean) / spread.exp()) ** 2 / 2 + spread).sum(dim=1, keepdim=True)


model = Density()
model.to("cuda" if torch.cuda.is_available() else "cpu")
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(32, 3)), batch_size=8, shuffle=True)
for epoch in range(2):
    total = 0.0
    for (x,) in loader:
        optimizer.zero_grad()
        loss = -model.log_probs(x).mean()
        total += loss.item()
        loss.backward()
        optimizer.step()
    print("epoch {} loss {:.4f}".format(epoch, total / len(loader)))
