#include "trainer/loop/job_ranks.h"

#include <cstring>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "comm/engine/world.h"

namespace cria::trainer {
namespace {

constexpr size_t kTextMax = 64 << 10;
// Text is prepared for hours at most.
constexpr double kPrepareSeconds = 24 * 3600;

}  // namespace

StatusOr<JobRanks> JobRanks::Join(debug::Observer* observer) {
  CRIA_ASSIGN_OR_RETURN(comm::WorldOptions options,
                        comm::ReadWorldOptions(comm::ProcessEnvironment()));
  JobRanks ranks;
  if (options.environment.world_size == 1) return ranks;
  options.observer = observer;
  ranks.first_on_host_ = options.environment.local_rank == 0;
  CRIA_ASSIGN_OR_RETURN(ranks.world_, comm::JoinWorld(options));
  return ranks;
}

StatusOr<std::string> JobRanks::FromFirst(const std::function<StatusOr<std::string>()>& decide) {
  if (world_ == nullptr) return decide();
  std::vector<char> text(kTextMax);
  if (first()) {
    CRIA_ASSIGN_OR_RETURN(const std::string decided, decide());
    if (decided.size() >= kTextMax) return InvalidArgumentError("a text of ", decided.size());
    std::memcpy(text.data(), decided.data(), decided.size());
  }
  CRIA_RETURN_IF_ERROR(world_
                           ->Broadcast({.buffer = text.data(),
                                        .count = static_cast<int64_t>(text.size()),
                                        .dtype = comm::DataType::kUint8})
                           .Wait());
  return std::string(text.data());
}

Status JobRanks::OncePerHost(const std::function<Status()>& work) {
  if (first_on_host_) CRIA_RETURN_IF_ERROR(work());
  if (world_ == nullptr) return OkStatus();
  return world_->Barrier({.call = {.timeout_s = kPrepareSeconds}}).Wait();
}

Status JobRanks::MakeGroups(const TrainConfig& config) {
  CRIA_ASSIGN_OR_RETURN(layout_, ResolveLayout(config, size()));
  if (world_ == nullptr) return OkStatus();
  const auto digest = static_cast<int64_t>(Hash64(WriteTrainConfig(config)));
  std::vector<int64_t> digests(static_cast<size_t>(size()));
  CRIA_RETURN_IF_ERROR(world_
                           ->AllGather({.input = &digest,
                                        .output = digests.data(),
                                        .count = 1,
                                        .dtype = comm::DataType::kInt64})
                           .Wait());
  for (int rank = 0; rank < size(); ++rank) {
    if (digests[static_cast<size_t>(rank)] == digests[0]) continue;
    return InvalidArgumentError("rank ", rank,
                                " was started with another configuration than rank 0");
  }
  CRIA_ASSIGN_OR_RETURN(groups_, model::MakeGroups(layout_, config.model, world_.get()));
  return OkStatus();
}

void JobRanks::Abort(const Status& status) {
  if (world_ != nullptr) world_->Abort(Message(status));
}

}  // namespace cria::trainer
