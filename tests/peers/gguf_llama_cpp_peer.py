"""Runs a GGUF file in llama.cpp on given tokens and texts.

  gguf_llama_cpp_peer.py FILE.gguf TOKENS [TEXTS]

TOKENS: ids with commas between; prints a line of logits a token, after each of them. Keys and
values are fp32, flash attention is off. TEXTS: a JSON list of texts; for each, a line of its ids
follows.
Low-level calls only: the package's own class wants a vocabulary with texts.
"""

import ctypes
import json
import sys

try:
    import llama_cpp
except (ImportError, OSError, RuntimeError) as error:
    print(error)
    sys.exit(77)

SILENT = llama_cpp.llama_log_callback(lambda level, text, data: None)
llama_cpp.llama_log_set(SILENT, ctypes.c_void_p(0))
llama_cpp.llama_backend_init()
model = llama_cpp.llama_model_load_from_file(
    sys.argv[1].encode(), llama_cpp.llama_model_default_params()
)
if not model:
    sys.exit("llama.cpp does not load the file")

tokens = [int(t) for t in sys.argv[2].split(",")]
params = llama_cpp.llama_context_default_params()
params.n_ctx = max(64, len(tokens))
params.n_batch = params.n_ubatch = params.n_ctx
params.n_threads = params.n_threads_batch = 1
params.type_k = params.type_v = 0  # F32
params.flash_attn_type = llama_cpp.LLAMA_FLASH_ATTN_TYPE_DISABLED
context = llama_cpp.llama_init_from_model(model, params)
vocab = llama_cpp.llama_model_get_vocab(model)
vocab_size = llama_cpp.llama_vocab_n_tokens(vocab)

batch = llama_cpp.llama_batch_init(len(tokens), 0, 1)
batch.n_tokens = len(tokens)
for i, token in enumerate(tokens):
    batch.token[i] = token
    batch.pos[i] = i
    batch.n_seq_id[i] = 1
    batch.seq_id[i][0] = 0
    batch.logits[i] = 1
if llama_cpp.llama_decode(context, batch) != 0:
    sys.exit("llama_decode failed")
for i in range(len(tokens)):
    logits = llama_cpp.llama_get_logits_ith(context, i)
    print(" ".join(repr(logits[v]) for v in range(vocab_size)))

for text in json.loads(sys.argv[3]) if len(sys.argv) > 3 else []:
    data = text.encode()
    ids = (llama_cpp.llama_token * (len(data) + 8))()
    # No BOS; control tokens are parsed.
    count = llama_cpp.llama_tokenize(vocab, data, len(data), ids, len(ids), False, True)
    print(" ".join(str(ids[i]) for i in range(count)))
