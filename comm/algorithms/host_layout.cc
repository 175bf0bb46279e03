#include "comm/algorithms/host_layout.h"

#include <algorithm>
#include <cstddef>

namespace cria::comm {

HostLayout::HostLayout(std::span<const int> host_of_rank, std::span<const int> host_order)
    : members_(host_order.size()) {
  std::vector<int> place(host_order.size());
  for (size_t i = 0; i < host_order.size(); ++i) {
    place[static_cast<size_t>(host_order[i])] = static_cast<int>(i);
  }
  for (size_t rank = 0; rank < host_of_rank.size(); ++rank) {
    const int host = place[static_cast<size_t>(host_of_rank[rank])];
    auto& members = members_[static_cast<size_t>(host)];
    host_of_rank_.push_back(host);
    index_of_rank_.push_back(static_cast<int>(members.size()));
    members.push_back(static_cast<int>(rank));
  }
  size_t least = host_of_rank.size(), most = 0;
  for (const auto& members : members_) {
    least = std::min(least, members.size());
    most = std::max(most, members.size());
  }
  num_lanes_ = static_cast<int>(least);
  even_ = least == most;
}

}  // namespace cria::comm
