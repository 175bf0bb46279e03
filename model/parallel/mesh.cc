#include "model/parallel/mesh.h"

#include <algorithm>
#include <cstddef>

#include "base/check.h"
#include "base/str.h"

namespace cria::model {
namespace {

using Place = std::array<int, kNumAxes>;

Place Sizes(const Layout& layout) { return {layout.tp, layout.cp, layout.pp, layout.dp}; }

Place PlaceOf(const Coordinates& at) { return {at.tp, at.cp, at.pp, at.dp}; }

int64_t DivideUp(int64_t value, int64_t divisor) { return (value + divisor - 1) / divisor; }

int64_t NumVirtualStages(const Layout& layout) { return int64_t{layout.pp} * layout.pp_chunks; }

// Layers of the virtual stage, and how many are before it.
LayerRange LayersOfStage(const Layout& layout, int64_t num_layers, int64_t stage) {
  const int64_t stages = NumVirtualStages(layout);
  const int64_t missing = layout.pp_short_ends ? 1 : 0;
  const int64_t places = num_layers + 2 * missing;
  const auto first = [&](int64_t s) {
    return s * (places / stages) + std::min(s, places % stages);
  };
  LayerRange range = {.begin = first(stage), .end = first(stage + 1)};
  if (stage > 0) range.begin -= missing;
  range.end -= missing;
  if (stage + 1 == stages) range.end -= missing;
  return range;
}

Status CheckSizes(const Layout& layout, const std::string& where) {
  const auto check = [&](const char* key, int value, int least) {
    return value >= least ? OkStatus()
                          : InvalidArgumentError(where, ".", key, ": ", value, " is under ", least);
  };
  CRIA_RETURN_IF_ERROR(check("tp", layout.tp, 1));
  CRIA_RETURN_IF_ERROR(check("cp", layout.cp, 1));
  CRIA_RETURN_IF_ERROR(check("pp", layout.pp, 1));
  CRIA_RETURN_IF_ERROR(check("dp", layout.dp, 1));
  CRIA_RETURN_IF_ERROR(check("pp_chunks", layout.pp_chunks, 1));
  CRIA_RETURN_IF_ERROR(check("pp_group", layout.pp_group, 0));
  int64_t ranks = 1;
  for (const int size : Sizes(layout)) {
    ranks *= size;
    if (ranks > kMaxRanks) {
      return InvalidArgumentError(where, ": tp ", layout.tp, ", cp ", layout.cp, ", pp ", layout.pp,
                                  ", dp ", layout.dp, " are more than ", kMaxRanks, " ranks");
    }
  }
  return OkStatus();
}

Status CheckTp(int tp, const LlamaConfig& config, const std::string& where) {
  if (config.heads % tp != 0) {
    return InvalidArgumentError(where, ".tp: ", tp, " ranks can't share ", config.heads,
                                " heads equally");
  }
  if (config.kv_heads % tp != 0 && tp % config.kv_heads != 0) {
    return InvalidArgumentError(where, ".tp: of ", tp, " ranks and ", config.kv_heads,
                                " kv heads, neither divides the other");
  }
  if (config.ffn % tp != 0) {
    return InvalidArgumentError(where, ".tp: ", tp, " ranks can't share ", config.ffn,
                                " channels of the feed-forward network equally");
  }
  if (PartOf(config.vocab, tp, tp - 1).size() == 0) {
    return InvalidArgumentError(where, ".tp: a vocabulary of ", config.vocab, " in ", tp,
                                " parts leaves the last rank with none");
  }
  return OkStatus();
}

Status CheckPipeline(const Layout& layout, int64_t layers, const std::string& where) {
  if (layout.pp == 1 && layout.pp_chunks > 1) {
    return InvalidArgumentError(where, ".pp_chunks: ", layout.pp_chunks,
                                " chunks need a pipeline; pp is 1");
  }
  const int64_t stages = NumVirtualStages(layout);
  const int64_t places = layers + (layout.pp_short_ends ? 2 : 0);
  if (places >= stages) return OkStatus();
  return InvalidArgumentError(where, ".pp: ", layers, " layers are too few for ", stages,
                              " stages (pp ", layout.pp, " x pp_chunks ", layout.pp_chunks, ")");
}

}  // namespace

const char* Name(Shard shard) {
  switch (shard) {
    case Shard::kNone:
      return "none";
    case Shard::kOptimizer:
      return "optimizer";
    case Shard::kGradients:
      return "gradients";
    case Shard::kWeights:
      return "weights";
  }
  return "?";
}

std::string Name(const Layout& layout) {
  std::string name = StrCat("tp", layout.tp, " cp", layout.cp, " pp", layout.pp, " dp", layout.dp);
  if (layout.shard != Shard::kNone) name += StrCat(" shard ", Name(layout.shard));
  if (layout.pp_chunks != 1) name += StrCat(" chunks ", layout.pp_chunks);
  if (layout.pp_group != 0) name += StrCat(" group ", layout.pp_group);
  if (layout.pp_short_ends) name += " short ends";
  return name;
}

Coordinates CoordinatesOf(const Layout& layout, int rank) {
  CRIA_CHECK(rank >= 0 && rank < layout.world_size(), "rank ", rank, " of ", Name(layout));
  Coordinates at;
  at.tp = rank % layout.tp;
  rank /= layout.tp;
  at.cp = rank % layout.cp;
  rank /= layout.cp;
  at.pp = rank % layout.pp;
  at.dp = rank / layout.pp;
  return at;
}

int RankAt(const Layout& layout, const Coordinates& at) {
  const Place sizes = Sizes(layout), place = PlaceOf(at);
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    CRIA_CHECK(place[axis] >= 0 && place[axis] < sizes[axis], "place ", place[axis], " of axis ",
               axis, " in ", Name(layout));
  }
  return at.tp + layout.tp * (at.cp + layout.cp * (at.pp + layout.pp * at.dp));
}

