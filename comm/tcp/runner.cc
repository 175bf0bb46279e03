#include "comm/tcp/runner.h"

#include <poll.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/clock.h"

namespace cria::comm::tcp {
namespace {

// Staging of one combination, all its inputs together: leaves room in the second-level cache for
// what it is combined with.
constexpr int64_t kStageBytes = 128 << 10;
constexpr int64_t kPieceBytesMin = 16 << 10;
constexpr int64_t kPieceBytesMax = 256 << 10;
// A write takes at most this much, then it is the other direction's turn.
constexpr int64_t kSendBytes = 256 << 10;
// Less than this is not sent as long as more is coming.
constexpr int64_t kSendBytesMin = 16 << 10;
constexpr int64_t kAlignment = 64;

int64_t RoundUp(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

Status Runner::Run(const OperationContext& context, std::span<const Round> rounds) {
  context_ = &context;
  Start(rounds);
  Waiter waiter(state_, domain_, context.deadline_s, context.timeout_s);
  int round = 0;
  while (!Finished()) {
    CRIA_RETURN_IF_ERROR(waiter.Check());
    bool moved = false;
    CRIA_RETURN_IF_ERROR(Pass(&moved));
    if (moved) {
      waiter.Progressed();
      if (context.on_step == nullptr) continue;
      context.Step("message");
      for (; round < program_.round(); ++round) context.Step("round");
    } else if (!waiter.Spin()) {
      CRIA_RETURN_IF_ERROR(Sleep(&waiter));
    }
  }
  return OkStatus();
}

void Runner::Start(std::span<const Round> rounds) {
  const Plan& plan = *context_->plan;
  program_.Build(*context_, state_->info().rank, rounds);
  kernel_ = {.dtype = plan.dtype, .op = plan.reduce_op, .group_size = plan.size};
  channels_.clear();
  for (Peer& peer : program_.peers()) {
    channels_.push_back({.peer = &peer, .link = links_->Get(peer.rank, Purpose::kCollective)});
  }
  for (Block& block : blocks_) block.used = false;
  combines_.assign(static_cast<size_t>(program_.num_combines()), {});
  filled_.clear();
  waiting_.clear();
  for (size_t i = 0; i < program_.steps().size(); ++i) {
    const Step& step = program_.steps()[i];
    if (step.kind != StepKind::kCombine) continue;
    waiting_.push_back(static_cast<int>(i));
    filled_.resize(static_cast<size_t>(step.first_source + step.num_sources), 0);
  }
}

bool Runner::Finished() {
  for (const Channel& channel : channels_) {
    if (channel.out.next < channel.peer->out.size()) return false;
    if (channel.in.next < channel.peer->in.size()) return false;
  }
  return program_.Done();
}

Status Runner::Pass(bool* moved) {
  bool opening = false;
  for (Channel& channel : channels_) opening |= !channel.link->ready();
  if (opening) {
    CRIA_RETURN_IF_ERROR(links_->TakeAccepted());
    const double now_s = RealClock()->MonotonicSeconds();
    for (Channel& channel : channels_) {
      const Status status = channel.link->Advance(now_s);
      if (!status.ok()) return LinkError(state_, channel.peer->rank, status);
    }
  }
  for (Channel& channel : channels_) {
    if (!channel.link->ready()) continue;
    CRIA_RETURN_IF_ERROR(PumpIn(&channel, moved));
    CRIA_RETURN_IF_ERROR(PumpOut(&channel, moved));
  }
  // Those that wait for memory rather than for a message.
  for (size_t i = 0; i < waiting_.size();) {
    const int step = waiting_[i];
    *moved |= TryCombine(step);
    const Step& one = program_.steps()[static_cast<size_t>(step)];
    if (one.done < one.count) {
      ++i;
    } else {
      waiting_.erase(waiting_.begin() + static_cast<std::ptrdiff_t>(i));
    }
  }
  return OkStatus();
}

Status Runner::Sleep(Waiter* waiter) {
  entries_.clear();
  double retry_s = std::numeric_limits<double>::max();
  int first_step = std::numeric_limits<int>::max();
  int whom = channels_.empty() ? -1 : channels_[0].peer->rank;
  // The one to blame is behind the first message, in the order of the plan, that does not move.
  const auto consider = [&](const Channel& channel, const std::vector<PlanMessage>& messages,
                            const Cursor& cursor) {
    // A confirmation comes when the peer has all it needs, from this rank as well: it counts last.
    constexpr int kLast = std::numeric_limits<int>::max() - 1;
    const int step = messages[cursor.next].step < 0 ? kLast : messages[cursor.next].step;
    if (step >= first_step) return;
    first_step = step;
    whom = channel.peer->rank;
  };
  for (const Channel& channel : channels_) {
    const bool reads = channel.in.next < channel.peer->in.size();
    const bool writes = channel.out.next < channel.peer->out.size();
    const bool opening = !channel.link->ready();
    if (reads && (channel.in.blocked || opening)) consider(channel, channel.peer->in, channel.in);
    if (writes && (channel.out.blocked || opening)) {
      consider(channel, channel.peer->out, channel.out);
    }
    channel.link->AddPoll(reads && channel.in.blocked ? channel.in.stream : -1,
                          writes && channel.out.blocked ? channel.out.stream : -1, &entries_);
    if (opening) retry_s = std::min(retry_s, channel.link->retry_s());
  }
  return waiter->Sleep(whom < 0 ? -1 : state_->WorldOf(whom), &entries_, retry_s);
}

Status Runner::PumpOut(Channel* channel, bool* moved) {
  const std::vector<PlanMessage>& messages = channel->peer->out;
  channel->out.blocked = false;
  int64_t budget = kSendBytes;
  while (channel->out.next < messages.size() && budget > 0) {
    const size_t message = channel->out.next;
    const int64_t before = channel->out.done;
    bool wrote = false;
    const Status status = WritePiece(channel, messages[message], &wrote);
    if (!status.ok()) return LinkError(state_, channel->peer->rank, status);
    if (!wrote) return OkStatus();
    *moved = true;
    budget -= channel->out.next == message ? channel->out.done - before
                                           : messages[message].bytes - before + kAlignment;
  }
  return OkStatus();
}

std::span<std::byte> Runner::Sendable(const PlanMessage& message, int64_t done) {
  Step& step = program_.steps()[static_cast<size_t>(message.step)];
  int64_t until = 0;
  std::byte* data = step.data;
  int64_t from = 0;  // the byte of the message that `data` points to
  if (step.from >= 0) {
    const Step& combine = program_.steps()[static_cast<size_t>(step.from)];
    until = combine.done * step.element_bytes;
    if (data == nullptr && until > done) {
      const Combine& state = CombineOf(combine);
      data = state.results[step.partial ? 1 : 0];
      from = (until - 1) / step.element_bytes / state.piece_count * state.piece_count *
             step.element_bytes;
    }
  } else {
    until = program_.Allowed(message.step) * step.element_bytes;
  }
  const int64_t ready = until - done;
  // Staged results hold back the next piece until they are gone.
  const bool may_wait = step.data != nullptr && until < message.bytes;
  if (ready <= 0 || (may_wait && ready < kSendBytesMin)) return {};
  return {data + (done - from), static_cast<size_t>(ready)};
}

Status Runner::WritePiece(Channel* channel, const PlanMessage& message, bool* moved) {
  Cursor& out = channel->out;
  std::span<std::byte> payload;
  if (message.step >= 0) {
    payload = Sendable(message, out.done);
    if (payload.empty()) return OkStatus();
  } else if (!channel->confirmed) {
    return OkStatus();
  }
  if (out.done == 0 && out.header_done == 0) {
    out.header = {.kind = message.step >= 0 ? MessageKind::kData : MessageKind::kConfirm,
                  .signature = context_->signature,
                  .round = static_cast<uint32_t>(message.round),
                  .index = static_cast<uint32_t>(out.next),
                  .bytes = message.bytes};
  }
  int64_t left = 0;
  out.stream = channel->link->StreamAt(message.bytes, out.done, &left);
  const auto want = std::min({static_cast<int64_t>(payload.size()), left, kSendBytes});
  std::array<iovec, 2> pieces;
  const size_t header_left = sizeof(out.header) - out.header_done;
  pieces[0] = {reinterpret_cast<std::byte*>(&out.header) + out.header_done, header_left};
  pieces[1] = {payload.data(), static_cast<size_t>(want)};
  const std::span<const iovec> all(pieces);
  CRIA_ASSIGN_OR_RETURN(int64_t sent,
                        channel->link->Write(out.stream, header_left > 0 ? all : all.subspan(1)));
  if (sent == 0) {
    out.blocked = true;
    return OkStatus();
  }
  *moved = true;
  const auto of_header = std::min(sent, static_cast<int64_t>(header_left));
  out.header_done += static_cast<size_t>(of_header);
  out.done += sent - of_header;
  if (message.step >= 0) {
    Step& step = program_.steps()[static_cast<size_t>(message.step)];
    step.done = out.done / step.element_bytes;
  }
  if (out.done == message.bytes && out.header_done == sizeof(out.header)) {
    const size_t next = out.next + 1;
    out = {};
    out.next = next;
  }
  return OkStatus();
}

Status Runner::PumpIn(Channel* channel, bool* moved) {
  const std::vector<PlanMessage>& messages = channel->peer->in;
  channel->in.blocked = false;
  int64_t budget = kPieceBytesMax;
  while (channel->in.next < messages.size() && budget > 0) {
    const size_t message = channel->in.next;
    const int64_t before = channel->in.done;
    bool read = false;
    CRIA_RETURN_IF_ERROR(ReadPiece(channel, messages[message], &read));
    if (!read) return OkStatus();
    *moved = true;
    budget -= channel->in.next == message ? channel->in.done - before
                                          : messages[message].bytes - before + kAlignment;
  }
  return OkStatus();
}

Status Runner::ReadPiece(Channel* channel, const PlanMessage& message, bool* moved) {
  Cursor& in = channel->in;
  const size_t header_left = sizeof(in.header) - in.header_done;
  int64_t left = 0;
  in.stream = channel->link->StreamAt(message.bytes, in.done, &left);
  std::span<std::byte> place;
  if (message.step >= 0) place = Receivable(message, in.done);
  const auto want = std::min(static_cast<int64_t>(place.size()), left);
  if (want == 0 && header_left == 0) return OkStatus();
  std::array<iovec, 2> pieces;
  pieces[0] = {reinterpret_cast<std::byte*>(&in.header) + in.header_done, header_left};
  pieces[1] = {place.data(), static_cast<size_t>(want)};
  const std::span<const iovec> all(pieces);
  const StatusOr<int64_t> got = channel->link->Read(
      in.stream, header_left > 0 ? all.first(want > 0 ? 2 : 1) : all.subspan(1));
  if (!got.ok()) return LinkError(state_, channel->peer->rank, got.status());
  if (*got == 0) {
    in.blocked = true;
    return OkStatus();
  }
  *moved = true;
  const auto of_header = std::min(*got, static_cast<int64_t>(header_left));
  in.header_done += static_cast<size_t>(of_header);
  if (header_left > 0 && in.header_done == sizeof(in.header)) {
    CRIA_RETURN_IF_ERROR(CheckHeader(channel, message));
  }
  const int64_t bytes = *got - of_header;
  in.done += bytes;
  if (bytes > 0) Received(message, in.done, bytes);
  if (in.done == message.bytes && in.header_done == sizeof(in.header)) {
    const size_t next = in.next + 1;
    in = {};
    in.next = next;
  }
  return OkStatus();
}

Status Runner::CheckHeader(Channel* channel, const PlanMessage& message) {
  const MessageHeader& header = channel->in.header;
  const int peer = channel->peer->rank;
  const MessageKind kind = message.step >= 0 ? MessageKind::kData : MessageKind::kConfirm;
  CRIA_RETURN_IF_ERROR(Annotate(CheckMessage(header), StrCat("from rank ", peer)));
  if (!cria::comm::Agree(context_->signature, header.signature)) {
    return ToStatus(MismatchError(state_->info(), context_->signature, peer, header.signature));
  }
  if (header.kind != kind || header.round != static_cast<uint32_t>(message.round) ||
      header.index != channel->in.next || header.bytes != message.bytes) {
    return ToStatus(state_->ErrorAbout(
        CommErrorKind::kMismatch, state_->WorldOf(peer),
        StrCat("rank ", peer, " sent message ", header.index, " of round ", header.round, ", ",
               header.bytes, " bytes, where the plan has message ", channel->in.next, " of round ",
               message.round, ", ", message.bytes, " bytes")));
  }
  channel->confirmed = true;
  return OkStatus();
}

std::span<std::byte> Runner::Receivable(const PlanMessage& message, int64_t done) {
  Step& step = program_.steps()[static_cast<size_t>(message.step)];
  if (message.source < 0) {
    const int64_t until = program_.Allowed(message.step) * step.element_bytes;
    return {step.data + done, static_cast<size_t>(std::max<int64_t>(until - done, 0))};
  }
  StartCombine(message.step);
  Combine& combine = CombineOf(step);
  const int64_t element_bytes =
      program_.sources(step)[static_cast<size_t>(message.source)].element_bytes;
  const int64_t piece_bytes = (PieceEnd(step) - combine.begin) * element_bytes;
  const int64_t filled = filled_[static_cast<size_t>(step.first_source + message.source)];
  if (filled == piece_bytes) return {};
  if (step.copies) {
    // Straight to where it stays, else to where it goes out from.
    if (step.num_targets > 0) {
      if (program_.Allowed(message.step) < PieceEnd(step)) return {};
      return {program_.targets(step)[0].data + done, static_cast<size_t>(piece_bytes - filled)};
    }
    if (!ResultsSent(step, combine.begin)) return {};
    return {combine.results[0] + filled, static_cast<size_t>(piece_bytes - filled)};
  }
  return {combine.stage + message.source * combine.stage_bytes + filled,
          static_cast<size_t>(piece_bytes - filled)};
}

void Runner::Received(const PlanMessage& message, int64_t done, int64_t bytes) {
  Step& step = program_.steps()[static_cast<size_t>(message.step)];
  if (message.source < 0) {
    step.done = done / step.element_bytes;
    return;
  }
  Combine& combine = CombineOf(step);
  int64_t& filled = filled_[static_cast<size_t>(step.first_source + message.source)];
  filled += bytes;
  const int64_t element_bytes =
      program_.sources(step)[static_cast<size_t>(message.source)].element_bytes;
  if (filled < (PieceEnd(step) - combine.begin) * element_bytes) return;
  --combine.num_missing;
  TryCombine(message.step);
}

int64_t Runner::PieceEnd(const Step& step) {
  const Combine& combine = CombineOf(step);
  return std::min(step.count, combine.begin + combine.piece_count);
}

bool Runner::ResultsSent(const Step& step, int64_t until) {
  for (int i = 0; i < step.num_results; ++i) {
    const Step& send = program_.steps()[static_cast<size_t>(step.first_result + i)];
    if (send.data == nullptr && send.done < until) return false;
  }
  return true;
}

int Runner::TakeBlock(int64_t bytes) {
  for (size_t i = 0; i < blocks_.size(); ++i) {
    if (blocks_[i].used || blocks_[i].bytes < bytes) continue;
    blocks_[i].used = true;
    return static_cast<int>(i);
  }
  // Room to start at an aligned address.
  blocks_.push_back({std::make_unique<std::byte[]>(static_cast<size_t>(bytes + kAlignment)), bytes,
                     /*used=*/true});
  return static_cast<int>(blocks_.size()) - 1;
}

void Runner::StartCombine(int step_index) {
  Step& step = program_.steps()[static_cast<size_t>(step_index)];
  Combine& combine = CombineOf(step);
  if (combine.started) return;
  combine.started = true;
  bool needs[2] = {false, false};
  for (int i = 0; i < step.num_results; ++i) {
    const Step& send = program_.steps()[static_cast<size_t>(step.first_result + i)];
    if (send.data == nullptr) needs[send.partial ? 1 : 0] = true;
  }
  int64_t element_bytes = ByteSize(AccumulateType(kernel_.dtype));
  int num_remote = 0;
  for (const Source& source : program_.sources(step)) {
    num_remote += source.data == nullptr ? 1 : 0;
    element_bytes = std::max(element_bytes, source.element_bytes);
  }
  combine.num_missing = num_remote;
  const int64_t stages = (step.copies ? 0 : step.num_sources) + needs[0] + needs[1];
  // A small task is one piece: nothing of it may wait for what comes after it.
  const bool small = step.count <= kSmallTaskBytes / ByteSize(kernel_.dtype);
  const int64_t piece_bytes =
      std::clamp(kStageBytes / std::max<int64_t>(num_remote + needs[0] + needs[1], 1),
                 kPieceBytesMin, kPieceBytesMax);
  combine.piece_count = small ? step.count : std::min(step.count, piece_bytes / element_bytes);
  combine.stage_bytes = RoundUp(combine.piece_count * element_bytes);
  if (stages == 0) return;
  combine.block = TakeBlock(stages * combine.stage_bytes);
  const auto address =
      reinterpret_cast<uintptr_t>(blocks_[static_cast<size_t>(combine.block)].data.get());
  auto* start =
      reinterpret_cast<std::byte*>(static_cast<uintptr_t>(RoundUp(static_cast<int64_t>(address))));
  combine.stage = start;
  if (!step.copies) start += step.num_sources * combine.stage_bytes;
  for (const int form : {0, 1}) {
    if (!needs[form]) continue;
    combine.results[form] = start;
    start += combine.stage_bytes;
  }
}

bool Runner::TryCombine(int step_index) {
  Step& step = program_.steps()[static_cast<size_t>(step_index)];
  StartCombine(step_index);
  Combine& combine = CombineOf(step);
  bool moved = false;
  // Without remote sources a piece is always complete.
  while (step.done < step.count && combine.num_missing == 0) {
    const int64_t end = PieceEnd(step);
    if (program_.Allowed(step_index) < end || !ResultsSent(step, combine.begin)) break;
    CombinePiece(&step, &combine);
    step.done = end;
    combine.begin = end;
    for (int i = 0; i < step.num_sources; ++i) {
      if (program_.sources(step)[static_cast<size_t>(i)].data != nullptr) continue;
      filled_[static_cast<size_t>(step.first_source + i)] = 0;
      ++combine.num_missing;
    }
    moved = true;
  }
  return moved;
}

void Runner::CombinePiece(Step* step, Combine* combine) {
  const int64_t count = PieceEnd(*step) - combine->begin;
  const std::span<Source> sources = program_.sources(*step);
  const std::span<Target> targets = program_.targets(*step);
  if (step->copies) {
    const Source& source = sources[0];
    copy_targets_.clear();
    // What came in stands at the first target already.
    for (size_t i = source.data == nullptr ? 1 : 0; i < targets.size(); ++i) {
      copy_targets_.push_back(targets[i].data + combine->begin * source.element_bytes);
    }
    if (copy_targets_.empty()) return;
    const std::byte* from = source.data != nullptr ? source.data : targets[0].data;
    RunCopy(from + combine->begin * source.element_bytes, copy_targets_,
            count * source.element_bytes);
    return;
  }
  reduce_sources_.clear();
  reduce_targets_.clear();
  for (size_t i = 0; i < sources.size(); ++i) {
    const Source& source = sources[i];
    const std::byte* data = source.data != nullptr
                                ? source.data + combine->begin * source.element_bytes
                                : combine->stage + static_cast<int64_t>(i) * combine->stage_bytes;
    reduce_sources_.push_back({data, source.partial});
  }
  for (const Target& target : targets) {
    reduce_targets_.push_back(
        {target.data + combine->begin * target.element_bytes, target.partial});
  }
  for (const int form : {0, 1}) {
    if (combine->results[form] != nullptr) {
      reduce_targets_.push_back({combine->results[form], form == 1});
    }
  }
  RunReduce(kernel_, reduce_sources_, reduce_targets_, count);
}

}  // namespace cria::comm::tcp
