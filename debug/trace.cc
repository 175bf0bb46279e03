#include "debug/trace.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/file.h"
#include "base/json.h"
#include "base/str.h"

namespace cria::debug {
namespace {

// Of a rank: its pid is its first.
constexpr int kTidsOfARank = 1000;

std::string Quoted(std::string_view text) {
  const StatusOr<std::string> json = DumpJson(std::string(text));
  // A name that is not UTF-8 is nothing to fail for.
  return json.ok() ? *json : "\"?\"";
}

// Microseconds with nanoseconds behind the point.
std::string Microseconds(double seconds) { return StrFormat("%.3f", seconds * 1e6); }

void AppendLine(std::string* out, const std::string& line) {
  if (!out->empty()) out->append(",\n");
  out->append(line);
}

// ph M: what a process or a track is called, and where it stands.
void AppendMetadata(std::string* out, const char* what, int pid, int tid,
                    const std::string& argument) {
  AppendLine(out, StrCat("{\"ph\":\"M\",\"name\":\"", what, "\",\"pid\":", pid, ",\"tid\":", tid,
                         ",\"args\":{", argument, "}}"));
}

std::string Arguments(const TraceEvent& event) {
  std::string text;
  const auto add = [&text](const std::string& member) {
    if (!text.empty()) text += ',';
    text += member;
  };
  if (!event.detail.empty()) add("\"detail\":" + Quoted(event.detail.view()));
  for (const TraceArgument& argument : event.arguments) {
    if (argument.key != nullptr) add(StrCat(Quoted(argument.key), ":", argument.value));
  }
  return text;
}

void AppendEvent(std::string* out, int pid, int tid, const TraceEvent& event) {
  const std::string where = StrCat("\"pid\":", pid, ",\"tid\":", tid);
  // The end is rounded as a start is, so that what touches does not overlap by a rounding.
  const std::string start = Microseconds(event.start_s), end = Microseconds(event.end_s);
  const double duration = std::max(0.0, std::stod(end) - std::stod(start));
  AppendLine(
      out, StrCat("{\"ph\":\"X\",\"name\":", Quoted(event.name.view()), ",\"cat\":\"",
                  event.stream == 0 ? "compute" : "comm", "\",", where, ",\"ts\":", start,
                  ",\"dur\":", StrFormat("%.3f", duration), ",\"args\":{", Arguments(event), "}}"));
  if (event.arrow == TraceArrow::kNone) return;
  // An arrow leaves at the send's start and arrives at the receive's last moment: it never points
  // back in time. "bp":"e" binds it to the event around that moment.
  const bool from = event.arrow == TraceArrow::kFrom;
  const double arrival_us = std::max(std::stod(start), std::stod(end) - 0.001);
  AppendLine(out, StrCat("{\"ph\":\"", from ? 's' : 'f',
                         "\",\"name\":\"transfer\",\"cat\":\"transfer\",\"id\":\"0x",
                         StrFormat("%llx", static_cast<unsigned long long>(event.arrow_id)), "\",",
                         from ? "" : "\"bp\":\"e\",", where,
                         ",\"ts\":", from ? start : StrFormat("%.3f", arrival_us), "}"));
}

}  // namespace

ShortText::ShortText(std::string_view text)
    : size_(static_cast<uint8_t>(std::min(text.size(), text_.size()))) {
  std::memcpy(text_.data(), text.data(), size_);
}

Trace::Trace(Clock* clock, int64_t capacity)
    : clock_(clock), capacity_(capacity), streams_({{.name = "compute", .order = 0}}) {}

void Trace::NameRank(int rank, const std::string& name) {
  MutexLock lock(&mu_);
  rank_ = rank;
  process_name_ = name;
}

int Trace::AddStream(std::string_view name, int order) {
  MutexLock lock(&mu_);
  CRIA_CHECK(streams_.size() < kTidsOfARank, name);
  streams_.push_back({.name = std::string(name), .order = order});
  return static_cast<int>(streams_.size()) - 1;
}

void Trace::SetRecording(bool recording) {
  if (recording) {
    MutexLock lock(&mu_);
    ring_.resize(static_cast<size_t>(capacity_));
  }
  recording_.store(recording, std::memory_order_relaxed);
}

void Trace::Add(const TraceEvent& event) {
  if (!recording()) return;
  MutexLock lock(&mu_);
  ring_[static_cast<size_t>(num_added_++ % capacity_)] = event;
}

int64_t Trace::num_dropped() const {
  MutexLock lock(&mu_);
  return std::max<int64_t>(0, num_added_ - capacity_);
}

std::vector<TraceEvent> Trace::Sorted() const {
  std::vector<TraceEvent> events(ring_.begin(),
                                 ring_.begin() + std::min<int64_t>(num_added_, capacity_));
  // By stream and start, what surrounds before what is inside.
  std::stable_sort(events.begin(), events.end(), [](const TraceEvent& a, const TraceEvent& b) {
    if (a.stream != b.stream) return a.stream < b.stream;
    if (a.start_s != b.start_s) return a.start_s < b.start_s;
    return a.end_s > b.end_s;
  });
  return events;
}

std::vector<size_t> Trace::Tracks() const {
  std::vector<size_t> tracks(streams_.size());
  std::iota(tracks.begin(), tracks.end(), size_t{0});
  std::stable_sort(tracks.begin(), tracks.end(), [&streams = streams_](size_t a, size_t b) {
    return streams[a].order < streams[b].order;
  });
  return tracks;
}

std::string Trace::Events() const {
  MutexLock lock(&mu_);
  std::string out;
  const int pid = 1 + rank_ * kTidsOfARank;
  const int64_t dropped = std::max<int64_t>(0, num_added_ - capacity_);
  AppendMetadata(&out, "process_name", pid, pid, "\"name\":" + Quoted(process_name_));
  AppendMetadata(&out, "process_sort_index", pid, pid, StrCat("\"sort_index\":", rank_));
  if (dropped > 0) {
    AppendMetadata(&out, "process_labels", pid, pid,
                   StrCat("\"labels\":\"the oldest ", dropped, " events were dropped\""));
  }
  std::vector<int> tids(streams_.size());
  int place = 0;
  for (const size_t stream : Tracks()) {
    const int tid = tids[stream] = pid + place;
    AppendMetadata(&out, "thread_name", pid, tid, "\"name\":" + Quoted(streams_[stream].name));
    AppendMetadata(&out, "thread_sort_index", pid, tid, StrCat("\"sort_index\":", place));
    ++place;
  }
  for (const TraceEvent& event : Sorted()) {
    AppendEvent(&out, pid, tids[static_cast<size_t>(event.stream)], event);
  }
  return out;
}

void TraceSpan::Start(const char* name, std::initializer_list<TraceArgument> arguments) {
  event_.name = name;
  const size_t count = std::min(arguments.size(), event_.arguments.size());
  std::copy_n(arguments.begin(), count, event_.arguments.begin());
  trace_->num_span_ends_.fetch_add(1, std::memory_order_relaxed);
  event_.start_s = trace_->Now();
}

void TraceSpan::End() {
  trace_->num_span_ends_.fetch_add(1, std::memory_order_relaxed);
  event_.end_s = trace_->Now();
  trace_->Add(event_);
}

Status WriteTraceFile(const std::string& path, const std::vector<std::string>& events) {
  std::string text = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
  for (size_t i = 0; i < events.size(); ++i) {
    if (i > 0 && !events[i].empty()) text += ",\n";
    text += events[i];
  }
  return WriteFileAtomic(path, text + "\n]}\n");
}

}  // namespace cria::debug
