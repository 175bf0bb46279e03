// Which steps a trace has, when its file is written, and by whom.

#include "trainer/loop/step_trace.h"

#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/process.h"
#include "tests/support/trace_check.h"

namespace cria::trainer {
namespace {

class StepTraceTest : public testing::Test {
 protected:
  StepTraceOptions Options(int64_t first, int64_t last) const { return {path_, first, last}; }

  const std::string path_ = JoinPath(FreshDir("trace"), "step.json");
};

// A step of a millisecond, as the loop makes it.
Status OneStep(StepTrace* trace, int64_t step, FakeClock* clock, comm::Communicator* world) {
  trace->Begin(step);
  {
    const debug::TraceSpan span(trace->trace(), "step", {{"step", step}});
    clock->Advance(0.001);
  }
  return trace->End(step, world);
}

// Steps by the names of the processes.
std::map<std::string, std::vector<int64_t>> ReadSteps(const std::string& path) {
  const auto json = ReadJsonFile(path);
  EXPECT_TRUE(json.ok()) << Message(json.status());
  if (!json.ok()) return {};
  EXPECT_EQ(ProblemOfTrace(*json), "");
  std::map<int64_t, std::string> names;
  std::map<std::string, std::vector<int64_t>> steps;
  for (const Json& event : (*json)["traceEvents"]) {
    if (event["name"] == "process_name") names[event["pid"]] = event["args"]["name"];
    if (event["ph"] == "X") steps[names[event["pid"]]].push_back(event["args"]["step"]);
  }
  return steps;
}

TEST_F(StepTraceTest, TheFileIsThereAfterTheLastChosenStep) {
  FakeClock clock;
  StepTrace trace(Options(2, 3), &clock);
  trace.SetRank({}, 0);
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(OneStep(&trace, step, &clock, nullptr).ok());
    EXPECT_FALSE(Exists(path_)) << "after step " << step;
  }
  ASSERT_TRUE(OneStep(&trace, 3, &clock, nullptr).ok());
  const auto steps = ReadSteps(path_);
  ASSERT_EQ(steps.size(), 1U);
  EXPECT_EQ(steps.at("rank 0 (tp0 cp0 pp0 dp0)"), (std::vector<int64_t>{2, 3}));
  // Later steps change nothing.
  ASSERT_TRUE(RemoveAll(path_).ok());
  ASSERT_TRUE(OneStep(&trace, 4, &clock, nullptr).ok());
  ASSERT_TRUE(trace.Finish(nullptr).ok());
  EXPECT_FALSE(Exists(path_)) << "written twice";
}

TEST_F(StepTraceTest, NothingIsRecordedBetweenSteps) {
  FakeClock clock;
  StepTrace trace(Options(1, 2), &clock);
  ASSERT_TRUE(OneStep(&trace, 1, &clock, nullptr).ok());
  EXPECT_FALSE(trace.trace()->recording());
  { const debug::TraceSpan span(trace.trace(), "evaluate"); }
  ASSERT_TRUE(OneStep(&trace, 2, &clock, nullptr).ok());
  EXPECT_EQ(ReadFile(path_).value().find("evaluate"), std::string::npos);
}

TEST_F(StepTraceTest, FinishWritesWhatThereIs) {
  FakeClock clock;
  StepTrace trace(Options(2, 9), &clock);
  trace.SetRank({}, 0);
  for (int64_t step = 1; step <= 3; ++step) {
    ASSERT_TRUE(OneStep(&trace, step, &clock, nullptr).ok());
  }
  EXPECT_FALSE(Exists(path_));
  ASSERT_TRUE(trace.Finish(nullptr).ok());
  EXPECT_EQ(ReadSteps(path_).at("rank 0 (tp0 cp0 pp0 dp0)"), (std::vector<int64_t>{2, 3}));
}

TEST_F(StepTraceTest, ARunThatEndsBeforeWritesNothing) {
  FakeClock clock;
  StepTrace trace(Options(3, 4), &clock);
  for (int64_t step = 1; step <= 2; ++step) {
    ASSERT_TRUE(OneStep(&trace, step, &clock, nullptr).ok());
  }
  EXPECT_TRUE(trace.Finish(nullptr).ok());
  EXPECT_FALSE(Exists(path_));
}

TEST_F(StepTraceTest, WithoutAPathNothingIsTraced) {
  FakeClock clock;
  StepTrace trace({.path = "", .first = 1, .last = 1}, &clock);
  trace.Begin(1);
  EXPECT_FALSE(trace.trace()->recording());
  EXPECT_TRUE(trace.End(1, nullptr).ok());
  EXPECT_TRUE(trace.Finish(nullptr).ok());
}

TEST_F(StepTraceTest, AFileThatCannotBeWrittenIsAnError) {
  FakeClock clock;
  StepTrace trace({.path = JoinPath(path_, "below/a/file.json"), .first = 1, .last = 1}, &clock);
  const Status status = OneStep(&trace, 1, &clock, nullptr);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(Message(status).find("the trace"), std::string::npos) << Message(status);
  EXPECT_NE(Message(status).find("file.json"), std::string::npos) << Message(status);
  EXPECT_TRUE(trace.Finish(nullptr).ok()) << "said once";
}

TEST_F(StepTraceTest, OneFileHasAllRanksUnderTheirPlaces) {
  constexpr model::Layout kLayout = {.tp = 2, .dp = 2};
  RunRankThreads({.ranks = 4}, [&](comm::Communicator& world) {
    FakeClock clock;
    StepTrace trace(Options(1, 2), &clock);
    trace.SetRank(kLayout, world.rank());
    for (int64_t step = 1; step <= 3; ++step) {
      const Status status = OneStep(&trace, step, &clock, &world);
      EXPECT_TRUE(status.ok()) << Message(status);
    }
    EXPECT_TRUE(trace.Finish(&world).ok());
  });
  const auto steps = ReadSteps(path_);
  ASSERT_EQ(steps.size(), 4U);
  for (const char* name : {"rank 0 (tp0 cp0 pp0 dp0)", "rank 1 (tp1 cp0 pp0 dp0)",
                           "rank 2 (tp0 cp0 pp0 dp1)", "rank 3 (tp1 cp0 pp0 dp1)"}) {
    ASSERT_EQ(steps.count(name), 1U) << name;
    EXPECT_EQ(steps.at(name), (std::vector<int64_t>{1, 2}));
  }
}

}  // namespace
}  // namespace cria::trainer
