#include "comm/api/types.h"

#include <array>
#include <utility>

#include "base/check.h"

namespace cria::comm {
namespace {

constexpr std::array<const char*, kNumDataTypes> kDataTypeNames = {
    "float32", "bfloat16", "float16", "float8_e4m3", "float8_e5m2",
    "int8",    "uint8",    "int16",   "int32",       "int64"};
constexpr std::array<int64_t, kNumDataTypes> kByteSizes = {4, 2, 2, 1, 1, 1, 1, 2, 4, 8};
constexpr std::array<const char*, kNumReduceOps> kReduceOpNames = {"sum", "avg", "min", "max",
                                                                   "prod"};
constexpr std::array<const char*, kNumOpKinds> kOpKindNames = {
    "all_reduce",   "reduce",         "broadcast",        "all_gather",
    "all_gather_v", "reduce_scatter", "reduce_scatter_v", "all_to_all",
    "all_to_all_v", "gather",         "scatter",          "send",
    "recv",         "group",          "barrier"};

// nccl-tests' names for what we call otherwise.
constexpr std::pair<const char*, DataType> kAliases[] = {
    {"float", DataType::kFloat32},     {"half", DataType::kFloat16},
    {"fp32", DataType::kFloat32},      {"bf16", DataType::kBfloat16},
    {"fp16", DataType::kFloat16},      {"fp8_e4m3", DataType::kFloat8E4M3},
    {"f8e4m3", DataType::kFloat8E4M3}, {"fp8_e5m2", DataType::kFloat8E5M2},
    {"f8e5m2", DataType::kFloat8E5M2}};

template <typename Enum, size_t N>
StatusOr<Enum> Parse(const char* what, const std::array<const char*, N>& names,
                     const std::string& name) {
  std::string known;
  for (size_t i = 0; i < N; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
    known += std::string(i == 0 ? "" : ", ") + names[i];
  }
  return InvalidArgumentError(what, " \"", name, "\" is none of ", known);
}

}  // namespace

int64_t ByteSize(DataType dtype) { return kByteSizes[static_cast<size_t>(dtype)]; }
const char* Name(DataType dtype) { return kDataTypeNames[static_cast<size_t>(dtype)]; }
const char* Name(ReduceOp op) { return kReduceOpNames[static_cast<size_t>(op)]; }
const char* Name(OpKind kind) { return kOpKindNames[static_cast<size_t>(kind)]; }

StatusOr<DataType> ParseDataType(const std::string& name) {
  for (const auto& [alias, dtype] : kAliases) {
    if (name == alias) return dtype;
  }
  return Parse<DataType>("data type", kDataTypeNames, name);
}
StatusOr<ReduceOp> ParseReduceOp(const std::string& name) {
  return Parse<ReduceOp>("reduction", kReduceOpNames, name);
}
StatusOr<OpKind> ParseOpKind(const std::string& name) {
  return Parse<OpKind>("operation", kOpKindNames, name);
}

bool Reducible(DataType dtype) {
  return dtype != DataType::kFloat8E4M3 && dtype != DataType::kFloat8E5M2;
}

DataType AccumulateType(DataType dtype) {
  return dtype == DataType::kBfloat16 || dtype == DataType::kFloat16 ? DataType::kFloat32 : dtype;
}

bool Reduces(OpKind kind) {
  return kind == OpKind::kAllReduce || kind == OpKind::kReduce || kind == OpKind::kReduceScatter ||
         kind == OpKind::kReduceScatterV;
}

}  // namespace cria::comm
