// `cria train --trace`: the file of one rank and of two is what Perfetto opens, and says what
// happened: the chosen steps and no others, a process a rank, a named track a stream, both ranks on
// one clock.

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/str.h"
#include "tests/integration/train_command.h"
#include "tests/support/process.h"
#include "tests/support/trace_check.h"

namespace cria {
namespace {

struct Span {
  std::string name;
  double start = 0, end = 0;  // microseconds
  Json args;

  bool Contains(const Span& inner) const { return start <= inner.start && inner.end <= end; }
  bool Meets(const Span& other) const { return start <= other.end && other.start <= end; }
};

// A rank's tracks by their names.
struct RankTrace {
  std::string name;
  std::map<std::string, std::vector<Span>> tracks;

  std::vector<Span> Named(const std::string& track, const std::string& span) const {
    std::vector<Span> found;
    for (const Span& one : tracks.at(track)) {
      if (one.name == span) found.push_back(one);
    }
    return found;
  }
  std::vector<int64_t> Steps() const {
    std::vector<int64_t> steps;
    for (const Span& step : Named("compute", "step")) steps.push_back(step.args["step"]);
    return steps;
  }
};

// The ranks of a trace that follows the format's rules, in their order; empty otherwise.
std::vector<RankTrace> ReadTrace(const std::string& path) {
  const auto json = ReadJsonFile(path);
  EXPECT_TRUE(json.ok()) << Message(json.status());
  if (!json.ok()) return {};
  EXPECT_EQ(ProblemOfTrace(*json), "");
  std::map<int64_t, RankTrace> ranks;
  std::map<int64_t, std::string> track_names;  // of tids: no two processes share one
  for (const Json& event : (*json)["traceEvents"]) {
    RankTrace& rank = ranks[event["pid"]];
    if (event["name"] == "process_name") rank.name = event["args"]["name"];
    if (event["name"] == "thread_name") {
      const std::string name = event["args"]["name"];
      track_names[event["tid"]] = name;
      EXPECT_TRUE(rank.tracks.emplace(name, std::vector<Span>()).second) << "two tracks: " << name;
    }
    if (event["ph"] != "X") continue;
    const double start = event["ts"];
    rank.tracks[track_names[event["tid"]]].push_back(
        {event["name"], start, start + event["dur"].get<double>(), event["args"]});
  }
  std::vector<RankTrace> list;
  for (auto& [pid, rank] : ranks) list.push_back(std::move(rank));
  return list;
}

// What the computing thread does lies in a step; no operation ends after the last.
void ExpectStepsAlone(const RankTrace& rank) {
  const std::vector<Span> steps = rank.Named("compute", "step");
  ASSERT_FALSE(steps.empty());
  for (const auto& [track, spans] : rank.tracks) {
    for (const Span& span : spans) {
      const bool in_a_step = std::any_of(steps.begin(), steps.end(),
                                         [&](const Span& step) { return step.Contains(span); });
      EXPECT_TRUE(in_a_step || track != "compute") << rank.name << ": " << span.name;
      EXPECT_LE(span.end, steps.back().end) << rank.name << " " << track << ": " << span.name;
      EXPECT_GE(span.end, steps.front().start) << rank.name << " " << track << ": " << span.name;
    }
  }
}

std::vector<std::string> Traced(const std::string& out, const std::string& path,
                                const std::vector<std::string>& steps,
                                const std::vector<std::string>& settings) {
  std::vector<std::string> more = {"--resume", "auto", "--trace", path, "--trace-steps"};
  more.insert(more.end(), steps.begin(), steps.end());
  return TrainArgs(out, more, settings);
}

std::vector<std::string> UnderLaunch(const std::vector<std::string>& command) {
  std::vector<std::string> all = {"trainer/launch/launch", "-n", "2", "--"};
  all.insert(all.end(), command.begin(), command.end());
  return all;
}

TEST(TrainTraceTest, OneRankHasOneTrackWithTheChosenSteps) {
  const std::string out = FreshDir("alone"), path = JoinPath(FreshDir("trace"), "step.json");
  const Ended ended = RunProcess(Traced(out, path, {"2", "3"}, {"steps=5"}));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("trace of 1 rank in " + path), std::string::npos) << ended.err;
  const std::vector<RankTrace> ranks = ReadTrace(path);
  ASSERT_EQ(ranks.size(), 1U);
  EXPECT_EQ(ranks[0].name, "rank 0 (tp0 cp0 pp0 dp0)");
  ASSERT_EQ(ranks[0].tracks.size(), 1U);
  EXPECT_EQ(ranks[0].Steps(), (std::vector<int64_t>{2, 3}));
  ExpectStepsAlone(ranks[0]);
  // Two layers, two micro-batches of 6 sequences.
  for (const char* name : {"forward", "backward", "head and loss"}) {
    EXPECT_EQ(ranks[0].Named("compute", name).size(), 2U * 2) << name;
  }
  for (const char* name : {"layer forward", "layer backward"}) {
    EXPECT_EQ(ranks[0].Named("compute", name).size(), 2U * 2 * 2) << name;
  }
  for (const char* name : {"read batch", "gradient norm", "optimizer"}) {
    EXPECT_EQ(ranks[0].Named("compute", name).size(), 2U) << name;
  }
}

TEST(TrainTraceTest, StepsAreCountedFromWhereARunGoesOn) {
  const std::string out = FreshDir("resumed"), folder = FreshDir("trace");
  // Ends before the last chosen step: what there is is written.
  ASSERT_EQ(RunProcess(Traced(out, JoinPath(folder, "a.json"), {"3", "9"}, {"steps=4"})).exit_code,
            0);
  const std::vector<RankTrace> first = ReadTrace(JoinPath(folder, "a.json"));
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].Steps(), (std::vector<int64_t>{3, 4}));
  std::vector<std::string> more = Traced(out, JoinPath(folder, "b.json"), {"1", "1"}, {});
  more.insert(more.end(), {"--steps", "7"});
  ASSERT_EQ(RunProcess(more).exit_code, 0);
  const std::vector<RankTrace> second = ReadTrace(JoinPath(folder, "b.json"));
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].Steps(), (std::vector<int64_t>{5}));
}

