#include "trainer/check/layouts_evidence.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <string_view>
#include <tuple>
#include <utility>

#include "base/hash.h"
#include "base/str.h"
#include "model/llama/parameters.h"
#include "trainer/loop/gather_texts.h"

namespace cria::trainer {
namespace {

using model::BlockPart;
using model::Parameter;

// On the wire: a step's numbers, then its parts.
struct StepHeader {
  int64_t first_sample, num_samples, num_rows;
  uint64_t rows_hash;
  int64_t num_parts;
};

std::string Encode(const std::vector<StepEvidence>& steps) {
  std::string bytes;
  for (const StepEvidence& step : steps) {
    const StepHeader header = {step.first_sample, step.num_samples, step.num_rows, step.rows_hash,
                               static_cast<int64_t>(step.parts.size())};
    bytes.append(reinterpret_cast<const char*>(&header), sizeof(header));
    bytes.append(reinterpret_cast<const char*>(step.parts.data()),
                 step.parts.size() * sizeof(HeldPart));
  }
  return bytes;
}

std::vector<StepEvidence> Decode(std::string_view bytes) {
  std::vector<StepEvidence> steps;
  while (bytes.size() >= sizeof(StepHeader)) {
    StepHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    bytes.remove_prefix(sizeof(header));
    StepEvidence& step = steps.emplace_back();
    step.first_sample = header.first_sample;
    step.num_samples = header.num_samples;
    step.num_rows = header.num_rows;
    step.rows_hash = header.rows_hash;
    step.parts.resize(static_cast<size_t>(header.num_parts));
    const size_t size = step.parts.size() * sizeof(HeldPart);
    std::memcpy(step.parts.data(), bytes.data(), size);
    bytes.remove_prefix(size);
  }
  return steps;
}

// What can be in two places at once.
auto PlaceOf(const HeldPart& part) {
  return std::make_tuple(part.parameter, part.first_row, part.rows, part.first_column, part.columns,
                         part.begin, part.end);
}

// The sum over the ranks with this tp and pp place.
StepEvidence SumOver(const model::Layout& layout, int tp, int pp, size_t step,
                     const std::vector<std::vector<StepEvidence>>& by_rank) {
  StepEvidence sum;
  for (int dp = 0; dp < layout.dp; ++dp) {
    for (int cp = 0; cp < layout.cp; ++cp) {
      const int rank = RankAt(layout, {.tp = tp, .cp = cp, .pp = pp, .dp = dp});
      const StepEvidence& one = by_rank[static_cast<size_t>(rank)][step];
      sum.num_rows += one.num_rows;
      sum.rows_hash += one.rows_hash;
      if (cp == 0) sum.num_samples += one.num_samples;
    }
  }
  return sum;
}

// The dp ranks' sequences must follow one another, and their peers' be the same.
std::string JudgeSamples(const model::Layout& layout, size_t step,
                         const std::vector<std::vector<StepEvidence>>& by_rank,
                         const StepEvidence& whole) {
  std::vector<int64_t> first(static_cast<size_t>(layout.dp) + 1, whole.first_sample);
  for (int dp = 0; dp < layout.dp; ++dp) {
    const int rank = RankAt(layout, {.dp = dp});
    const auto i = static_cast<size_t>(dp);
    first[i + 1] = first[i] + by_rank[static_cast<size_t>(rank)][step].num_samples;
  }
  for (int rank = 0; rank < layout.world_size(); ++rank) {
    const auto dp = static_cast<size_t>(CoordinatesOf(layout, rank).dp);
    const StepEvidence& one = by_rank[static_cast<size_t>(rank)][step];
    const int64_t count = first[dp + 1] - first[dp];
    if (one.num_samples == count && (count == 0 || one.first_sample == first[dp])) continue;
    return StrCat("step ", step + 1, ": rank ", rank, " read sequences [", one.first_sample, ", ",
                  one.first_sample + one.num_samples, "), its share is [", first[dp], ", ",
                  first[dp + 1], ")");
  }
  return "";
}

}  // namespace

void AddRows(const model::TokenBatch& batch, StepEvidence* evidence) {
  const int32_t* tokens = batch.tokens.i32();
  const int32_t* targets = batch.targets.i32();
  const int32_t* positions = batch.positions.i32();
  const int32_t* doc_start = batch.doc_start.i32();
  for (int64_t r = 0; r < batch.tokens.num_elements(); ++r) {
    if (targets[r] < 0) continue;
    const int32_t row[] = {tokens[r], targets[r], positions[r], doc_start[r]};
    evidence->rows_hash += Hash64({reinterpret_cast<const char*>(row), sizeof(row)});
    ++evidence->num_rows;
  }
}

std::vector<HeldPart> HashParameters(const model::ParameterBuffers& parameters) {
  std::vector<HeldPart> held;
  const model::ParameterLayout& layout = parameters.layout();
  const model::BlockParts& parts = parameters.parts().weights();
  for (int b = 0; b < parts.num_blocks(); ++b) {
    const BlockPart& part = parts.block(b);
    for (const Parameter& p : layout.parameters()) {
      const int64_t begin = std::max(part.begin, p.offset);
      const int64_t end = std::min(part.end, p.offset + p.num_elements());
      if (begin >= end) continue;
      const float* values = parameters.weights().f32() + part.at + (begin - part.begin);
      held.push_back({.parameter = p.index,
                      .first_row = p.first_row,
                      .rows = p.rows,
                      .first_column = p.first_column,
                      .columns = p.columns,
                      .begin = begin - p.offset,
                      .end = end - p.offset,
                      .bits = Hash64({reinterpret_cast<const char*>(values),
                                      static_cast<size_t>(end - begin) * sizeof(float)})});
    }
  }
  return held;
}

void LayoutEvidence::OnBatches(int64_t step, const RankBatches& batches) {
  (void)step;
  StepEvidence& evidence = steps_.emplace_back();
  evidence.first_sample = batches.samples().first;
  evidence.num_samples = batches.samples().count;
  for (const model::TokenBatch& batch : batches.micro_batches()) AddRows(batch, &evidence);
}

void LayoutEvidence::OnUpdated(int64_t step, const model::ParameterBuffers& parameters) {
  (void)step;
  steps_.back().parts = HashParameters(parameters);
}

StatusOr<std::vector<std::vector<StepEvidence>>> GatherEvidence(
    const std::vector<StepEvidence>& mine, comm::Communicator* world) {
  CRIA_ASSIGN_OR_RETURN(const std::vector<std::string> texts, GatherTexts(Encode(mine), world));
  std::vector<std::vector<StepEvidence>> by_rank;
  for (const std::string& text : texts) by_rank.push_back(Decode(text));
  return by_rank;
}

std::string JudgeTokens(const model::Layout& layout,
                        const std::vector<std::vector<StepEvidence>>& by_rank,
                        const std::vector<StepEvidence>& one_rank) {
  for (size_t rank = 0; rank < by_rank.size(); ++rank) {
    if (by_rank[rank].size() == one_rank.size()) continue;
    return StrCat("rank ", rank, " took ", by_rank[rank].size(), " steps of ", one_rank.size());
  }
  for (size_t step = 0; step < one_rank.size(); ++step) {
    const StepEvidence& whole = one_rank[step];
    if (std::string problem = JudgeSamples(layout, step, by_rank, whole); !problem.empty()) {
      return problem;
    }
    for (int pp = 0; pp < layout.pp; ++pp) {
      for (int tp = 0; tp < layout.tp; ++tp) {
        const StepEvidence sum = SumOver(layout, tp, pp, step, by_rank);
        if (sum.num_samples == whole.num_samples && sum.num_rows == whole.num_rows &&
            sum.rows_hash == whole.rows_hash) {
          continue;
        }
        return StrCat("step ", step + 1, ": the ranks of tp ", tp, ", pp ", pp, " read ",
                      sum.num_rows, " tokens of ", sum.num_samples, " sequences, one rank reads ",
                      whole.num_rows, " of ", whole.num_samples,
                      sum.num_rows == whole.num_rows ? ", not the same ones" : "");
      }
    }
  }
  return "";
}

std::string JudgeReplicas(const model::LlamaConfig& config,
                          const std::vector<std::vector<StepEvidence>>& by_rank) {
  using Place = decltype(PlaceOf(HeldPart()));
  const size_t num_steps = by_rank.empty() ? 0 : by_rank[0].size();
  for (size_t step = 0; step < num_steps; ++step) {
    std::map<Place, std::pair<size_t, uint64_t>> seen;  // the first rank that holds it
    for (size_t rank = 0; rank < by_rank.size(); ++rank) {
      for (const HeldPart& part : by_rank[rank][step].parts) {
        const auto [at, is_new] = seen.emplace(PlaceOf(part), std::make_pair(rank, part.bits));
        if (is_new || at->second.second == part.bits) continue;
        const model::ParameterLayout whole(config);
        const auto of_index =
            std::find_if(whole.parameters().begin(), whole.parameters().end(),
                         [&part](const Parameter& p) { return p.index == part.parameter; });
        return StrCat("step ", step + 1, ": ranks ", at->second.first, " and ", rank,
                      " hold different bits of ",
                      of_index == whole.parameters().end() ? "a tensor" : of_index->name);
      }
    }
  }
  return "";
}

}  // namespace cria::trainer
