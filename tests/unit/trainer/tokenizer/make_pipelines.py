"""Writes pipelines.json: what the package tokenizers gives for some styles of tokenizer_peer.py.

    cd tests/unit/trainer/tokenizer && python3 make_pipelines.py > pipelines.json

All styles have one small model here, so that the file stays small; texts and vocabulary are made by
tokenizer_peer.py. pipelines_test.cc reads it, where there is no Python.
"""

import json
import os
import random
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "../../../peers"))
import tokenizer_peer as peer  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

STYLES = """roberta qwen2 gpt4o starcoder falcon deepseek3 whitespace regex_merged_with_previous
string_merged_with_next invert_contiguous punctuation_removed empty_matches classes flags_nfc
flags_prepend normalizers strip""".split()
NUM_TEXTS = 6


def wrapped(values):
    """A list as JSON, in lines of at most 100 columns."""
    lines, line = [], ""
    for text in (json.dumps(value) + "," for value in values):
        if len(line) + len(text) > 98:
            lines.append(line)
            line = ""
        line += text
    lines.append(line[:-1])
    return "[" + "\n".join(lines) + "]"


def main():
    model = json.loads(peer.make([peer.byte_level(regex=True)], size=330).to_str())["model"]
    print('{"model": {"type": "BPE", "vocab": {')
    vocab = [f"{json.dumps(token)}: {i}" for token, i in model["vocab"].items()]
    for i in range(0, len(vocab), 6):
        print(", ".join(vocab[i:i + 6]) + ("," if i + 6 < len(vocab) else ""))
    print('}, "merges":')
    print(wrapped([" ".join(merge) for merge in model["merges"]]) + '},\n"styles": [')
    rng = random.Random(4)
    is_first = True
    for name, build in peer.styles():
        if name not in STYLES:
            continue
        data = json.loads(build().to_str())
        data["model"] = model
        tokenizer = Tokenizer.from_str(json.dumps(data))
        data = json.loads(tokenizer.to_str())
        texts = []
        while len(texts) < NUM_TEXTS:
            text = peer.random_text(rng, 20)
            if 20 < len(text) < 70:
                texts.append(text)
        print(("" if is_first else ",") + '{"name": "%s",' % name)
        is_first = False
        for key in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
            print(f'"{key}": {json.dumps(data[key])},')
        print('"added_tokens": [')
        print(",\n".join(json.dumps(token) for token in data["added_tokens"]) + "],")
        print('"texts": [\n' + ",\n".join(map(json.dumps, texts)) + '],\n"ids": [')
        print(",\n".join(wrapped(tokenizer.encode(text).ids) for text in texts) + "]}")
    print("]}")


if __name__ == "__main__":
    main()
