#include "trainer/checkpoint/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <string>
#include <vector>

#include "base/file.h"
#include "base/hash.h"
#include "tests/unit/trainer/checkpoint/checkpoint_fixture.h"

namespace cria::trainer {
namespace {

using model::StDtype;

constexpr const char* kFiles[] = {"manifest.json", "model.safetensors", "optimizer.safetensors",
                                  "state.safetensors"};

std::vector<std::string> Names(const std::string& dir) { return *ListDir(dir); }

// Saves steps 1..n.
void SaveSteps(const std::string& dir, int n) {
  for (int step = 1; step <= n; ++step) ASSERT_TRUE(SaveTiny(dir, step).ok());
}

void DamageStep(const std::string& dir, int step) {
  FlipByte(JoinPath(CheckpointDir(dir, step), "optimizer.safetensors"), 200);
}

TEST(CheckpointTest, RoundTripsStateAndTensorsBitForBit) {
  const std::string dir = FreshFolder("roundtrip");
  // torchtitan PR #275, KempnerForge #114: moments come back in their own dtype, to the bit.
  const uint32_t bits[4] = {0x7fc00001, 0x80000000, 0x00000001, 0x3eaaaaab};
  const std::string_view m(reinterpret_cast<const char*>(bits), sizeof(bits));
  CheckpointState state;
  state.step = 12;
  state.tokens = int64_t{1} << 40;
  state.samples = 4097;
  state.seed = ~uint64_t{0};
  state.config_yaml = "a: 1\n";
  state.scalars = {{"beta_power", 0.1 + 0.2}};
  CheckpointTensors tensors;
  tensors.model = {{"w", StDtype::kF32, {4}, m}, {"w16", StDtype::kBF16, {2, 4}, m}};
  tensors.optimizer = {{ExpAvgName("w"), StDtype::kF32, {4}, m}};
  tensors.state = {{"codes", StDtype::kF8E4M3, {16}, m}, {"empty", StDtype::kF32, {0}, {}}};
  const Status saved = SaveCheckpoint(dir, state, tensors);
  ASSERT_TRUE(saved.ok()) << saved;
  EXPECT_EQ(Names(dir), std::vector<std::string>{"step_12"});
  EXPECT_EQ(Names(CheckpointDir(dir, 12)),
            std::vector<std::string>(std::begin(kFiles), std::end(kFiles)));

  const auto loaded = LoadCheckpoint(CheckpointDir(dir, 12));
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(loaded->state().step, 12);
  EXPECT_EQ(loaded->state().tokens, int64_t{1} << 40);
  EXPECT_EQ(loaded->state().samples, 4097);
  EXPECT_EQ(loaded->state().seed, ~uint64_t{0});
  EXPECT_EQ(loaded->state().config_yaml, "a: 1\n");
  EXPECT_EQ(loaded->state().scalars.at("beta_power"), 0.1 + 0.2);
  EXPECT_EQ(*loaded->Tensor(CheckpointPart::kModel, "w", StDtype::kF32, {4}), m);
  EXPECT_EQ(*loaded->Tensor(CheckpointPart::kModel, "w16", StDtype::kBF16, {2, 4}), m);
  EXPECT_EQ(*loaded->Tensor(CheckpointPart::kOptimizer, "exp_avg.w", StDtype::kF32, {4}), m);
  EXPECT_EQ(*loaded->Tensor(CheckpointPart::kState, "codes", StDtype::kF8E4M3, {16}), m);
  uint32_t out[4] = {};
  EXPECT_TRUE(loaded
                  ->CopyTo(CheckpointPart::kModel, "w", StDtype::kF32, {4},
                           std::as_writable_bytes(std::span(out)))
                  .ok());
  EXPECT_EQ(std::memcmp(out, bits, sizeof(bits)), 0);
}

TEST(CheckpointTest, NamesTensorAndShapesWhenTheyDoNotFit) {
  const std::string dir = FreshFolder("fit");
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  const auto loaded = LoadCheckpoint(CheckpointDir(dir, 1));
  std::byte out[8];
  const Status shape = loaded->CopyTo(CheckpointPart::kModel, "w", StDtype::kF32, {3, 2}, out);
  EXPECT_EQ(Message(shape),
            CheckpointDir(dir, 1) +
                "/model.safetensors: tensor \"w\" is F32 [2, 3]; expected F32 [3, 2]");
  EXPECT_FALSE(loaded->CopyTo(CheckpointPart::kModel, "w", StDtype::kBF16, {2, 3}, out).ok());
  EXPECT_FALSE(loaded->CopyTo(CheckpointPart::kModel, "w", StDtype::kF32, {2, 3}, out).ok());
  EXPECT_EQ(loaded->CopyTo(CheckpointPart::kState, "w", StDtype::kF32, {2, 3}, out).code(),
            StatusCode::kNotFound);
}

// Megatron-LM PR #6920: a resumed run went on from a different model without an error.
TEST(CheckpointTest, CheckNamesShowsMissingAndUnknownTensors) {
  const std::string dir = FreshFolder("names");
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  const auto loaded = LoadCheckpoint(CheckpointDir(dir, 1));
  EXPECT_TRUE(loaded->CheckNames(CheckpointPart::kModel, {"norm", "w"}).ok());
  const Status status = loaded->CheckNames(CheckpointPart::kModel, {"w", "head"});
  EXPECT_EQ(status.code(), StatusCode::kFailedPrecondition);
  EXPECT_NE(Message(status).find("1 missing (head), 1 unknown (norm)"), std::string::npos)
      << status;
  EXPECT_FALSE(loaded->CheckNames(CheckpointPart::kModel, {"w"}).ok());
  EXPECT_FALSE(loaded->CheckNames(CheckpointPart::kModel, {"w", "norm", "b"}).ok());
}

// nvidia-resiliency-ext PR #376: the content is that of the call, whatever happens to the buffers
// after.
TEST(CheckpointTest, HoldsTheValuesOfTheCall) {
  const std::string dir = FreshFolder("mutate");
  TinyRun run(5);
  ASSERT_TRUE(SaveCheckpoint(dir, run.state, run.Tensors()).ok());
  run.weight_23.assign(6, -1.0f);
  run.moments_18.assign(18, -1.0f);
  EXPECT_TRUE(CheckTiny(CheckpointDir(dir, 5)).ok());
}

// TransformerEngine #231: the size does not grow with the steps.
TEST(CheckpointTest, IsAsLargeAtStep1000AsAtStep1) {
  const std::string dir = FreshFolder("size");
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  ASSERT_TRUE(SaveTiny(dir, 9).ok());
  for (const char* name : {"model.safetensors", "optimizer.safetensors", "state.safetensors"}) {
    EXPECT_EQ(*FileSize(JoinPath(CheckpointDir(dir, 1), name)),
              *FileSize(JoinPath(CheckpointDir(dir, 9), name)));
  }
  // Saved, loaded and saved again, it is the same to the byte.
  const auto loaded = LoadCheckpoint(CheckpointDir(dir, 9));
  CheckpointTensors again;
  for (const auto part :
       {CheckpointPart::kModel, CheckpointPart::kOptimizer, CheckpointPart::kState}) {
    auto& list = part == CheckpointPart::kModel       ? again.model
                 : part == CheckpointPart::kOptimizer ? again.optimizer
                                                      : again.state;
    for (const auto& t : loaded->file(part).tensors()) {
      list.push_back({t.name, t.dtype, t.shape, loaded->file(part).Data(t)});
    }
  }
  const std::string other = FreshFolder("size_again");
  ASSERT_TRUE(SaveCheckpoint(other, loaded->state(), again).ok());
  for (const char* name : kFiles) {
    EXPECT_EQ(*HashFileHex(JoinPath(CheckpointDir(dir, 9), name)),
              *HashFileHex(JoinPath(CheckpointDir(other, 9), name)))
        << name;
  }
}

TEST(CheckpointTest, ReplacesTheSameStepAndLeavesNothingElse) {
  const std::string dir = FreshFolder("replace");
  ASSERT_TRUE(SaveTiny(dir, 3, 0).ok());
  const auto old = LoadCheckpoint(CheckpointDir(dir, 3));
  const Status saved = SaveTiny(dir, 3, 1);
  ASSERT_TRUE(saved.ok()) << saved;
  int variant = -1;
  EXPECT_TRUE(CheckTiny(CheckpointDir(dir, 3), &variant).ok());
  EXPECT_EQ(variant, 1);
  EXPECT_EQ(Names(dir), std::vector<std::string>{"step_3"});
  // Who had loaded the old one still reads it.
  float value = 0;
  std::memcpy(&value, old->Tensor(CheckpointPart::kModel, "w", StDtype::kF32, {2, 3})->data(), 4);
  EXPECT_EQ(value, 3.0f);
}

TEST(CheckpointTest, ReplacesADamagedFolderOfTheSameStep) {
  const std::string dir = FreshFolder("replace_damaged");
  ASSERT_TRUE(MakeDirs(JoinPath(CheckpointDir(dir, 3), "sub")).ok());
  ASSERT_TRUE(SaveTiny(dir, 3).ok());
  EXPECT_TRUE(CheckTiny(CheckpointDir(dir, 3)).ok());
}

TEST(CheckpointTest, SaveRefusesWhatItCouldNotReadBack) {
  const std::string dir = FreshFolder("refuse");
  EXPECT_EQ(SaveTiny(dir, -1).code(), StatusCode::kInvalidArgument);
  TinyRun run(1);
  run.state.config_yaml = "\xff";
  EXPECT_FALSE(SaveCheckpoint(dir, run.state, run.Tensors()).ok());
  TinyRun other(1);
  CheckpointTensors tensors = other.Tensors();
  tensors.model.push_back(tensors.model.front());
  const Status twice = SaveCheckpoint(dir, other.state, tensors);
  EXPECT_EQ(twice.code(), StatusCode::kInvalidArgument);
  EXPECT_TRUE(Names(dir).empty());
}

TEST(CheckpointTest, LoadSaysWhatIsMissing) {
  const std::string dir = FreshFolder("missing");
  EXPECT_EQ(LoadCheckpoint(dir + "/none").status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  for (const char* name : kFiles) {
    ASSERT_TRUE(SaveTiny(dir, 1).ok());
    const std::string path = JoinPath(CheckpointDir(dir, 1), name);
    ASSERT_TRUE(RemoveAll(path).ok());
    const auto loaded = LoadCheckpoint(CheckpointDir(dir, 1));
    ASSERT_FALSE(loaded.ok());
    EXPECT_NE(Message(loaded.status()).find(path), std::string::npos) << loaded.status();
  }
}

// Every byte of every file altered, every cut: one error that names the file, and the older one is
// found.
TEST(CheckpointTest, FindsTheOlderOneWhenAnyByteOfTheNewerIsAltered) {
  const std::string dir = FreshFolder("flip");
  SaveSteps(dir, 2);
  for (const char* name : kFiles) {
    const std::string path = JoinPath(CheckpointDir(dir, 2), name);
    const std::string whole = *ReadFile(path);
    for (size_t i = 0; i < whole.size(); ++i) {
      FlipByte(path, i);
      std::vector<std::string> rejected;
      const auto found = FindNewestVerified(dir, &rejected);
      FlipByte(path, i);
      ASSERT_TRUE(found.ok()) << found.status();
      ASSERT_EQ(*found, CheckpointDir(dir, 1)) << path << " byte " << i;
      ASSERT_EQ(rejected.size(), 1u);
      ASSERT_NE(rejected[0].find(path), std::string::npos) << rejected[0];
    }
    for (size_t size = 0; size <= whole.size() + 1; size += size < 16 ? 1 : 37) {
      if (size == whole.size()) continue;
      ASSERT_EQ(truncate(path.c_str(), static_cast<off_t>(size)), 0);
      std::vector<std::string> rejected;
      ASSERT_EQ(*FindNewestVerified(dir, &rejected), CheckpointDir(dir, 1)) << path << " " << size;
      ASSERT_NE(rejected[0].find(path), std::string::npos) << rejected[0];
      ASSERT_TRUE(WriteFileAtomic(path, whole).ok());
    }
    ASSERT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, 2));
  }
}

TEST(CheckpointTest, RejectsFilesOfAnotherStepAndRenamedFolders) {
  const std::string dir = FreshFolder("mixed");
  SaveSteps(dir, 2);
  const std::string from = JoinPath(CheckpointDir(dir, 1), "model.safetensors");
  const std::string to = JoinPath(CheckpointDir(dir, 2), "model.safetensors");
  const std::string mine = *ReadFile(to);
  ASSERT_TRUE(WriteFileAtomic(to, *ReadFile(from)).ok());
  EXPECT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, 1));
  ASSERT_TRUE(WriteFileAtomic(to, mine).ok());
  ASSERT_TRUE(Rename(CheckpointDir(dir, 2), CheckpointDir(dir, 7)).ok());
  std::vector<std::string> rejected;
  EXPECT_EQ(*FindNewestVerified(dir, &rejected), CheckpointDir(dir, 1));
  EXPECT_NE(rejected.at(0).find("it is of step 2"), std::string::npos) << rejected[0];
  // Under a name of the user's own it is a checkpoint like any other.
  ASSERT_TRUE(Rename(CheckpointDir(dir, 7), JoinPath(dir, "best")).ok());
  EXPECT_TRUE(CheckTiny(JoinPath(dir, "best")).ok());
}

