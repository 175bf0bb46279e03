// Shares and overlap in closed form, on a clock that stands; then two real ranks and their trace.

#include "debug/stream_times.h"

#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/json.h"
#include "comm/api/communicator.h"
#include "tests/support/comm_ranks.h"
#include "tests/support/trace_check.h"

namespace cria::debug {
namespace {

OperationEvent Event(std::string_view group, uint64_t id) {
  OperationEvent event;
  event.group = group;
  event.group_id = id;
  event.operation = "all_reduce";
  event.input_bytes = 400;
  event.output_bytes = 100;
  return event;
}

// As the communicator's own thread would.
void OnAnotherThread(const std::function<void()>& body) { std::thread(body).join(); }

class StreamTimesTest : public testing::Test {
 protected:
  // An asynchronous operation begins or ends.
  void Start(const OperationEvent& event) {
    times_.OnEnqueue(event);
    OnAnotherThread([&] { times_.OnStart(event); });
  }
  void End(const OperationEvent& event) {
    OnAnotherThread([&] { times_.OnEnd(event, OkStatus()); });
  }

  FakeClock clock_;
  StreamTimes times_{&clock_, {.trace = nullptr, .order = {"tp", "dp"}}};
  const OperationEvent dp_ = Event("dp", 1), tp_ = Event("tp", 2);
};

TEST_F(StreamTimesTest, AStepWithoutCommunicationHasNone) {
  times_.BeginStep();
  clock_.Advance(2);
  const StepTimes& step = times_.EndStep();
  EXPECT_DOUBLE_EQ(step.step_s, 2);
  EXPECT_EQ(step.share(), 0);
  EXPECT_EQ(step.overlap(), 1);
  EXPECT_TRUE(step.streams.empty());
}

TEST_F(StreamTimesTest, ABlockingCallIsExposed) {
  times_.BeginStep();
  clock_.Advance(3);
  times_.OnEnqueue(tp_);
  times_.OnStart(tp_);
  clock_.Advance(1);
  times_.OnEnd(tp_, OkStatus());
  const StepTimes& step = times_.EndStep();
  EXPECT_DOUBLE_EQ(step.share(), 0.25);
  EXPECT_DOUBLE_EQ(step.overlap(), 0);
  ASSERT_EQ(step.streams.size(), 1U);
  EXPECT_EQ(step.streams[0].group, "tp");
  EXPECT_EQ(step.streams[0].num_operations, 1);
  EXPECT_EQ(step.streams[0].bytes, 400);
  EXPECT_DOUBLE_EQ(step.streams[0].running_s, 1);
  EXPECT_DOUBLE_EQ(step.streams[0].exposed_s, 1);
  EXPECT_DOUBLE_EQ(step.streams[0].overlapped_s, 0);
}

TEST_F(StreamTimesTest, AnAsynchronousOneIsHiddenUntilSomebodyWaits) {
  times_.BeginStep();
  Start(dp_);
  clock_.Advance(3);  // computing
  times_.OnWaitStart(1);
  clock_.Advance(1);
  End(dp_);
  times_.OnWaitEnd(1);
  clock_.Advance(4);
  const StepTimes& step = times_.EndStep();
  EXPECT_DOUBLE_EQ(step.step_s, 8);
  EXPECT_DOUBLE_EQ(step.overlapped_s, 3);
  EXPECT_DOUBLE_EQ(step.exposed_s, 1);
  EXPECT_DOUBLE_EQ(step.share(), 0.5);
  EXPECT_DOUBLE_EQ(step.overlap(), 0.75);
}

TEST_F(StreamTimesTest, GroupsSideBySideCountOnceInTheStepAndEachForItself) {
  times_.BeginStep();
  Start(dp_);
  clock_.Advance(1);
  // Blocked for tp while dp runs on.
  times_.OnEnqueue(tp_);
  times_.OnStart(tp_);
  clock_.Advance(2);
  times_.OnEnd(tp_, OkStatus());
  clock_.Advance(4);
  End(dp_);
  clock_.Advance(1);
  const StepTimes& step = times_.EndStep();
  EXPECT_DOUBLE_EQ(step.exposed_s, 2);
  EXPECT_DOUBLE_EQ(step.overlapped_s, 5);
  EXPECT_DOUBLE_EQ(step.communication_s(), 7);
  ASSERT_EQ(step.streams.size(), 2U);
  EXPECT_EQ(step.streams[0].group, "tp");  // as `order` has it
  EXPECT_DOUBLE_EQ(step.streams[0].exposed_s, 2);
  EXPECT_EQ(step.streams[1].group, "dp");
  EXPECT_DOUBLE_EQ(step.streams[1].running_s, 7);
  EXPECT_DOUBLE_EQ(step.streams[1].exposed_s, 0);
  EXPECT_DOUBLE_EQ(step.streams[1].overlapped_s, 5);
}

TEST_F(StreamTimesTest, AStepKnowsNothingOfTheOneBefore) {
  times_.BeginStep();
  Start(dp_);
  clock_.Advance(5);
  times_.EndStep();
  times_.BeginStep();  // the operation goes on
  clock_.Advance(1);
  End(dp_);
  const StepTimes& step = times_.EndStep();
  EXPECT_DOUBLE_EQ(step.step_s, 1);
  EXPECT_DOUBLE_EQ(step.overlapped_s, 1);
  EXPECT_DOUBLE_EQ(step.streams[0].running_s, 1);
  EXPECT_EQ(step.streams[0].num_operations, 1);
}

TEST(StreamTimesTraceTest, SlicesOfOneWaitAreOneEvent) {
  FakeClock clock;
  Trace trace(&clock);
  trace.SetRecording(true);
  StreamTimes times(&clock, {.trace = &trace});
  times.OnEnqueue(Event("dp", 1));
  times.BeginStep();
  const auto wait = [&](double seconds) {
    times.OnWaitStart(1);
    clock.Advance(seconds);
    times.OnWaitEnd(1);
  };
  {
    const TraceSpan span(&trace, "forward");
    wait(0.001);
    clock.Advance(1e-6);
    wait(0.002);
  }
  wait(0.004);  // outside
  times.EndStep();
  std::vector<double> durations;
  const auto json = ParseJson("{\"traceEvents\":[" + trace.Events() + "]}", "trace");
  ASSERT_TRUE(json.ok()) << Message(json.status());
  EXPECT_EQ(ProblemOfTrace(*json), "");
  for (const Json& event : (*json)["traceEvents"]) {
    if (event["name"] == "wait") durations.push_back(event["dur"]);
  }
  ASSERT_EQ(durations.size(), 2U);
  EXPECT_NEAR(durations[0], 3001, 0.01);
  EXPECT_NEAR(durations[1], 4000, 0.01);
}

TEST(StreamTimesWorldTest, TwoRanksMakeOneTraceWithArrows) {
  std::vector<std::string> events(2);
  std::vector<StepTimes> steps(2);
  std::vector<std::unique_ptr<Trace>> traces;
  std::vector<std::unique_ptr<StreamTimes>> times;
  for (int r = 0; r < 2; ++r) {
    traces.push_back(std::make_unique<Trace>(RealClock()));
    traces.back()->NameRank(r, StrCat("rank ", r));
    times.push_back(std::make_unique<StreamTimes>(
        RealClock(), StreamTimes::Options{.trace = traces.back().get(), .order = {"world"}}));
  }
  RunRankThreads(
      {.ranks = 2,
       .adjust = [&](int rank, comm::WorldOptions* o) { o->observer = times[size_t(rank)].get(); }},
      [&](comm::Communicator& world) {
        const auto r = static_cast<size_t>(world.rank());
        auto link = world.NewGroup({.ranks = {0, 1}, .name = "forward_out"});
        ASSERT_TRUE(link.ok());
        traces[r]->SetRecording(true);
        times[r]->BeginStep();
        std::vector<float> x(1000, 1);
        {
          const TraceSpan span(traces[r].get(), "forward", {{"micro_batch", 0}});
          for (int i = 0; i < 3; ++i) {
            const auto moved = r == 0
                                   ? (*link)->Send({.buffer = x.data(), .count = 1000, .peer = 1})
                                   : (*link)->Recv({.buffer = x.data(), .count = 1000});
            ASSERT_TRUE(moved.Wait().ok()) << Message(moved.Wait());
          }
        }
        const comm::Work sum = world.AllReduce(
            {.input = x.data(), .output = x.data(), .count = 1000, .call = {.async = true}});
        ASSERT_TRUE(sum.Wait().ok());
        steps[r] = times[r]->EndStep();
        traces[r]->SetRecording(false);
        events[r] = traces[r]->Events();
      });
  std::string text = "{\"traceEvents\":[" + events[0] + "," + events[1] + "]}";
  const auto json = ParseJson(text, "trace");
  ASSERT_TRUE(json.ok()) << Message(json.status());
  EXPECT_EQ(ProblemOfTrace(*json), "");
  int sends = 0, receives = 0, sums = 0;
  for (const Json& event : (*json)["traceEvents"]) {
    sends += event["ph"] == "s";
    receives += event["ph"] == "f";
    sums += event["name"] == "all_reduce";
  }
  EXPECT_EQ(sends, 3);
  EXPECT_EQ(receives, 3);
  EXPECT_EQ(sums, 2);
  for (const StepTimes& step : steps) {
    ASSERT_EQ(step.streams.size(), 2U);
    EXPECT_EQ(step.streams[0].group, "world");
    EXPECT_EQ(step.streams[0].bytes, 4000);
    EXPECT_EQ(step.streams[1].num_operations, 3);
    EXPECT_GT(step.exposed_s, 0);
    EXPECT_LE(step.communication_s(), step.step_s * (1 + 1e-9));
  }
}

}  // namespace
}  // namespace cria::debug
