#include "model/io/weight_source.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "model/fp8/formats.h"
#include "model/io/half.h"

namespace cria::model {
namespace {

// Element i of memory that need not be aligned.
template <typename T>
T LoadAt(const void* from, int64_t i) {
  T value;
  std::memcpy(&value, static_cast<const char*>(from) + i * static_cast<int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}
template <typename T>
void StoreAt(void* to, int64_t i, T value) {
  std::memcpy(static_cast<char*>(to) + i * static_cast<int64_t>(sizeof(T)), &value, sizeof(T));
}

template <typename Load>
Status ConvertWith(const Load& load, int64_t n, StDtype to_type, void* to) {
  switch (to_type) {
    case StDtype::kF32:
      for (int64_t i = 0; i < n; ++i) StoreAt<float>(to, i, static_cast<float>(load(i)));
      return OkStatus();
    case StDtype::kBF16:
      for (int64_t i = 0; i < n; ++i) StoreAt(to, i, Bf16FromFloat(static_cast<float>(load(i))));
      return OkStatus();
    case StDtype::kF16:
      for (int64_t i = 0; i < n; ++i) StoreAt(to, i, HalfFromFloat(static_cast<float>(load(i))));
      return OkStatus();
    default:
      return InvalidArgumentError("no conversion to ", StDtypeName(to_type));
  }
}

}  // namespace

int64_t WeightInfo::columns() const {
  int64_t n = 1;
  for (size_t i = 1; i < shape.size(); ++i) n *= shape[i];
  return n;
}

const WeightInfo* WeightSource::Find(std::string_view name) const {
  const std::vector<WeightInfo>& all = weights();
  const auto found = std::lower_bound(
      all.begin(), all.end(), name,
      [](const WeightInfo& w, std::string_view wanted) { return w.name < wanted; });
  return found != all.end() && found->name == name ? &*found : nullptr;
}

Status ConvertElements(StDtype from_type, const void* from, int64_t n, StDtype to_type, void* to) {
  if (n == 0) return OkStatus();
  if (from_type == to_type) {
    std::memcpy(to, from, static_cast<size_t>(n * StDtypeBits(from_type) / 8));
    return OkStatus();
  }
  switch (from_type) {
    case StDtype::kF64:
      return ConvertWith([&](int64_t i) { return LoadAt<double>(from, i); }, n, to_type, to);
    case StDtype::kF32:
      return ConvertWith([&](int64_t i) { return LoadAt<float>(from, i); }, n, to_type, to);
    case StDtype::kF16:
      return ConvertWith([&](int64_t i) { return FloatFromHalf(LoadAt<uint16_t>(from, i)); }, n,
                         to_type, to);
    case StDtype::kBF16:
      return ConvertWith([&](int64_t i) { return FloatFromBf16(LoadAt<uint16_t>(from, i)); }, n,
                         to_type, to);
    case StDtype::kF8E4M3:
      return ConvertWith([&](int64_t i) { return DecodeE4M3(LoadAt<uint8_t>(from, i)); }, n,
                         to_type, to);
    case StDtype::kF8E5M2:
      return ConvertWith([&](int64_t i) { return DecodeE5M2(LoadAt<uint8_t>(from, i)); }, n,
                         to_type, to);
    default:
      return InvalidArgumentError("weights of type ", StDtypeName(from_type),
                                  " can't be converted to ", StDtypeName(to_type));
  }
}

}  // namespace cria::model
