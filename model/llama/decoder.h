// LlamaDecoder: a Llama that only runs forward, with a cache of keys and values: for generation and
// for scoring.
//
//   CRIA_ASSIGN_OR_RETURN(auto decoder, LlamaDecoder::Load(config, {.max_sequences = 2}, source,
//                                                          ops.get()));
//   decoder->Append(0, prompt_without_its_last_token);              // no logits wanted
//   Tensor logits = decoder->Forward({{.sequence = 0, .tokens = last}});   // fp32 [1, V]
//   ... choose a token, Forward it, and so on
//
// Weights are held once, in the compute type, packed for the backend's matrix product. In fp32 the
// logits of a token are the same bits as Llama::Logits gives (model/llama/llama.h), however the
// tokens before it were cut into calls and whatever else was in the batch. In bf16 the weights,
// the operands of matrix products, keys and values are bf16; sums, norms, softmax and residuals
// fp32.
//
// Memory: weights, 2 x layers x max_sequences x max_positions x KvDim() of cache, and activations
// of max_rows rows. Nothing is allocated after Load but the backend's scratch, once.
// Single-threaded; threads inside.

#ifndef CRIA_MODEL_LLAMA_DECODER_H_
#define CRIA_MODEL_LLAMA_DECODER_H_

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "model/arena.h"
#include "model/io/weight_source.h"
#include "model/llama/config.h"
#include "model/ops.h"

namespace cria::model {

struct DecoderOptions {
  DType type = DType::kF32;  // or kBF16
  int64_t max_sequences = 1;
  int64_t max_positions = 2048;  // tokens of a sequence
  int64_t max_rows = 512;        // tokens of one Forward, over all its pieces
  int64_t max_logits = 64;       // rows of logits that one Forward may be asked for
};

class LlamaDecoder {
 public:
  // What of a piece is to have logits.
  enum class Want { kNone, kLast, kAll };
  // Tokens that continue a sequence.
  struct Piece {
    int64_t sequence = 0;
    std::span<const int32_t> tokens;
    Want want = Want::kLast;
  };

  // Bytes of a decoder of these options, weights and cache and activations together.
  static int64_t PlanBytes(const LlamaConfig& config, const DecoderOptions& options,
                           const Ops& ops);

  // Reads and packs the weights. Errors of Validate, of CheckWeights (load_weights.h), of reading.
  static StatusOr<std::unique_ptr<LlamaDecoder>> Load(const LlamaConfig& config,
                                                      const DecoderOptions& options,
                                                      const WeightSource& source, Ops* ops);

  const LlamaConfig& config() const { return config_; }
  const DecoderOptions& options() const { return options_; }

  // Runs the pieces' tokens and adds them to their sequences' caches. At most max_rows tokens in
  // all, one piece a sequence, each token in [0, V), no sequence longer than max_positions:
  // CHECKed. Returns fp32 [rows wanted, V] in the order of the pieces, valid until the next call;
  // undefined where none is wanted.
  Tensor Forward(std::span<const Piece> pieces);
  Tensor Forward(std::initializer_list<Piece> pieces) {
    return Forward(std::span<const Piece>(pieces.begin(), pieces.size()));
  }

  // Forward without logits, in as many calls as it takes.
  void Append(int64_t sequence, std::span<const int32_t> tokens);

  // Tokens in a sequence's cache.
  int64_t length(int64_t sequence) const { return lengths_[static_cast<size_t>(sequence)]; }
  // Forgets all but the first `length` tokens (0: the whole sequence).
  void Truncate(int64_t sequence, int64_t length);
  // Makes `to` the same as `from`.
  void CopySequence(int64_t from, int64_t to);

 private:
  struct Layer {
    Tensor attention_norm, ffn_norm;  // [D] fp32
    Tensor qkv, out, gate_up, down;   // packed
    Tensor keys;                      // [sequences, CacheElements]
    Tensor values;                    // the same
  };
  struct Buffers {
    std::vector<Layer> layers;
    Tensor embedding, head, final_norm;  // embedding packed too; head undefined when tied
    Tensor cosines, sines;
    Tensor tokens, positions, doc_start;
    Tensor x, normed, rstd, qkv, attention, lse, delta, gate_up, act;
    Tensor wanted, logits;
  };

  LlamaDecoder(const LlamaConfig& config, const DecoderOptions& options, Ops* ops);
  static Buffers Allocate(const LlamaConfig& config, const DecoderOptions& options, const Ops& ops,
                          Arena* arena);
  Status ReadWeights(const WeightSource& source);
  // Tokens and positions of the pieces' rows; returns how many there are.
  int64_t PlaceTokens(std::span<const Piece> pieces);
  Tensor Logits(std::span<const Piece> pieces);
  // From a layer's first norm to what its MLP adds to the residual (in delta).
  void RunLayer(const Layer& layer, std::span<const Piece> pieces, int64_t rows);

  const LlamaConfig config_;
  const DecoderOptions options_;
  Ops* const ops_;
  Arena arena_;
  Buffers b_;
  std::vector<int64_t> lengths_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_LLAMA_DECODER_H_
