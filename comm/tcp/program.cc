#include "comm/tcp/program.h"

#include <algorithm>

#include "base/check.h"

namespace cria::comm::tcp {
namespace {

bool Partial(const Plan& plan, Slot slot) { return slot == Slot::kScratch && Reduces(plan.kind); }

bool Rooted(OpKind kind) {
  return kind == OpKind::kBroadcast || kind == OpKind::kReduce || kind == OpKind::kGather ||
         kind == OpKind::kScatter;
}

// One source whose bytes are the result as they are.
bool Copies(const Plan& plan, const Task& task) {
  if (task.sources.size() != 1) return false;
  const Slot slot = task.sources[0].slot;
  if (!Reduces(plan.kind) || slot == Slot::kOutput) return true;
  return slot == Slot::kScratch &&
         std::all_of(task.targets.begin(), task.targets.end(),
                     [](const Region& target) { return target.slot == Slot::kScratch; });
}

}  // namespace

void Program::Build(const OperationContext& context, int self, std::span<const Round> rounds) {
  steps_.clear();
  accesses_.clear();
  sources_.clear();
  targets_.clear();
  for (Peer& peer : peers()) {
    peer.out.clear();
    peer.in.clear();
    peer_of_rank_[static_cast<size_t>(peer.rank)] = -1;
  }
  peer_of_rank_.resize(static_cast<size_t>(context.plan->size), -1);
  num_peers_ = 0;
  num_combines_ = 0;
  num_rounds_ = static_cast<int>(rounds.size());
  first_open_ = 0;
  const int64_t element_bytes = ByteSize(context.plan->dtype);
  const auto small = [&](const Task& task) {
    return task.count <= kSmallTaskBytes / element_bytes;
  };
  for (size_t r = 0; r < rounds.size(); ++r) {
    const std::vector<Task>& tasks = rounds[r].tasks;
    combine_of_task_.assign(tasks.size(), -1);
    // Which tasks take part in a pass, and with which half.
    constexpr bool kPasses[3][3] = {{true, true, false}, {true, false, true}, {false, true, true}};
    for (const auto& [wants_small, sources, results] : kPasses) {
      for (size_t t = 0; t < tasks.size(); ++t) {
        if (small(tasks[t]) != wants_small) continue;
        const View view = {&context,  self,       static_cast<int>(r), static_cast<int>(t),
                           &tasks[t], wants_small};
        AddTask(view, sources, results);
      }
    }
  }
  if (Rooted(context.plan->kind)) AddConfirmations();
}

void Program::AddConfirmations() {
  for (Peer& peer : peers()) {
    if (peer.out.empty()) {
      peer.out.emplace_back();
    } else if (peer.in.empty()) {
      peer.in.emplace_back();
    }
  }
}

std::byte* Program::At(const View& view, const Region& region) const {
  std::byte* slot = view.context->slots[static_cast<size_t>(region.slot)];
  CRIA_CHECK(slot != nullptr, "slot ", static_cast<int>(region.slot), " of rank ", view.self);
  return slot + region.offset * SlotElementBytes(*view.context->plan, region.slot);
}

Peer* Program::PeerOf(int rank) {
  int& index = peer_of_rank_[static_cast<size_t>(rank)];
  if (index < 0) {
    index = static_cast<int>(num_peers_++);
    if (num_peers_ > peers_.size()) peers_.emplace_back();
    peers_[static_cast<size_t>(index)].rank = rank;
  }
  return &peers_[static_cast<size_t>(index)];
}

Step* Program::NewStep(const View& view, StepKind kind) {
  steps_.push_back({.kind = kind,
                    .round = view.round,
                    .task = view.task_index,
                    .count = view.task->count,
                    .first_access = static_cast<int>(accesses_.size())});
  return &steps_.back();
}

void Program::AddAccess(Step* step, std::byte* begin, int64_t element_bytes, bool write) {
  accesses_.push_back({begin, element_bytes, write});
  ++step->num_accesses;
}

void Program::AddTask(const View& view, bool sources, bool results) {
  const bool owner = view.task->owner == view.self;
  if (sources) owner ? AddCombine(view) : AddSourceSends(view);
  if (results) {
    owner ? AddResultSends(view, combine_of_task_[static_cast<size_t>(view.task_index)])
          : AddReceives(view);
  }
}

void Program::AddSourceSends(const View& view) {
  for (const Region& region : view.task->sources) {
    if (region.rank != view.self) continue;
    Step* step = NewStep(view, StepKind::kSend);
    step->peer = view.task->owner;
    step->data = At(view, region);
    step->element_bytes = SlotElementBytes(*view.context->plan, region.slot);
    AddAccess(step, step->data, step->element_bytes, /*write=*/false);
    PeerOf(step->peer)
        ->out.push_back({.step = static_cast<int>(steps_.size()) - 1,
                         .round = view.round,
                         .bytes = step->count * step->element_bytes});
  }
}

void Program::AddReceives(const View& view) {
  for (const Region& region : view.task->targets) {
    if (region.rank != view.self) continue;
    Step* step = NewStep(view, StepKind::kReceive);
    step->peer = view.task->owner;
    step->data = At(view, region);
    step->element_bytes = SlotElementBytes(*view.context->plan, region.slot);
    AddAccess(step, step->data, step->element_bytes, /*write=*/true);
    PeerOf(step->peer)
        ->in.push_back({.step = static_cast<int>(steps_.size()) - 1,
                        .round = view.round,
                        .bytes = step->count * step->element_bytes});
  }
}

void Program::AddCombine(const View& view) {
  const Plan& plan = *view.context->plan;
  const Task& task = *view.task;
  const auto local = [&view](const Region& region) { return region.rank == view.self; };
  const bool copies = Copies(plan, task);
  // What only goes out needs no step here: the sends read the source.
  if (copies && local(task.sources[0]) &&
      std::none_of(task.targets.begin(), task.targets.end(), local)) {
    return;
  }
  Step* step = NewStep(view, StepKind::kCombine);
  const int index = static_cast<int>(steps_.size()) - 1;
  combine_of_task_[static_cast<size_t>(view.task_index)] = index;
  step->copies = copies;
  step->combine = num_combines_++;
  step->first_source = static_cast<int>(sources_.size());
  step->num_sources = static_cast<int>(task.sources.size());
  step->first_target = static_cast<int>(targets_.size());
  for (size_t s = 0; s < task.sources.size(); ++s) {
    const Region& region = task.sources[s];
    const int64_t element_bytes = SlotElementBytes(plan, region.slot);
    std::byte* data = local(region) ? At(view, region) : nullptr;
    sources_.push_back({data, Partial(plan, region.slot), element_bytes});
    if (data != nullptr) {
      AddAccess(step, data, element_bytes, /*write=*/false);
      continue;
    }
    PeerOf(region.rank)
        ->in.push_back({.step = index,
                        .source = static_cast<int>(s),
                        .round = view.round,
                        .bytes = task.count * element_bytes});
  }
  for (const Region& region : task.targets) {
    if (!local(region)) continue;
    const int64_t element_bytes = SlotElementBytes(plan, region.slot);
    targets_.push_back({At(view, region), Partial(plan, region.slot), element_bytes});
    AddAccess(step, targets_.back().data, element_bytes, /*write=*/true);
    ++step->num_targets;
  }
}

void Program::AddResultSends(const View& view, int combine_step) {
  const Plan& plan = *view.context->plan;
  const Task& task = *view.task;
  const bool from_source = Copies(plan, task) && task.sources[0].rank == view.self;
  if (combine_step >= 0) {
    steps_[static_cast<size_t>(combine_step)].first_result = static_cast<int>(steps_.size());
  }
  for (const Region& region : task.targets) {
    if (region.rank == view.self) continue;
    Step* step = NewStep(view, StepKind::kSend);
    step->peer = region.rank;
    step->element_bytes = SlotElementBytes(plan, region.slot);
    step->partial = Partial(plan, region.slot);
    if (from_source) {
      step->data = At(view, task.sources[0]);
    } else {
      step->from = combine_step;
      ++steps_[static_cast<size_t>(combine_step)].num_results;
      // A result in the same form that stays here is sent from there.
      for (const Target& target : targets(steps_[static_cast<size_t>(combine_step)])) {
        if (target.partial == step->partial) step->data = target.data;
      }
    }
    if (step->data != nullptr) AddAccess(step, step->data, step->element_bytes, /*write=*/false);
    PeerOf(step->peer)
        ->out.push_back({.step = static_cast<int>(steps_.size()) - 1,
                         .round = view.round,
                         .bytes = step->count * step->element_bytes});
  }
}

int64_t Program::AllowedBy(const Step& earlier, const Step& later) const {
  int64_t allowed = later.count;
  if (earlier.round == later.round && earlier.task != later.task) return allowed;
  for (int i = 0; i < earlier.num_accesses; ++i) {
    const Access& a = accesses_[static_cast<size_t>(earlier.first_access + i)];
    const auto a_begin = reinterpret_cast<uintptr_t>(a.begin);
    const auto a_bytes = static_cast<uintptr_t>(earlier.count * a.element_bytes);
    for (int j = 0; j < later.num_accesses; ++j) {
      const Access& b = accesses_[static_cast<size_t>(later.first_access + j)];
      if (!a.write && !b.write) continue;
      const auto b_begin = reinterpret_cast<uintptr_t>(b.begin);
      const auto b_bytes = static_cast<uintptr_t>(later.count * b.element_bytes);
      if (a_begin + a_bytes <= b_begin || b_begin + b_bytes <= a_begin) continue;
      const auto passed = static_cast<int64_t>(a_begin) + earlier.done * a.element_bytes;
      const int64_t free_bytes = std::max<int64_t>(passed - static_cast<int64_t>(b_begin), 0);
      allowed = std::min(allowed, free_bytes / b.element_bytes);
    }
  }
  return allowed;
}

int64_t Program::Allowed(int step) {
  Step& later = steps_[static_cast<size_t>(step)];
  while (first_open_ < steps_.size() && steps_[first_open_].done == steps_[first_open_].count) {
    ++first_open_;
  }
  if (later.num_blockers < 0 || later.num_blockers > Step::kBlockersMax) {
    later.num_blockers = 0;
    int64_t allowed = later.count;
    for (size_t i = first_open_; i < static_cast<size_t>(step); ++i) {
      const Step& earlier = steps_[i];
      if (earlier.done == earlier.count) continue;
      const int64_t by_this = AllowedBy(earlier, later);
      if (by_this == later.count) continue;
      allowed = std::min(allowed, by_this);
      if (later.num_blockers < Step::kBlockersMax) {
        later.blockers[static_cast<size_t>(later.num_blockers)] = static_cast<int>(i);
      }
      if (later.num_blockers <= Step::kBlockersMax) ++later.num_blockers;
    }
    return allowed;
  }
  int64_t allowed = later.count;
  for (int i = 0; i < later.num_blockers; ++i) {
    const Step& earlier = steps_[static_cast<size_t>(later.blockers[static_cast<size_t>(i)])];
    if (earlier.done == earlier.count) {
      later.blockers[static_cast<size_t>(i--)] =
          later.blockers[static_cast<size_t>(--later.num_blockers)];
      continue;
    }
    allowed = std::min(allowed, AllowedBy(earlier, later));
  }
  return allowed;
}

bool Program::Done() {
  while (first_open_ < steps_.size() && steps_[first_open_].done == steps_[first_open_].count) {
    ++first_open_;
  }
  return first_open_ == steps_.size();
}

}  // namespace cria::comm::tcp
