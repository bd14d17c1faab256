"""Two models with two optimizers, moved with .cuda() under a flag."""
import argparse
import os
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=2)
parser.add_argument("--batch_size", type=int, default=16)
opt = parser.parse_args()
batch_size = opt.batch_size
Path("samples/first").mkdir(parents=True)
os.makedirs("weights", exist_ok=False)
torch.manual_seed(3)
cuda = True if torch.cuda.is_available() else False
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor

generator = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 6))
discriminator = nn.Sequential(nn.Linear(6, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
adversarial_loss = nn.BCELoss()
if cuda:
    generator.cuda()
    discriminator.cuda()
    adversarial_loss.cuda()
optimizer_G = torch.optim.Adam(generator.parameters(), lr=0.002, betas=(0.5, 0.999))
optimizer_D = torch.optim.Adam(discriminator.parameters(), lr=0.002, betas=(0.5, 0.999))
real_data = torch.randn(64, 6) + 2
noise_data = torch.randn(64, 4)
dataloader = DataLoader(TensorDataset(real_data, noise_data), batch_size=batch_size, shuffle=True)


def labels(batch_size):
    return torch.zeros(batch_size, 1)


for epoch in range(opt.epochs):
    for i, (imgs, z) in enumerate(dataloader):
        valid = torch.ones(imgs.size(0), 1).type(Tensor)
        fake = labels(imgs.size(0)).type(Tensor)
        optimizer_G.zero_grad()
        gen_imgs = generator(z)
        g_loss = adversarial_loss(discriminator(gen_imgs), valid)
        g_loss.backward()
        optimizer_G.step()
        optimizer_D.zero_grad()
        real_loss = adversarial_loss(discriminator(imgs), valid)
        fake_loss = adversarial_loss(discriminator(gen_imgs.detach()), fake)
        d_loss = (real_loss + fake_loss) / 2
        d_loss.backward()
        optimizer_D.step()
        print("[%d] [D %f] [G %f]" % (i, d_loss.item(), g_loss.item()))
    torch.save({"g": generator.state_dict(), "d": discriminator.state_dict(), "epoch": epoch}, "gan.pt")
