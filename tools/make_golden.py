#!/usr/bin/env python3
"""Makes the folders of tests/golden: what PyTorch and transformers compute for tiny Llamas.

    PYTHON tools/make_golden.py tests/golden        # needs torch, transformers, safetensors

Each folder has what `cria check golden` reads (trainer/check/golden_check.h):
  config.json, model.safetensors      as transformers saves them
  io.safetensors
      tokens, labels (B 2, T 64; a label is the next token), logits; labels_masked (-100: not
      counted); long_tokens, long_labels (T 1,536), long_logits_tail, long_grad_q0 (gradient of
      layer 0's q_proj); packed_tokens (two documents in one row) with packed_logits of each alone;
      train_tokens, train_labels (10 batches of B 4, T 64)
  gradients.safetensors, gradients_masked.safetensors    of the mean loss, before clipping
  weights_after_10_steps.safetensors  after ten AdamW steps on the train batches
  expected.json                       losses, norms, the optimizer's settings, a greedy continuation
All in fp32 on one CPU thread, so that a run on another machine gives the same up to rounding.
"""

import argparse
import json
import os

import torch
import transformers
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

BATCH, TIME = 2, 64
LONG_TIME, LONG_TAIL = 1536, 1504
TRAIN_STEPS, TRAIN_BATCH = 10, 4
PACKED = [23, 41]
ADAM = {"lr": 1e-3, "beta1": 0.9, "beta2": 0.95, "eps": 1e-8, "weight_decay": 0.1, "clip_norm": 1.0}

MODELS = {
    # Grouped queries, Llama 3.1's rotary scaling, an untied head.
    "gqa_llama31": (11, dict(
        hidden_size=48, intermediate_size=80, num_hidden_layers=2, num_attention_heads=6,
        num_key_value_heads=2, vocab_size=128, tie_word_embeddings=False, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="llama3", rope_theta=500000.0, factor=8.0,
                             low_freq_factor=1.0, high_freq_factor=4.0,
                             original_max_position_embeddings=256))),
    # head_dim apart from hidden / heads, one KV head, a tied head, an odd vocabulary.
    "tied_headdim": (12, dict(
        hidden_size=32, intermediate_size=56, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=1, head_dim=16, vocab_size=131, tie_word_embeddings=True,
        rms_norm_eps=1e-6,
        rope_parameters=dict(rope_type="default", rope_theta=10000.0))),
    # Every head with its own key and value, linear rotary scaling.
    "mha_linear": (13, dict(
        hidden_size=40, intermediate_size=64, num_hidden_layers=1, num_attention_heads=4,
        num_key_value_heads=4, vocab_size=97, tie_word_embeddings=False, rms_norm_eps=1e-5,
        rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0))),
}


def parameters(model):
    """Name -> parameter; a tied head is the embedding and has no name of its own."""
    return dict(model.named_parameters())


def loss_of(model, tokens, labels):
    """The mean over counted labels; labels are aligned with the tokens (nothing is shifted)."""
    logits = model(tokens).logits
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten(),
                                             ignore_index=-100)
    return loss, logits


def backward(model, tokens, labels):
    model.zero_grad(set_to_none=True)
    loss, logits = loss_of(model, tokens, labels)
    loss.backward()
    gradients = {name: p.grad.clone() for name, p in parameters(model).items()}
    norm = torch.sqrt(sum((g.double() ** 2).sum() for g in gradients.values())).item()
    return loss.item(), logits.detach(), gradients, norm


def greedy(model, prompt, count):
    ids = list(prompt)
    for _ in range(count):
        with torch.no_grad():
            ids.append(int(model(torch.tensor([ids])).logits[0, -1].argmax()))
    return ids[len(prompt):]


def train(model, tokens, labels):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": ADAM["weight_decay"]},
         {"params": others, "weight_decay": 0.0}],
        lr=ADAM["lr"], betas=(ADAM["beta1"], ADAM["beta2"]), eps=ADAM["eps"], foreach=False,
        fused=False)
    losses, norms = [], []
    for step in range(TRAIN_STEPS):
        optimizer.zero_grad(set_to_none=True)
        loss, _ = loss_of(model, tokens[step], labels[step])
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), ADAM["clip_norm"], foreach=False)
        norms.append(float(norm))
        optimizer.step()
        losses.append(loss.item())
    return losses, norms


