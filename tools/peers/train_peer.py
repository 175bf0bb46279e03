"""A training step of a small Llama in PyTorch, timed: the peer of `cria bench train`.

Started by trainer/bench/peer_process.cc. One line in, one line out:

  load PATH                      a safetensors file: weights under Hugging Face's names, tokens and
                                 targets [B, T], sizes in its metadata        -> ok
  check MODE PRECISION THREADS   on the loaded weights                        -> loss L grad_norm G
  run MODE PRECISION THREADS     one step of that variant's own model         -> ms M loss L

MODE is eager or compile, PRECISION fp32 or bf16 (autocast). The first run of a variant makes it
(and compiles it) and is not for timing. A failure answers "error TEXT". Only torch is needed.
"""

import json
import os
import sys
import time

# Replies go to the real standard output; whatever libraries print goes to standard error.
replies = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def reply(*parts):
    print(*parts, file=replies, flush=True)


try:
    import torch
    import torch.nn.functional as F
    from torch import nn
except ImportError as error:
    reply("error no torch:", error)
    sys.exit(1)

DTYPES = {"F32": torch.float32, "I32": torch.int32}


def read_safetensors(path):
    """Tensors by name, and the metadata."""
    with open(path, "rb") as file:
        header = json.loads(file.read(int.from_bytes(file.read(8), "little")))
        data = bytearray(file.read())
    metadata = header.pop("__metadata__", {})
    tensors = {}
    for name, info in header.items():
        begin, end = info["data_offsets"]
        flat = torch.frombuffer(data, dtype=DTYPES[info["dtype"]], offset=begin,
                                count=(end - begin) // 4)
        tensors[name] = flat.reshape(info["shape"])
    return tensors, metadata


class Block(nn.Module):
    def __init__(self, weights, prefix, heads, eps):
        super().__init__()
        self.heads, self.eps = heads, eps

        def parameter(*names):
            return nn.Parameter(torch.cat([weights[prefix + n + ".weight"] for n in names]).clone())

        # q, k, v in one product and gate, up in one: what a fast PyTorch model does.
        self.attention_norm = parameter("input_layernorm")
        self.qkv = parameter("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        self.out = parameter("self_attn.o_proj")
        self.ffn_norm = parameter("post_attention_layernorm")
        self.gate_up = parameter("mlp.gate_proj", "mlp.up_proj")
        self.down = parameter("mlp.down_proj")

    def forward(self, x, cos, sin):
        batch, length, dim = x.shape
        y = F.linear(F.rms_norm(x, (dim,), self.attention_norm, self.eps), self.qkv)
        q, k, v = y.view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)

        def rotate(z):
            first, second = z.chunk(2, dim=-1)
            rotated = (first * cos - second * sin, second * cos + first * sin)
            return torch.cat(rotated, -1).type_as(z)

        y = F.scaled_dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
        x = x + F.linear(y.transpose(1, 2).reshape(batch, length, dim), self.out)
        y = F.linear(F.rms_norm(x, (dim,), self.ffn_norm, self.eps), self.gate_up)
        gate, up = y.chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Llama(nn.Module):
    def __init__(self, weights, sizes):
        super().__init__()
        self.eps = float(sizes["norm_eps"])
        self.embedding = nn.Parameter(weights["model.embed_tokens.weight"].clone())
        self.blocks = nn.ModuleList(
            Block(weights, f"model.layers.{i}.", int(sizes["heads"]), self.eps)
            for i in range(int(sizes["layers"])))
        self.norm = nn.Parameter(weights["model.norm.weight"].clone())
        half = int(sizes["dim"]) // int(sizes["heads"]) // 2
        rates = float(sizes["rope_theta"]) ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.outer(torch.arange(int(sizes["time"]), dtype=torch.float64), rates)
        self.register_buffer("cos", angles.cos().float())
        self.register_buffer("sin", angles.sin().float())

    def forward(self, tokens, targets):
        x = F.embedding(tokens, self.embedding)
        for block in self.blocks:
            x = block(x, self.cos, self.sin)
        logits = F.linear(F.rms_norm(x, x.shape[-1:], self.norm, self.eps), self.embedding)
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


class Variant:
    """One model with its optimizer, in one mode, precision and thread count."""

    def __init__(self, weights, sizes, mode, precision):
        self.model = Llama(weights, sizes)
        self.bf16 = precision == "bf16"
        self.call = torch.compile(self.model) if mode == "compile" else self.model
        decayed = [p for p in self.model.parameters() if p.dim() > 1]
        kept = [p for p in self.model.parameters() if p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decayed, "weight_decay": float(sizes["weight_decay"])},
             {"params": kept, "weight_decay": 0.0}],
            lr=float(sizes["lr"]), betas=(0.9, 0.95), eps=1e-8, fused=True)
        self.tokens = weights["tokens"].long()
        self.targets = weights["targets"].long()

    def gradients(self):
        self.optimizer.zero_grad(set_to_none=True)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=self.bf16):
            loss = self.call(self.tokens, self.targets)
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        return loss.item(), norm.item()

    def step(self):
        start = time.perf_counter()
        loss, _ = self.gradients()
        self.optimizer.step()
        return 1e3 * (time.perf_counter() - start), loss


class Peer:
    def __init__(self):
        self.weights, self.sizes, self.variants = {}, {}, {}

    def variant(self, mode, precision, threads):
        if mode not in ("eager", "compile") or precision not in ("fp32", "bf16"):
            raise ValueError(f"no variant {mode} {precision}")
        torch.set_num_threads(int(threads))
        if mode == "compile":
            import torch._inductor.config as inductor
            inductor.cpp.threads = int(threads)  # generated code has the number built in
        return Variant(self.weights, self.sizes, mode, precision)

    def answer(self, line):
        command, _, rest = line.partition(" ")
        if command == "load":
            self.weights, self.sizes = read_safetensors(rest)
            self.variants = {}
            return ("ok",)
        arguments = rest.split(" ")
        if command == "check":
            loss, norm = self.variant(*arguments).gradients()
            return "loss", repr(loss), "grad_norm", repr(norm)
        if command == "run":
            key = tuple(arguments)
            fresh = self.variant(*key) if key not in self.variants else self.variants[key]
            self.variants[key] = fresh
            torch.set_num_threads(int(key[2]))
            ms, loss = fresh.step()
            return "ms", repr(ms), "loss", repr(loss)
        raise ValueError(f"unknown command {command}")


def main():
    peer = Peer()
    reply("ready torch", torch.__version__)
    for line in sys.stdin:
        try:
            reply(*peer.answer(line.rstrip("\n")))
        except Exception as error:  # whatever torch throws becomes one line
            reply("error", f"{type(error).__name__}: {error}".replace("\n", " | ")[:2000])


if __name__ == "__main__":
    main()
