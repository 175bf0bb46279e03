#include "comm/rendezvous/rendezvous_client.h"

#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "comm/rendezvous/wire.h"

namespace cria::comm {
namespace {

// A try to connect that got no answer is repeated: a full backlog drops it without a word.
constexpr double kFirstTrySeconds = 0.5;
constexpr double kTrySecondsMax = 4;
// An answer is waited for so many times longer than for a stranger's, twice.
constexpr double kSilentFactor = 3;
constexpr double kBackoffFirstSeconds = 0.005;
constexpr double kBackoffSecondsMax = 1;
// Records that came early do not wait longer than this for the rest of their subtree.
constexpr double kRecordsDelaySeconds = 0.1;
// What an outcome may take to reach the children's kernels.
constexpr double kPassOnSeconds = 5;
// Beyond the tree's children, so many may knock at once.
constexpr size_t kStrangersMax = 64;
constexpr int kListenBacklogMin = 128;
// An encoded map has at most so many bytes a rank, and the same again for a small world.
constexpr uint64_t kMapBytesPerRankMax = 1024;
// Several times what a map has, as a rule: the kernel counts its own overhead, too.
constexpr int64_t kMapRoomBytesPerRank = 48;
constexpr int64_t kKernelRoomBytes = int64_t{128} << 10;
constexpr int64_t kMapRoomBytesMax = int64_t{4} << 20;
constexpr int64_t kUpTag = 0;

// Room for the whole map, so that it comes in one piece, also to a rank that is busy: a parent that
// waits for room sends some of it twice. 0: the kernel's own choice is larger.
int MapRoomBytes(int world_size) {
  const int64_t bytes = int64_t{world_size} * kMapRoomBytesPerRank;
  return bytes <= kKernelRoomBytes ? 0 : static_cast<int>(std::min(bytes, kMapRoomBytesMax));
}

uint32_t MapBytesMax(int world_size) {
  return static_cast<uint32_t>(static_cast<uint64_t>(world_size + 1) * kMapBytesPerRankMax);
}

}  // namespace

RendezvousClient::RendezvousClient(EventLoop* loop, RendezvousClientConfig config)
    : loop_(loop),
      config_(std::move(config)),
      instance_(BackoffSeed()),
      backoff_(instance_, kBackoffFirstSeconds, kBackoffSecondsMax),
      try_s_(kFirstTrySeconds) {}

RendezvousClient::~RendezvousClient() {
  CloseListener();
  for (const EventLoop::TimerId& timer :
       {deadline_timer_, retry_timer_, try_timer_, records_timer_}) {
    loop_->CancelTimer(timer);
  }
}

void RendezvousClient::Start() {
  start_s_ = loop_->now_s();
  deadline_s_ = start_s_ + config_.timeout_s;
  deadline_timer_ = loop_->StartTimer(deadline_s_, [this] { OnDeadline(); });
  Begin();
}

Status RendezvousClient::OpenListener() {
  if (listener_.valid()) return OkStatus();
  // The address that the others use for this rank anyway; else any, and the master says which.
  const std::string& host = config_.record.address;
  const bool ipv6 = config_.master.family() == AF_INET6;
  CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(!host.empty() ? host
                                                                  : ipv6        ? "::"
                                                                                : "0.0.0.0",
                                                                  0));
  CRIA_ASSIGN_OR_RETURN(listener_, Listen(address, kListenBacklogMin));
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(listener_.get()));
  listener_port_ = bound.port();
  return OkStatus();
}

void RendezvousClient::CloseListener() {
  loop_->Unwatch(listener_watch_, listener_.get());
  listener_watch_ = {};
  listener_.Reset();
}

void RendezvousClient::Begin() {
  if (const Status status = OpenListener(); !status.ok()) return Fail(status);
  state_ = State::kRegistering;
  up_is_master_ = true;
  BeginTry(config_.master, {HelloFrame()});
}

