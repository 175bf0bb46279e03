// Checkpoints that several ranks write: as threads where all goes well or all fail alike, as
// processes where one of them has a full disk, another file system, or dies.

#include "trainer/checkpoint/save_pieces.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "base/file.h"
#include "tests/support/comm_ranks.h"
#include "tests/unit/trainer/checkpoint/checkpoint_fixture.h"
#include "tests/unit/trainer/checkpoint/syscall_faults.h"

namespace cria::trainer {
namespace {

using model::StDtype;

constexpr int64_t kRows = 7, kColumns = 5, kNorm = 3;

// The tensors of a run of a given step, whole.
struct SavedRun {
  explicit SavedRun(int64_t step) {
    state.step = step;
    state.config_yaml = "precision: fp32\n";
    for (int64_t i = 0; i < kRows * kColumns; ++i)
      matrix.push_back(static_cast<float>(step * 100 + i));
    for (int64_t i = 0; i < kNorm; ++i) norm.push_back(static_cast<float>(-i));
    for (const float x : matrix) moments.push_back(x / 2);
  }
  CheckpointState state;
  std::vector<float> matrix, norm, moments, history = {1, 2, 3, 4};
};

const TensorDescription kW = {.name = "w", .shape = {kRows, kColumns}};
const TensorDescription kMoment = {.name = "exp_avg.w", .shape = {kRows, kColumns}};
const TensorDescription kN = {.name = "norm", .shape = {kNorm}};
const TensorDescription kHistory = {.name = "fp8.history", .shape = {4}};

std::string_view Bytes(const std::vector<float>& x) {
  return {reinterpret_cast<const char*>(x.data()), x.size() * sizeof(float)};
}

CheckpointTensors Whole(const SavedRun& run) {
  return {.model = {{kW.name, kW.dtype, kW.shape, Bytes(run.matrix)},
                    {kN.name, kN.dtype, kN.shape, Bytes(run.norm)}},
          .optimizer = {{kMoment.name, kMoment.dtype, kMoment.shape, Bytes(run.moments)}},
          .state = {{kHistory.name, kHistory.dtype, kHistory.shape, Bytes(run.history)}}};
}

// One rank's pieces: columns of "w" by rank, elements of the moments by rank, the rest by rank 0.
class Share {
 public:
  Share(const SavedRun& run, int rank, int size) {
    const auto bound = [&](int64_t n, int i) { return n * i / size; };
    out_.model = {kW, kN};
    out_.optimizer = {kMoment};
    const int64_t first = bound(kColumns, rank), columns = bound(kColumns, rank + 1) - first;
    for (int64_t row = 0; row < kRows; ++row) {
      for (int64_t c = first; c < first + columns; ++c) {
        block_.push_back(run.matrix[static_cast<size_t>(row * kColumns + c)]);
      }
    }
    Add(CheckpointPart::kModel,
        {.tensor = kW, .first_column = first, .columns = columns, .end = kRows * columns},
        Bytes(block_));
    const int64_t n = kRows * kColumns;
    const int64_t begin = bound(n, rank), end = bound(n, rank + 1);
    Add(CheckpointPart::kOptimizer,
        {.tensor = kMoment, .columns = kColumns, .begin = begin, .end = end},
        Bytes(run.moments)
            .substr(static_cast<size_t>(begin) * 4, static_cast<size_t>(end - begin) * 4));
    if (rank > 0) return;
    Add(CheckpointPart::kModel, {.tensor = kN, .end = kNorm}, Bytes(run.norm));
    Add(CheckpointPart::kState, {.tensor = kHistory, .end = 4}, Bytes(run.history));
  }
  CheckpointPieces& pieces() { return out_; }

