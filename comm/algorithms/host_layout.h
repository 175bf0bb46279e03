// Which ranks share a host, and which of them carry what between hosts.
//
//   host      lane 0   lane 1
//   A: 0 1 2      0        1      rank 2 carries nothing: its lane is 0
//   B: 3 4        3        4
//
// A lane has one rank, its carrier, on each host. There are as many lanes as the smallest host has
// ranks; the k-th rank of a host belongs to lane k modulo their number.
//
// Thread-safe: a value.

#ifndef CRIA_COMM_ALGORITHMS_HOST_LAYOUT_H_
#define CRIA_COMM_ALGORITHMS_HOST_LAYOUT_H_

#include <span>
#include <vector>

namespace cria::comm {

class HostLayout {
 public:
  // The host of each rank, numbered from 0 without gaps; `host_order` lists the hosts so that
  // neighbours in the network are neighbours in the list. O(ranks).
  HostLayout(std::span<const int> host_of_rank, std::span<const int> host_order);

  int num_hosts() const { return static_cast<int>(members_.size()); }
  int num_lanes() const { return num_lanes_; }
  // Every host has num_lanes() ranks.
  bool even() const { return even_; }

  // Hosts are counted in host_order from here on.
  int HostOf(int rank) const { return host_of_rank_[static_cast<size_t>(rank)]; }
  int IndexOf(int rank) const { return index_of_rank_[static_cast<size_t>(rank)]; }
  int LaneOf(int rank) const { return IndexOf(rank) % num_lanes_; }
  const std::vector<int>& Members(int host) const { return members_[static_cast<size_t>(host)]; }
  int Carrier(int host, int lane) const { return Members(host)[static_cast<size_t>(lane)]; }
  // The carrier of this rank's lane on its own host.
  int CarrierOf(int rank) const { return Carrier(HostOf(rank), LaneOf(rank)); }
  bool IsCarrier(int rank) const { return IndexOf(rank) < num_lanes_; }

 private:
  std::vector<int> host_of_rank_;
  std::vector<int> index_of_rank_;
  std::vector<std::vector<int>> members_;
  int num_lanes_ = 0;
  bool even_ = true;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_ALGORITHMS_HOST_LAYOUT_H_