SharedFrame RendezvousClient::HelloFrame() const {
  const double left_s = std::max(0.0, deadline_s_ - loop_->now_s());
  const Hello hello = {.world_size = config_.environment.world_size,
                       .rank = config_.environment.rank,
                       .instance = instance_,
                       .job = config_.environment.job,
                       .address = config_.record.address,
                       .port = listener_port_,
                       .pid = getpid(),
                       .time_left_ms = static_cast<int64_t>(left_s * 1000)};
  return MakeFrame(FrameKind::kHello, Encode(hello));
}

SharedFrame RendezvousClient::JoinFrame() const {
  return MakeFrame(FrameKind::kJoin, Encode(Join{.session = place_.session,
                                                 .position = place_.position,
                                                 .rank = config_.environment.rank}));
}

void RendezvousClient::BeginTry(const SocketAddress& address, std::vector<SharedFrame> first) {
  up_ = std::make_unique<FrameSocket>(loop_, this, kSmallPayloadBytesMax, &counters_);
  up_->SetTag(kUpTag);
  if (const Status status =
          up_->Connect(address, std::move(first), MapRoomBytes(config_.environment.world_size));
      !status.ok()) {
    // Without a port or a descriptor no try will do better.
    return status.code() == StatusCode::kUnavailable ? StartOver(status) : Fail(status);
  }
  StartTryTimer(address);
}

void RendezvousClient::StartTryTimer(const SocketAddress& address) {
  loop_->CancelTimer(try_timer_);
  const bool connected = up_->connected();
  // A master that has answered, and a parent, are waited for until the deadline.
  if (connected && (master_seen_ || !up_is_master_)) return;
  const double patience_s = connected ? kSilentFactor * config_.stranger_s : try_s_;
  try_timer_ = loop_->StartTimer(loop_->now_s() + patience_s, [this, address, connected] {
    if (!connected && up_->connected()) return StartTryTimer(address);
    StartOver(connected ? UnavailableError("it took the connection and does not answer")
                        : UnavailableError("connect to ", address.ToString(), ": no answer"));
  });
}

void RendezvousClient::DropConnections() {
  if (up_ != nullptr) {
    up_->Close();
    loop_->DestroyLater(std::move(up_));
  }
  for (auto& [tag, child] : children_) {
    child.socket->Close();
    loop_->DestroyLater(std::move(child.socket));
  }
  children_.clear();
}

void RendezvousClient::StartOver(const Status& why) {
  last_error_ = why;
  const bool was_connected = up_ != nullptr && up_->was_connected();
  DropConnections();
  // Who knocks now waits in the backlog until this rank has a place again.
  loop_->Unwatch(listener_watch_, listener_.get());
  listener_watch_ = {};
  loop_->CancelTimer(try_timer_);
  loop_->CancelTimer(records_timer_);
  try_s_ = std::min(2 * try_s_, kTrySecondsMax);
  if (up_is_master_) {
    const Status status =
        master_seen_ ? CheckForLostMaster(why) : CheckForStranger(why, was_connected);
    if (!status.ok()) return Fail(status);
  }
  state_ = State::kWaiting;
  retry_timer_ = loop_->StartTimer(loop_->now_s() + backoff_.Next(), [this] { Begin(); });
}

Status RendezvousClient::CheckForLostMaster(const Status& why) {
  const double now_s = loop_->now_s();
  if (master_lost_s_ == 0) master_lost_s_ = now_s;
  if (now_s - master_lost_s_ <= config_.master_restart_s) return OkStatus();
  return UnavailableError("rendezvous: rank ", config_.environment.rank, ": the master at ",
                          config_.master.ToString(), " answered before and is gone since ",
                          HumanSeconds(now_s - master_lost_s_), ": ", Message(why));
}

