// Simulate: checks each rank's order by itself, then the two sides of each link, then runs it all.

#include <algorithm>
#include <cstddef>
#include <optional>

#include "base/str.h"
#include "model/parallel/pipeline_schedule.h"

namespace cria::model {
namespace {

constexpr double kForwardTime = 1, kBackwardTime = 2;
constexpr int kForward = 0, kBackward = 1;

std::string Describe(int rank, const PipelineAction& action) {
  return StrCat("rank ", rank, ": ", action.forward ? "forward" : "backward", " of micro-batch ",
                action.micro_batch, " in chunk ", action.chunk);
}

// One rank's actions on their own: complete, in an order that its own results allow, each in a slot
// that nobody else has.
class RankCheck {
 public:
  RankCheck(const PipelineShape& shape, int micro_batches, int rank, int slots)
      : shape_(shape),
        micro_batches_(micro_batches),
        rank_(rank),
        done_(static_cast<size_t>(shape.chunks) * static_cast<size_t>(micro_batches)),
        owners_(static_cast<size_t>(std::max(0, slots))) {}

  std::string Check(const std::vector<PipelineAction>& actions) {
    for (const PipelineAction& action : actions) {
      const std::string problem = Take(action);
      if (!problem.empty()) return StrCat(Describe(rank_, action), ": ", problem);
    }
    if (actions.size() != 2 * done_.size()) {
      return StrCat("rank ", rank_, ": ", actions.size(), " actions of ", 2 * done_.size());
    }
    return "";
  }

  int max_in_flight() const { return max_in_flight_; }

 private:
  // Who is in a slot.
  struct Owner {
    int chunk = -1, micro_batch = -1;  // nobody

    bool operator==(const Owner&) const = default;
  };
  struct Done {
    bool forward = false, backward = false;
  };

  Done& At(int chunk, int micro_batch) {
    return done_[static_cast<size_t>(chunk) * static_cast<size_t>(micro_batches_) +
                 static_cast<size_t>(micro_batch)];
  }

  std::string Take(const PipelineAction& action) {
    const auto [forward, chunk, micro_batch, slot] = action;
    if (chunk < 0 || chunk >= shape_.chunks) return "no such chunk";
    if (micro_batch < 0 || micro_batch >= micro_batches_) return "no such micro-batch";
    if (slot < 0 || slot >= static_cast<int>(owners_.size())) return StrCat("no slot ", slot);
    Owner& owner = owners_[static_cast<size_t>(slot)];
    const Owner me = {chunk, micro_batch};
    Done& done = At(chunk, micro_batch);
    const bool alone = shape_.pp == 1;  // the chunks before and after are this rank's own
    if (forward) {
      if (done.forward) return "twice";
      if (alone && chunk > 0 && !At(chunk - 1, micro_batch).forward) {
        return "before the chunk before it";
      }
      if (owner != Owner{}) {
        return StrCat("slot ", slot, " has micro-batch ", owner.micro_batch, " of chunk ",
                      owner.chunk);
      }
      owner = me;
      done.forward = true;
      max_in_flight_ = std::max(max_in_flight_, ++in_flight_);
    } else {
      if (done.backward) return "twice";
      if (!done.forward) return "before its forward";
      if (alone && chunk + 1 < shape_.chunks && !At(chunk + 1, micro_batch).backward) {
        return "before the chunk after it";
      }
      if (owner != me) return StrCat("not in slot ", slot);
      owner = {};
      done.backward = true;
      --in_flight_;
    }
    return "";
  }

  const PipelineShape& shape_;
  const int micro_batches_, rank_;
  std::vector<Done> done_;
  std::vector<Owner> owners_;  // by slot
  int in_flight_ = 0, max_in_flight_ = 0;
};

// What one action does on its rank's links, and when.
struct Event {
  PipelineAction action;
  std::optional<size_t> sends = {}, receives = {};  // which message of the link
  std::optional<size_t> slot_before = {};           // index of the last backward in the same slot
  std::optional<double> start = {}, end = {};
};

// The messages of one direction between two neighbouring ranks.
struct Link {
  int from = 0, to = 0;
  // By message: indices of the events at either end, when its receive is posted.
  std::vector<size_t> senders = {}, receivers = {};
  std::vector<double> posted = {};  // of the first messages, as far as known
};

class PaperRun {
 public:
  PaperRun(const PipelineShape& shape, const PipelineSchedule& schedule) : shape_(shape) {
    for (const std::vector<PipelineAction>& actions : schedule.ranks) {
      events_.emplace_back();
      for (const PipelineAction& action : actions) events_.back().push_back({.action = action});
    }
    for (int rank = 0; rank < shape.pp; ++rank) {
      links_[kForward].push_back({.from = rank, .to = (rank + 1) % shape.pp});
      links_[kBackward].push_back({.from = rank, .to = (rank + shape.pp - 1) % shape.pp});
    }
    for (int rank = 0; rank < shape.pp; ++rank) Connect(rank);
  }

