// A Llama in a GGUF file: its sizes and weights under Hugging Face's names and row order, and back.
//
//   CRIA_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open("model.gguf"));
//   CRIA_ASSIGN_OR_RETURN(std::unique_ptr<GgufLlama> llama, GgufLlama::Create(std::move(file)));
//   llama->config();  llama->weights();                       // a WeightSource like any other
//
//   AddLlamaKeys(config, GgufFileType(type), writer.get());   // llama.* and general.*
//   for (const LlamaTensor& t : LlamaTensors(config)) writer->AddTensor(t.gguf_name, ...);
//
//   GGUF                          Hugging Face                                 shape
//   token_embd.weight             model.embed_tokens.weight                    V, D
//   blk.i.attn_norm.weight        model.layers.i.input_layernorm.weight        D         always F32
//   blk.i.attn_q|k.weight         model.layers.i.self_attn.q|k_proj.weight     H*K, D    rows moved
//   blk.i.attn_v|output.weight    model.layers.i.self_attn.v|o_proj.weight
//   blk.i.ffn_norm.weight         model.layers.i.post_attention_layernorm.weight         always F32
//   blk.i.ffn_gate|up|down.weight model.layers.i.mlp.gate|up|down_proj.weight
//   output_norm.weight            model.norm.weight                            D         always F32
//   output.weight                 lm_head.weight        V, D; left out when the head is tied
//   rope_freqs.weight             rope_scaling llama3 of the config (gguf_rope.h)        F32 [K/2]
//
// Rows of Q and K stand in Meta's order in GGUF (qk_order.h). Shapes here are row-major; the file
// lists dimensions the other way round.
// Read and written: F32, F16, BF16, Q8_0; other quantisations are refused by name.
// Called by trainer/models/gguf_model. Thread-safe for reading.
// Source: ggml's docs/gguf.md; llama.cpp's loader for which keys it needs.

#ifndef CRIA_MODEL_IO_GGUF_LLAMA_H_
#define CRIA_MODEL_IO_GGUF_LLAMA_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "model/io/gguf.h"
#include "model/io/gguf_writer.h"
#include "model/io/weight_source.h"
#include "model/llama/config.h"

namespace cria::model {

inline constexpr char kRopeFreqsName[] = "rope_freqs.weight";

// One weight under both names.
struct LlamaTensor {
  std::string gguf_name;
  std::string hf_name;
  std::vector<int64_t> shape;
  bool is_qk = false;  // its rows are moved

  bool is_norm() const { return shape.size() == 1; }
};

// All weights of a Llama of these sizes, in the order in which we write them.
std::vector<LlamaTensor> LlamaTensors(const LlamaConfig& config);

// What general.file_type says of a file whose matrices are of `type`.
uint32_t GgufFileType(GgmlType type);

// Adds general.architecture, general.file_type, general.quantization_version and the llama.* keys.
// `file_type`: what GgufFileType gives. InvalidArgument for sizes over uint32.
Status AddLlamaKeys(const LlamaConfig& config, uint32_t file_type, GgufWriter* writer);

class GgufLlama : public WeightSource {
 public:
  // Reads the config and checks every tensor against it. InvalidArgument or NotFound, with path and
  // key or tensor: another architecture, experts, a rope that we don't run, a missing or unknown
  // tensor, a shape that does not fit. Unimplemented: a quantisation that we don't read.
  static StatusOr<std::unique_ptr<GgufLlama>> Create(GgufFile file);

  const GgufFile& file() const { return file_; }
  const LlamaConfig& config() const { return config_; }

  const std::string& path() const override { return file_.path(); }
  const std::vector<WeightInfo>& weights() const override { return weights_; }
  Status ReadRows(const WeightInfo& weight, int64_t begin, int64_t end, StDtype dtype,
                  void* to) const override;

  // The type in the file of one of this source's weights.
  GgmlType StoredType(const WeightInfo& weight) const;

  // The bytes of a row as the file has them, quantised or not; rows count in Hugging Face's order.
  std::string_view StoredRow(const WeightInfo& weight, int64_t row) const;

 private:
  // What the file has of weights_[i].
  struct Stored {
    const GgufTensor* tensor = nullptr;
    GgmlType type = GgmlType::kF32;
    std::string_view data;
    int64_t row_bytes = 0;
    bool is_qk = false;
  };
  explicit GgufLlama(GgufFile file) : file_(std::move(file)) {}
  Status ReadConfig();
  Status ReadRope();
  Status AddWeights();
  StatusOr<Stored> Store(const LlamaTensor& wanted) const;
  const Stored& StoredOf(const WeightInfo& weight) const;
  std::string_view RowOf(const Stored& stored, int64_t row) const;

  const GgufFile file_;
  LlamaConfig config_;
  std::vector<WeightInfo> weights_;  // sorted by name
  std::vector<Stored> stored_;       // the same order
};

}  // namespace cria::model

#endif  // CRIA_MODEL_IO_GGUF_LLAMA_H_
