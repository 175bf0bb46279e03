// all_to_all_v: its plan comes from each rank's own counts.
#include "comm/algorithms/pairwise.h"

#include <gtest/gtest.h>

#include <vector>

#include "comm/plan/interpreter.h"

namespace cria::comm {
namespace {

// Rank s sends Count(s, t) elements to rank t.
int64_t Count(int s, int t) { return (3 * s + 5 * t) % 4; }

struct Job {
  std::vector<Plan> plans;
  InterpreterJob job;
};

// Parts of input and output lie `gap` apart.
Job MakeJob(const std::vector<int>& hosts, int64_t gap, bool tcp_only) {
  const int n = static_cast<int>(hosts.size());
  // starts[s][t]: where the part for t starts in s's input; places[t][s]: in t's output.
  std::vector<std::vector<int64_t>> starts(hosts.size()), places(hosts.size());
  Job result;
  result.job.host_of_rank = hosts;
  for (int r = 0; r < n; ++r) {
    int64_t in = 0, out = 0;
    for (int other = 0; other < n; ++other) {
      starts[static_cast<size_t>(r)].push_back(in);
      places[static_cast<size_t>(r)].push_back(out);
      in += Count(r, other) + gap;
      out += Count(other, r) + gap;
    }
    result.job.buffers.push_back({.input_elements = in, .output_elements = out});
  }
  for (int r = 0; r < n; ++r) {
    std::vector<int64_t> send, recv, sources;
    for (int other = 0; other < n; ++other) {
      send.push_back(Count(r, other));
      recv.push_back(Count(other, r));
      sources.push_back(starts[static_cast<size_t>(other)][static_cast<size_t>(r)]);
    }
    AllToAllVRequest request{.rank = r,
                             .send_counts = send,
                             .recv_counts = recv,
                             .source_displacements = sources,
                             .host_of_rank = hosts,
                             .tcp_only = tcp_only};
    if (gap > 0) {
      request.send_displacements = starts[static_cast<size_t>(r)];
      request.recv_displacements = places[static_cast<size_t>(r)];
    }
    result.plans.push_back(BuildAllToAllV(request));
  }
  result.job.expected = [starts, places](int rank, int64_t i) -> InterpreterJob::Expected {
    const auto r = static_cast<size_t>(rank);
    for (size_t s = 0; s < starts.size(); ++s) {
      const int64_t within = i - places[r][s];
      if (within < 0 || within >= Count(static_cast<int>(s), rank)) continue;
      return {.element = starts[s][r] + within, .source = static_cast<int>(s)};
    }
    return {.written = false};
  };
  return result;
}

TEST(AllToAllVTest, MovesEachElementOnce) {
  const std::vector<std::vector<int>> layouts = {
      {0}, {0, 0, 0}, {0, 1, 2, 3}, {0, 1, 0, 1, 0}, {0, 0, 1, 1, 1, 2}};
  for (const std::vector<int>& hosts : layouts) {
    for (const int64_t gap : {0, 2}) {
      for (const bool tcp_only : {false, true}) {
        const Job job = MakeJob(hosts, gap, tcp_only);
        const Status status = RunPlans(job.plans, job.job);
        EXPECT_TRUE(status.ok()) << hosts.size() << " ranks, gap " << gap << ": "
                                 << Message(status);
      }
    }
  }
}

TEST(AllToAllVTest, UsesMemoryInsideHostsAndTcpBetweenThem) {
  const auto links = [](const std::vector<int>& hosts, bool tcp_only) {
    std::vector<LinkKind> kinds;
    const Job job = MakeJob(hosts, 0, tcp_only);
    for (const Round& round : job.plans[0].rounds) kinds.push_back(round.link);
    return kinds;
  };
  using Links = std::vector<LinkKind>;
  EXPECT_EQ(links({0, 0}, false), Links{LinkKind::kShm});
  EXPECT_EQ(links({0, 1}, false), Links{LinkKind::kTcp});
  EXPECT_EQ(links({0, 0, 1}, false), (Links{LinkKind::kShm, LinkKind::kTcp}));
  EXPECT_EQ(links({0, 0, 1}, true), Links{LinkKind::kTcp});
}

}  // namespace
}  // namespace cria::comm
