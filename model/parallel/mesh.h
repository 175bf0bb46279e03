// The mesh of a job: which rank holds which part, and with whom it talks. Arithmetic only.
//
//   const Layout layout = {.tp = 2, .cp = 1, .pp = 2, .dp = 2};       // 8 ranks
//   const Coordinates at = CoordinatesOf(layout, /*rank=*/5);         // tp 1, cp 0, pp 0, dp 1
//   const std::vector<int> tp = RanksAlong(layout, 5, {Axis::kTp});   // {4, 5}
//
// Axes in the order of the Llama 3 paper, innermost first: rank = tp + TP (cp + CP (pp + PP dp)).
// No communication creates a group. Thread-safe: values and pure functions.
// Source: Llama 3 (arXiv 2407.21783), section 3.3.2.

#ifndef CRIA_MODEL_PARALLEL_MESH_H_
#define CRIA_MODEL_PARALLEL_MESH_H_

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "base/status.h"
#include "model/llama/config.h"

namespace cria::model {

// What the ranks that see the same weights (all cp and dp ranks of a tp x pp place) divide among
// themselves; each kind includes those before it (ZeRO 1, 2, 3).
enum class Shard : uint8_t { kNone, kOptimizer, kGradients, kWeights };

const char* Name(Shard shard);

struct Layout {
  int tp = 1;
  int cp = 1;
  int pp = 1;
  int dp = 1;
  Shard shard = Shard::kNone;
  // Runs of layers ("virtual stages") that each pipeline rank holds.
  int pp_chunks = 1;
  // Neighbouring micro-batches that go through one chunk before the next chunk's turn; 0: pp.
  int pp_group = 0;
  // The first and the last stage hold one layer fewer than the others: embedding and head weigh
  // about as much.
  bool pp_short_ends = false;

  int world_size() const { return tp * cp * pp * dp; }
  // Ranks that share weights.
  int replicas() const { return cp * dp; }

  friend bool operator==(const Layout&, const Layout&) = default;
};

// "tp2 cp1 pp2 dp2", with the shard, chunks and the like where they are not the default.
std::string Name(const Layout& layout);

enum class Axis : uint8_t { kTp, kCp, kPp, kDp };
inline constexpr int kNumAxes = 4;

struct Coordinates {
  int tp = 0, cp = 0, pp = 0, dp = 0;

  friend bool operator==(const Coordinates&, const Coordinates&) = default;
};

Coordinates CoordinatesOf(const Layout& layout, int rank);
int RankAt(const Layout& layout, const Coordinates& at);

// The ranks that differ from `rank` along these axes only, itself included, ascending. None:
// {rank}.
std::vector<int> RanksAlong(const Layout& layout, int rank, std::initializer_list<Axis> axes);

// The layers of each chunk of each pipeline rank: chunk c of rank p is virtual stage c * pp + p,
// and virtual stages hold consecutive layers in order. Where layers don't divide, earlier stages
// hold one more; with pp_short_ends the first and the last virtual stage hold one fewer than they
// would, which may be none (405B: 126 layers on 128 virtual stages). A chunk without layers has
// begin == end.
struct LayerRange {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};
std::vector<LayerRange> LayersOf(const Layout& layout, int64_t num_layers, int pp_rank);

// Which rows of a matrix of `size` rows (heads, ffn channels, vocabulary) a rank of a group holds:
// equal parts, rounded up, the last ones shorter or empty.
struct Range {
  int64_t begin = 0, end = 0;

  int64_t size() const { return end - begin; }
  friend bool operator==(const Range&, const Range&) = default;
};
Range PartOf(int64_t size, int parts, int index);

// The kv heads of a tp rank: kv_heads / tp, or, with more ranks than heads, one that neighbouring
// ranks all hold. KvReplicas: how many ranks hold each.
Range KvHeadsOf(const LlamaConfig& config, const Layout& layout, int tp_rank);
int KvReplicas(const LlamaConfig& config, const Layout& layout);

// Ranks of a job at most.
inline constexpr int kMaxRanks = 1 << 20;

// OK, or InvalidArgument that names `where`, the key and the two numbers that don't go together:
// heads and tp, kv_heads and tp, ffn and tp, vocabulary and tp, layers and pp * pp_chunks, seq and
// 2 * cp * tp (with cp 1 a sequence is one chunk: seq and tp), sizes under 1.
Status CheckLayout(const Layout& layout, const LlamaConfig& config, int64_t seq,
                   const std::string& where);

}  // namespace cria::model

#endif  // CRIA_MODEL_PARALLEL_MESH_H_