TEST(TrainTraceTest, ARunThatEndsBeforeSaysSo) {
  const std::string path = JoinPath(FreshDir("trace"), "step.json");
  const Ended ended = RunProcess(Traced(FreshDir("short"), path, {"4", "5"}, {"steps=3"}));
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("no trace: the run ended before its step 4"), std::string::npos)
      << ended.err;
  EXPECT_FALSE(Exists(path));
}

TEST(TrainTraceTest, MistakesAreNamed) {
  const std::string out = FreshDir("mistakes"), path = JoinPath(out, "no/such/folder/step.json");
  const Ended backwards = RunProcess(Traced(out, path, {"3", "2"}, {}));
  EXPECT_EQ(backwards.exit_code, 2);
  EXPECT_NE(backwards.err.find("--trace-steps 3 2"), std::string::npos) << backwards.err;
  EXPECT_EQ(RunProcess(TrainArgs(out, {"--trace-steps", "1", "2"})).exit_code, 2);
  const Ended nowhere = RunProcess(Traced(out, path, {"1", "1"}, {"steps=2"}));
  EXPECT_EQ(nowhere.exit_code, 1);
  EXPECT_NE(nowhere.err.find("the trace"), std::string::npos) << nowhere.err;
  EXPECT_NE(nowhere.err.find(path), std::string::npos) << nowhere.err;
}

struct TwoRanks {
  const char* name;
  std::vector<std::string> settings;
  std::string second;  // rank 1's place
  int layers;          // forward passes of layers, of a rank in a step
  std::set<std::string> tracks;
};

