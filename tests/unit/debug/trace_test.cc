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
  trace.NameRank(3, "rank 3 \"tp1\"");
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
  EXPECT_EQ(events[0]["pid"], 3001);
  EXPECT_EQ(events[0]["tid"], 3001);
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
    trace.NameRank(rank, StrCat("rank ", rank));
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

// Two ranks with two tracks each, as the writer numbers them: pids 1 and 1001.
Json TwoRanks() {
  FakeClock clock;
  std::vector<std::string> events;
  for (int rank = 0; rank < 2; ++rank) {
    Trace trace(&clock);
    trace.NameRank(rank, StrCat("rank ", rank));
    const int tp = trace.AddStream("tp", 1);
    trace.SetRecording(true);
    for (const int stream : {0, tp}) {
      trace.Add({.name = "x", .stream = stream, .start_s = 1, .end_s = 2});
    }
    events.push_back(trace.Events());
  }
  return Written(events);
}

// With another number wherever a process or a track has this one.
Json Renumbered(Json trace, const char* key, int from, int to) {
  for (Json& event : trace["traceEvents"]) {
    if (event[key] == from) event[key] = to;
  }
  return trace;
}

TEST(TraceTest, TheCheckFindsNumbersThatPerfettoMisplaces) {
  const Json good = TwoRanks();
  ASSERT_EQ(ProblemOfTrace(good), "");
  const auto problem = [&](const char* key, int from, int to) {
    return ProblemOfTrace(Renumbered(good, key, from, to));
  };
  EXPECT_NE(problem("tid", 1, 0).find("tid is no integer above 0"), std::string::npos);
  EXPECT_NE(problem("pid", 1, 0).find("pid is no integer above 0"), std::string::npos);
  EXPECT_EQ(problem("tid", 1002, 2), "tid 2 in two processes");
  EXPECT_EQ(problem("tid", 1001, 1003), "pid 1001: its first track is tid 1002");
  Json upside_down = good;
  for (Json& event : upside_down["traceEvents"]) {
    if (event["name"] == "thread_sort_index" && event["tid"] == 2) event["args"]["sort_index"] = -1;
  }
  EXPECT_EQ(ProblemOfTrace(upside_down), "tid 2 stands above tid 1");
}

TEST(TraceTest, ANanosecondTooLongIsAnOverlap) {
  Json trace = TwoRanks();
  Json inner = trace["traceEvents"].back();
  inner["ts"] = inner["ts"].get<double>() + 0.001;
  trace["traceEvents"].push_back(inner);
  EXPECT_NE(ProblemOfTrace(trace).find("overlaps"), std::string::npos);
}

TEST(TraceTest, TracksHaveTheNumbersOfTheirPlaces) {
  FakeClock clock;
  Trace trace(&clock);
  trace.NameRank(2, "rank 2");
  for (const auto& [name, order] :
       {std::pair("world", 9), std::pair("dp", 4), std::pair("tp", 1), std::pair("pp", 9)}) {
    trace.AddStream(name, order);
  }
  const Json json = Written({trace.Events()});
  std::vector<std::pair<int, std::string>> tracks;
  for (const Json& event : EventsOf(json, "M")) {
    EXPECT_EQ(event["pid"], 2001);
    if (event["name"] == "thread_name") tracks.emplace_back(event["tid"], event["args"]["name"]);
  }
  EXPECT_EQ(tracks,
            (std::vector<std::pair<int, std::string>>{
                {2001, "compute"}, {2002, "tp"}, {2003, "dp"}, {2004, "world"}, {2005, "pp"}}));
  EXPECT_EQ(ProblemOfTrace(json), "");
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
