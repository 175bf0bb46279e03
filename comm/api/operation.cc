#include "comm/api/operation.h"

#include <algorithm>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

#include "comm/api/error.h"

namespace cria::comm {
namespace {

constexpr int64_t kBytesMax = int64_t{1} << 62;

// The end of the last part, in elements: of counts laid out one after another, or by displacements.
int64_t Extent(std::span<const int64_t> counts, std::span<const int64_t> displacements) {
  int64_t end = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (displacements.empty()) {
      end += counts[i];
    } else if (counts[i] > 0) {
      end = std::max(end, displacements[i] + counts[i]);
    }
  }
  return end;
}

int64_t PlaceOf(std::span<const int64_t> counts, std::span<const int64_t> displacements, int rank) {
  const auto index = static_cast<size_t>(rank);
  return displacements.empty() ? Extent(counts.first(index), {}) : displacements[index];
}

bool Rooted(OpKind kind) {
  return kind == OpKind::kReduce || kind == OpKind::kBroadcast || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

bool HasCounts(OpKind kind) {
  return kind == OpKind::kAllGatherV || kind == OpKind::kReduceScatterV ||
         kind == OpKind::kAllToAllV;
}

Status CheckParts(const char* what, std::span<const int64_t> counts,
                  std::span<const int64_t> displacements, int size, int64_t element_bytes) {
  if (counts.size() != static_cast<size_t>(size)) {
    return InvalidArgumentError(what, "_counts has ", counts.size(), " entries for ", size,
                                " ranks");
  }
  if (!displacements.empty() && displacements.size() != counts.size()) {
    return InvalidArgumentError(what, "_displacements has ", displacements.size(), " entries for ",
                                size, " ranks");
  }
  int64_t left = kBytesMax / element_bytes;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] < 0 || counts[i] > left) {
      return InvalidArgumentError(what, "_counts[", i, "] is ", counts[i],
                                  ": negative, or the sum is above 2^62 bytes");
    }
    left -= counts[i];
    if (!displacements.empty() &&
        (displacements[i] < 0 || displacements[i] > kBytesMax / element_bytes - counts[i])) {
      return InvalidArgumentError(what, "_displacements[", i, "] is ", displacements[i],
                                  ": negative, or its end is above 2^62 bytes");
    }
  }
  return OkStatus();
}

// Parts that are written must not overlap.
Status CheckApart(std::span<const int64_t> counts, std::span<const int64_t> displacements) {
  if (displacements.empty()) return OkStatus();
  std::vector<std::pair<int64_t, size_t>> order;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (counts[i] > 0) order.emplace_back(displacements[i], i);
  }
  std::sort(order.begin(), order.end());
  for (size_t i = 1; i < order.size(); ++i) {
    const auto [before, part] = order[i - 1];
    if (before + counts[part] > order[i].first) {
      return InvalidArgumentError("recv_displacements: the parts of ranks ", part, " and ",
                                  order[i].second, " overlap");
    }
  }
  return OkStatus();
}

Status CheckCounts(const Operation& operation, int size) {
  const int64_t element_bytes = ByteSize(operation.dtype);
  if (operation.kind == OpKind::kReduceScatterV || operation.kind == OpKind::kAllToAllV) {
    CRIA_RETURN_IF_ERROR(CheckParts("send", operation.send_counts, operation.send_displacements,
                                    size, element_bytes));
  }
  if (operation.kind == OpKind::kAllGatherV || operation.kind == OpKind::kAllToAllV) {
    CRIA_RETURN_IF_ERROR(CheckParts("recv", operation.recv_counts, operation.recv_displacements,
                                    size, element_bytes));
    CRIA_RETURN_IF_ERROR(CheckApart(operation.recv_counts, operation.recv_displacements));
  }
  if (HasCounts(operation.kind)) return OkStatus();
  if (operation.count < 0 || operation.count > kBytesMax / element_bytes / size) {
    return InvalidArgumentError("count is ", operation.count, ": negative, or above 2^62 bytes");
  }
  return OkStatus();
}

Status CheckAlias(const Operation& operation, int rank, int size) {
  const int64_t element_bytes = ByteSize(operation.dtype);
  const int64_t input_bytes = InputElements(operation, rank, size) * element_bytes;
  const int64_t output_bytes = OutputElements(operation, rank, size) * element_bytes;
  if (input_bytes == 0 || output_bytes == 0) return OkStatus();
  const auto input = reinterpret_cast<uintptr_t>(operation.input);
  const auto output = reinterpret_cast<uintptr_t>(operation.output);
  const bool apart = input + static_cast<uintptr_t>(input_bytes) <= output ||
                     output + static_cast<uintptr_t>(output_bytes) <= input;
  if (apart || InPlace(operation, rank)) return OkStatus();
  return InvalidArgumentError("input (", input_bytes, " bytes) and output (", output_bytes,
                              " bytes) overlap in part: the output starts ",
                              static_cast<int64_t>(output - input), " bytes after the input");
}

}  // namespace

