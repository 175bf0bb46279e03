#include "comm/plan/view_check.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <vector>

namespace cria::comm {
namespace {

bool SameRegion(const Region& a, const Region& b) {
  return a.rank == b.rank && a.slot == b.slot && a.offset == b.offset;
}

// The regions of one rank, in order.
std::vector<Region> RegionsOf(const std::vector<Region>& regions, int rank) {
  std::vector<Region> own;
  for (const Region& region : regions) {
    if (region.rank == rank) own.push_back(region);
  }
  return own;
}

bool SameFor(const Task& a, const Task& b, int rank) {
  const auto same = [rank](const std::vector<Region>& x, const std::vector<Region>& y) {
    const auto own_x = RegionsOf(x, rank);
    const auto own_y = RegionsOf(y, rank);
    return std::equal(own_x.begin(), own_x.end(), own_y.begin(), own_y.end(), SameRegion);
  };
  return a.count == b.count && same(a.sources, b.sources) && same(a.targets, b.targets);
}

// The tasks of one round of all plans, numbered by their owners' views.
class RoundCheck {
 public:
  RoundCheck(std::span<const Plan> plans, std::span<const int> host_of_rank, size_t round)
      : plans_(plans), host_of_rank_(host_of_rank), round_(round), tasks_of_(plans.size()) {}

  Status Run() {
    CRIA_RETURN_IF_ERROR(NumberTasks());
    for (size_t r = 0; r < plans_.size(); ++r) {
      CRIA_RETURN_IF_ERROR(MatchView(static_cast<int>(r)));
    }
    return CheckOneOrder();
  }

 private:
  const std::vector<Task>& View(size_t rank) const { return plans_[rank].rounds[round_].tasks; }

  Status NumberTasks() {
    for (size_t owner = 0; owner < plans_.size(); ++owner) {
      for (const Task& task : View(owner)) {
        if (task.owner < 0 || static_cast<size_t>(task.owner) >= plans_.size()) {
          return FailedPreconditionError("round ", round_, ": rank ", owner,
                                         " sees a task of rank ", task.owner);
        }
        if (task.owner != static_cast<int>(owner)) continue;
        const auto number = static_cast<int>(tasks_.size());
        tasks_.push_back(&task);
        std::set<int> ranks = {task.owner};
        for (const auto* regions : {&task.sources, &task.targets}) {
          for (const Region& region : *regions) ranks.insert(region.rank);
        }
        for (const int rank : ranks) {
          if (rank < 0 || static_cast<size_t>(rank) >= plans_.size()) {
            return FailedPreconditionError("round ", round_, ": there is no rank ", rank);
          }
          if (plans_[0].rounds[round_].link == LinkKind::kShm && Host(rank) != Host(task.owner)) {
            return FailedPreconditionError("round ", round_, ": ranks ", task.owner, " and ", rank,
                                           " share no memory");
          }
          tasks_of_[static_cast<size_t>(rank)].push_back(number);
        }
      }
    }
    return OkStatus();
  }

  int Host(int rank) const { return host_of_rank_[static_cast<size_t>(rank)]; }

  // Each task that the rank sees is the next of its owner that concerns the rank.
  Status MatchView(int rank) {
    const auto r = static_cast<size_t>(rank);
    std::vector<int> left = tasks_of_[r];  // ascending, grouped by owner
    std::vector<int> order;
    for (const Task& task : View(r)) {
      const auto next = std::find_if(left.begin(), left.end(), [&](int number) {
        return tasks_[static_cast<size_t>(number)]->owner == task.owner;
      });
      if (next == left.end() || !SameFor(task, *tasks_[static_cast<size_t>(*next)], rank)) {
        return FailedPreconditionError("round ", round_, ": rank ", rank, " sees a task of rank ",
                                       task.owner, " with ", task.count,
                                       " elements that its owner does not, or not next");
      }
      order.push_back(*next);
      left.erase(next);
    }
    if (!left.empty()) {
      return FailedPreconditionError("round ", round_, ": rank ", rank,
                                     " does not see a task of rank ",
                                     tasks_[static_cast<size_t>(left[0])]->owner);
    }
    orders_.push_back(std::move(order));
    return OkStatus();
  }

  // There is an order of all tasks that each view's order is a part of: no cycle.
  Status CheckOneOrder() const {
    std::vector<std::vector<int>> after(tasks_.size());
    std::vector<int> num_before(tasks_.size(), 0);
    for (const std::vector<int>& order : orders_) {
      for (size_t i = 1; i < order.size(); ++i) {
        after[static_cast<size_t>(order[i - 1])].push_back(order[i]);
        ++num_before[static_cast<size_t>(order[i])];
      }
    }
    std::vector<int> free;
    for (size_t t = 0; t < tasks_.size(); ++t) {
      if (num_before[t] == 0) free.push_back(static_cast<int>(t));
    }
    size_t num_done = 0;
    for (; num_done < free.size(); ++num_done) {
      for (const int next : after[static_cast<size_t>(free[num_done])]) {
        if (--num_before[static_cast<size_t>(next)] == 0) free.push_back(next);
      }
    }
    if (num_done == tasks_.size()) return OkStatus();
    return FailedPreconditionError("round ", round_, ": the views order the tasks in a circle");
  }

  const std::span<const Plan> plans_;
  const std::span<const int> host_of_rank_;
  const size_t round_;
  std::vector<const Task*> tasks_;
  std::vector<std::vector<int>> tasks_of_;  // by rank
  std::vector<std::vector<int>> orders_;    // by rank, as its view has them
};

}  // namespace

Status CheckViews(std::span<const Plan> plans, std::span<const int> host_of_rank) {
  for (size_t r = 0; r < plans.size(); ++r) {
    const Plan& plan = plans[r];
    if (plan.rank != static_cast<int>(r) || plan.size != static_cast<int>(plans.size())) {
      return FailedPreconditionError("plan ", r, " of ", plans.size(), " is that of rank ",
                                     plan.rank, " of ", plan.size);
    }
    if (plan.rounds.size() != plans[0].rounds.size() || plan.digest != plans[0].digest) {
      return FailedPreconditionError("rank ", r, "'s plan has ", plan.rounds.size(),
                                     " rounds, rank 0's ", plans[0].rounds.size(),
                                     ", or another digest");
    }
    for (size_t round = 0; round < plan.rounds.size(); ++round) {
      if (plan.rounds[round].link != plans[0].rounds[round].link) {
        return FailedPreconditionError("round ", round, " has another link on rank ", r);
      }
    }
  }
  for (size_t round = 0; round < plans[0].rounds.size(); ++round) {
    CRIA_RETURN_IF_ERROR(RoundCheck(plans, host_of_rank, round).Run());
  }
  return OkStatus();
}

}  // namespace cria::comm
