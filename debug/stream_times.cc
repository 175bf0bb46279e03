#include "debug/stream_times.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string_view>
#include <utility>

namespace cria::debug {
namespace {

// "float32 ring", without an allocation.
ShortText DetailOf(const OperationEvent& event) {
  std::array<char, 64> text;
  size_t size = 0;
  const auto append = [&](std::string_view part) {
    const size_t length = std::min(part.size(), text.size() - size);
    std::memcpy(text.data() + size, part.data(), length);
    size += length;
  };
  append(event.dtype);
  if (!event.dtype.empty() && !event.algorithm.empty()) append(" ");
  append(event.algorithm);
  return std::string_view(text.data(), size);
}

// Both ends of a transfer come to the same number, where a group's transfers all go one way: each
// side counts its own.
uint64_t ArrowId(const OperationEvent& event, bool send) {
  const auto from = static_cast<uint64_t>(send ? event.rank : event.peer);
  const auto to = static_cast<uint64_t>(send ? event.peer : event.rank);
  uint64_t id = event.group_id ^ (from * 0x9e3779b97f4a7c15u) ^ (to * 0xc2b2ae3d27d4eb4fu);
  id = (id ^ event.sequence) * 0xff51afd7ed558ccdu;
  return id ^ (id >> 32);
}

TraceEvent EventOf(const OperationEvent& event, int track, double start_s, double end_s) {
  TraceEvent out = {.name = event.operation,
                    .detail = DetailOf(event),
                    .stream = track,
                    .start_s = start_s,
                    .end_s = end_s};
  out.arguments = {{{"sequence", static_cast<int64_t>(event.sequence)},
                    {"input_bytes", event.input_bytes},
                    {"output_bytes", event.output_bytes},
                    {"ranks", event.group_size}}};
  if (event.peer >= 0) out.arguments[4] = {"peer", event.peer};
  const bool send = event.operation == "send";
  if (send || event.operation == "recv") {
    out.arrow = send ? TraceArrow::kFrom : TraceArrow::kTo;
    out.arrow_id = ArrowId(event, send);
  }
  return out;
}

}  // namespace

StreamTimes::StreamTimes(Clock* clock, Options options)
    : clock_(clock), options_(std::move(options)) {}

void StreamTimes::BeginStep() {
  const double now_s = clock_->MonotonicSeconds();
  MutexLock lock(&mu_);
  computing_ = std::this_thread::get_id();
  step_start_s_ = last_s_ = now_s;
  exposed_s_ = overlapped_s_ = 0;
  for (Stream& stream : streams_) {
    stream.time.num_operations = stream.time.bytes = 0;
    stream.time.running_s = stream.time.exposed_s = stream.time.overlapped_s = 0;
  }
}

const StepTimes& StreamTimes::EndStep() {
  const double now_s = clock_->MonotonicSeconds();
  MutexLock lock(&mu_);
  Advance(now_s);
  FlushWait();
  result_.step_s = now_s - step_start_s_;
  result_.exposed_s = exposed_s_;
  result_.overlapped_s = overlapped_s_;
  result_.streams.resize(streams_.size());
  for (size_t i = 0; i < streams_.size(); ++i) result_.streams[i] = streams_[i].time;
  return result_;
}

void StreamTimes::OnEnqueue(const OperationEvent& event) {
  MutexLock lock(&mu_);
  StreamOf(event);
}

void StreamTimes::OnStart(const OperationEvent& event) {
  const double now_s = clock_->MonotonicSeconds();
  MutexLock lock(&mu_);
  Advance(now_s);
  Stream& stream = StreamOf(event);
  if (!stream.running) ++num_running_;
  stream.running = true;
  stream.start_s = now_s;
  if (OnComputingThread()) Block(event.group_id, now_s);
}

void StreamTimes::OnEnd(const OperationEvent& event, const Status& status) {
  (void)status;
  const double now_s = clock_->MonotonicSeconds();
  MutexLock lock(&mu_);
  Advance(now_s);
  Stream& stream = StreamOf(event);
  if (stream.running) --num_running_;
  stream.running = false;
  ++stream.time.num_operations;
  stream.time.bytes += std::max(event.input_bytes, event.output_bytes);
  if (options_.trace != nullptr && options_.trace->recording()) {
    options_.trace->Add(EventOf(event, stream.track, stream.start_s, now_s));
  }
  if (OnComputingThread()) Unblock(now_s);
}

void StreamTimes::OnWaitStart(uint64_t group_id) {
  const double now_s = clock_->MonotonicSeconds();
  MutexLock lock(&mu_);
  if (!OnComputingThread()) return;
  Advance(now_s);
  Block(group_id, now_s);
}

void StreamTimes::OnWaitEnd(uint64_t group_id) {
  (void)group_id;
  const double now_s = clock_->MonotonicSeconds();
  MutexLock lock(&mu_);
  if (!OnComputingThread()) return;
  Advance(now_s);
  Unblock(now_s);
}

bool StreamTimes::OnComputingThread() const { return std::this_thread::get_id() == computing_; }

size_t StreamTimes::Find(uint64_t group_id) const {
  for (size_t i = 0; i < streams_.size(); ++i) {
    if (streams_[i].group_id == group_id) return i;
  }
  return kNone;
}

StreamTimes::Stream& StreamTimes::StreamOf(const OperationEvent& event) {
  if (const size_t i = Find(event.group_id); i != kNone) return streams_[i];
  const auto known = std::find(options_.order.begin(), options_.order.end(), event.group);
  Stream stream;
  stream.group_id = event.group_id;
  stream.order = 1 + static_cast<int>(known - options_.order.begin());
  stream.time.group = std::string(event.group);
  if (options_.trace != nullptr) {
    stream.track = options_.trace->AddStream(event.group, stream.order);
  }
  const auto place =
      std::upper_bound(streams_.begin(), streams_.end(), stream.order,
                       [](int order, const Stream& other) { return order < other.order; });
  // What follows moves by one.
  for (size_t* index : {&blocked_, &wait_stream_}) {
    if (*index != kNone && *index >= static_cast<size_t>(place - streams_.begin())) ++*index;
  }
  return *streams_.insert(place, std::move(stream));
}

void StreamTimes::Advance(double now_s) {
  // Two threads may read the clock in one order and get the lock in the other.
  const double elapsed_s = std::max(0.0, now_s - last_s_);
  last_s_ = std::max(last_s_, now_s);
  const bool blocked = blocked_ != kNone;
  if (blocked) {
    exposed_s_ += elapsed_s;
    streams_[blocked_].time.exposed_s += elapsed_s;
  }
  if (num_running_ == 0) return;
  if (!blocked) overlapped_s_ += elapsed_s;
  for (Stream& stream : streams_) {
    if (!stream.running) continue;
    stream.time.running_s += elapsed_s;
    if (!blocked) stream.time.overlapped_s += elapsed_s;
  }
}

void StreamTimes::Block(uint64_t group_id, double now_s) {
  blocked_ = Find(group_id);  // there since the operation was enqueued
  blocked_since_s_ = now_s;
}

void StreamTimes::Unblock(double now_s) {
  if (blocked_ == kNone) return;
  const size_t stream = std::exchange(blocked_, kNone);
  Trace* const trace = options_.trace;
  if (trace == nullptr || !trace->recording()) return;
  // Between two slices the thread looks around for a moment.
  constexpr double kSliceGapSeconds = 50e-6;
  const bool goes_on = !wait_.name.empty() && wait_stream_ == stream &&
                       wait_span_ == trace->num_span_ends() &&
                       blocked_since_s_ - wait_.end_s < kSliceGapSeconds;
  if (!goes_on) {
    FlushWait();
    wait_ = {.name = "wait",
             .detail = std::string_view(streams_[stream].time.group),
             .start_s = blocked_since_s_};
    wait_stream_ = stream;
    wait_span_ = trace->num_span_ends();
  }
  wait_.end_s = now_s;
}

void StreamTimes::FlushWait() {
  if (!wait_.name.empty()) options_.trace->Add(wait_);
  wait_.name = {};
}

}  // namespace cria::debug
