"""Every rank downloads the same file with huggingface_hub into one cache: its lock lets one of them write at a time."""

import http.server
import json
import os
import threading

import huggingface_hub.constants
import torch
import torch.distributed as dist
from setting import loader, loss_of, model
from torch.nn.parallel import DistributedDataParallel

CONTENT = json.dumps({"hidden_size": 16}).encode()


class Hub(http.server.BaseHTTPRequestHandler):
    def do_HEAD(self):
        self.send_response(200)
        self.send_header("Content-Length", str(len(CONTENT)))
        self.send_header("ETag", '"0123456789abcdef"')
        self.send_header("X-Repo-Commit", "f" * 40)
        self.end_headers()

    def do_GET(self):
        self.do_HEAD()
        self.wfile.write(CONTENT)

    def log_message(self, *_values):
        pass


dist.init_process_group("gloo")
port = torch.zeros(1, dtype=torch.int64)
if dist.get_rank() == 0:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    port[0] = server.server_address[1]
dist.broadcast(port, 0)
os.environ["NO_PROXY"] = "*"
huggingface_hub.constants.HF_HUB_OFFLINE = False
hub = f"http://127.0.0.1:{port.item()}"
huggingface_hub.hf_hub_download("tiny/model", "config.json", endpoint=hub, cache_dir="models", force_download=True)
net = DistributedDataParallel(model())
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for batch in loader():
    optimizer.zero_grad()
    loss_of(net, batch).backward()
    optimizer.step()
