#include "model/parallel/fp8_weights.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/parallel.h"
#include "model/fp8/formats.h"
#include "model/fp8/scale.h"

namespace cria::model {
namespace {

constexpr int64_t kPerItem = 1 << 16;

// The two tables between codes and the upper halves of floats, which hold E4M3 numbers exactly.
struct Tables {
  Tables() {
    for (int code = 0; code < 256; ++code) {
      const float value = DecodeE4M3(static_cast<uint8_t>(code));
      const auto bits = static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16);
      values[static_cast<size_t>(code)] = {bits};
      codes[bits] = static_cast<uint8_t>(code);
    }
    // Any NaN is the code of NaN.
    for (uint32_t bits = 0; bits < codes.size(); ++bits) {
      if ((bits & 0x7FFFu) > 0x7F80u) codes[bits] = kFp8NaN;
    }
  }
  std::array<BF16, 256> values = {};
  std::vector<uint8_t> codes = std::vector<uint8_t>(1 << 16);
};

const Tables& E4M3Tables() {
  static const Tables* const tables = new Tables;
  return *tables;
}

template <typename Body>
void ForItems(int64_t n, const Body& body) {
  ParallelFor((n + kPerItem - 1) / kPerItem, [&](int64_t item) {
    const int64_t end = std::min(n, (item + 1) * kPerItem);
    for (int64_t i = item * kPerItem; i < end; ++i) body(i);
  });
}

float RoundToBF16(float x) {
  const auto bits = std::bit_cast<uint32_t>(x);
  return std::bit_cast<float>((bits + 0x7FFFu + ((bits >> 16) & 1)) & 0xFFFF0000u);
}

}  // namespace

Fp8Weights::Fp8Weights(const ParameterLayout& layout, Ops* ops)
    : layout_(layout),
      ops_(ops),
      scales_(layout.blocks().size()),
      factors_(layout.blocks().size()) {}

bool Fp8Weights::IsLayer(int block) const {
  return layout_.blocks()[static_cast<size_t>(block)].kind == ParameterBlock::Kind::kLayer;
}

Range Fp8Weights::RangeOf(int block, int product) const {
  const ParameterBlock& whole = layout_.blocks()[static_cast<size_t>(block)];
  const LayerOffsets& at = layout_.layer(whole.layer);
  const int64_t begins[] = {at.qkv, at.out, at.gate_up, at.down, whole.size()};
  return {whole.begin + begins[product], whole.begin + begins[product + 1]};
}

Status Fp8Weights::Rescale(const BlockParts& parts, const Tensor& weights,
                           comm::Communicator* group) {
  const int num_blocks = parts.num_blocks();
  std::vector<float> amax(static_cast<size_t>(num_blocks) * kProducts);
  for (int block = 0; block < num_blocks; ++block) {
    if (!IsLayer(block)) continue;
    const BlockPart& part = parts.block(block);
    for (int product = 0; product < kProducts; ++product) {
      const Range range = RangeOf(block, product);
      const int64_t begin = std::max(range.begin, part.begin);
      const int64_t n = std::min(range.end, part.end) - begin;
      if (n <= 0) continue;
      float& largest = amax[static_cast<size_t>(block * kProducts + product)];
      const int64_t at = part.at + begin - part.begin;
      ops_->Amax({.unit = ScaleUnit::kTensor,
                  .from = weights.Rows(at, at + n).View({1, n}),
                  .amax = Tensor(&largest, DType::kF32, {1})});
      // Rounding keeps the order, so this is the amax of the rounded numbers.
      largest =
          std::isfinite(largest) ? RoundToBF16(largest) : std::numeric_limits<float>::infinity();
    }
  }
  if (group != nullptr && !amax.empty()) {
    CRIA_RETURN_IF_ERROR(group
                             ->AllReduce({.input = amax.data(),
                                          .output = amax.data(),
                                          .count = static_cast<int64_t>(amax.size()),
                                          .op = comm::ReduceOp::kMax})
                             .Wait());
  }
  for (int block = 0; block < num_blocks; ++block) {
    for (int product = 0; product < kProducts; ++product) {
      const float largest = amax[static_cast<size_t>(block * kProducts + product)];
      const auto p = static_cast<size_t>(product);
      scales_[static_cast<size_t>(block)][p] = CurrentScale(Fp8Format::kE4M3, largest);
      factors_[static_cast<size_t>(block)][p] = std::isfinite(largest)
                                                    ? 1 / scales_[static_cast<size_t>(block)][p]
                                                    : std::numeric_limits<float>::quiet_NaN();
    }
  }
  return OkStatus();
}

void Fp8Weights::Encode(int block, const BlockPart& part, const Tensor& values,
                        std::span<uint8_t> codes) {
  for (int product = 0; product < kProducts; ++product) {
    const Range range = RangeOf(block, product);
    const int64_t begin = std::max(range.begin, part.begin) - part.begin;
    const int64_t n = std::min(range.end, part.end) - part.begin - begin;
    if (n <= 0) continue;
    const Tensor numbers = values.Rows(begin, begin + n).View({1, n});
    ops_->Quantize(
        {.spec = {.format = Fp8Format::kE4M3, .unit = ScaleUnit::kTensor},
         .from = numbers,
         .to = numbers,
         .fixed_scale = scales_[static_cast<size_t>(block)][static_cast<size_t>(product)]});
  }
  const Tables& tables = E4M3Tables();
  const BF16* numbers = values.bf16();
  ForItems(part.size(),
           [&](int64_t i) { codes[static_cast<size_t>(i)] = tables.codes[numbers[i].bits]; });
}

void Fp8Weights::Decode(std::span<const uint8_t> codes, const Tensor& values) const {
  const Tables& tables = E4M3Tables();
  BF16* numbers = values.bf16();
  ForItems(static_cast<int64_t>(codes.size()),
           [&](int64_t i) { numbers[i] = tables.values[codes[static_cast<size_t>(i)]]; });
}

}  // namespace cria::model
