// The ranks of a job: joins them by the environment that a launcher sets, and lets the first rank
// decide where one must.
//
//   CRIA_ASSIGN_OR_RETURN(JobRanks ranks, JobRanks::Join());           // alone without a launcher
//   CRIA_ASSIGN_OR_RETURN(std::string dir, ranks.FromFirst(FindDir));  // the same on all
//   CRIA_RETURN_IF_ERROR(ranks.MakeGroups(config));
//
// Single-threaded. Errors: those of the environment, the rendezvous and the communicator.

#ifndef CRIA_TRAINER_LOOP_JOB_RANKS_H_
#define CRIA_TRAINER_LOOP_JOB_RANKS_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "debug/observer.h"
#include "model/parallel/groups.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {

class JobRanks {
 public:
  // `observer`, when not null, hears of every collective; it outlives this object.
  static StatusOr<JobRanks> Join(debug::Observer* observer = nullptr);

  int rank() const { return world_ == nullptr ? 0 : world_->rank(); }
  int size() const { return world_ == nullptr ? 1 : world_->size(); }
  bool first() const { return rank() == 0; }
  const model::Layout& layout() const { return layout_; }
  // Null for one rank.
  comm::Communicator* world() const { return world_.get(); }
  const model::Groups* groups() const { return groups_ ? &*groups_ : nullptr; }

  // What `decide` returns on the first rank; the others don't call it. Up to 64 KiB. Where it
  // fails, all ranks fail.
  StatusOr<std::string> FromFirst(const std::function<StatusOr<std::string>()>& decide);
  // Runs `work` on one rank of each host, the others wait for as long as it takes.
  Status OncePerHost(const std::function<Status()>& work);
  // The mesh of the configuration, which must be the same on all ranks: InvalidArgument naming the
  // first rank that has another.
  Status MakeGroups(const TrainConfig& config);
  // Ends the other ranks, when this one can't go on.
  void Abort(const Status& status);

 private:
  std::unique_ptr<comm::Communicator> world_;
  bool first_on_host_ = true;
  model::Layout layout_;
  std::optional<model::Groups> groups_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_JOB_RANKS_H_
