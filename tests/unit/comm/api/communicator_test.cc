#include "comm/api/communicator.h"

#include <gtest/gtest.h>

#include <array>
#include <cstdint>
#include <optional>
#include <utility>

#include "comm/api/error.h"

namespace cria::comm {
namespace {

// Keeps the operation that it was to run.
class RecordingCommunicator : public Communicator {
 public:
  explicit RecordingCommunicator(int rank) : rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return 4; }
  const std::string& name() const override { return name_; }
  const char* backend() const override { return "recording"; }
  const std::vector<int>& world_ranks() const override { return world_ranks_; }
  Status GroupStart() override { return OkStatus(); }
  Work GroupEnd(const CallOptions&) override { return Work(); }
  StatusOr<std::unique_ptr<Communicator>> NewGroup(const NewGroupOptions& options) override {
    new_group = options;
    return std::unique_ptr<Communicator>(std::make_unique<RecordingCommunicator>(0));
  }
  void Abort(const std::string&) override {}
  Status failure() const override { return OkStatus(); }
  double timeout_s() const override { return 1; }
  void SetTimeout(double) override {}

  std::optional<Operation> submitted;
  std::optional<NewGroupOptions> new_group;

 protected:
  Work Submit(const Operation& operation) override {
    submitted = operation;
    // An all_gather of colours and keys: rank r has the colour r % 2 and the key -r.
    if (operation.kind == OpKind::kAllGather && operation.dtype == DataType::kInt32) {
      auto* out = static_cast<int32_t*>(operation.output);
      for (int r = 0; r < 4; ++r) {
        out[2 * r] = r % 2;
        out[2 * r + 1] = -r;
      }
    }
    return Work();
  }

 private:
  const int rank_;
  const std::string name_ = "tp";
  const std::vector<int> world_ranks_ = {10, 11, 12, 13};
};

TEST(CommunicatorTest, BuffersThatOnlyTheRootHasAreNotPassedElsewhere) {
  std::array<float, 16> in, out;
  RecordingCommunicator root(1), other(2);
  const ReduceOptions options{.input = in.data(), .output = out.data(), .count = 4, .root = 1};
  root.Reduce(options);
  EXPECT_EQ(root.submitted->output, out.data());
  other.Reduce(options);
  EXPECT_EQ(other.submitted->output, nullptr);
  root.Broadcast({.buffer = in.data(), .count = 4, .root = 1});
  EXPECT_EQ(root.submitted->input, in.data());
  EXPECT_EQ(root.submitted->output, in.data());
  other.Broadcast({.buffer = in.data(), .count = 4, .root = 1});
  EXPECT_EQ(other.submitted->input, nullptr);
}

TEST(CommunicatorTest, AWrongArgumentIsRefusedWithTheGroupsNames) {
  RecordingCommunicator comm(1);
  const Work work = comm.AllReduce({.count = 4});
  EXPECT_TRUE(work.done());
  EXPECT_EQ(work.sequence(), 0u);
  const auto error = GetCommError(work.Wait());
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->kind, CommErrorKind::kBadArgument);
  EXPECT_EQ(error->group, "tp");
  EXPECT_EQ(error->world_rank, 11);
  EXPECT_EQ(error->operation, "all_reduce");
  EXPECT_FALSE(comm.submitted.has_value());
}

TEST(CommunicatorTest, SplitOrdersAColourByKey) {
  RecordingCommunicator comm(1);
  ASSERT_TRUE(comm.Split(1, -1, "odd").ok());
  EXPECT_EQ(comm.new_group->ranks, (std::vector<int>{3, 1}));
  EXPECT_EQ(comm.new_group->name, "odd");
}

TEST(CommunicatorTest, ANegativeColourGetsNoGroup) {
  RecordingCommunicator comm(1);
  const auto group = comm.Split(-1, 0, "none");
  ASSERT_TRUE(group.ok());
  EXPECT_EQ(*group, nullptr);
}

TEST(CommunicatorTest, ShrinkKeepsTheOthersInOrder) {
  RecordingCommunicator comm(1);
  ASSERT_TRUE(comm.Shrink({2}).ok());
  EXPECT_EQ(comm.new_group->ranks, (std::vector<int>{0, 1, 3}));
  EXPECT_EQ(comm.Shrink({4}).status().code(), StatusCode::kInvalidArgument);
}

TEST(CommunicatorTest, AllocatesAlignedMemoryOfAnySize) {
  RecordingCommunicator comm(0);
  for (const int64_t bytes : {int64_t{0}, int64_t{1}, int64_t{1000}}) {
    const auto buffer = comm.Allocate(bytes);
    ASSERT_TRUE(buffer.ok());
    EXPECT_EQ(reinterpret_cast<uintptr_t>((*buffer)->data()) % 64, 0u);
    EXPECT_EQ((*buffer)->bytes(), bytes);
  }
  EXPECT_EQ(comm.Allocate(-1).status().code(), StatusCode::kInvalidArgument);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they stop the program
  EXPECT_EQ(comm.Allocate(int64_t{1} << 60).status().code(), StatusCode::kResourceExhausted);
#endif
}

}  // namespace
}  // namespace cria::comm