  // Empty when both ends of each link meet the same messages in the same order.
  std::string CheckLinks() const {
    for (const auto& links : links_) {
      for (const Link& link : links) {
        const size_t messages = std::min(link.senders.size(), link.receivers.size());
        for (size_t i = 0; i < messages; ++i) {
          const PipelineAction& sent = At(link.from, link.senders[i]).action;
          const PipelineAction& taken = At(link.to, link.receivers[i]).action;
          if (sent.micro_batch != taken.micro_batch ||
              StageAfter(link.from, sent) != StageOf(link.to, taken)) {
            return StrCat("message ", i, " is the result of ", Describe(link.from, sent),
                          ", taken for ", Describe(link.to, taken));
          }
        }
      }
    }
    return "";
  }

  // Empty when every action came to its turn.
  std::string Run() {
    std::vector<size_t> next(events_.size());
    for (bool progress = true; progress;) {
      progress = false;
      for (int rank = 0; rank < shape_.pp; ++rank) {
        size_t& n = next[static_cast<size_t>(rank)];
        for (; n < events_[static_cast<size_t>(rank)].size() && Start(rank, n); ++n) {
          progress = true;
        }
      }
    }
    std::string waiting;
    for (int rank = 0; rank < shape_.pp; ++rank) {
      const size_t n = next[static_cast<size_t>(rank)];
      if (n == events_[static_cast<size_t>(rank)].size()) continue;
      if (!waiting.empty()) waiting += "; ";
      waiting += Describe(rank, At(rank, n).action);
    }
    return waiting.empty() ? "" : StrCat("these wait for ever: ", waiting);
  }

  double time() const {
    double time = 0;
    for (const std::vector<Event>& events : events_) time = std::max(time, *events.back().end);
    return time;
  }

 private:
  int StageOf(int rank, const PipelineAction& action) const {
    return action.chunk * shape_.pp + rank;
  }
  int StageAfter(int rank, const PipelineAction& action) const {
    return StageOf(rank, action) + (action.forward ? 1 : -1);
  }
  bool Exists(int stage) const { return stage >= 0 && stage < shape_.pp * shape_.chunks; }

  Event& At(int rank, size_t i) { return events_[static_cast<size_t>(rank)][i]; }
  const Event& At(int rank, size_t i) const { return events_[static_cast<size_t>(rank)][i]; }

  Link& LinkFrom(int rank, bool forward) {
    return links_[forward ? kForward : kBackward][static_cast<size_t>(rank)];
  }
  Link& LinkTo(int rank, bool forward) {
    return LinkFrom((rank + (forward ? shape_.pp - 1 : 1)) % shape_.pp, forward);
  }

  void Connect(int rank) {
    std::vector<std::optional<size_t>> last;  // by slot
    for (size_t i = 0; i < events_[static_cast<size_t>(rank)].size(); ++i) {
      Event& event = At(rank, i);
      const PipelineAction& action = event.action;
      const int stage = StageOf(rank, action);
      const bool alone = shape_.pp == 1;
      if (!alone && Exists(StageAfter(rank, action))) {
        Link& link = LinkFrom(rank, action.forward);
        event.sends = link.senders.size();
        link.senders.push_back(i);
      }
      if (!alone && Exists(action.forward ? stage - 1 : stage + 1)) {
        Link& link = LinkTo(rank, action.forward);
        event.receives = link.receivers.size();
        link.receivers.push_back(i);
      }
      const auto slot = static_cast<size_t>(action.slot);
      if (last.size() <= slot) last.resize(slot + 1);
      event.slot_before = last[slot];
      last[slot] = i;
    }
  }

