#include "model/fp8/delayed.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <map>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "model/fp8/scale.h"

namespace cria::model {
namespace {

constexpr std::string_view kHistorySuffix = ".amax_history";
constexpr std::string_view kScaleSuffix = ".scale";

std::string HistoryName(const std::string& tensor) { return StrCat(tensor, kHistorySuffix); }
std::string ScaleName(const std::string& tensor) { return StrCat(tensor, kScaleSuffix); }

// The array called `name`, which must have `size` values, none negative, infinite or NaN.
StatusOr<const NamedFloats*> FindArray(const std::map<std::string_view, const NamedFloats*>& arrays,
                                       const std::string& name, size_t size) {
  const auto found = arrays.find(name);
  if (found == arrays.end()) {
    return InvalidArgumentError("FP8 state: this model needs ", name,
                                ", which the checkpoint lacks");
  }
  const NamedFloats& array = *found->second;
  if (array.values.size() != size) {
    return InvalidArgumentError("FP8 state: ", name, " has ", array.values.size(),
                                " values in the checkpoint and ", size, " in this model");
  }
  for (size_t i = 0; i < size; ++i) {
    if (!std::isfinite(array.values[i]) || std::signbit(array.values[i])) {
      return DataLossError("FP8 state: ", name, "[", i, "] = ", array.values[i],
                           " in the checkpoint: must be finite and not negative");
    }
  }
  return &array;
}

}  // namespace

DelayedScaling::DelayedScaling(const Options& options) : options_(options) {
  CRIA_CHECK(options.history_length >= 1, "history_length ", options.history_length);
  CRIA_CHECK(options.margin >= 0 && options.margin <= 64, "margin ", options.margin);
}

int DelayedScaling::Register(const std::string& name, Fp8Format format) {
  for (const Entry& entry : entries_) {
    CRIA_CHECK(entry.name != name, name, " is registered twice");
  }
  entries_.push_back({name, format, 0, std::vector<float>(options_.history_length)});
  return num_tensors() - 1;
}

void DelayedScaling::RecordAmax(int tensor, float amax) {
  float& staged = entries_[tensor].history[0];
  if (IsUsableAmax(amax)) staged = std::max(staged, amax);
}

void DelayedScaling::Update() {
  for (Entry& entry : entries_) {
    std::vector<float>& history = entry.history;
    const float amax = options_.algorithm == Algorithm::kMax
                           ? *std::max_element(history.begin(), history.end())
                           : history[0];
    entry.scale = DelayedScale(entry.format, amax, options_.margin, entry.scale);
    std::rotate(history.begin(), history.begin() + 1, history.end());
    history[0] = 0;
  }
}

void DelayedScaling::DiscardStep() {
  for (Entry& entry : entries_) entry.history[0] = 0;
}

void DelayedScaling::Reset() {
  for (Entry& entry : entries_) {
    entry.scale = 0;
    std::fill(entry.history.begin(), entry.history.end(), 0.0f);
  }
}

std::vector<NamedFloats> DelayedScaling::Save() const {
  std::vector<NamedFloats> arrays;
  for (const Entry& entry : entries_) {
    arrays.push_back({HistoryName(entry.name), entry.history});
    arrays.push_back({ScaleName(entry.name), {entry.scale}});
  }
  return arrays;
}

Status DelayedScaling::Load(std::span<const NamedFloats> arrays) {
  std::map<std::string_view, const NamedFloats*> by_name;
  for (const NamedFloats& array : arrays) {
    if (!by_name.emplace(array.name, &array).second) {
      return InvalidArgumentError("FP8 state: the checkpoint has ", array.name, " twice");
    }
  }
  std::vector<Entry> loaded = entries_;
  for (Entry& entry : loaded) {
    CRIA_ASSIGN_OR_RETURN(const NamedFloats* history,
                          FindArray(by_name, HistoryName(entry.name), entry.history.size()));
    CRIA_ASSIGN_OR_RETURN(const NamedFloats* scale, FindArray(by_name, ScaleName(entry.name), 1));
    entry.history = history->values;
    entry.scale = scale->values[0];
    if (entry.scale != 0 && std::isinf(1 / entry.scale)) {
      return DataLossError("FP8 state: ", scale->name, " = ", entry.scale,
                           " in the checkpoint: too small to be a scale");
    }
    by_name.erase(history->name);
    by_name.erase(scale->name);
  }
  if (!by_name.empty()) {
    return InvalidArgumentError("FP8 state: the checkpoint has ", by_name.begin()->first,
                                ", which this model lacks");
  }
  entries_ = std::move(loaded);
  return OkStatus();
}

}  // namespace cria::model
