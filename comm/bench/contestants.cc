#include "comm/bench/contestants.h"

#include <algorithm>
#include <utility>

#include "base/str.h"

namespace cria::comm {
namespace {

constexpr int64_t kLine = 64;

// The first line of the cache at or after `p`, then `offset` bytes on.
std::byte* Aligned(std::byte* p, int64_t offset) {
  const auto address = reinterpret_cast<uintptr_t>(p);
  return p + ((address + kLine - 1) / kLine * kLine - address) + offset;
}

}  // namespace

StatusOr<std::unique_ptr<Contestants>> Contestants::Join(const BenchOptions& options,
                                                         const RankIdentity& identity,
                                                         const std::string& folder) {
  std::unique_ptr<Contestants> contestants(new Contestants);
  contestants->buffer_bytes_ =
      std::max(options.max_bytes, kLine) + options.unalign_bytes + 2 * kLine;
  for (const std::string& impl : options.impls) {
    CRIA_RETURN_IF_ERROR(contestants->Add(options, {.impl = impl,
                                                    .identity = identity,
                                                    .folder = folder,
                                                    .timeout_s = options.timeout_s,
                                                    .fastest = true}));
  }
  return contestants;
}

Status Contestants::Add(const BenchOptions& options, const JoinRequest& request) {
  auto joined = JoinImplementation(request);
  if (!joined.ok()) return Annotate(joined.status(), StrCat("join ", request.impl));
  worlds_.push_back(std::move(joined).value());
  Joined& world = worlds_.back();
  Contestant contestant = {.impl = request.impl, .buffers = "private", .comm = world.world.get()};
  if (options.split.empty()) {
    contestant.num_all_reduces = world.num_all_reduces;
    contestant.choose_all_reduce = world.choose_all_reduce;
  } else {
    CRIA_ASSIGN_OR_RETURN(const int color, SplitColor(options.split, request.identity.rank));
    CRIA_ASSIGN_OR_RETURN(
        auto group, contestant.comm->Split(color, request.identity.rank, StrCat("split", color)));
    contestant.comm = group.get();
    groups_.push_back(std::move(group));
  }
  const bool has_segment = request.impl == "cria";
  for (const std::string& buffers : options.buffers) {
    if (!has_segment && &buffers != &options.buffers[0]) continue;
    if (has_segment) contestant.buffers = buffers;
    CRIA_RETURN_IF_ERROR(AddBuffers(&contestant));
    contestant.input = Aligned(contestant.input, options.unalign_bytes);
    contestant.output = Aligned(contestant.output, options.unalign_bytes);
    all_.push_back(contestant);
  }
  return OkStatus();
}

Status Contestants::AddBuffers(Contestant* contestant) {
  std::byte** const places[2] = {&contestant->input, &contestant->output};
  for (int i = 0; i < 2; ++i) {
    if (contestant->buffers == "segment") {
      CRIA_ASSIGN_OR_RETURN(auto buffer, contestant->comm->Allocate(buffer_bytes_));
      *places[i] = static_cast<std::byte*>(buffer->data());
      segment_.push_back(std::move(buffer));
    } else {
      // All that take private memory take the same, one after another.
      private_memory_[i].resize(static_cast<size_t>(buffer_bytes_));
      *places[i] = private_memory_[i].data();
    }
  }
  return OkStatus();
}

}  // namespace cria::comm
