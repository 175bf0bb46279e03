#include "comm/rendezvous/rendezvous_server.h"

#include <sys/epoll.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "comm/net/address.h"
#include "comm/net/socket.h"

namespace cria::comm {
namespace {

// So many connections may be about to say hello; the oldest of more is dropped.
constexpr size_t kStrangersMax = 8192;
constexpr int kAcceptsAtOnce = 512;
// After a failed accept.
constexpr double kPauseSeconds = 0.05;
constexpr size_t kJobsMax = 64;
// The master gives up a little before the first rank does, so that its verdict, which names the
// missing, arrives before the ranks' own clocks run out.
constexpr double kVerdictShare = 0.1;
constexpr double kVerdictSecondsMax = 1;
// After a failure the master stays for those who were on their way.
constexpr double kLingerSeconds = 1;

StatusOr<Fd> ListenOnAll(int port, int backlog) {
  Status error = OkStatus();
  for (const char* any : {"::", "0.0.0.0"}) {
    CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(any, port));
    auto fd = Listen(address, backlog);
    if (fd.ok()) return fd;
    error = fd.status();
  }
  return error;
}

// "10.0.0.3" for an IPv4 peer of an IPv6 socket, too.
std::string PlainHost(int fd) {
  const auto peer = PeerAddress(fd);
  if (!peer.ok()) return "?";
  const std::string host = peer->host();
  constexpr std::string_view kMapped = "::ffff:";
  if (host.starts_with(kMapped) && host.find('.') != std::string::npos) {
    return host.substr(kMapped.size());
  }
  return host;
}

}  // namespace

StatusOr<std::unique_ptr<RendezvousServer>> RendezvousServer::Create(
    EventLoop* loop, const RendezvousServerOptions& options) {
  if (options.degree < 2 || options.degree > kTreeDegreeMax) {
    return InvalidArgumentError("rendezvous: a tree of degree ", options.degree,
                                "; it must be in [2, ", kTreeDegreeMax, "]");
  }
  std::unique_ptr<RendezvousServer> server(new RendezvousServer(loop, options));
  if (options.address.empty()) {
    CRIA_ASSIGN_OR_RETURN(server->listener_, ListenOnAll(options.port, options.backlog));
  } else {
    CRIA_ASSIGN_OR_RETURN(const SocketAddress address, ParseAddress(options.address, options.port));
    CRIA_ASSIGN_OR_RETURN(server->listener_, Listen(address, options.backlog));
  }
  CRIA_ASSIGN_OR_RETURN(const SocketAddress bound, LocalAddress(server->listener_.get()));
  server->port_ = bound.port();
  CRIA_ASSIGN_OR_RETURN(server->watch_,
                        loop->Watch(server->listener_.get(), EPOLLIN, server.get()));
  return server;
}

RendezvousServer::~RendezvousServer() {
  loop_->Unwatch(watch_, listener_.get());
  loop_->CancelTimer(stranger_timer_);
  loop_->CancelTimer(pause_timer_);
  for (const auto& [name, job] : jobs_) loop_->CancelTimer(job->timer);
}

bool RendezvousServer::done() const {
  return finished_ && std::none_of(peers_.begin(), peers_.end(),
                                   [](const auto& entry) { return entry.second.leaving; });
}

RendezvousServer::Peer* RendezvousServer::Find(const FrameSocket* socket) {
  const auto found = peers_.find(socket->tag());
  return found == peers_.end() ? nullptr : &found->second;
}

void RendezvousServer::OnEvents(uint32_t) { TakeConnections(); }

void RendezvousServer::TakeConnections() {
  for (int i = 0; i < kAcceptsAtOnce; ++i) {
    auto fd = TryAccept(listener_.get());
    if (!fd.ok()) {
      // Out of descriptors: those in use come back in time, strangers' at once.
      LogWarning("rendezvous: ", Message(fd.status()));
      if (!strangers_.empty()) Remove(*strangers_.begin());
      loop_->Change(watch_, listener_.get(), 0);
      pause_timer_ = loop_->StartTimer(loop_->now_s() + kPauseSeconds,
                                       [this] { loop_->Change(watch_, listener_.get(), EPOLLIN); });
      return;
    }
    if (!fd->valid()) break;
    const int64_t tag = ++last_tag_;
    Peer& peer = peers_[tag];
    peer.accepted_s = loop_->now_s();
    peer.socket = std::make_unique<FrameSocket>(loop_, this, kSmallPayloadBytesMax, &counters_);
    peer.socket->SetTag(tag);
    strangers_.insert(tag);
    if (!peer.socket->Adopt(*std::move(fd)).ok()) Remove(tag);
    if (strangers_.size() > kStrangersMax) Remove(*strangers_.begin());
  }
  DropStrangers();
}

