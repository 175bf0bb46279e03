#include "tests/support/trace_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>
#include <vector>

namespace cria {
namespace {

using Track = std::pair<int64_t, int64_t>;  // pid, tid

// Of a clock, as readers of the format keep times: whole nanoseconds.
int64_t Nanoseconds(const Json& microseconds) {
  return std::llround(microseconds.get<double>() * 1000);
}

struct Slice {
  int64_t start = 0, end = 0;
  std::string name;
};

struct Arrow {
  Track track;
  int64_t at = 0;
};

class Checker {
 public:
  std::string Check(const Json& trace) {
    if (!trace.is_object() || !trace.contains("traceEvents") || !trace["traceEvents"].is_array()) {
      return "no list traceEvents";
    }
    for (const Json& event : trace["traceEvents"]) {
      if (std::string problem = Take(event); !problem.empty()) {
        return problem + ": " + event.dump();
      }
    }
    for (auto& [track, slices] : slices_) {
      if (std::string problem = CheckTrack(track, &slices); !problem.empty()) return problem;
    }
    if (std::string problem = CheckNumbers(); !problem.empty()) return problem;
    return CheckArrows();
  }

 private:
  std::string Take(const Json& event) {
    for (const char* key : {"pid", "tid"}) {
      if (!event.contains(key) || !event[key].is_number_integer() || event[key] <= 0) {
        return std::string(key) + " is no integer above 0";
      }
    }
    if (!event.contains("ph") || !event["ph"].is_string()) return "no ph";
    if (!event.contains("name") || !event["name"].is_string()) return "no name";
    const Track track = {event["pid"].get<int64_t>(), event["tid"].get<int64_t>()};
    const std::string ph = event["ph"];
    if (ph == "M") return TakeMetadata(event, track);
    if (!event.contains("ts") || !event["ts"].is_number()) return "ts is no number";
    const int64_t ts = Nanoseconds(event["ts"]);
    if (ph == "X") {
      if (!event.contains("dur") || !event["dur"].is_number() || event["dur"] < 0) {
        return "dur is no number of 0 or more";
      }
      slices_[track].push_back({ts, ts + Nanoseconds(event["dur"]), event["name"]});
      return "";
    }
    if (ph != "s" && ph != "f") return "another ph";
    if (!event.contains("id") || !event.contains("cat")) return "an arrow without id or cat";
    auto& ends = ph == "s" ? starts_ : ends_;
    if (!ends.emplace(event["id"].get<std::string>(), Arrow{track, ts}).second) {
      return "an arrow's id twice";
    }
    return "";
  }

  std::string TakeMetadata(const Json& event, const Track& track) {
    if (!event.contains("args")) return "metadata without args";
    const std::string name = event["name"];
    if (name == "process_name") processes_.insert(track.first);
    if (name == "thread_name") tracks_.insert(track);
    if (name == "thread_name" || name == "process_name") {
      return event["args"]["name"].is_string() ? "" : "a name that is no text";
    }
    if (name == "thread_sort_index" || name == "process_sort_index") {
      if (!event["args"]["sort_index"].is_number_integer()) return "a place that is no integer";
      if (name == "thread_sort_index") places_[track] = event["args"]["sort_index"];
      return "";
    }
    return name == "process_labels" ? "" : "other metadata";
  }

  std::string CheckTrack(const Track& track, std::vector<Slice>* slices) const {
    const std::string where = StrCat("pid ", track.first, " tid ", track.second);
    if (processes_.count(track.first) == 0) return where + ": a process without a name";
    if (tracks_.count(track) == 0) return where + ": a track without a name";
    std::stable_sort(slices->begin(), slices->end(), [](const Slice& a, const Slice& b) {
      return a.start != b.start ? a.start < b.start : a.end > b.end;
    });
    std::vector<Slice> open;
    for (const Slice& slice : *slices) {
      while (!open.empty() && open.back().end <= slice.start) open.pop_back();
      if (!open.empty() && slice.end > open.back().end) {
        return StrCat(where, ": ", slice.name, " at ", slice.start, " ns overlaps ",
                      open.back().name);
      }
      open.push_back(slice);
    }
    return "";
  }

  // Tracks are in the order of their processes and numbers.
  std::string CheckNumbers() const {
    std::map<int64_t, int64_t> process_of;
    const Track* above = nullptr;
    for (const Track& track : tracks_) {
      const auto [pid, tid] = track;
      if (!process_of.emplace(tid, pid).second) return StrCat("tid ", tid, " in two processes");
      const auto place = places_.find(track);
      if (place == places_.end()) return StrCat("tid ", tid, ": a track without a place");
      if (above == nullptr || above->first != pid) {
        if (tid != pid) return StrCat("pid ", pid, ": its first track is tid ", tid);
      } else if (places_.at(*above) >= place->second) {
        return StrCat("tid ", tid, " stands above tid ", above->second);
      }
      above = &track;
    }
    return "";
  }

  std::string CheckArrows() const {
    for (const auto& [id, arrow] : starts_) {
      if (!InSlice(arrow)) return "an arrow leaves from nowhere: " + id;
    }
    for (const auto& [id, arrow] : ends_) {
      if (!InSlice(arrow)) return "an arrow arrives nowhere: " + id;
      const auto start = starts_.find(id);
      if (start == starts_.end()) return "an arrow without a start: " + id;
      if (start->second.at > arrow.at) return "an arrow back in time: " + id;
    }
    return "";
  }

  bool InSlice(const Arrow& arrow) const {
    const auto slices = slices_.find(arrow.track);
    if (slices == slices_.end()) return false;
    return std::any_of(slices->second.begin(), slices->second.end(), [&](const Slice& slice) {
      return slice.start <= arrow.at && arrow.at <= slice.end;
    });
  }

  std::map<Track, std::vector<Slice>> slices_;
  std::set<int64_t> processes_;
  std::set<Track> tracks_;
  std::map<Track, int64_t> places_;
  std::map<std::string, Arrow> starts_, ends_;
};

}  // namespace

std::string ProblemOfTrace(const Json& trace) { return Checker().Check(trace); }

}  // namespace cria
