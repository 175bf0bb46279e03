// A rank's trace: what each of its streams did when, as Chrome's trace events, which
// ui.perfetto.dev and chrome://tracing open.
//
//   Trace trace(RealClock());
//   trace.NameRank(3, "rank 3 (tp1 cp0 pp1 dp0)");
//   const int stream = trace.AddStream("dp", /*order=*/4);
//   trace.SetRecording(true);
//   { TraceSpan span(&trace, "forward", {{"micro_batch", 2}, {"chunk", 0}}); ... }
//   trace.Add({.name = "all_reduce", .stream = stream, .start_s = a, .end_s = b});
//   WriteTraceFile("step.json", {trace.Events(), events_of_rank_1, ...});
//
// One process (pid) a rank, one track (tid) a stream; a rank's stream 0 is the thread that
// computes. Rank R has pid 1000 R + 1 and tids from there on, in the order of its streams: Perfetto
// takes tid 0 for the idle thread of all processes, a tid for one thread of the whole trace, and
// puts the thread whose tid is the pid first and the others by their numbers.
// Events of one stream lie apart or inside one another, as one thread makes them. A ring of fixed
// size: when it is full the oldest events give way, and the trace says how many.
// Times are those of the clock: CLOCK_MONOTONIC is one clock for all ranks of a machine; ranks of
// several hosts are not aligned with one another.
//
// Thread-safe: Add and TraceSpan from any thread, spans of stream 0 from one at a time. Cost of an
// event: two readings of the clock, a lock that nobody else holds for long, 200 bytes stored; of a
// span while nothing is recorded, or with a null trace: one comparison.
// Source: Trace Event Format (Google, 2016): phases X, M, s, f.

#ifndef CRIA_DEBUG_TRACE_H_
#define CRIA_DEBUG_TRACE_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "base/clock.h"
#include "base/mutex.h"
#include "base/status.h"

namespace cria::debug {

// Up to 23 characters by value: longer text is cut.
class ShortText {
 public:
  ShortText() = default;
  ShortText(std::string_view text);                                   // NOLINT: a text is one
  ShortText(const char* text) : ShortText(std::string_view(text)) {}  // NOLINT
  ShortText(const std::string& text) : ShortText(std::string_view(text)) {}  // NOLINT

  std::string_view view() const { return {text_.data(), size_}; }
  bool empty() const { return size_ == 0; }

 private:
  std::array<char, 23> text_ = {};
  uint8_t size_ = 0;
};

// A number beside an event. `key` lives as long as the program: a literal.
struct TraceArgument {
  const char* key = nullptr;
  int64_t value = 0;
};

// The two ends of an arrow from a send to the receive that it ends in.
enum class TraceArrow : uint8_t { kNone, kFrom, kTo };

struct TraceEvent {
  ShortText name = {};
  ShortText detail = {};  // "float32 ring"; empty: none
  int stream = 0;
  double start_s = 0, end_s = 0;  // of the trace's clock
  std::array<TraceArgument, 6> arguments = {};
  TraceArrow arrow = TraceArrow::kNone;
  uint64_t arrow_id = 0;  // the same at both ends
};

class Trace {
 public:
  static constexpr int64_t kDefaultCapacity = 1 << 16;

  // `clock` is borrowed. Memory: 200 bytes an event, taken at the first SetRecording(true).
  explicit Trace(Clock* clock, int64_t capacity = kDefaultCapacity);

  // Which rank of the job this is, and what its process is called.
  void NameRank(int rank, const std::string& name) CRIA_EXCLUDES(mu_);
  // A track below the others with a smaller order, and those of the same that were there before;
  // stream 0, "compute", is there and has order 0. Fewer than 1000.
  int AddStream(std::string_view name, int order) CRIA_EXCLUDES(mu_);

  void SetRecording(bool recording) CRIA_EXCLUDES(mu_);
  bool recording() const { return recording_.load(std::memory_order_relaxed); }
  double Now() const { return clock_->MonotonicSeconds(); }

  // Kept while recording, else dropped.
  void Add(const TraceEvent& event) CRIA_EXCLUDES(mu_);
  // Counts the starts and ends of spans: while it stands, the computing thread is in the same one.
  int64_t num_span_ends() const { return num_span_ends_.load(std::memory_order_relaxed); }

  int64_t num_dropped() const CRIA_EXCLUDES(mu_);
  // What WriteTraceFile takes: metadata and events in JSON with commas between them, times from the
  // clock's start. For the ranks of a job to send to the one that writes.
  std::string Events() const CRIA_EXCLUDES(mu_);

 private:
  struct Stream {
    std::string name;
    int order;
  };

  friend class TraceSpan;

  std::vector<TraceEvent> Sorted() const CRIA_REQUIRES(mu_);
  // The streams from top to bottom.
  std::vector<size_t> Tracks() const CRIA_REQUIRES(mu_);

  // Constant after construction.
  Clock* const clock_;
  const int64_t capacity_;
  // Own synchronisation.
  std::atomic<bool> recording_{false};
  std::atomic<int64_t> num_span_ends_{0};
  mutable Mutex mu_;
  int rank_ CRIA_GUARDED_BY(mu_) = 0;
  std::string process_name_ CRIA_GUARDED_BY(mu_);
  std::vector<Stream> streams_ CRIA_GUARDED_BY(mu_);
  std::vector<TraceEvent> ring_ CRIA_GUARDED_BY(mu_);
  int64_t num_added_ CRIA_GUARDED_BY(mu_) = 0;
};

// An event of the computing thread, from here to the end of the scope.
class TraceSpan {
 public:
  TraceSpan(Trace* trace, const char* name, std::initializer_list<TraceArgument> arguments = {})
      : trace_(trace != nullptr && trace->recording() ? trace : nullptr) {
    if (trace_ != nullptr) Start(name, arguments);
  }
  ~TraceSpan() {
    if (trace_ != nullptr) End();
  }
  TraceSpan(const TraceSpan&) = delete;
  TraceSpan& operator=(const TraceSpan&) = delete;

 private:
  void Start(const char* name, std::initializer_list<TraceArgument> arguments);
  void End();

  Trace* const trace_;
  TraceEvent event_;
};

// One file of the traces of all ranks: `events` as Trace::Events gives them. Atomic.
Status WriteTraceFile(const std::string& path, const std::vector<std::string>& events);

}  // namespace cria::debug

#endif  // CRIA_DEBUG_TRACE_H_
