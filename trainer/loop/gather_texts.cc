#include "trainer/loop/gather_texts.h"

#include <cstdint>

namespace cria::trainer {

StatusOr<std::vector<std::string>> GatherTexts(const std::string& mine, comm::Communicator* group) {
  if (group == nullptr) return std::vector<std::string>{mine};
  const auto size = static_cast<int64_t>(mine.size());
  std::vector<int64_t> sizes(static_cast<size_t>(group->size()));
  CRIA_RETURN_IF_ERROR(
      group
          ->AllGather(
              {.input = &size, .output = sizes.data(), .count = 1, .dtype = comm::DataType::kInt64})
          .Wait());
  int64_t total = 0;
  for (const int64_t one : sizes) total += one;
  std::string all(static_cast<size_t>(total), '\0');
  CRIA_RETURN_IF_ERROR(group
                           ->AllGatherV({.input = mine.data(),
                                         .output = all.data(),
                                         .counts = sizes,
                                         .dtype = comm::DataType::kUint8})
                           .Wait());
  std::vector<std::string> texts;
  size_t begin = 0;
  for (const int64_t one : sizes) {
    texts.push_back(all.substr(begin, static_cast<size_t>(one)));
    begin += static_cast<size_t>(one);
  }
  return texts;
}

}  // namespace cria::trainer
