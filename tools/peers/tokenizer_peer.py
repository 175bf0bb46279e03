"""The peers of `cria bench tokenizer`: tiktoken and tokenizers on our text and vocabulary.

Says "ready" with the versions, then answers each line from standard input, its words separated by
tabs, with one line: seconds, or "error ...".
    load TOKENIZER_JSON TEXT         what the other commands work on (once, first)
    ids IMPL PATH                    encode the whole text; write the ids to PATH as int32
    time IMPL lines|whole THREADS    encode
    train IMPL VOCAB [PATH]          learn VOCAB tokens, without special ones; tokenizer.json to PATH
    encode IMPL TEXTS PATH           a JSON list of texts; write the lists of ids to PATH as JSON
IMPL is tiktoken or tokenizers.
"""

import array
import io
import importlib.metadata
import json
import os
import sys
import time


def byte_alphabet():
    """GPT-2's characters and the bytes that they stand for."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [b for b in range(256) if b not in printable]
    table = {chr(b): b for b in printable}
    table.update({chr(256 + i): b for i, b in enumerate(others)})
    return table


class Tiktoken:
    def __init__(self, tokenizer_json, text):
        import tiktoken

        alphabet = byte_alphabet()
        vocab = tokenizer_json["model"]["vocab"]
        ranks = {bytes(alphabet[c] for c in token): i for token, i in vocab.items()}
        pattern = tokenizer_json["pre_tokenizer"]["pretokenizers"][0]["pattern"]["Regex"]
        self.encoding = tiktoken.Encoding(
            "cria", pat_str=pattern, mergeable_ranks=ranks, special_tokens={}
        )

    def ids(self, text):
        return self.encoding.encode_ordinary(text)

    def encode(self, texts, threads):
        if threads > 1:
            self.encoding.encode_ordinary_batch(texts, num_threads=threads)
        else:
            for text in texts:
                self.encoding.encode_ordinary(text)


class Tokenizers:
    def __init__(self, tokenizer_json, text):
        import tokenizers

        self.tokenizers = tokenizers
        self.tokenizer = tokenizers.Tokenizer.from_str(json.dumps(tokenizer_json))
        self.text = text

    def ids(self, text):
        return self.tokenizer.encode(text, add_special_tokens=False).ids

    def encode(self, texts, threads):
        if threads > 1:
            self.tokenizer.encode_batch(texts, add_special_tokens=False)
        else:
            for text in texts:
                self.tokenizer.encode(text, add_special_tokens=False)

    def train(self, vocab_size):
        t = self.tokenizers
        new = t.Tokenizer(t.models.BPE())
        new.pre_tokenizer = self.tokenizer.pre_tokenizer
        trainer = t.trainers.BpeTrainer(
            vocab_size=vocab_size,
            initial_alphabet=t.pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        new.train_from_iterator([self.text], trainer)
        return new


IMPLS = {"tiktoken": Tiktoken, "tokenizers": Tokenizers}


def seconds(work):
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


class Bench:
    def __init__(self):
        self.peers = {}

    def peer(self, name):
        if name not in self.peers:
            self.peers[name] = IMPLS[name](self.tokenizer_json, self.text)
        return self.peers[name]

    def load(self, tokenizer_path, text_path):
        with open(tokenizer_path, encoding="utf-8") as file:
            self.tokenizer_json = json.load(file)
        with open(text_path, encoding="utf-8", newline="") as file:
            self.text = file.read()
        self.lines = list(io.StringIO(self.text, newline="\n"))
        return 0.0

    def ids(self, name, path):
        peer = self.peer(name)
        with open(path, "wb") as file:
            return seconds(lambda: array.array("i", peer.ids(self.text)).tofile(file))

    def time(self, name, what, threads):
        peer = self.peer(name)
        texts = self.lines if what == "lines" else [self.text]
        return seconds(lambda: peer.encode(texts, int(threads)))

    def train(self, name, vocab_size, path=None):
        peer = self.peer(name)
        if path is None:
            return seconds(lambda: peer.train(int(vocab_size)))
        return seconds(lambda: peer.train(int(vocab_size)).save(path))

    def encode(self, name, texts_path, path):
        peer = self.peer(name)
        with open(texts_path, encoding="utf-8") as file:
            texts = json.load(file)
        with open(path, "w", encoding="utf-8") as file:
            return seconds(lambda: json.dump([peer.ids(text) for text in texts], file))


def version(name):
    try:
        return f"{name} {importlib.metadata.version(name)}"
    except importlib.metadata.PackageNotFoundError:
        return f"no {name}"


def main():
    # As many threads as the bench's own largest row.
    os.environ["RAYON_NUM_THREADS"] = "2"
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    print("ready", ", ".join(version(name) for name in IMPLS), flush=True)
    bench = Bench()
    commands = {
        "load": bench.load,
        "ids": bench.ids,
        "time": bench.time,
        "train": bench.train,
        "encode": bench.encode,
    }
    for line in sys.stdin:
        command, *arguments = line.rstrip("\n").split("\t")
        try:
            print(commands[command](*arguments), flush=True)
        except Exception as error:  # the bench goes on without
            print(f"error {type(error).__name__}: {error}".replace("\n", " "), flush=True)


if __name__ == "__main__":
    main()