TEST(FindNewestVerifiedTest, ComparesStepsAsNumbersAndIgnoresOtherNames) {
  const std::string dir = FreshFolder("newest");
  for (const int step : {9, 10, 100}) ASSERT_TRUE(SaveTiny(dir, step).ok());
  ASSERT_TRUE(MakeDirs(JoinPath(dir, "step_200.tmp-1-0")).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(dir, "notes.txt"), "x").ok());
  std::vector<std::string> rejected;
  EXPECT_EQ(*FindNewestVerified(dir, &rejected), CheckpointDir(dir, 100));
  EXPECT_TRUE(rejected.empty());
}

TEST(FindNewestVerifiedTest, IsNotFoundWhenThereIsNone) {
  const std::string dir = FreshFolder("none");
  EXPECT_EQ(FindNewestVerified(dir, nullptr).status().code(), StatusCode::kNotFound);
  EXPECT_EQ(FindNewestVerified(dir + "/absent", nullptr).status().code(), StatusCode::kNotFound);
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  DamageStep(dir, 1);
  std::vector<std::string> rejected;
  const auto found = FindNewestVerified(dir, &rejected);
  EXPECT_EQ(found.status().code(), StatusCode::kNotFound);
  EXPECT_NE(Message(found.status()).find("none of the 1"), std::string::npos) << found.status();
  EXPECT_EQ(rejected.size(), 1u);
}

