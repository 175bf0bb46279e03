"""Reads our GGUF files with the package gguf, and writes the same models with it.

  gguf_peer.py FOLDER

FOLDER has source.safetensors (F32, Hugging Face's names), expected.json (keys and their values) and
ours_TYPE.gguf for f32, f16, bf16, q8_0. Each tensor must have the bytes that the package's own
conversion gives. theirs_TYPE.gguf then gets the same keys and tensors in another order.
values.gguf gets a key of each type.
"""

import json
import pathlib
import sys

try:
    import gguf
    import numpy
    from safetensors.numpy import load_file
except ImportError as error:
    print(error)
    sys.exit(77)

NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
TYPES = {"f32": "F32", "f16": "F16", "bf16": "BF16", "q8_0": "Q8_0"}


def expected_tensor(name, source, head_dim):
    """The source's values in the order that the file has them."""
    parts = name.split(".")
    hf = NAMES[parts[-2]] + ".weight"
    if parts[0] == "blk":
        hf = f"model.layers.{parts[1]}.{hf}"
    values = source[hf]
    if parts[-2] in ("attn_q", "attn_k"):
        rows, columns = values.shape
        heads = values.reshape(rows // head_dim, 2, head_dim // 2, columns)
        values = heads.swapaxes(1, 2).reshape(rows, columns)
    return numpy.ascontiguousarray(values)


def check(reader, type_name, source, expected):
    for key, value in expected.items():
        field = reader.get_field(key)
        if field is None:
            sys.exit(f"{type_name}: no key {key}")
        got = field.contents()
        same = abs(got - value) <= 1e-7 * abs(value) if isinstance(value, float) else got == value
        if not same:
            sys.exit(f"{type_name}: key {key} is {got}, expected {value}")
    if len(reader.tensors) != len(source) + 1:
        sys.exit(f"{type_name}: {len(reader.tensors)} tensors")
    for tensor in reader.tensors:
        if tensor.name == "rope_freqs.weight":
            continue
        head_dim = expected["llama.rope.dimension_count"]
        values = expected_tensor(tensor.name, source, head_dim)
        kind = "F32" if values.ndim == 1 else type_name
        quant = gguf.GGMLQuantizationType[kind]
        if tensor.tensor_type != quant:
            sys.exit(f"{type_name}: {tensor.name} is {tensor.tensor_type.name}, expected {kind}")
        if list(reversed(tensor.shape.tolist())) != list(values.shape):
            sys.exit(f"{type_name}: {tensor.name} has shape {tensor.shape}")
        if gguf.quants.quantize(values, quant).tobytes() != tensor.data.tobytes():
            sys.exit(f"{type_name}: {tensor.name} has other bytes")


def add_field(writer, field):
    value = field.contents()
    kind = field.types[0]
    if kind == gguf.GGUFValueType.ARRAY:
        writer.add_key_value(field.name, value, kind, sub_type=field.types[1])
    else:
        writer.add_key_value(field.name, value, kind)


def rewrite(reader, path):
    writer = gguf.GGUFWriter(path, "llama")
    fields = [f for f in reader.fields.values() if not f.name.startswith("GGUF.")]
    for field in reversed(fields):
        if field.name != "general.architecture":
            add_field(writer, field)
    for tensor in reversed(reader.tensors):
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    finish(writer)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_values(path):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_uint8("v.u8", 255)
    writer.add_int8("v.i8", -128)
    writer.add_uint16("v.u16", 65535)
    writer.add_int16("v.i16", -32768)
    writer.add_uint32("v.u32", 4294967295)
    writer.add_int32("v.i32", -2147483648)
    writer.add_float32("v.f32", 0.1)
    writer.add_uint64("v.u64", 1 << 62)
    writer.add_int64("v.i64", -(1 << 62))
    writer.add_float64("v.f64", 0.1)
    writer.add_bool("v.bool", True)
    writer.add_string("v.string", "caf\u00e9 \U0001f642")
    writer.add_array("v.ints", [1, -2, 3])
    writer.add_array("v.strings", ["a", "\u00e9"])
    writer.add_custom_alignment(64)
    writer.add_tensor("t", numpy.arange(6, dtype=numpy.float32).reshape(2, 3))
    writer.add_tensor("u", numpy.arange(3, dtype=numpy.float16))
    finish(writer)


folder = pathlib.Path(sys.argv[1])
source_weights = load_file(folder / "source.safetensors")
expected_keys = json.loads((folder / "expected.json").read_text())
for option, type_name in TYPES.items():
    ours = gguf.GGUFReader(folder / f"ours_{option}.gguf")
    check(ours, type_name, source_weights, expected_keys)
    rewrite(ours, folder / f"theirs_{option}.gguf")
write_values(folder / "values.gguf")
