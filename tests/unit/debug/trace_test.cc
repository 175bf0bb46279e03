// The trace's JSON against the format's rules, what the ring keeps, what an event costs.

#include "debug/trace.h"

#include <gtest/gtest.h>

#include <thread>

#include "base/file.h"
#include "base/json.h"
#include "tests/support/process.h"
#include "tests/support/trace_check.h"

namespace cria::debug {
namespace {

Json Written(const std::vector<std::string>& events) {
  const std::string path = JoinPath(FreshDir("trace"), "trace.json");
  EXPECT_TRUE(WriteTraceFile(path, events).ok());
  const auto json = ReadJsonFile(path);
  EXPECT_TRUE(json.ok()) << Message(json.status());
  return json.ok() ? *json : Json();
}

std::vector<Json> EventsOf(const Json& trace, const std::string& ph) {
  std::vector<Json> events;
  for (const Json& event : trace["traceEvents"]) {
    if (event["ph"] == ph) events.push_back(event);
  }
  return events;
}

TEST(TraceTest, ShortTextIsCut) {
  EXPECT_TRUE(ShortText().empty());
  EXPECT_EQ(ShortText("all_reduce").view(), "all_reduce");
  EXPECT_EQ(ShortText(std::string(40, 'x')).view(), std::string(23, 'x'));
}

TEST(TraceTest, SpansOfOneThreadNest) {
  FakeClock clock;
  clock.Advance(12.5);
  Trace trace(&clock);
  trace.NameProcess(3, "rank 3 \"tp1\"");
  trace.SetRecording(true);
  {
    const TraceSpan outer(&trace, "forward", {{"micro_batch", 2}, {"chunk", 1}});
    clock.Advance(0.001);
    {
      const TraceSpan inner(&trace, "matmul");
      clock.Advance(0.002);
    }
    clock.Advance(0.003);
  }
  const Json json = Written({trace.Events()});
  EXPECT_EQ(ProblemOfTrace(json), "");
  const std::vector<Json> events = EventsOf(json, "X");
  ASSERT_EQ(events.size(), 2U);
  EXPECT_EQ(events[0]["name"], "forward");
  EXPECT_EQ(events[0]["pid"], 3);
  EXPECT_EQ(events[0]["tid"], 0);
  EXPECT_DOUBLE_EQ(events[0]["ts"].get<double>(), 12.5e6);
  EXPECT_DOUBLE_EQ(events[0]["dur"].get<double>(), 6000);
  EXPECT_EQ(events[0]["args"]["micro_batch"], 2);
  EXPECT_EQ(events[0]["args"]["chunk"], 1);
  EXPECT_EQ(events[1]["name"], "matmul");
  EXPECT_DOUBLE_EQ(events[1]["dur"].get<double>(), 2000);
}

TEST(TraceTest, RanksAreProcessesAndStreamsAreTracks) {
  FakeClock clock;
  std::vector<std::string> events;
  for (int rank = 0; rank < 2; ++rank) {
    Trace trace(&clock);
    trace.NameProcess(rank, StrCat("rank ", rank));
    const int tp = trace.AddStream("tp", 1);
    trace.SetRecording(true);
    trace.Add({.name = "send",
               .stream = tp,
               .start_s = 1,
               .end_s = 2,
               .arrow = rank == 0 ? TraceArrow::kFrom : TraceArrow::kTo,
               .arrow_id = 77});
    events.push_back(trace.Events());
  }
  const Json json = Written(events);
  EXPECT_EQ(ProblemOfTrace(json), "");
  EXPECT_EQ(EventsOf(json, "X").size(), 2U);
  ASSERT_EQ(EventsOf(json, "s").size(), 1U);
  ASSERT_EQ(EventsOf(json, "f").size(), 1U);
  EXPECT_EQ(EventsOf(json, "s")[0]["id"], EventsOf(json, "f")[0]["id"]);
  EXPECT_EQ(EventsOf(json, "f")[0]["bp"], "e");
}

TEST(TraceTest, TheCheckFindsWhatIsWrong) {
  FakeClock clock;
  Trace trace(&clock);
  trace.SetRecording(true);
  trace.Add({.name = "a", .start_s = 1, .end_s = 3});
  trace.Add({.name = "b", .start_s = 2, .end_s = 4});
  EXPECT_NE(ProblemOfTrace(Written({trace.Events()})).find("overlaps"), std::string::npos);
  Trace arrow(&clock);
  arrow.SetRecording(true);
  arrow.Add({.name = "recv", .start_s = 1, .end_s = 3, .arrow = TraceArrow::kTo, .arrow_id = 5});
  EXPECT_NE(ProblemOfTrace(Written({arrow.Events()})).find("without a start"), std::string::npos);
}

TEST(TraceTest, NothingIsKeptWhileNotRecording) {
  FakeClock clock;
  Trace trace(&clock);
  { const TraceSpan none(nullptr, "nowhere"); }
  { const TraceSpan before(&trace, "before"); }
  trace.SetRecording(true);
  { const TraceSpan during(&trace, "during"); }
  trace.SetRecording(false);
  trace.Add({.name = "after"});
  const std::vector<Json> events = EventsOf(Written({trace.Events()}), "X");
  ASSERT_EQ(events.size(), 1U);
  EXPECT_EQ(events[0]["name"], "during");
}

TEST(TraceTest, AFullRingDropsTheOldestAndSaysSo) {
  FakeClock clock;
  Trace trace(&clock, /*capacity=*/4);
  trace.SetRecording(true);
  for (int i = 0; i < 10; ++i) {
    trace.Add({.name = StrCat("e", i), .start_s = 1.0 * i, .end_s = i + 0.5});
  }
  EXPECT_EQ(trace.num_dropped(), 6);
  const Json json = Written({trace.Events()});
  EXPECT_EQ(ProblemOfTrace(json), "");
  const std::vector<Json> events = EventsOf(json, "X");
  ASSERT_EQ(events.size(), 4U);
  EXPECT_EQ(events[0]["name"], "e6");
  EXPECT_NE(json.dump().find("the oldest 6 events were dropped"), std::string::npos);
}

TEST(TraceTest, ThreadsAddAtOnce) {
  Trace trace(RealClock());
  trace.SetRecording(true);
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    const int stream = trace.AddStream(StrCat("group ", t), t);
    threads.emplace_back([&trace, stream] {
      for (int i = 0; i < 1000; ++i) {
        const double start_s = trace.Now();
        trace.Add({.name = "op", .stream = stream, .start_s = start_s, .end_s = trace.Now()});
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const Json json = Written({trace.Events()});
  EXPECT_EQ(ProblemOfTrace(json), "");
  EXPECT_EQ(EventsOf(json, "X").size(), 4000U);
}

}  // namespace
}  // namespace cria::debug