Status RendezvousClient::CheckForStranger(const Status& why, bool was_connected) {
  const double now_s = loop_->now_s();
  if (!was_connected && SocketErrno(why) != ECONNRESET) {
    // Nobody listens there now: who did is gone. No answer at all says nothing.
    if (SocketErrno(why) == ECONNREFUSED) stranger_since_s_ = 0;
    return OkStatus();
  }
  if (stranger_since_s_ == 0) stranger_since_s_ = now_s;
  // A master that is overrun, or just being killed, hangs up once or twice, too.
  if (now_s - stranger_since_s_ < config_.stranger_s) return OkStatus();
  return FailedPreconditionError("rendezvous: rank ", config_.environment.rank,
                                 ": what listens at ", config_.master.ToString(),
                                 " is not Cria's rendezvous (", Message(why),
                                 "): another program has this MASTER_PORT");
}

void RendezvousClient::OnFrame(FrameSocket* socket, const FrameHeader& header,
                               std::string_view payload) {
  if (socket == up_.get()) return OnUpFrame(header, payload);
  const auto child = children_.find(socket->tag());
  if (child != children_.end()) OnChildFrame(&child->second, header, payload);
}

void RendezvousClient::OnUpFrame(const FrameHeader& header, std::string_view payload) {
  if (state_ != State::kRegistering && state_ != State::kGathering) return;
  if (header.kind == FrameKind::kFailure) return Fail(DecodeFailure(payload));
  if (header.kind == FrameKind::kPlace && state_ == State::kRegistering) return OnPlace(payload);
  if (header.kind == FrameKind::kMap && state_ == State::kGathering) return OnMap(header, payload);
  StartOver(DataLossError("got a \"", Name(header.kind), "\" out of turn"));
}

void RendezvousClient::OnPlace(std::string_view payload) {
  const auto place = DecodePlace(payload);
  if (!place.ok()) return StartOver(place.status());
  if (place->position > config_.environment.world_size) {
    return StartOver(
        DataLossError("got position ", place->position, " of ", config_.environment.world_size));
  }
  loop_->CancelTimer(try_timer_);
  master_seen_ = true;
  master_lost_s_ = 0;
  place_ = *place;
  shape_ = {.num_ranks = config_.environment.world_size, .degree = place_.degree};
  depth_ = shape_.Depth(place_.position);
  state_ = State::kGathering;
  if (shape_.FirstChild(place_.position) < shape_.LastChild(place_.position)) {
    const auto watch = loop_->Watch(listener_.get(), EPOLLIN, this);
    if (!watch.ok()) return Fail(watch.status());
    listener_watch_ = *watch;
  } else {
    CloseListener();
  }
  records_.clear();
  WireWriter writer(&records_);
  WriteRecord({.rank = config_.environment.rank, .info = config_.record}, &writer);
  num_records_ = 1;
  num_gathered_ = 1;
  if (shape_.Parent(place_.position) > 0) {
    const auto parent = ParseAddress(place_.parent_address, place_.parent_port);
    if (!parent.ok()) return Fail(Annotate(parent.status(), "rendezvous: the parent's address"));
    up_->Abort();
    loop_->DestroyLater(std::move(up_));
    up_is_master_ = false;
    std::vector<SharedFrame> first = {JoinFrame()};
    // A leaf waits for nobody's records, and says all that it has to say at once.
    if (shape_.SubtreeSize(place_.position) == 1) first.push_back(TakeRecords());
    BeginTry(*parent, std::move(first));
    if (up_ == nullptr || !up_->open()) return;
  }
  up_->SetPayloadBytesMax(MapBytesMax(shape_.num_ranks));
  if (num_records_ > 0) SendRecords(/*first=*/true);
}

void RendezvousClient::AddRecords(int count, std::string_view bytes) {
  const bool first = num_records_ == 0;
  records_.append(bytes);
  num_records_ += count;
  num_gathered_ += count;
  SendRecords(first);
}

void RendezvousClient::SendRecords(bool first) {
  if (num_gathered_ >= shape_.SubtreeSize(place_.position) ||
      records_.size() >= kRecordsBytesTarget) {
    return FlushRecords();
  }
  if (!first) return;
  records_timer_ =
      loop_->StartTimer(loop_->now_s() + kRecordsDelaySeconds, [this] { FlushRecords(); });
}