TEST(PruneCheckpointsTest, KeepsTheLastK) {
  const std::string dir = FreshFolder("keep");
  SaveSteps(dir, 5);
  ASSERT_TRUE(PruneCheckpoints(dir, 0).ok());
  EXPECT_EQ(Names(dir).size(), 5u);
  ASSERT_TRUE(PruneCheckpoints(dir, 2).ok());
  EXPECT_EQ(Names(dir), (std::vector<std::string>{"step_4", "step_5"}));
  ASSERT_TRUE(PruneCheckpoints(dir, 7).ok());
  EXPECT_EQ(Names(dir).size(), 2u);
  EXPECT_TRUE(PruneCheckpoints(dir + "/absent", 2).ok());
}

// torchtitan #916: what came last was bad, and the good ones had been rotated out.
TEST(PruneCheckpointsTest, NeverRemovesTheNewestGoodOne) {
  const std::string dir = FreshFolder("good");
  SaveSteps(dir, 5);
  for (const int step : {3, 4, 5}) DamageStep(dir, step);
  ASSERT_TRUE(PruneCheckpoints(dir, 1).ok());
  EXPECT_EQ(Names(dir), (std::vector<std::string>{"step_2", "step_5"}));
  EXPECT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, 2));
}

TEST(PruneCheckpointsTest, RemovesNothingWhenNoneVerifies) {
  const std::string dir = FreshFolder("none_good");
  SaveSteps(dir, 3);
  for (const int step : {1, 2, 3}) DamageStep(dir, step);
  EXPECT_EQ(PruneCheckpoints(dir, 1).code(), StatusCode::kDataLoss);
  EXPECT_EQ(Names(dir).size(), 3u);
}

