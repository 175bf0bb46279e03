"""A Llama run forward by llama.cpp, timed: the peer of `cria bench generate`.

Started by trainer/bench/peer_process.cc. One line in, one line out:

  load NAME PATH KV POSITIONS        a GGUF file; keys and values as f32 or f16      -> ok
  logits NAME THREADS TOKENS PATH    of the last of the tokens (ids with commas),
                                     fp32 to a file                                  -> ok
  prompt NAME THREADS TOKENS         all tokens in one call, from an empty cache     -> seconds
  decode NAME THREADS TOKENS         one after another, after the cache's content    -> seconds

A failure answers "error TEXT". Needs llama-cpp-python.
"""

import ctypes
import os
import sys
import time

# Replies go to the real standard output; whatever libraries print goes to standard error.
replies = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)


def reply(*parts):
    print(*parts, file=replies, flush=True)


try:
    import llama_cpp
except ImportError as error:
    reply("error no llama_cpp (pip install llama-cpp-python):", error)
    sys.exit(1)


class Peer:
    def __init__(self):
        self.models = {}

    def load(self, name, path, kv, positions):
        kind = {"f32": llama_cpp.GGML_TYPE_F32, "f16": llama_cpp.GGML_TYPE_F16}[kv]
        self.models[name] = llama_cpp.Llama(
            model_path=path, n_ctx=int(positions), n_batch=512, n_ubatch=512, type_k=kind,
            type_v=kind, n_threads=1, n_threads_batch=1, logits_all=False, verbose=False)
        return "ok"

    def forward(self, name, threads, tokens, one_by_one):
        context = self.models[name].ctx
        llama_cpp.llama_set_n_threads(context, int(threads), int(threads))
        ids = [int(token) for token in tokens.split(",")]
        calls = [[token] for token in ids] if one_by_one else [ids]
        start = time.perf_counter()
        for call in calls:
            array = (llama_cpp.llama_token * len(call))(*call)
            if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(array, len(call))):
                raise RuntimeError("llama_decode failed")
            llama_cpp.llama_get_logits_ith(context, -1)  # waits for the result
        return time.perf_counter() - start

    def clear(self, name):
        memory = llama_cpp.llama_get_memory(self.models[name].ctx)
        llama_cpp.llama_memory_clear(memory, True)

    def prompt(self, name, threads, tokens):
        self.clear(name)
        return self.forward(name, threads, tokens, one_by_one=False)

    def decode(self, name, threads, tokens):
        return self.forward(name, threads, tokens, one_by_one=True)

    def logits(self, name, threads, tokens, path):
        self.prompt(name, threads, tokens)
        model = self.models[name]
        size = model.n_vocab() * ctypes.sizeof(ctypes.c_float)
        with open(path, "wb") as file:
            file.write(ctypes.string_at(llama_cpp.llama_get_logits_ith(model.ctx, -1), size))
        return "ok"


def main():
    peer = Peer()
    commands = {"load": peer.load, "logits": peer.logits, "prompt": peer.prompt,
                "decode": peer.decode}
    reply("ready llama.cpp, llama-cpp-python", llama_cpp.__version__)
    for line in sys.stdin:
        command, *arguments = line.split()
        try:
            reply(commands[command](*arguments))
        except Exception as error:  # whatever goes wrong is an answer
            reply("error", type(error).__name__, str(error).replace("\n", " "))


main()