SharedFrame RendezvousClient::TakeRecords() {
  std::string payload;
  WireWriter writer(&payload);
  writer.Varint(static_cast<uint64_t>(num_records_));
  payload += records_;
  records_.clear();
  num_records_ = 0;
  return MakeFrame(FrameKind::kRecords, payload);
}

void RendezvousClient::FlushRecords() {
  loop_->CancelTimer(records_timer_);
  if (num_records_ > 0 && up_ != nullptr) up_->Send(TakeRecords());
}

void RendezvousClient::OnEvents(uint32_t) {
  // What a child says at once may end the rendezvous.
  while (state_ == State::kGathering) {
    auto fd = TryAccept(listener_.get());
    if (!fd.ok()) return Fail(Annotate(fd.status(), "rendezvous: take a child in"));
    if (!fd->valid()) return;
    if (children_.size() >= static_cast<size_t>(shape_.degree) + kStrangersMax) continue;
    const int64_t tag = ++last_tag_;
    Child& child = children_[tag];
    child.socket = std::make_unique<FrameSocket>(loop_, this, kSmallPayloadBytesMax, &counters_);
    child.socket->SetTag(tag);
    if (const Status status = child.socket->Adopt(*std::move(fd)); !status.ok()) {
      children_.erase(tag);
      return Fail(status);
    }
  }
}

void RendezvousClient::OnChildFrame(Child* child, const FrameHeader& header,
                                    std::string_view payload) {
  if (state_ != State::kGathering) return;
  if (child->rank < 0 && header.kind == FrameKind::kJoin) return OnJoin(child, payload);
  if (child->rank >= 0 && header.kind == FrameKind::kRecords) return OnChildRecords(child, payload);
  if (child->rank >= 0 && header.kind == FrameKind::kFailure) return Fail(DecodeFailure(payload));
  OnClosed(child->socket.get(), DataLossError("got a \"", Name(header.kind), "\" out of turn"));
}

void RendezvousClient::OnJoin(Child* child, std::string_view payload) {
  const auto join = DecodeJoin(payload);
  const bool ours = join.ok() && join->session == place_.session &&
                    join->position >= shape_.FirstChild(place_.position) &&
                    join->position < shape_.LastChild(place_.position) &&
                    std::none_of(children_.begin(), children_.end(), [&join](const auto& other) {
                      return other.second.position == join->position;
                    });
  if (!ours) return OnClosed(child->socket.get(), DataLossError("not a child of this rank"));
  child->rank = join->rank;
  child->position = join->position;
  child->socket->SetPayloadBytesMax(kRecordsPayloadBytesMax);
}

int RendezvousClient::NumJoined() const {
  return static_cast<int>(std::count_if(children_.begin(), children_.end(),
                                        [](const auto& child) { return child.second.rank >= 0; }));
}

void RendezvousClient::OnChildRecords(Child* child, std::string_view payload) {
  WireReader reader(payload);
  const auto count = static_cast<int>(
      reader.VarintUpTo(static_cast<uint64_t>(shape_.SubtreeSize(child->position))));
  if (count == 0) {
    return OnClosed(child->socket.get(), DataLossError("got \"records\" without a record"));
  }
  // What is in them the master checks; it is passed on as it is.
  AddRecords(count, reader.rest());
}

void RendezvousClient::OnMap(const FrameHeader& header, std::string_view payload) {
  map_frame_ = config_.pool != nullptr ? config_.pool->Share(header, payload)
                                       : MakeFrame(FrameKind::kMap, payload);
  state_ = State::kPassingOn;
  CloseListener();
  for (auto& [tag, child] : children_) {
    if (child.rank >= 0) child.socket->Send(map_frame_);
  }
  FinishWhenFlushed();
}