// After a resume from step 2 the run saves step 3 while 8 and 9 of its former life are still there.
TEST(PruneCheckpointsTest, SparesTheProtectedStep) {
  const std::string dir = FreshFolder("protect");
  for (const int step : {2, 3, 8, 9}) ASSERT_TRUE(SaveTiny(dir, step).ok());
  ASSERT_TRUE(PruneCheckpoints(dir, 1, 3).ok());
  EXPECT_EQ(Names(dir), (std::vector<std::string>{"step_3", "step_9"}));
}

TEST(PruneCheckpointsTest, RemovesLeftoversOfKilledSaves) {
  const std::string dir = FreshFolder("leftover");
  SaveSteps(dir, 1);
  const std::string leftover = JoinPath(dir, "step_2.tmp-999999999-0");
  ASSERT_TRUE(MakeDirs(leftover).ok());
  ASSERT_TRUE(WriteFileAtomic(JoinPath(leftover, "model.safetensors"), "half").ok());
  ASSERT_TRUE(PruneCheckpoints(dir, 3).ok());
  EXPECT_EQ(Names(dir), std::vector<std::string>{"step_1"});
}

// A limit on file sizes stands in for a full disk where nothing can be mounted.
TEST(CheckpointFullDiskTest, FailsWithOneClearErrorAtAFileSizeLimit) {
  const std::string dir = FreshFolder("fsize");
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  rlimit before;
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
  const std::string big(1 << 22, 'x');
  CheckpointTensors tensors = TinyRun(2).Tensors();
  const TinyRun run(2);
  tensors = run.Tensors();
  tensors.optimizer.push_back({"big", StDtype::kU8, {1 << 22}, big});
  const rlimit low{1 << 21, before.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &low), 0);
  const Status status = SaveCheckpoint(dir, run.state, tensors);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, old_handler);
  ASSERT_FALSE(status.ok());
  const std::string message = Message(status);
  EXPECT_NE(message.find("save " + CheckpointDir(dir, 2)), std::string::npos) << message;
  EXPECT_NE(message.find("optimizer.safetensors"), std::string::npos) << message;
  EXPECT_NE(message.find(std::strerror(EFBIG)), std::string::npos) << message;
  EXPECT_EQ(message.find('\n'), std::string::npos);
  EXPECT_EQ(Names(dir), std::vector<std::string>{"step_1"});
  EXPECT_TRUE(CheckTiny(*FindNewestVerified(dir, nullptr)).ok());
  EXPECT_TRUE(SaveCheckpoint(dir, run.state, tensors).ok());
}