void RendezvousServer::DropStrangers() {
  loop_->CancelTimer(stranger_timer_);
  while (!strangers_.empty()) {
    const double end_s = peers_.at(*strangers_.begin()).accepted_s + options_.hello_timeout_s;
    if (end_s > loop_->now_s()) {
      stranger_timer_ = loop_->StartTimer(end_s, [this] { DropStrangers(); });
      return;
    }
    Remove(*strangers_.begin());
  }
}

void RendezvousServer::Remove(int64_t tag) {
  const auto found = peers_.find(tag);
  if (found == peers_.end()) return;
  strangers_.erase(tag);
  if (found->second.job != nullptr) found->second.job->children.erase(tag);
  found->second.socket->Close();
  loop_->DestroyLater(std::move(found->second.socket));
  peers_.erase(found);
}

void RendezvousServer::SendAndLeave(Peer* peer, SharedFrame frame) {
  peer->leaving = true;
  peer->socket->Send(std::move(frame));
  // What the kernel took is delivered after the close.
  if (peer->socket->flushed()) Remove(peer->socket->tag());
}

void RendezvousServer::OnFlushed(FrameSocket* socket) {
  const Peer* peer = Find(socket);
  if (peer != nullptr && peer->leaving) Remove(socket->tag());
}

void RendezvousServer::OnFrame(FrameSocket* socket, const FrameHeader& header,
                               std::string_view payload) {
  Peer* peer = Find(socket);
  if (peer == nullptr || peer->leaving) return;
  if (header.kind == FrameKind::kHello && peer->job == nullptr) return OnHello(peer, payload);
  if (header.kind == FrameKind::kRecords && peer->job != nullptr) return OnRecords(peer, payload);
  if (header.kind == FrameKind::kFailure && peer->job != nullptr) {
    return FailJob(peer->job, DecodeFailure(payload));
  }
  Remove(socket->tag());
}

StatusOr<RendezvousServer::Job*> RendezvousServer::FindJob(const Hello& hello,
                                                           const std::string& from) {
  if (hello.version != kProtocolVersion) {
    return FailedPreconditionError("rendezvous: a process on ", from, " speaks version ",
                                   hello.version, " of the protocol, the master speaks version ",
                                   kProtocolVersion);
  }
  if (options_.one_job && hello.job != options_.job) {
    const Status error = FailedPreconditionError("rendezvous: rank ", hello.rank, " (", from,
                                                 ", process ", hello.pid, ") is of job \"",
                                                 hello.job, "\", but the master serves job \"",
                                                 options_.job, "\": two jobs use one MASTER_PORT");
    if (!jobs_.empty()) jobs_.begin()->second->turned_away = Message(error);
    return error;
  }
  std::unique_ptr<Job>& job = jobs_[hello.job];
  if (job != nullptr) return job.get();
  if (jobs_.size() > kJobsMax) {
    jobs_.erase(hello.job);
    return ResourceExhaustedError("rendezvous: the master serves ", kJobsMax, " jobs already");
  }
  job = std::make_unique<Job>();
  const int world_size = options_.world_size > 0 ? options_.world_size : hello.world_size;
  job->session = std::make_unique<RendezvousSession>(BackoffSeed(), world_size, options_.degree);
  job->start_s = loop_->now_s();
  job->deadline_s = std::numeric_limits<double>::infinity();
  ShortenDeadline(job.get(), job->start_s + options_.timeout_s);
  return job.get();
}

