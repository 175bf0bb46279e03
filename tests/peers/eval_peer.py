"""What transformers' logits give for a text and for multiple-choice questions.

usage: eval_peer.py MODEL_DIR TEXT_FILE QUESTIONS.jsonl SEQ STRIDE

Prints one JSON object: loss, tokens, bytes of the text (windows as trainer/eval/eval_windows.h has
them), and acc, acc_norm, log_probs of the questions, tokenised and scored as lm-evaluation-harness
does: context + " " + choice, the context's tokens cut off, ln P summed, divided by characters.
"""

import json
import sys

try:
    import torch
    from transformers import AutoModelForCausalLM, PreTrainedTokenizerFast
except ImportError as error:
    print(error)
    sys.exit(77)

torch.set_num_threads(1)
folder, text_path, questions_path = sys.argv[1:4]
seq, stride = int(sys.argv[4]), int(sys.argv[5])
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
tokenizer = PreTrainedTokenizerFast(tokenizer_file=f"{folder}/tokenizer.json")
bos = tokenizer.convert_tokens_to_ids("<|begin_of_text|>")
eos = tokenizer.convert_tokens_to_ids("<|end_of_text|>")


def encode(text):
    return tokenizer.encode(text, add_special_tokens=False)


@torch.no_grad()
def log_probs(ids):
    """ln P of each next token: [T, V]."""
    return torch.log_softmax(model(torch.tensor([ids])).logits[0].double(), dim=-1)


def text_loss():
    # newline="": no translation of line ends
    with open(text_path, encoding="utf-8", newline="") as file:
        text = file.read()
    ids = [bos] + encode(text) + [eos]
    total, count, begin, done = 0.0, 0, 0, 0
    while done < len(ids) - 1:
        window = ids[begin : begin + seq]
        rows = log_probs(window)
        for t in range(len(window)):
            i = begin + t
            if i < done or i + 1 >= len(ids):
                continue
            total -= rows[t, ids[i + 1]].item()
            count += 1
            done = i + 1
        begin += stride
    return {"loss": total / count, "tokens": count, "bytes": len(text.encode("utf-8"))}


def questions():
    scores, right, right_norm = [], 0, 0
    with open(questions_path, encoding="utf-8") as file:
        lines = [json.loads(line) for line in file if line.strip()]
    for line in lines:
        context = line.get("context", line.get("ctx"))
        choices = line.get("choices", line.get("endings"))
        answer = int(line.get("answer", line.get("label")))
        each = []
        for choice in choices:
            stripped = context.rstrip()
            rest = context[len(stripped) :] + " " + choice
            head = [bos] + encode(stripped)
            whole = [bos] + encode(stripped + rest)
            tail = whole[len(head) :]
            limit = model.config.max_position_embeddings
            inputs = (head + tail)[-(limit + 1) :][:-1]
            rows = log_probs(inputs)[-len(tail) :]
            each.append(sum(rows[i, token].item() for i, token in enumerate(tail)))
        scores.append(each)
        right += max(range(len(each)), key=lambda i: each[i]) == answer
        norm = [score / len(choice) for score, choice in zip(each, choices)]
        right_norm += max(range(len(norm)), key=lambda i: norm[i]) == answer
    return {
        "log_probs": scores,
        "acc": right / len(lines),
        "acc_norm": right_norm / len(lines),
    }


print(json.dumps({**text_loss(), **questions()}))
