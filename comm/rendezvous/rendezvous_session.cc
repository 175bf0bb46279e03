#include "comm/rendezvous/rendezvous_session.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace cria::comm {
namespace {

constexpr size_t kRanksListedMax = 8;

bool Same(const RankInfo& a, const RankInfo& b) {
  return a.host == b.host && a.address == b.address && a.port == b.port &&
         a.shm_socket == b.shm_socket && a.pid == b.pid;
}

}  // namespace

RendezvousSession::RendezvousSession(uint64_t id, int world_size, int degree)
    : id_(id),
      shape_({.num_ranks = world_size, .degree = degree}),
      seats_(static_cast<size_t>(world_size)),
      rank_at_({-1}),
      map_(static_cast<size_t>(world_size)) {}

std::string RendezvousSession::Describe(int rank) const {
  if (rank < 0 || rank >= shape_.num_ranks) return StrCat("rank ", rank);
  const Seat& seat = seats_[static_cast<size_t>(rank)];
  if (seat.position == 0) return StrCat("rank ", rank);
  return StrCat("rank ", rank, " (", seat.address, ", process ", seat.pid, ")");
}

Place RendezvousSession::PlaceOf(int position) const {
  Place place = {.session = id_, .position = position, .degree = shape_.degree};
  if (const int parent = shape_.Parent(position); parent > 0) {
    place.parent_rank = RankAt(parent);
    const Seat& seat = seats_[static_cast<size_t>(place.parent_rank)];
    place.parent_address = seat.address;
    place.parent_port = seat.port;
  }
  return place;
}

StatusOr<Place> RendezvousSession::Register(const Hello& hello, const std::string& seen_address) {
  const std::string& address = hello.address.empty() ? seen_address : hello.address;
  if (hello.world_size != shape_.num_ranks) {
    return InvalidArgumentError("rendezvous: rank ", hello.rank, " (", address, ", process ",
                                hello.pid, ") was started with world size ", hello.world_size,
                                ", the others with ", shape_.num_ranks);
  }
  if (hello.rank >= shape_.num_ranks) {
    return InvalidArgumentError("rendezvous: (", address, ", process ", hello.pid,
                                ") says that it is rank ", hello.rank, " of ", shape_.num_ranks);
  }
  Seat& seat = seats_[static_cast<size_t>(hello.rank)];
  if (seat.position != 0 && seat.instance != hello.instance) {
    return InvalidArgumentError("rendezvous: two processes say that they are rank ", hello.rank,
                                " of ", shape_.num_ranks, ": process ", seat.pid, " on ",
                                seat.address, " and process ", hello.pid, " on ", address);
  }
  if (seat.position == 0) {
    seat.position = static_cast<int>(rank_at_.size());
    seat.instance = hello.instance;
    seat.pid = hello.pid;
    rank_at_.push_back(hello.rank);
  }
  // The same process that comes again may listen elsewhere by now.
  seat.address = address;
  seat.port = hello.port;
  return PlaceOf(seat.position);
}

Status RendezvousSession::Add(std::string_view records_payload) {
  CRIA_ASSIGN_OR_RETURN(std::vector<RankRecord> records,
                        DecodeRecords(records_payload, shape_.num_ranks));
  for (RankRecord& record : records) {
    CRIA_RETURN_IF_ERROR(CheckRankInfo(record.info));
    if (record.rank >= shape_.num_ranks || seats_[static_cast<size_t>(record.rank)].position == 0) {
      return DataLossError("rendezvous: got a record of rank ", record.rank, " of ",
                           shape_.num_ranks, ", which has not come");
    }
    Seat& seat = seats_[static_cast<size_t>(record.rank)];
    RankInfo& info = map_[static_cast<size_t>(record.rank)];
    if (seat.has_record && !Same(info, record.info)) {
      return DataLossError("rendezvous: two different records of ", Describe(record.rank));
    }
    if (seat.has_record) continue;
    seat.has_record = true;
    info = std::move(record.info);
    ++num_records_;
  }
  return OkStatus();
}

std::string RendezvousSession::EncodedMap() const {
  CRIA_CHECK(complete());
  return EncodeRankMap(map_);
}

std::string RendezvousSession::List(const std::vector<int>& ranks, bool describe) const {
  std::string out;
  for (size_t i = 0; i < std::min(ranks.size(), kRanksListedMax); ++i) {
    out += StrCat(i > 0 ? ", " : "", describe ? Describe(ranks[i]) : StrCat(ranks[i]));
  }
  if (ranks.size() > kRanksListedMax)
    out += StrCat(" and ", ranks.size() - kRanksListedMax, " more");
  return out;
}

Status RendezvousSession::TimeoutError(double waited_s) const {
  std::vector<int> missing;
  std::vector<int> silent;
  for (int rank = 0; rank < shape_.num_ranks; ++rank) {
    const Seat& seat = seats_[static_cast<size_t>(rank)];
    if (seat.position == 0) {
      missing.push_back(rank);
    } else if (!seat.has_record) {
      silent.push_back(rank);
    }
  }
  std::string text;
  if (!missing.empty()) {
    text += StrCat(missing.size(), " of ", shape_.num_ranks,
                   missing.size() == 1 ? " ranks has not come: rank " : " ranks have not come: ",
                   List(missing, /*describe=*/false));
  }
  if (!silent.empty()) {
    text += StrCat(missing.empty() ? "" : "; ", silent.size(),
                   " came and then went silent: ", List(silent, /*describe=*/true));
  }
  return DeadlineExceededError("rendezvous: after ", HumanSeconds(waited_s), " ", text);
}

}  // namespace cria::comm