def make(folder, seed, sizes):
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    config = LlamaConfig(hidden_act="silu", attention_bias=False, mlp_bias=False,
                         attn_implementation="eager", bos_token_id=1, eos_token_id=2,
                         max_position_embeddings=2048, **sizes)
    model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Fresh weights give logits near 0, which hide errors; norms of 1 would hide a factor.
            noise = torch.randn(parameter.shape, generator=generator)
            parameter.copy_(noise * 0.12 if parameter.dim() >= 2 else 1 + 0.2 * noise)

    def random_ids(*shape):
        return torch.randint(0, sizes["vocab_size"], shape, generator=generator)

    def sequences(*shape):
        ids = random_ids(*shape[:-1], shape[-1] + 1)
        return ids[..., :-1].clone(), ids[..., 1:].clone()

    os.makedirs(folder, exist_ok=True)
    model.save_pretrained(folder, safe_serialization=True)
    os.remove(os.path.join(folder, "generation_config.json"))

    tokens, labels = sequences(BATCH, TIME)
    masked = labels.clone()
    masked[torch.rand(masked.shape, generator=generator) < 0.1] = -100
    masked[1, -20:] = -100  # the rows' counts differ
    long_tokens, long_labels = sequences(1, LONG_TIME)
    packed = random_ids(1, sum(PACKED))
    train_tokens, train_labels = sequences(TRAIN_STEPS, TRAIN_BATCH, TIME)
    prompt = random_ids(9).tolist()

    loss, logits, gradients, norm = backward(model, tokens, labels)
    loss_masked, _, gradients_masked, _ = backward(model, tokens, masked)
    long_loss, long_logits, long_gradients, long_norm = backward(model, long_tokens, long_labels)
    with torch.no_grad():
        parts = packed.split(PACKED, dim=1)
        packed_logits = torch.cat([model(part).logits for part in parts], dim=1)
    continuation = greedy(model, prompt, 32)

    save_file(gradients, os.path.join(folder, "gradients.safetensors"))
    save_file(gradients_masked, os.path.join(folder, "gradients_masked.safetensors"))
    save_file({
        "tokens": tokens, "labels": labels, "labels_masked": masked, "logits": logits,
        "long_tokens": long_tokens, "long_labels": long_labels,
        "long_logits_tail": long_logits[:, LONG_TAIL:].contiguous(),
        "long_grad_q0": long_gradients["model.layers.0.self_attn.q_proj.weight"],
        "packed_tokens": packed, "packed_logits": packed_logits,
        "train_tokens": train_tokens, "train_labels": train_labels,
    }, os.path.join(folder, "io.safetensors"))
    losses, norms = train(model, train_tokens, train_labels)
    save_file({name: p.detach() for name, p in parameters(model).items()},
              os.path.join(folder, "weights_after_10_steps.safetensors"))
    with open(os.path.join(folder, "expected.json"), "w", encoding="utf-8") as out:
        json.dump({
            "made_with": {"torch": torch.__version__, "transformers": transformers.__version__},
            "seed": seed, "loss": loss, "grad_norm": norm, "loss_masked": loss_masked,
            "valid_masked": int((masked >= 0).sum()), "long_loss": long_loss,
            "long_tail_start": LONG_TAIL, "long_grad_norm": long_norm, "packed_lengths": PACKED,
            "greedy": {"prompt": prompt, "continuation": continuation},
            "train": {"optimizer": "AdamW", **ADAM, "decay": "matrices only", "losses": losses,
                      "grad_norms": norms},
        }, out, indent=1)
        out.write("\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("out", help="the folder to fill: tests/golden")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    for name, (seed, sizes) in MODELS.items():
        folder = os.path.join(arguments.out, name)
        make(folder, seed, sizes)
        for file in os.listdir(folder):
            os.chmod(os.path.join(folder, file), 0o644)
        print("made", folder)


if __name__ == "__main__":
    main()