int64_t InputElements(const Operation& operation, int rank, int size) {
  switch (operation.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kAllGather:
    case OpKind::kGather:
    case OpKind::kSend:
      return operation.count;
    case OpKind::kBroadcast:
      return rank == operation.root_or_peer ? operation.count : 0;
    case OpKind::kScatter:
      return rank == operation.root_or_peer ? operation.count * size : 0;
    case OpKind::kReduceScatter:
    case OpKind::kAllToAll:
      return operation.count * size;
    case OpKind::kAllGatherV:
      return operation.recv_counts[static_cast<size_t>(rank)];
    case OpKind::kReduceScatterV:
    case OpKind::kAllToAllV:
      return Extent(operation.send_counts, operation.send_displacements);
    case OpKind::kRecv:
    case OpKind::kGroup:
    case OpKind::kBarrier:
      return 0;
  }
  return 0;
}

int64_t OutputElements(const Operation& operation, int rank, int size) {
  switch (operation.kind) {
    case OpKind::kAllReduce:
    case OpKind::kBroadcast:
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
    case OpKind::kRecv:
      return operation.count;
    case OpKind::kReduce:
      return rank == operation.root_or_peer ? operation.count : 0;
    case OpKind::kGather:
      return rank == operation.root_or_peer ? operation.count * size : 0;
    case OpKind::kAllGather:
    case OpKind::kAllToAll:
      return operation.count * size;
    case OpKind::kAllGatherV:
    case OpKind::kAllToAllV:
      return Extent(operation.recv_counts, operation.recv_displacements);
    case OpKind::kReduceScatterV:
      return operation.send_counts[static_cast<size_t>(rank)];
    case OpKind::kSend:
    case OpKind::kGroup:
    case OpKind::kBarrier:
      return 0;
  }
  return 0;
}

bool InPlace(const Operation& operation, int rank) {
  if (operation.input == nullptr || operation.output == nullptr) return false;
  const auto* input = static_cast<const std::byte*>(operation.input);
  const auto* output = static_cast<const std::byte*>(operation.output);
  const int64_t element_bytes = ByteSize(operation.dtype);
  const int64_t own = operation.count * rank * element_bytes;
  switch (operation.kind) {
    case OpKind::kAllReduce:
    case OpKind::kReduce:
    case OpKind::kBroadcast:
    case OpKind::kAllToAll:
      return input == output;
    case OpKind::kAllGather:
    case OpKind::kGather:
      return input == output + own;
    case OpKind::kReduceScatter:
    case OpKind::kScatter:
      return output == input + own;
    case OpKind::kAllGatherV:
      return input == output + PlaceOf(operation.recv_counts, operation.recv_displacements, rank) *
                                   element_bytes;
    case OpKind::kReduceScatterV:
      return output == input + PlaceOf(operation.send_counts, operation.send_displacements, rank) *
                                   element_bytes;
    default:
      return false;
  }
}

Status ValidateOperation(const Operation& operation, int rank, int size) {
  CRIA_RETURN_IF_ERROR(CheckCounts(operation, size));
  if (Reduces(operation.kind) && !Reducible(operation.dtype)) {
    return InvalidArgumentError(Name(operation.dtype), " only travels; it has no ",
                                Name(operation.reduce_op));
  }
  const bool pair = operation.kind == OpKind::kSend || operation.kind == OpKind::kRecv;
  if ((Rooted(operation.kind) || pair) &&
      (operation.root_or_peer < 0 || operation.root_or_peer >= size)) {
    return InvalidArgumentError(pair ? "peer" : "root", " is ", operation.root_or_peer, " of ",
                                size, " ranks");
  }
  if (operation.timeout_s < 0) return InvalidArgumentError("timeout_s is ", operation.timeout_s);
  if (operation.input == nullptr && InputElements(operation, rank, size) > 0) {
    return InvalidArgumentError("the input is null for ", InputElements(operation, rank, size),
                                " elements");
  }
  if (operation.output == nullptr && OutputElements(operation, rank, size) > 0) {
    return InvalidArgumentError("the output is null for ", OutputElements(operation, rank, size),
                                " elements");
  }
  return CheckAlias(operation, rank, size);
}

OwnedOperation::OwnedOperation(const Operation& source) : operation(source) {
  const std::span<const int64_t>* const spans[] = {&source.send_counts, &source.recv_counts,
                                                   &source.send_displacements,
                                                   &source.recv_displacements};
  for (const auto* span : spans) storage.insert(storage.end(), span->begin(), span->end());
  const int64_t* next = storage.data();
  for (std::span<const int64_t>* span :
       {&operation.send_counts, &operation.recv_counts, &operation.send_displacements,
        &operation.recv_displacements}) {
    *span = {next, span->size()};
    next += span->size();
  }
}

}  // namespace cria::comm