std::vector<int> RanksAlong(const Layout& layout, int rank, std::initializer_list<Axis> axes) {
  CRIA_CHECK(rank >= 0 && rank < layout.world_size(), "rank ", rank, " of ", Name(layout));
  const Place sizes = Sizes(layout);
  std::vector<int> ranks = {rank};
  int stride = 1;
  for (size_t axis = 0; axis < kNumAxes; ++axis) {
    const bool along = std::find(axes.begin(), axes.end(), static_cast<Axis>(axis)) != axes.end();
    if (along) {
      const int place = rank / stride % sizes[axis];
      std::vector<int> wider;
      // Outer axes have larger strides: the ranks stay in ascending order.
      for (int i = 0; i < sizes[axis]; ++i) {
        for (const int r : ranks) wider.push_back(r + (i - place) * stride);
      }
      ranks = std::move(wider);
    }
    stride *= sizes[axis];
  }
  return ranks;
}

std::vector<LayerRange> LayersOf(const Layout& layout, int64_t num_layers, int pp_rank) {
  CRIA_CHECK(pp_rank >= 0 && pp_rank < layout.pp, "stage ", pp_rank, " of ", Name(layout));
  std::vector<LayerRange> chunks;
  for (int chunk = 0; chunk < layout.pp_chunks; ++chunk) {
    chunks.push_back(LayersOfStage(layout, num_layers, int64_t{chunk} * layout.pp + pp_rank));
  }
  return chunks;
}

Range PartOf(int64_t size, int parts, int index) {
  const int64_t part = DivideUp(size, parts);
  return {.begin = std::min(size, part * index), .end = std::min(size, part * (index + 1))};
}

Range KvHeadsOf(const LlamaConfig& config, const Layout& layout, int tp_rank) {
  const int64_t each = std::max<int64_t>(1, config.kv_heads / layout.tp);
  const int64_t begin = tp_rank / KvReplicas(config, layout) * each;
  return {.begin = begin, .end = begin + each};
}

int KvReplicas(const LlamaConfig& config, const Layout& layout) {
  return static_cast<int>(std::max<int64_t>(1, layout.tp / config.kv_heads));
}

Status CheckLayout(const Layout& layout, const LlamaConfig& config, int64_t seq,
                   const std::string& where) {
  CRIA_RETURN_IF_ERROR(CheckSizes(layout, where));
  CRIA_RETURN_IF_ERROR(CheckTp(layout.tp, config, where));
  CRIA_RETURN_IF_ERROR(CheckPipeline(layout, config.layers, where));
  const int64_t chunks = layout.cp > 1 ? int64_t{2} * layout.cp : 1;
  if (seq % chunks != 0) {
    return InvalidArgumentError(where, ".cp: ", layout.cp, " ranks can't cut a sequence of ", seq,
                                " tokens into ", chunks, " equal chunks");
  }
  if (seq % (chunks * layout.tp) != 0) {
    return InvalidArgumentError(where, ".tp: ", layout.tp, " ranks can't share the ", seq / chunks,
                                " rows of a sequence", chunks > 1 ? "'s chunk" : "", " equally");
  }
  return OkStatus();
}

}  // namespace cria::model