void RendezvousClient::OnClosed(FrameSocket* socket, const Status& why) {
  if (socket == up_.get()) {
    if (state_ == State::kPassingOn) return FinishWhenFlushed();
    return StartOver(why);
  }
  const auto found = children_.find(socket->tag());
  if (found == children_.end()) return;
  const int rank = found->second.rank;
  found->second.socket->Close();
  loop_->DestroyLater(std::move(found->second.socket));
  children_.erase(found);
  if (state_ == State::kPassingOn) return FinishWhenFlushed();
  if (rank < 0 || state_ != State::kGathering) return;
  Fail(UnavailableError("rendezvous: rank ", rank, " was lost, by its parent, rank ",
                        config_.environment.rank, ": ", Message(why)));
}

void RendezvousClient::OnFlushed(FrameSocket*) {
  if (state_ == State::kPassingOn) FinishWhenFlushed();
}

std::string RendezvousClient::WhatItWaitsFor() const {
  switch (state_) {
    case State::kRegistering:
      if (up_ != nullptr && up_->connected()) {
        return StrCat("the master at ", config_.master.ToString(),
                      " took the connection, but does not answer");
      }
      [[fallthrough]];
    case State::kWaiting:
      return StrCat(up_is_master_ ? "cannot reach the master at " + config_.master.ToString()
                                  : StrCat("lost rank ", place_.parent_rank, ", its parent"),
                    last_error_.ok() ? "" : ": " + Message(last_error_));
    default:
      break;
  }
  const int subtree = shape_.SubtreeSize(place_.position);
  if (num_gathered_ < subtree) {
    return StrCat("has the records of ", num_gathered_, " of the ", subtree,
                  " ranks of its branch; ", NumJoined(), " of its ",
                  shape_.LastChild(place_.position) - shape_.FirstChild(place_.position),
                  " children have come");
  }
  return StrCat("waits for the map from ",
                up_is_master_ ? "the master" : StrCat("rank ", place_.parent_rank));
}

void RendezvousClient::OnDeadline() {
  Fail(DeadlineExceededError("rendezvous: rank ", config_.environment.rank, " of ",
                             config_.environment.world_size, " gives up after ",
                             HumanSeconds(loop_->now_s() - start_s_), ": ", WhatItWaitsFor()));
}

void RendezvousClient::Fail(const Status& why) {
  if (state_ == State::kDone) return;
  if (state_ == State::kPassingOn) return Finish();  // the time to tell the others is over
  status_ = why;
  state_ = State::kPassingOn;
  CloseListener();
  loop_->CancelTimer(retry_timer_);
  const SharedFrame frame = MakeFrame(FrameKind::kFailure, EncodeFailure(why));
  for (auto& [tag, child] : children_) {
    if (child.rank >= 0) child.socket->Send(frame);
  }
  if (up_ != nullptr) up_->Send(frame);
  FinishWhenFlushed();
}

void RendezvousClient::FinishWhenFlushed() {
  const auto busy = [](const FrameSocket* socket) {
    return socket != nullptr && socket->connected() && !socket->flushed();
  };
  const bool waits = busy(up_.get()) ||
                     std::any_of(children_.begin(), children_.end(), [&busy](const auto& child) {
                       return busy(child.second.socket.get());
                     });
  if (!waits) return Finish();
  if (status_.ok()) return;  // until the deadline, if need be
  loop_->CancelTimer(deadline_timer_);
  deadline_timer_ = loop_->StartTimer(loop_->now_s() + kPassOnSeconds, [this] { Finish(); });
}

void RendezvousClient::Finish() {
  if (state_ == State::kDone) return;
  state_ = State::kDone;
  // After the map the parent has nothing more to say; an error may still be on its way up.
  if (up_ != nullptr && status_.ok()) up_->Abort();
  DropConnections();
  for (const EventLoop::TimerId& timer :
       {deadline_timer_, retry_timer_, try_timer_, records_timer_}) {
    loop_->CancelTimer(timer);
  }
  if (config_.on_done) config_.on_done();
}

}  // namespace cria::comm