  // When the memory of the message that `receiver` takes is free: its slot, and for a gradient,
  // which comes into the place of the chunk's result, when that has left. Nothing: not known yet.
  std::optional<double> MemoryFree(int rank, const Event& receiver) {
    if (!receiver.slot_before) return 0;
    const Event& before = At(rank, *receiver.slot_before);
    if (!receiver.action.forward && before.sends) {
      return Over(LinkFrom(rank, /*forward=*/true), *before.sends);
    }
    return before.end;
  }

  // A rank posts receives between two actions, or when nothing else is left to do.
  std::optional<double> NextPosting(int rank, size_t receiver, double from) {
    for (size_t i = 0; i < receiver; ++i) {
      const std::optional<double> end = i == 0 ? 0 : At(rank, i - 1).end;
      if (!end) return std::nullopt;
      if (*end >= from) return *end;
    }
    const std::optional<double> end = receiver == 0 ? 0 : At(rank, receiver - 1).end;
    if (!end) return std::nullopt;
    return std::max(*end, from);
  }

  // When the receive of a message is posted; nothing where that is not known yet.
  std::optional<double> Posted(Link& link, size_t message) {
    while (link.posted.size() <= message) {
      const size_t receiver = link.receivers[link.posted.size()];
      const std::optional<double> free = MemoryFree(link.to, At(link.to, receiver));
      if (!free) return std::nullopt;
      const double from = std::max(*free, link.posted.empty() ? 0 : link.posted.back());
      const std::optional<double> posted = NextPosting(link.to, receiver, from);
      if (!posted) return std::nullopt;
      link.posted.push_back(*posted);
    }
    return link.posted[message];
  }

  // When a message is over, for both sides.
  std::optional<double> Over(Link& link, size_t message) {
    const std::optional<double> sent = At(link.from, link.senders[message]).end;
    const std::optional<double> posted = Posted(link, message);
    if (!sent || !posted) return std::nullopt;
    return std::max(*sent, *posted);
  }

  // Gives the rank's event its times, if all it waits for is known.
  bool Start(int rank, size_t n) {
    Event& event = At(rank, n);
    double start = n == 0 ? 0 : *At(rank, n - 1).end;
    const auto wait_for = [&](std::optional<double> when) {
      if (when) start = std::max(start, *when);
      return when.has_value();
    };
    if (event.receives && !wait_for(Over(LinkTo(rank, event.action.forward), *event.receives))) {
      return false;
    }
    if (event.slot_before) {
      const Event& before = At(rank, *event.slot_before);
      if (before.sends && !wait_for(Over(LinkFrom(rank, before.action.forward), *before.sends))) {
        return false;
      }
    }
    event.start = start;
    event.end = start + (event.action.forward ? kForwardTime : kBackwardTime);
    return true;
  }

  const PipelineShape shape_;
  std::vector<std::vector<Event>> events_;  // by rank
  std::vector<Link> links_[2];              // by direction and sender
};

}  // namespace

ScheduleSimulation Simulate(const PipelineShape& shape, int micro_batches,
                            const PipelineSchedule& schedule) {
  ScheduleSimulation result;
  const auto ranks = static_cast<size_t>(shape.pp);
  if (schedule.ranks.size() != ranks || schedule.slots.size() != ranks) {
    result.problem = StrCat("a schedule of ", schedule.ranks.size(), " ranks for ", shape.pp);
    return result;
  }
  for (size_t rank = 0; rank < ranks; ++rank) {
    RankCheck check(shape, micro_batches, static_cast<int>(rank), schedule.slots[rank]);
    result.problem = check.Check(schedule.ranks[rank]);
    if (!result.problem.empty()) return result;
    result.max_in_flight = std::max(result.max_in_flight, check.max_in_flight());
  }
  PaperRun run(shape, schedule);
  result.problem = run.CheckLinks();
  if (result.problem.empty()) result.problem = run.Run();
  if (!result.problem.empty()) return result;
  result.time = run.time();
  const double work = shape.chunks * micro_batches * (kForwardTime + kBackwardTime);
  result.bubble = (result.time - work) / work;
  return result;
}

}  // namespace cria::model
