// Delayed scaling: the scale of a tensor comes from the amax of earlier steps, so that quantising
// reads the tensor once. This is the state behind it, one entry for each quantised tensor.
//
//   DelayedScaling state({.history_length = 16});
//   const int x = state.Register("layers.0.attn.qkv.input", Fp8Format::kE4M3);
//   QuantizeResult r = Quantize(spec, in, out, {.fixed_scale = state.scale(x)});   // any number of
//   state.RecordAmax(x, r.amax);                                         // micro-batches a step
//   state.Update();                 // once, when the optimizer has stepped
//   state.DiscardStep();            // instead, when the step was skipped
//
// An entry has `history_length` amax slots. Slot 0 collects this step's; slots 1 .. are earlier
// ones, the oldest first. Update() takes the amax over all slots (kMax) or slot 0 (kMostRecent),
// sets scale = max / amax / 2^margin, moves slot 0 to the end, slots 1 .. one forward, and clears
// slot 0. Nothing but Update() and Load() changes a scale: equal inputs in all micro-batches of a
// step give equal outputs.
//
// Before its first Update() with an amax, scale() is 0, which Quantize() reads as "use current
// scaling": there is no first step with a made-up scale, nor one left over from the initial weights
// (call Reset() when weights are replaced otherwise than from a checkpoint).
//
// An amax that is infinite or NaN is no amax: it never enters the history, where TransformerEngine
// would keep it, and the scale, for history_length steps. Without any amax the scale stays.
//
// The default length of 16 steps forgets a spike soon; TransformerEngine's is 1024,
// Megatron-LM's 1. Single-threaded. Memory: 4 (history_length + 1) bytes an entry, never more.
// Source: TransformerEngine's delayed_scaling.cu.

#ifndef CRIA_MODEL_FP8_DELAYED_H_
#define CRIA_MODEL_FP8_DELAYED_H_

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/fp8/formats.h"

namespace cria::model {

// One array of a checkpoint.
struct NamedFloats {
  std::string name;
  std::vector<float> values;
};

class DelayedScaling {
 public:
  enum class Algorithm { kMax, kMostRecent };

  struct Options {
    int history_length = 16;  // at least 1
    int margin = 0;           // halvings of the scale, 0 to 64
    Algorithm algorithm = Algorithm::kMax;
  };

  explicit DelayedScaling(const Options& options);

  // Adds a tensor; its index counts up from 0. A name is registered once.
  int Register(const std::string& name, Fp8Format format);
  int num_tensors() const { return static_cast<int>(entries_.size()); }

  // What values are multiplied with before rounding; 0 without a history.
  float scale(int tensor) const { return entries_[tensor].scale; }
  // 1 / scale, always computed from it, so that the two cannot disagree; 0 without a history.
  float dequant(int tensor) const { return scale(tensor) == 0 ? 0 : 1 / scale(tensor); }
  // The amax slots.
  std::span<const float> history(int tensor) const { return entries_[tensor].history; }

  // Raises this step's amax. Ranks that share a tensor record the reduced one.
  void RecordAmax(int tensor, float amax);
  // Ends a step: new scales from all amax so far.
  void Update();
  // Ends a step that must leave no trace: what it recorded is dropped.
  void DiscardStep();
  // Forgets everything but the names.
  void Reset();

  // Two arrays for each tensor, in order of registration: "<name>.amax_history" with
  // history_length values and "<name>.scale" with one. Loading gives the same bits.
  std::vector<NamedFloats> Save() const;
  // InvalidArgument when an array is missing, unknown or of another length (naming both sides),
  // DataLoss when a value can't be (NaN, infinite, negative, a scale that has no reciprocal). An
  // error changes nothing.
  Status Load(std::span<const NamedFloats> arrays);

 private:
  struct Entry {
    std::string name;
    Fp8Format format;
    float scale;
    std::vector<float> history;
  };

  const Options options_;
  std::vector<Entry> entries_;
};

}  // namespace cria::model

#endif  // CRIA_MODEL_FP8_DELAYED_H_
