"""A Hugging Face folder of Llama in Meta's layout, by torch.save.

  meta_peer.py FOLDER OUT

OUT/1_0, 2_0 and 2_1 (shards, and the dimension that the embedding is cut along) get params.json and
consolidated.NN.pth: Q and K in Meta's order, the shards of tensor parallelism as views that share a
storage, as torch's chunk() makes them.
"""

import json
import pathlib
import sys

try:
    import torch
    from safetensors.torch import load_file
except ImportError as error:
    print(error)
    sys.exit(77)

source, out = pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2])
config = json.loads((source / "config.json").read_text())
weights = load_file(source / "model.safetensors")


def to_meta(weight, heads):
    rows, columns = weight.shape
    return weight.view(heads, 2, rows // heads // 2, columns).transpose(1, 2).reshape(rows, columns)


meta = {"tok_embeddings.weight": (weights["model.embed_tokens.weight"], 0),
        "norm.weight": (weights["model.norm.weight"], None),
        "output.weight": (weights["lm_head.weight"], 0)}
for i in range(config["num_hidden_layers"]):
    hf, to = f"model.layers.{i}.", f"layers.{i}."
    q = to_meta(weights[hf + "self_attn.q_proj.weight"], config["num_attention_heads"])
    k = to_meta(weights[hf + "self_attn.k_proj.weight"], config["num_key_value_heads"])
    meta |= {to + "attention.wq.weight": (q, 0), to + "attention.wk.weight": (k, 0),
             to + "attention.wv.weight": (weights[hf + "self_attn.v_proj.weight"], 0),
             to + "attention.wo.weight": (weights[hf + "self_attn.o_proj.weight"], 1),
             to + "feed_forward.w1.weight": (weights[hf + "mlp.gate_proj.weight"], 0),
             to + "feed_forward.w3.weight": (weights[hf + "mlp.up_proj.weight"], 0),
             to + "feed_forward.w2.weight": (weights[hf + "mlp.down_proj.weight"], 1),
             to + "attention_norm.weight": (weights[hf + "input_layernorm.weight"], None),
             to + "ffn_norm.weight": (weights[hf + "post_attention_layernorm.weight"], None)}
params = {
    "dim": config["hidden_size"], "n_layers": config["num_hidden_layers"],
    "n_heads": config["num_attention_heads"], "n_kv_heads": config["num_key_value_heads"],
    "vocab_size": -1, "multiple_of": config["intermediate_size"], "ffn_dim_multiplier": 0.1,
    "norm_eps": config["rms_norm_eps"], "rope_theta": config["rope_theta"],
    "use_scaled_rope": True}
for num_shards, embedding_dim in ((1, 0), (2, 0), (2, 1)):
    folder = out / f"{num_shards}_{embedding_dim}"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "params.json").write_text(json.dumps(params))
    meta["tok_embeddings.weight"] = (weights["model.embed_tokens.weight"], embedding_dim)
    for n in range(num_shards):
        shard = {name: weight.clone() if dim is None else weight.chunk(num_shards, dim)[n]
                 for name, (weight, dim) in meta.items()}
        shard["rope.freqs"] = torch.arange(8, dtype=torch.float32)
        if n == 0:  # what a module's state_dict() is
            state = torch.nn.Module().state_dict()
            state.update({name: torch.nn.Parameter(value) for name, value in shard.items()})
            shard = state
        torch.save(shard, folder / f"consolidated.{n:02d}.pth")