 private:
  void Add(CheckpointPart part, const TensorPiece& piece, std::string_view data) {
    out_.pieces.push_back({part, piece, data});
  }
  CheckpointPieces out_;
  std::vector<float> block_;
};

Status SaveShare(const std::string& dir, int64_t step, comm::Communicator& world) {
  const SavedRun run(step);
  Share share(run, world.rank(), world.size());
  return SaveCheckpointPieces(dir, run.state, share.pieces(), &world);
}

std::map<std::string, std::string> FilesOf(const std::string& dir) {
  std::map<std::string, std::string> files;
  const std::vector<std::string> names = *ListDir(dir);
  for (const std::string& name : names) files[name] = *ReadFile(JoinPath(dir, name));
  return files;
}

TEST(SavePiecesTest, ManyRanksWriteTheBytesOfOne) {
  const std::string alone = FreshFolder("alone");
  const SavedRun run(5);
  ASSERT_TRUE(SaveCheckpoint(alone, run.state, Whole(run)).ok());
  for (const int ranks : {1, 2, 3, 8}) {  // 8: some have no columns
    const std::string dir = FreshFolder(StrCat("ranks_", ranks));
    RunRankThreads({.ranks = ranks}, [&](comm::Communicator& world) {
      for (int again = 0; again < 2; ++again) {  // the second replaces the first
        const Status saved = SaveShare(dir, 5, world);
        EXPECT_TRUE(saved.ok()) << saved;
      }
    });
    EXPECT_EQ(FilesOf(CheckpointDir(dir, 5)), FilesOf(CheckpointDir(alone, 5))) << ranks;
    EXPECT_EQ(ListDir(dir)->size(), 1u) << "something was left behind";
  }
}

// Every rank has this error and nothing is left of the save.
void ExpectAllFail(int ranks, const std::function<void(int rank, CheckpointPieces*)>& spoil,
                   const std::string& message) {
  const std::string dir = FreshFolder("spoiled");
  const SavedRun run(6);
  RunRankThreads({.ranks = ranks}, [&](comm::Communicator& world) {
    ASSERT_TRUE(SaveShare(dir, 5, world).ok());
    Share share(run, world.rank(), world.size());
    spoil(world.rank(), &share.pieces());
    const Status saved = SaveCheckpointPieces(dir, run.state, share.pieces(), &world);
    EXPECT_NE(Message(saved).find(message), std::string::npos) << saved;
    ASSERT_TRUE(world.Barrier().Wait().ok());
    EXPECT_EQ(*ListDir(dir), std::vector<std::string>{"step_5"});
  });
}

TEST(SavePiecesTest, PiecesThatDontCoverEveryElementOnceFailOnAllRanks) {
  const auto moments_of = [](CheckpointPieces* pieces) -> CheckpointPieces::Piece& {
    return pieces->pieces[1];
  };
  for (const int ranks : {1, 3}) {
    const int last = ranks - 1;
    ExpectAllFail(
        ranks,
        [&](int rank, CheckpointPieces* pieces) {
          if (rank != last) return;
          --moments_of(pieces).piece.end;
          moments_of(pieces).data.remove_suffix(4);
        },
        "optimizer.safetensors: exp_avg.w F32 [7, 5]: 1 of 35 elements are in no rank's piece");
    ExpectAllFail(
        ranks,
        [&](int rank, CheckpointPieces* pieces) {
          if (rank == last) pieces->pieces.push_back(moments_of(pieces));
        },
        StrCat(" is in the pieces of rank ", last, " and rank ", last));
    ExpectAllFail(
        ranks,
        [&](int rank, CheckpointPieces* pieces) {
          if (rank == 0) pieces->model.push_back({.name = "lm_head.weight", .shape = {2, 2}});
        },
        "model.safetensors: lm_head.weight F32 [2, 2]: 4 of 4 elements are in no rank's piece");
    ExpectAllFail(
        ranks,
        [&](int rank, CheckpointPieces* pieces) {
          if (rank == last) moments_of(pieces).data.remove_suffix(1);
        },
        "piece of exp_avg.w");
  }
}

TEST(SavePiecesTest, LoadingReadsTheSamePiecesInAnyLayout) {
  const std::string dir = FreshFolder("load");
  RunRankThreads({.ranks = 3},
                 [&](comm::Communicator& world) { ASSERT_TRUE(SaveShare(dir, 5, world).ok()); });
  const SavedRun run(5);
  for (const int ranks : {1, 2, 5}) {
    RunRankThreads({.ranks = ranks}, [&](comm::Communicator& world) {
      const auto loaded = LoadCheckpoint(CheckpointDir(dir, 5), &world);
      ASSERT_TRUE(loaded.ok()) << loaded.status();
      Share share(run, world.rank(), world.size());
      for (const CheckpointPieces::Piece& one : share.pieces().pieces) {
        std::vector<std::byte> out(one.data.size());
        const Status copied = loaded->CopyPiece(one.part, one.piece, out);
        ASSERT_TRUE(copied.ok()) << copied;
        EXPECT_EQ(std::memcmp(out.data(), one.data.data(), out.size()), 0) << one.piece.tensor.name;
        out.push_back(std::byte{});
        EXPECT_FALSE(loaded->CopyPiece(one.part, one.piece, out).ok());
      }
    });
  }
}

TEST(SavePiecesTest, DamageInAnyFileIsFoundByAllRanks) {
  for (const char* file :
       {"model.safetensors", "optimizer.safetensors", "state.safetensors", "manifest.json"}) {
    const std::string dir = FreshFolder("damaged");
    const SavedRun run(5);
    ASSERT_TRUE(SaveCheckpoint(dir, run.state, Whole(run)).ok());
    const std::string path = JoinPath(CheckpointDir(dir, 5), file);
    FlipByte(path, *FileSize(path) - 3);
    for (const int ranks : {2, 4}) {
      RunRankThreads({.ranks = ranks}, [&](comm::Communicator& world) {
        const auto loaded = LoadCheckpoint(CheckpointDir(dir, 5), &world);
        EXPECT_EQ(loaded.status().code(), StatusCode::kDataLoss) << file;
        EXPECT_NE(Message(loaded.status()).find(file), std::string::npos) << loaded.status();
      });
    }
  }
}

// Each file is hashed by one rank, which is the one that finds its damage and says so to all.
TEST(SavePiecesTest, RanksShareTheSearchForTheNewest) {
  const std::string dir = FreshFolder("newest");
  const auto find = [&](const std::string& want, const std::string& reason) {
    RunRankThreads({.ranks = 3}, [&](comm::Communicator& world) {
      std::vector<std::string> rejected;
      const auto found = FindNewestVerified(dir, &rejected, &world);
      EXPECT_EQ(found.ok() ? *found : Message(found.status()), want);
      ASSERT_EQ(rejected.size(), reason.empty() ? 0u : 1u);
      if (reason.empty()) return;
      EXPECT_TRUE(rejected[0].starts_with(reason)) << rejected[0];
    });
  };
  find(StrCat(dir, ": there is no checkpoint"), "");
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  ASSERT_TRUE(SaveTiny(dir, 2).ok());
  find(CheckpointDir(dir, 2), "");
  int owner = 0;
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.safetensors"}) {
    const std::string path = JoinPath(CheckpointDir(dir, 2), name);
    const size_t last = *FileSize(path) - 1;
    FlipByte(path, last);
    find(CheckpointDir(dir, 1), StrCat("rank ", owner++, ": ", path, ": altered"));
    FlipByte(path, last);
  }
  find(CheckpointDir(dir, 2), "");
  FlipByte(JoinPath(CheckpointDir(dir, 2), "manifest.json"), 20);
  ASSERT_TRUE(RemoveAll(CheckpointDir(dir, 1)).ok());
  find(StrCat(dir, ": none of the 1 checkpoints is complete and unaltered"), "rank 0: ");
}

// A folder that cannot be listed is rank 0's to say.
TEST(SavePiecesTest, ASearchThatFailsOnRankZeroFailsOnAll) {
  const std::string file = JoinPath(FreshFolder("no_folder"), "file");
  ASSERT_TRUE(WriteFileAtomic(file, "x").ok());
  RunRankThreads({.ranks = 2}, [&](comm::Communicator& world) {
    const auto found = FindNewestVerified(file, nullptr, &world);
    ASSERT_FALSE(found.ok());
    EXPECT_TRUE(Message(found.status()).starts_with("rank 0: ")) << found.status();
    EXPECT_NE(Message(found.status()).find(file), std::string::npos) << found.status();
  });
}

// What every rank's process says of a save that `before` prepares.
std::vector<RankOutcome> SaveInProcesses(const std::string& dir,
                                         const std::function<void(int rank)>& before,
                                         double timeout_s = 60) {
  return RunRankProcesses({.ranks = 3, .timeout_s = timeout_s}, [&](comm::Communicator& world) {
    before(world.rank());
    const Status saved = SaveShare(dir, 6, world);
    DisarmFault();
    return saved.ok() ? std::string("saved") : Message(saved);
  });
}

TEST(SavePiecesFaultTest, AFullDiskOfOneRankIsTheErrorOfAll) {
  for (int at = 0; at < 10; at += 3) {  // writes and syncs of the rank
    const std::string dir = FreshFolder("full");
    const SavedRun before(5);
    ASSERT_TRUE(SaveCheckpoint(dir, before.state, Whole(before)).ok());
    const auto outcomes = SaveInProcesses(dir, [&](int rank) {
      if (rank == 2) ArmFault({.at = at, .action = FaultAction::kFail, .error_number = ENOSPC});
    });
    for (const RankOutcome& outcome : outcomes) {
      EXPECT_NE(outcome.report.find("rank 2: "), std::string::npos) << outcome.report;
      EXPECT_NE(outcome.report.find("No space left on device"), std::string::npos)
          << outcome.report;
    }
    EXPECT_EQ(*ListDir(dir), std::vector<std::string>{"step_5"}) << "fault at " << at;
  }
}

TEST(SavePiecesFaultTest, ARankThatDiesLeavesTheOlderCheckpoint) {
  for (const int rank_that_dies : {0, 1}) {
    const std::string dir = FreshFolder("dies");
    const SavedRun before(5);
    ASSERT_TRUE(SaveCheckpoint(dir, before.state, Whole(before)).ok());
    const auto outcomes = SaveInProcesses(
        dir,
        [&](int rank) {
          if (rank == rank_that_dies) ArmFault({.at = 4, .action = FaultAction::kKill});
        },
        20);
    for (int rank = 0; rank < 3; ++rank) {
      const RankOutcome& outcome = outcomes[static_cast<size_t>(rank)];
      if (rank == rank_that_dies) {
        EXPECT_EQ(outcome.signal, SIGKILL);
      } else {
        EXPECT_NE(outcome.report.find(StrCat("culprit: rank ", rank_that_dies)), std::string::npos)
            << outcome.report;
      }
    }
    EXPECT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, 5));
    ASSERT_TRUE(PruneCheckpoints(dir, 3).ok());
    EXPECT_EQ(*ListDir(dir), std::vector<std::string>{"step_5"});
  }
}

