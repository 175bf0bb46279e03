#include "comm/mpi/mpi_communicator.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/api/error.h"
#include "debug/observer.h"

namespace cria::comm {
namespace {

// Writes down what it is told.
class Recorder : public debug::Observer {
 public:
  void OnEnqueue(const debug::OperationEvent& event) override { Note("enqueue", event); }
  void OnStart(const debug::OperationEvent& event) override { Note("start", event); }
  void OnEnd(const debug::OperationEvent& event, const Status& status) override {
    Note(status.ok() ? "end" : "fail", event);
  }
  std::vector<std::string> Notes() {
    MutexLock lock(&mu_);
    return notes_;
  }

 private:
  void Note(const std::string& what, const debug::OperationEvent& event) {
    MutexLock lock(&mu_);
    notes_.push_back(StrCat(what, " ", event.group, " ", event.operation, " ", event.sequence, " ",
                            event.input_bytes));
  }
  Mutex mu_;
  std::vector<std::string> notes_ CRIA_GUARDED_BY(mu_);
};

// MPI has one life per process: one test for all that needs a world.
TEST(MpiCommunicatorTest, KeepsTheInterfacesPromisesOnOneRank) {
  Recorder recorder;
  auto joined = JoinMpiWorld({.timeout_s = 30, .observer = &recorder});
  ASSERT_TRUE(joined.ok()) << joined.status();
  Communicator& world = **joined;
  EXPECT_EQ(world.rank(), 0);
  EXPECT_EQ(world.size(), 1);
  EXPECT_STREQ(world.backend(), "mpi");

  const std::vector<int32_t> x = {3, 1, 4};
  std::vector<int32_t> y(3);
  EXPECT_TRUE(world
                  .AllReduce({.input = x.data(),
                              .output = y.data(),
                              .count = 3,
                              .dtype = DataType::kInt32,
                              .op = ReduceOp::kAvg})
                  .Wait()
                  .ok());
  EXPECT_EQ(y, x);
  EXPECT_EQ(recorder.Notes(),
            (std::vector<std::string>{"enqueue world all_reduce 1 12",
                                      "start world all_reduce 1 12", "end world all_reduce 1 12"}));

  // A message to oneself goes in a group; asynchronous work runs in order.
  ASSERT_TRUE(world.GroupStart().ok());
  EXPECT_FALSE(world.GroupStart().ok());
  y.assign(3, 0);
  world.Send({.buffer = x.data(), .count = 3, .dtype = DataType::kInt32, .peer = 0});
  world.Recv({.buffer = y.data(), .count = 3, .dtype = DataType::kInt32, .peer = 0});
  EXPECT_EQ(world.Barrier().Wait().code(), StatusCode::kInvalidArgument);
  const Work group = world.GroupEnd({.async = true});
  EXPECT_TRUE(group.Wait().ok());
  EXPECT_EQ(group.sequence(), 1U);  // messages count apart
  EXPECT_EQ(y, x);
  EXPECT_FALSE(world.GroupEnd().Wait().ok());

  // Groups: lists that are wrong here are refused here.
  EXPECT_FALSE(world.NewGroup({.ranks = {0, 0}, .name = "twice"}).ok());
  EXPECT_FALSE(world.NewGroup({.ranks = {1}, .name = "nobody"}).ok());
  auto part = world.NewGroup({.ranks = {0}, .name = "part"});
  ASSERT_TRUE(part.ok()) << part.status();
  EXPECT_TRUE((*part)->Barrier().Wait().ok());

  // A receive that nobody answers ends at its time-out, and breaks that group alone.
  const Status late = (*part)
                          ->Recv({.buffer = y.data(),
                                  .count = 3,
                                  .dtype = DataType::kInt32,
                                  .peer = 0,
                                  .call = {.timeout_s = 0.05}})
                          .Wait();
  const auto error = GetCommError(late);
  ASSERT_TRUE(error.has_value()) << late;
  EXPECT_EQ(error->kind, CommErrorKind::kTimeout);
  EXPECT_EQ(error->operation, "recv");
  EXPECT_EQ(error->sequence, 1U);
  EXPECT_FALSE((*part)->failure().ok());
  EXPECT_EQ((*part)->Barrier().Wait(), late);
  EXPECT_TRUE(world.Barrier().Wait().ok());

  world.Abort("enough");
  world.Abort("more than enough");
  const Status aborted = world.Barrier().Wait();
  EXPECT_EQ(aborted.code(), StatusCode::kCancelled);
  EXPECT_NE(Message(aborted).find("enough"), std::string::npos);
  EXPECT_EQ(Message(aborted).find("more"), std::string::npos);
}

}  // namespace
}  // namespace cria::comm
