#include "trainer/loop/agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <vector>

namespace cria::trainer {
namespace {

using Words = std::array<int64_t, 4>;

}  // namespace

StatusOr<int64_t> Agreement::Sum(int64_t value) const {
  if (world_ == nullptr) return value;
  CRIA_RETURN_IF_ERROR(
      world_
          ->AllReduce(
              {.input = &value, .output = &value, .count = 1, .dtype = comm::DataType::kInt64})
          .Wait());
  return value;
}

StatusOr<StepReport> Agreement::Combine(const StepReport& mine) const {
  if (world_ == nullptr) return mine;
  const Words own = {std::bit_cast<int64_t>(mine.loss_sum), mine.num_valid,
                     mine.bad_operand ? 1 : 0, mine.stop ? 1 : 0};
  std::vector<Words> all(static_cast<size_t>(world_->size()));
  CRIA_RETURN_IF_ERROR(world_
                           ->AllGather({.input = own.data(),
                                        .output = all.data(),
                                        .count = static_cast<int64_t>(own.size()),
                                        .dtype = comm::DataType::kInt64})
                           .Wait());
  StepReport sum;
  for (const Words& words : all) {
    sum.loss_sum += std::bit_cast<double>(words[0]);
    sum.num_valid += words[1];
    sum.bad_operand = sum.bad_operand || words[2] != 0;
    sum.stop = sum.stop || words[3] != 0;
  }
  return sum;
}

StatusOr<Agreement::FirstText> Agreement::First(const std::string& text) const {
  if (world_ == nullptr) return FirstText{.text = text};
  constexpr size_t kBytes = 200;
  using Text = std::array<char, kBytes>;
  Text own = {};
  std::memcpy(own.data(), text.data(), std::min(text.size(), kBytes - 1));
  std::vector<Text> all(static_cast<size_t>(world_->size()));
  CRIA_RETURN_IF_ERROR(world_
                           ->AllGather({.input = own.data(),
                                        .output = all.data(),
                                        .count = static_cast<int64_t>(kBytes),
                                        .dtype = comm::DataType::kUint8})
                           .Wait());
  FirstText first;
  for (int rank = 0; rank < world_->size(); ++rank) {
    const std::string other = all[static_cast<size_t>(rank)].data();
    if (!other.empty() && (first.text.empty() || other < first.text)) first = {other, rank};
  }
  return first;
}

}  // namespace cria::trainer