// A file system of its own, unmounted at the end.
class Tmpfs {
 public:
  explicit Tmpfs(const std::string& path) : path_(path) {
    mounted_ = mount("tmpfs", path.c_str(), "tmpfs", 0, "size=256k") == 0;
  }
  ~Tmpfs() {
    if (mounted_) umount(path_.c_str());
  }
  bool mounted() const { return mounted_; }
  bool MakeReadOnly() {
    return mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, "size=256k") == 0;
  }

 private:
  const std::string path_;
  bool mounted_ = false;
};

TEST(CheckpointFullDiskTest, KeepsTheOldOneWhenTheDiskIsFull) {
  const std::string mount_point = FreshFolder("tmpfs_full");
  const Tmpfs tmpfs(mount_point);
  if (!tmpfs.mounted()) GTEST_SKIP() << "cannot mount a tmpfs; run as root outside a sandbox";
  const std::string dir = JoinPath(mount_point, "checkpoints");
  ASSERT_TRUE(SaveTiny(dir, 1).ok());
  const std::string big(1 << 20, 'x');
  const TinyRun run(2);
  CheckpointTensors tensors = run.Tensors();
  tensors.model.push_back({"big", StDtype::kU8, {1 << 20}, big});
  const Status status = SaveCheckpoint(dir, run.state, tensors);
  EXPECT_EQ(status.code(), StatusCode::kResourceExhausted) << status;
  EXPECT_NE(Message(status).find("model.safetensors"), std::string::npos) << status;
  EXPECT_EQ(Names(dir), std::vector<std::string>{"step_1"});
  EXPECT_TRUE(SaveTiny(dir, 2).ok());  // the failed one gave its space back
  EXPECT_EQ(*FindNewestVerified(dir, nullptr), CheckpointDir(dir, 2));
}

TEST(CheckpointReadOnlyTest, SaveAndPruneFailWithTheFoldersNameAndLoadWorks) {
  const std::string mount_point = FreshFolder("tmpfs_ro");
  Tmpfs tmpfs(mount_point);
  if (!tmpfs.mounted()) GTEST_SKIP() << "cannot mount a tmpfs; run as root outside a sandbox";
  const std::string dir = JoinPath(mount_point, "checkpoints");
  SaveSteps(dir, 2);
  ASSERT_TRUE(tmpfs.MakeReadOnly());
  const Status status = SaveTiny(dir, 3);
  EXPECT_EQ(status.code(), StatusCode::kPermissionDenied) << status;
  EXPECT_NE(Message(status).find(dir), std::string::npos) << status;
  EXPECT_FALSE(PruneCheckpoints(dir, 1).ok());
  EXPECT_TRUE(CheckTiny(*FindNewestVerified(dir, nullptr)).ok());
}

TEST(CheckpointReadOnlyTest, SaveNamesThePathWhenAFileIsInTheWay) {
  const std::string folder = FreshFolder("in_the_way");
  const std::string file = JoinPath(folder, "checkpoints");
  ASSERT_TRUE(WriteFileAtomic(file, "x").ok());
  const Status status = SaveTiny(file, 1);
  ASSERT_FALSE(status.ok());
  EXPECT_NE(Message(status).find(file), std::string::npos) << status;
  EXPECT_EQ(*ReadFile(file), "x");
}

}  // namespace
}  // namespace cria::trainer
