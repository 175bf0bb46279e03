#include "trainer/checkpoint/common_status.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>

namespace cria::trainer {
namespace {

struct Told {
  int64_t code = 0;
  std::array<char, 1024> message = {};
};
constexpr size_t kTextBytes = 4096;

template <size_t n>
void CopyText(const std::string& text, std::array<char, n>* to) {
  std::memcpy(to->data(), text.data(), std::min(text.size(), n - 1));
}

Status Broadcast(comm::Communicator* world, void* bytes, size_t count, int root) {
  return world
      ->Broadcast({.buffer = bytes,
                   .count = static_cast<int64_t>(count),
                   .dtype = comm::DataType::kUint8,
                   .root = root})
      .Wait();
}

}  // namespace

Status CommonStatus(comm::Communicator* world, const Status& mine) {
  if (world == nullptr || world->size() == 1) return mine;
  // The largest is that of the lowest rank.
  const int64_t size = world->size();
  int64_t failed = mine.ok() ? 0 : size - world->rank();
  CRIA_RETURN_IF_ERROR(world
                           ->AllReduce({.input = &failed,
                                        .output = &failed,
                                        .count = 1,
                                        .dtype = comm::DataType::kInt64,
                                        .op = comm::ReduceOp::kMax})
                           .Wait());
  if (failed == 0) return OkStatus();
  const int culprit = static_cast<int>(size - failed);
  Told told;
  if (world->rank() == culprit) {
    told.code = static_cast<int64_t>(mine.code());
    CopyText(Message(mine), &told.message);
  }
  CRIA_RETURN_IF_ERROR(Broadcast(world, &told, sizeof(told), culprit));
  return Status(static_cast<StatusCode>(told.code),
                StrCat("rank ", culprit, ": ", told.message.data()));
}

StatusOr<std::string> CommonText(comm::Communicator* world, const std::string& text) {
  if (world == nullptr || world->size() == 1) return text;
  std::array<char, kTextBytes> bytes = {};
  CopyText(text, &bytes);
  CRIA_RETURN_IF_ERROR(Broadcast(world, bytes.data(), bytes.size(), 0));
  return std::string(bytes.data());
}

}  // namespace cria::trainer