void RendezvousServer::ShortenDeadline(Job* job, double deadline_s) {
  const double left_s = std::max(0.0, deadline_s - loop_->now_s());
  const double verdict_s = deadline_s - std::min(kVerdictSecondsMax, kVerdictShare * left_s);
  if (verdict_s >= job->deadline_s) return;
  job->deadline_s = verdict_s;
  loop_->CancelTimer(job->timer);
  job->timer = loop_->StartTimer(verdict_s, [this, job] {
    Status error = job->session->TimeoutError(loop_->now_s() - job->start_s);
    if (!job->turned_away.empty()) {
      error = DeadlineExceededError(Message(error), "; turned away: ", job->turned_away);
    }
    FailJob(job, error);
  });
}

void RendezvousServer::OnHello(Peer* peer, std::string_view payload) {
  const int64_t tag = peer->socket->tag();
  const auto hello = DecodeHello(payload);
  if (!hello.ok()) return Remove(tag);
  strangers_.erase(tag);
  const std::string from = hello->address.empty() ? PlainHost(peer->socket->fd()) : hello->address;
  const auto job_or = FindJob(*hello, from);
  if (!job_or.ok()) {
    return SendAndLeave(peer, MakeFrame(FrameKind::kFailure, EncodeFailure(job_or.status())));
  }
  Job* const job = *job_or;
  if (job->over) {
    const Status& outcome =
        !job->failure.ok() ? job->failure
                           : FailedPreconditionError("rendezvous: rank ", hello->rank,
                                                     " came when all ranks had their map already");
    return SendAndLeave(peer, MakeFrame(FrameKind::kFailure, EncodeFailure(outcome)));
  }
  const auto place = job->session->Register(*hello, from);
  if (!place.ok()) {
    SendAndLeave(peer, MakeFrame(FrameKind::kFailure, EncodeFailure(place.status())));
    return FailJob(job, place.status());
  }
  ShortenDeadline(job, loop_->now_s() + 1e-3 * static_cast<double>(hello->time_left_ms));
  const SharedFrame frame = MakeFrame(FrameKind::kPlace, Encode(*place));
  if (place->position > options_.degree) return SendAndLeave(peer, frame);
  peer->job = job;
  peer->rank = hello->rank;
  peer->socket->SetPayloadBytesMax(kRecordsPayloadBytesMax);
  job->children.insert(tag);
  peer->socket->Send(frame);
}

void RendezvousServer::OnRecords(Peer* peer, std::string_view payload) {
  Job* const job = peer->job;
  if (job->over) return;
  if (const Status status = job->session->Add(payload); !status.ok()) {
    return FailJob(job, Annotate(status, StrCat("from ", job->session->Describe(peer->rank))));
  }
  if (!job->session->complete()) return;
  EndJob(job, MakeFrame(FrameKind::kMap, job->session->EncodedMap()));
  ForgetJob(job);
}

void RendezvousServer::FailJob(Job* job, const Status& why) {
  if (job->over) return;
  CRIA_CHECK(!why.ok());
  job->failure = why;
  EndJob(job, MakeFrame(FrameKind::kFailure, EncodeFailure(why)));
  job->timer = loop_->StartTimer(loop_->now_s() + kLingerSeconds, [this, job] { ForgetJob(job); });
}

void RendezvousServer::EndJob(Job* job, const SharedFrame& last_words) {
  job->over = true;
  loop_->CancelTimer(job->timer);
  const std::set<int64_t> children = std::exchange(job->children, {});
  for (const int64_t tag : children) {
    Peer& peer = peers_.at(tag);
    peer.job = nullptr;
    SendAndLeave(&peer, last_words);
  }
}

void RendezvousServer::ForgetJob(Job* job) {
  std::erase_if(jobs_, [job](const auto& entry) { return entry.second.get() == job; });
  if (options_.one_job) finished_ = true;
}

void RendezvousServer::OnClosed(FrameSocket* socket, const Status& why) {
  const Peer* peer = Find(socket);
  if (peer == nullptr) return;
  Job* const job = peer->job;
  const int rank = peer->rank;
  Remove(socket->tag());
  if (job == nullptr) return;
  FailJob(job, UnavailableError("rendezvous: ", job->session->Describe(rank),
                                " was lost: ", Message(why)));
}

}  // namespace cria::comm