// Another file system is played by another current folder.
TEST(SavePiecesFaultTest, ARankThatDoesNotSeeTheFolderSaysSo) {
  const std::string a = FreshFolder("host_a"), b = FreshFolder("host_b");
  const auto outcomes = SaveInProcesses(
      "checkpoints", [&](int rank) { ASSERT_EQ(chdir((rank == 1 ? b : a).c_str()), 0); });
  for (const RankOutcome& outcome : outcomes) {
    EXPECT_NE(outcome.report.find("rank 1: this rank does not see checkpoints/step_6.tmp-"),
              std::string::npos)
        << outcome.report;
  }
  // The same on loading.
  const SavedRun run(6);
  ASSERT_TRUE(SaveCheckpoint(JoinPath(a, "checkpoints"), run.state, Whole(run)).ok());
  const auto load = [&] {
    return RunRankProcesses({.ranks = 3}, [&](comm::Communicator& world) {
      if (chdir((world.rank() == 1 ? b : a).c_str()) != 0) return std::string("no folder");
      return Message(LoadCheckpoint("checkpoints/step_6", &world).status());
    });
  };
  for (const RankOutcome& outcome : load()) {
    EXPECT_NE(outcome.report.find("rank 1: "), std::string::npos) << outcome.report;
    EXPECT_NE(outcome.report.find("a file system that they share"), std::string::npos)
        << outcome.report;
  }
  SavedRun other(6);
  other.state.samples = 1;
  ASSERT_TRUE(SaveCheckpoint(JoinPath(b, "checkpoints"), other.state, Whole(other)).ok());
  for (const RankOutcome& outcome : load()) {
    EXPECT_NE(outcome.report.find("rank 1: checkpoints/step_6: this rank sees another checkpoint"),
              std::string::npos)
        << outcome.report;
  }
}

}  // namespace
}  // namespace cria::trainer
