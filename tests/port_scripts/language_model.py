"""A small character model: random batches without a DataLoader, losses estimated, text generated at the end."""
import torch
import torch.nn as nn
from torch.nn import functional as F

batch_size = 8
block_size = 6
max_iters = 6
eval_iters = 2
device = 'cuda' if torch.cuda.is_available() else 'cpu'
torch.manual_seed(1337)
text = "the quick brown fox jumps over the lazy dog. " * 8
chars = sorted(set(text))
data = torch.tensor([chars.index(c) for c in text], dtype=torch.long)
train_data, val_data = data[:300], data[300:]


def get_batch(split):
    data = train_data if split == 'train' else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i:i + block_size] for i in ix])
    y = torch.stack([data[i + 1:i + block_size + 1] for i in ix])
    x, y = x.to(device), y.to(device)
    return x, y


@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ['train', 'val']:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out


class Bigram(nn.Module):
    def __init__(self, vocab_size):
        super().__init__()
        self.table = nn.Embedding(vocab_size, vocab_size)

    def forward(self, idx, targets=None):
        logits = self.table(idx)
        if targets is None:
            return logits, None
        B, T, C = logits.shape
        return logits, F.cross_entropy(logits.view(B * T, C), targets.view(B * T))

    def generate(self, idx, max_new_tokens):
        for _ in range(max_new_tokens):
            logits, _ = self(idx)
            idx = torch.cat((idx, logits[:, -1, :].argmax(-1, keepdim=True)), dim=1)
        return idx


model = Bigram(len(chars))
m = model.to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-1)
for iter in range(max_iters):
    if iter % 2 == 0:
        losses = estimate_loss()
        print(f"step {iter}: train loss {losses['train']:.5f}, val loss {losses['val']:.5f}")
    xb, yb = get_batch('train')
    logits, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
context = torch.zeros((1, 1), dtype=torch.long, device=device)
print(''.join(chars[i] for i in m.generate(context, max_new_tokens=20)[0].tolist()))
