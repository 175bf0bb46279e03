"""transformers' answers to what //tests/peers:generate_test asks; a JSON file in, JSON out.

  generate_peer.py sampling FILE   {"logits", "history", options} -> {"ids", "probabilities"}
  generate_peer.py chat FILE       {"tokenizer", "template", "conversations"} -> ids of each
  generate_peer.py greedy FILE     {"model", "prompts", "max_tokens", "penalty"} -> ids of each
"""

import json
import sys

try:
    import torch
    import transformers
    from transformers.generation import logits_process
except ImportError as error:
    print(error)
    sys.exit(77)


def sampling(case):
    history = torch.tensor([case["history"]], dtype=torch.long)
    scores = torch.tensor([case["logits"]], dtype=torch.float32)
    if case["repetition_penalty"] != 1:
        penalty = logits_process.RepetitionPenaltyLogitsProcessor(case["repetition_penalty"])
        scores = penalty(history, scores)
    # In double, so that a cumulative sum at a border rounds as ours does.
    scores = scores.double()
    if case["temperature"] != 1:
        scores = logits_process.TemperatureLogitsWarper(case["temperature"])(history, scores)
    if case["top_k"] != 0:
        scores = logits_process.TopKLogitsWarper(case["top_k"])(history, scores)
    if case["top_p"] < 1:
        scores = logits_process.TopPLogitsWarper(case["top_p"])(history, scores)
    if case["min_p"] > 0:
        scores = logits_process.MinPLogitsWarper(case["min_p"])(history, scores)
    probabilities = scores[0].softmax(dim=-1)
    kept = torch.isfinite(scores[0]).nonzero()[:, 0]
    return {"ids": kept.tolist(), "probabilities": probabilities[kept].tolist()}


def chat(job):
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_file=job["tokenizer"], bos_token="<|begin_of_text|>", eos_token="<|eot_id|>")
    return [
        tokenizer.apply_chat_template(
            conversation, chat_template=job["template"], tokenize=True, return_dict=False,
            add_generation_prompt=True, **job["variables"])
        for conversation in job["conversations"]
    ]


def greedy(job):
    model = transformers.AutoModelForCausalLM.from_pretrained(job["model"], dtype=torch.float32)
    out = []
    for prompt in job["prompts"]:
        ids = torch.tensor([prompt])
        with torch.no_grad():
            generated = model.generate(
                ids, attention_mask=torch.ones_like(ids), do_sample=False,
                max_new_tokens=job["max_tokens"], repetition_penalty=job["penalty"],
                pad_token_id=0)
        out.append(generated[0, len(prompt):].tolist())
    return out


torch.set_num_threads(1)
with open(sys.argv[2]) as file:
    request = json.load(file)
if sys.argv[1] == "sampling":
    print(json.dumps([sampling(case) for case in request]))
elif sys.argv[1] == "chat":
    print(json.dumps(chat(request)))
else:
    print(json.dumps(greedy(request)))