class TrainTraceRanksTest : public testing::TestWithParam<TwoRanks> {};
INSTANTIATE_TEST_SUITE_P(
    Layouts, TrainTraceRanksTest,
    testing::Values(TwoRanks{.name = "dp",
                             .settings = {"parallel.dp=2", "parallel.shard=weights"},
                             .second = "tp0 cp0 pp0 dp1",
                             .layers = 2,
                             .tracks = {"compute", "replicas", "weights", "stage", "world"}},
                    TwoRanks{.name = "tp",
                             .settings = {"parallel.tp=2"},
                             .second = "tp1 cp0 pp0 dp0",
                             .layers = 4,
                             .tracks = {"compute", "tp", "stage", "world"}},
                    TwoRanks{.name = "cp",
                             .settings = {"parallel.cp=2"},
                             .second = "tp0 cp1 pp0 dp0",
                             .layers = 4,
                             .tracks = {"compute", "cp", "replicas", "stage", "world"}},
                    TwoRanks{.name = "pp",
                             .settings = {"parallel.pp=2"},
                             .second = "tp0 cp0 pp1 dp0",
                             .layers = 2,
                             .tracks = {"compute", "pp forward 0 to 1", "pp backward 1 to 0",
                                        "tied", "world"}}),
    [](const auto& info) { return info.param.name; });

// By track, operation and sequence number: what a group does together.
using Operation = std::tuple<std::string, std::string, int64_t>;

std::map<Operation, Span> Collectives(const RankTrace& rank) {
  std::map<Operation, Span> operations;
  for (const auto& [track, spans] : rank.tracks) {
    for (const Span& span : spans) {
      if (track == "compute" || span.name == "send" || span.name == "recv") continue;
      operations[{track, span.name, span.args["sequence"]}] = span;
    }
  }
  return operations;
}

TEST_P(TrainTraceRanksTest, EachRankIsAProcessOnTheSameClock) {
  const TwoRanks& layout = GetParam();
  const std::string path = JoinPath(FreshDir("trace"), "step.json");
  std::vector<std::string> settings = layout.settings;
  settings.push_back("steps=5");
  const Ended ended =
      RunProcess(UnderLaunch(Traced(FreshDir("ranks"), path, {"3", "4"}, settings)));
  ASSERT_EQ(ended.exit_code, 0) << ended.err;
  EXPECT_NE(ended.err.find("trace of 2 ranks in " + path), std::string::npos) << ended.err;
  const std::vector<RankTrace> ranks = ReadTrace(path);
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].name, "rank 0 (tp0 cp0 pp0 dp0)");
  EXPECT_EQ(ranks[1].name, StrCat("rank 1 (", layout.second, ")"));
  for (const RankTrace& rank : ranks) {
    SCOPED_TRACE(rank.name);
    EXPECT_EQ(rank.Steps(), (std::vector<int64_t>{3, 4}));
    ExpectStepsAlone(rank);
    std::set<std::string> tracks;
    for (const auto& [track, spans] : rank.tracks) tracks.insert(track);
    EXPECT_EQ(tracks, layout.tracks);
    EXPECT_EQ(rank.Named("compute", "layer forward").size(), 2U * size_t(layout.layers));
  }
  // One clock: of a step, and of an operation that nobody leaves before all have come, each rank's
  // begins before the other's ends.
  for (size_t step = 0; step < 2; ++step) {
    EXPECT_TRUE(
        ranks[0].Named("compute", "step")[step].Meets(ranks[1].Named("compute", "step")[step]));
  }
  const std::map<Operation, Span> mine = Collectives(ranks[0]), other = Collectives(ranks[1]);
  EXPECT_GE(mine.size(), 2U * 2);  // a step's valid tokens and its report, at least
  EXPECT_EQ(mine.size(), other.size());
  for (const auto& [operation, span] : mine) {
    const auto& [track, name, sequence] = operation;
    const auto found = other.find(operation);
    ASSERT_NE(found, other.end()) << track << " " << name << " " << sequence;
    EXPECT_TRUE(span.Meets(found->second)) << track << " " << name << " " << sequence;
  }
}

}  // namespace
}  // namespace cria
