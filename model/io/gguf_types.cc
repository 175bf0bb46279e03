#include "model/io/gguf_types.h"

#include <array>

#include "base/check.h"

namespace cria::model {
namespace {

// Sorted by id. Numbers that are missing belonged to types of old that ggml has given up.
constexpr GgmlTypeInfo kTypes[] = {
    {0, "F32", 1, 4},         {1, "F16", 1, 2},         {2, "Q4_0", 32, 18},
    {3, "Q4_1", 32, 20},      {6, "Q5_0", 32, 22},      {7, "Q5_1", 32, 24},
    {8, "Q8_0", 32, 34},      {9, "Q8_1", 32, 36},      {10, "Q2_K", 256, 84},
    {11, "Q3_K", 256, 110},   {12, "Q4_K", 256, 144},   {13, "Q5_K", 256, 176},
    {14, "Q6_K", 256, 210},   {15, "Q8_K", 256, 292},   {16, "IQ2_XXS", 256, 66},
    {17, "IQ2_XS", 256, 74},  {18, "IQ3_XXS", 256, 98}, {19, "IQ1_S", 256, 50},
    {20, "IQ4_NL", 32, 18},   {21, "IQ3_S", 256, 110},  {22, "IQ2_S", 256, 82},
    {23, "IQ4_XS", 256, 136}, {24, "I8", 1, 1},         {25, "I16", 1, 2},
    {26, "I32", 1, 4},        {27, "I64", 1, 8},        {28, "F64", 1, 8},
    {29, "IQ1_M", 256, 56},   {30, "BF16", 1, 2},       {34, "TQ1_0", 256, 54},
    {35, "TQ2_0", 256, 66},   {39, "MXFP4", 32, 17},    {40, "NVFP4", 64, 36},
    {41, "Q1_0", 128, 18},    {42, "Q2_0", 64, 18},
};

constexpr const char* kValueTypeNames[] = {"uint8",  "int8",    "uint16", "int16",  "uint32",
                                           "int32",  "float32", "bool",   "string", "array",
                                           "uint64", "int64",   "float64"};
static_assert(std::size(kValueTypeNames) == kGgufValueTypesEnd);

constexpr size_t kScalarBytes[] = {1, 1, 2, 2, 4, 4, 4, 1, 0, 0, 8, 8, 8};
static_assert(std::size(kScalarBytes) == kGgufValueTypesEnd);

const GgmlTypeInfo& InfoOf(GgmlType type) {
  const GgmlTypeInfo* info = FindGgmlType(static_cast<uint32_t>(type));
  CRIA_CHECK(info != nullptr);
  return *info;
}

}  // namespace

const char* GgufValueTypeName(GgufValueType type) {
  return kValueTypeNames[static_cast<uint32_t>(type)];
}

size_t GgufScalarBytes(GgufValueType type) { return kScalarBytes[static_cast<uint32_t>(type)]; }

const GgmlTypeInfo* FindGgmlType(uint32_t id) {
  for (const GgmlTypeInfo& info : kTypes) {
    if (info.id == id) return &info;
  }
  return nullptr;
}

const char* GgmlTypeName(GgmlType type) { return InfoOf(type).name; }

int64_t GgmlRowBytes(GgmlType type, int64_t columns) {
  const GgmlTypeInfo& info = InfoOf(type);
  CRIA_CHECK_EQ(columns % info.block_elements, 0);
  return columns / info.block_elements * info.block_bytes;
}

StatusOr<GgmlType> GgmlTypeFromOption(std::string_view name) {
  if (name == "f32") return GgmlType::kF32;
  if (name == "f16") return GgmlType::kF16;
  if (name == "bf16") return GgmlType::kBF16;
  if (name == "q8_0") return GgmlType::kQ8_0;
  return InvalidArgumentError("dtype '", name, "' is none of f32, f16, bf16, q8_0");
}

}  // namespace cria::model
