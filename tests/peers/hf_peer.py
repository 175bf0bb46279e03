"""transformers on Llama folders: makes some, reads ours.

  hf_peer.py make FOLDER            folders as save_pretrained writes them, whole and in shards; for
                                    each a line of JSON: its name and what transformers reads of it
  hf_peer.py configs FOLDER         a line of JSON for each FOLDER/*/config.json
  hf_peer.py load FOLDER REQUEST    REQUEST is a JSON file {"ids": [...], "texts": [...]}: prints
                                    {"logits": [[...]], "texts": [[...]], "eos": ..., "chat": "..."}
"""

import json
import pathlib
import sys

try:
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, LlamaConfig
except ImportError as error:
    print(error)
    sys.exit(77)

LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
          "original_max_position_embeddings": 8192}
KINDS = {
    "llama2": {"rms_norm_eps": 1e-6, "num_key_value_heads": 4},
    "llama3": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "llama31": {"rope_parameters": {"rope_theta": 500000.0, **LLAMA3}, "rms_norm_eps": 1e-5,
                "eos_token_id": [2, 5, 7]},
    "llama32": {"rope_parameters": {"rope_theta": 500000.0, **LLAMA3, "factor": 32.0},
                "tie_word_embeddings": True, "head_dim": 32},
    "linear": {"rope_parameters": {"rope_theta": 10000.0, "rope_type": "linear", "factor": 2.0}},
}


def describe(folder):
    config = AutoConfig.from_pretrained(folder)
    rope = config.rope_parameters
    return {"name": folder.name, "layers": config.num_hidden_layers, "dim": config.hidden_size,
            "heads": config.num_attention_heads, "kv_heads": config.num_key_value_heads,
            "head_dim": config.head_dim, "ffn": config.intermediate_size,
            "vocab": config.vocab_size, "positions": config.max_position_embeddings,
            "eps": config.rms_norm_eps, "tied": config.tie_word_embeddings,
            "dtype": str(config.dtype), "rope_type": rope["rope_type"],
            "rope_theta": rope["rope_theta"], "rope_factor": rope.get("factor", 1.0),
            "rope_low": rope.get("low_freq_factor", 1.0),
            "rope_high": rope.get("high_freq_factor", 4.0),
            "rope_original": rope.get("original_max_position_embeddings", 8192)}


def make(folder):
    torch.manual_seed(1)
    for name, settings in KINDS.items():
        settings = {"num_key_value_heads": 2, **settings}
        config = LlamaConfig(vocab_size=300, hidden_size=64, intermediate_size=96,
                             num_hidden_layers=2, num_attention_heads=4,
                             max_position_embeddings=4096, **settings)
        dtype = torch.float32 if name == "llama2" else torch.bfloat16
        model = AutoModelForCausalLM.from_config(config).to(dtype)
        model.save_pretrained(folder / name)
        model.save_pretrained(folder / f"{name}_shards", max_shard_size="60KB")
        print(json.dumps(describe(folder / name)))


def load(folder, request):
    request = json.loads(pathlib.Path(request).read_text())
    model, info = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32,
                                                       output_loading_info=True)
    assert not info["missing_keys"] and not info["unexpected_keys"], info
    with torch.no_grad():
        logits = model(torch.tensor([request["ids"]])).logits[0]
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = [tokenizer(text)["input_ids"] for text in request["texts"]]
    decoded = [tokenizer.decode(ids, skip_special_tokens=True) for ids in texts]
    print(json.dumps({"logits": logits.tolist(), "texts": texts, "decoded": decoded,
                      "bos": tokenizer.bos_token_id, "eos": tokenizer.eos_token_id,
                      "generation_eos": model.generation_config.eos_token_id,
                      "dtype": str(AutoConfig.from_pretrained(folder).dtype),
                      "chat": tokenizer.chat_template or ""}))


command, path = sys.argv[1], pathlib.Path(sys.argv[2])
if command == "make":
    make(path)
elif command == "configs":
    for entry in sorted(path.iterdir()):
        print(json.dumps(describe(entry)))
else:
    load(path, sys.argv[3])
