#include "comm/rendezvous/rank_environment.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

using Variables = EnvironmentVariables;

Variables Torchrun(int rank, int size) {
  return {{"RANK", StrCat(rank)},    {"WORLD_SIZE", StrCat(size)}, {"LOCAL_RANK", StrCat(rank % 4)},
          {"LOCAL_WORLD_SIZE", "4"}, {"MASTER_ADDR", "10.0.0.1"},  {"MASTER_PORT", "29500"}};
}

Variables Slurm(int rank, int size) {
  return {{"SLURM_PROCID", StrCat(rank)},
          {"SLURM_NTASKS", StrCat(size)},
          {"SLURM_LOCALID", StrCat(rank % 4)},
          {"SLURM_NODEID", StrCat(rank / 4)},
          {"SLURM_TASKS_PER_NODE", StrCat("4(x", size / 4, ")")},
          {"SLURM_STEP_NODELIST", "gpu[07-09,12]"},
          {"SLURM_JOB_ID", "4711"},
          {"SLURM_STEP_ID", "2"}};
}

Variables OpenMpi(int rank, int size, int local_size) {
  return {{"OMPI_COMM_WORLD_RANK", StrCat(rank)},
          {"OMPI_COMM_WORLD_SIZE", StrCat(size)},
          {"OMPI_COMM_WORLD_LOCAL_RANK", StrCat(rank % local_size)},
          {"OMPI_COMM_WORLD_LOCAL_SIZE", StrCat(local_size)},
          {"PMIX_NAMESPACE", "3141592653"}};
}

Variables With(Variables base, const Variables& more) {
  for (const auto& [name, value] : more) base[name] = value;
  return base;
}

Variables Without(Variables base, const std::string& name) {
  base.erase(name);
  return base;
}

// The error of these variables has all these words.
void ExpectRefused(const Variables& variables, const std::vector<std::string>& words) {
  const auto environment = ReadRankEnvironment(variables);
  ASSERT_FALSE(environment.ok()) << "rank " << environment->rank;
  EXPECT_EQ(environment.status().code(), StatusCode::kInvalidArgument);
  for (const std::string& word : words) {
    EXPECT_NE(Message(environment.status()).find(word), std::string::npos)
        << "no \"" << word << "\" in: " << environment.status();
  }
}

TEST(RankEnvironmentTest, IsOneRankAloneWithoutALauncher) {
  const auto environment = ReadRankEnvironment({{"PATH", "/bin"}, {"RANK", ""}});
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 0);
  EXPECT_EQ(environment->world_size, 1);
  EXPECT_EQ(environment->local_size, 1);
  EXPECT_EQ(environment->master_port, 0);
  EXPECT_EQ(environment->source, "none");
}

TEST(RankEnvironmentTest, ReadsTorchrun) {
  const auto environment =
      ReadRankEnvironment(With(Torchrun(6, 8), {{"TORCHELASTIC_RUN_ID", "run7"}}));
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 6);
  EXPECT_EQ(environment->world_size, 8);
  EXPECT_EQ(environment->local_rank, 2);
  EXPECT_EQ(environment->local_size, 4);
  EXPECT_EQ(environment->master_address, "10.0.0.1");
  EXPECT_EQ(environment->master_port, 29500);
  EXPECT_EQ(environment->source, "torchrun");
  EXPECT_EQ(environment->job, "torchrun/run7");
}

TEST(RankEnvironmentTest, TorchrunNeedsTheMasterAndTheSize) {
  ExpectRefused(Without(Torchrun(1, 8), "MASTER_ADDR"), {"MASTER_ADDR is not set", "RANK=1"});
  ExpectRefused(Without(Torchrun(1, 8), "MASTER_PORT"), {"MASTER_PORT is not set", "WORLD_SIZE=8"});
  ExpectRefused(Without(Torchrun(1, 8), "WORLD_SIZE"), {"RANK is set, but WORLD_SIZE is not"});
  EXPECT_TRUE(ReadRankEnvironment({{"RANK", "0"}, {"WORLD_SIZE", "1"}}).ok());
}

TEST(RankEnvironmentTest, NamesTheVariableAndTheValueThatIsNoNumber) {
  ExpectRefused(With(Torchrun(1, 8), {{"RANK", "-1"}}), {"RANK=-1"});
  ExpectRefused(With(Torchrun(1, 8), {{"RANK", "one"}}), {"RANK=one"});
  ExpectRefused(With(Torchrun(1, 8), {{"RANK", "1 "}}), {"RANK=1 "});
  ExpectRefused(With(Torchrun(1, 8), {{"RANK", "99999999999"}}), {"RANK=99999999999"});
  ExpectRefused(With(Torchrun(1, 8), {{"WORLD_SIZE", "0"}}), {"WORLD_SIZE=0"});
  ExpectRefused(With(Torchrun(1, 8), {{"MASTER_PORT", "65536"}}), {"MASTER_PORT=65536"});
  ExpectRefused(With(Torchrun(1, 8), {{"MASTER_PORT", "0"}}), {"MASTER_PORT=0"});
  ExpectRefused(With(Torchrun(1, 8), {{"LOCAL_RANK", "x"}}), {"LOCAL_RANK=x"});
}

TEST(RankEnvironmentTest, NamesNumbersThatContradictEachOther) {
  ExpectRefused(With(Torchrun(1, 8), {{"RANK", "8"}}), {"RANK=8", "WORLD_SIZE=8"});
  ExpectRefused(With(Torchrun(1, 8), {{"LOCAL_RANK", "4"}}),
                {"LOCAL_RANK=4", "LOCAL_WORLD_SIZE=4"});
  ExpectRefused(With(Torchrun(1, 2), {}), {"LOCAL_WORLD_SIZE=4", "WORLD_SIZE=2"});
}

TEST(RankEnvironmentTest, ReadsSlurm) {
  const auto environment = ReadRankEnvironment(Slurm(9, 16));
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 9);
  EXPECT_EQ(environment->world_size, 16);
  EXPECT_EQ(environment->local_rank, 1);
  EXPECT_EQ(environment->local_size, 4);
  EXPECT_EQ(environment->master_address, "gpu07");
  EXPECT_EQ(environment->source, "slurm");
  EXPECT_EQ(environment->job, "slurm/4711.2");
}

TEST(RankEnvironmentTest, SlurmsPortIsTheSameForAllRanksAndAnotherForAnotherStep) {
  const int port = ReadRankEnvironment(Slurm(0, 16))->master_port;
  EXPECT_GE(port, 15000);
  EXPECT_LT(port, 30000);
  for (int rank = 1; rank < 16; ++rank) {
    EXPECT_EQ(ReadRankEnvironment(Slurm(rank, 16))->master_port, port);
  }
  EXPECT_NE(ReadRankEnvironment(With(Slurm(0, 16), {{"SLURM_STEP_ID", "3"}}))->master_port, port);
  EXPECT_EQ(ReadRankEnvironment(With(Slurm(0, 16), {{"MASTER_PORT", "777"}}))->master_port, 777);
  EXPECT_EQ(ReadRankEnvironment(With(Slurm(0, 16), {{"MASTER_ADDR", "head"}}))->master_address,
            "head");
}

TEST(RankEnvironmentTest, SlurmSaysWhatIsWrong) {
  ExpectRefused(With(Slurm(1, 16), {{"SLURM_STEP_NODELIST", "gpu[7-"}}),
                {"SLURM_STEP_NODELIST", "gpu[7-"});
  ExpectRefused(With(Slurm(1, 16), {{"SLURM_TASKS_PER_NODE", "4(y)"}}),
                {"SLURM_TASKS_PER_NODE", "4(y)"});
  ExpectRefused(With(Slurm(1, 16), {{"SLURM_NODEID", "4"}}), {"SLURM_NODEID=4", "4 hosts"});
  ExpectRefused(Without(Slurm(1, 16), "SLURM_NTASKS"), {"SLURM_PROCID", "SLURM_NTASKS"});
  ExpectRefused(Without(Slurm(1, 16), "SLURM_JOB_ID"), {"MASTER_PORT is not set"});
  ExpectRefused(Without(Slurm(1, 16), "SLURM_STEP_NODELIST"), {"MASTER_ADDR is not set"});
  ExpectRefused(With(Slurm(1, 16), {{"SLURM_PROCID", "16"}}),
                {"SLURM_PROCID=16", "SLURM_NTASKS=16"});
}

TEST(RankEnvironmentTest, ReadsOpenMpiOnOneHost) {
  const auto environment = ReadRankEnvironment(OpenMpi(3, 4, 4));
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 3);
  EXPECT_EQ(environment->local_rank, 3);
  EXPECT_EQ(environment->local_size, 4);
  EXPECT_EQ(environment->master_address, "127.0.0.1");
  EXPECT_EQ(environment->source, "openmpi");
  EXPECT_EQ(environment->master_port, ReadRankEnvironment(OpenMpi(0, 4, 4))->master_port);
  EXPECT_NE(environment->master_port, 0);
}

TEST(RankEnvironmentTest, OpenMpiOnSeveralHostsSaysWhatToSet) {
  ExpectRefused(OpenMpi(3, 8, 4), {"MASTER_ADDR is not set", "mpirun -x MASTER_ADDR="});
  const auto environment =
      ReadRankEnvironment(With(OpenMpi(3, 8, 4), {{"MASTER_ADDR", "10.0.0.9"}}));
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->master_address, "10.0.0.9");
  Variables without_job = With(OpenMpi(3, 8, 4), {{"MASTER_ADDR", "10.0.0.9"}});
  without_job.erase("PMIX_NAMESPACE");
  ExpectRefused(without_job, {"MASTER_PORT is not set", "-x MASTER_PORT="});
  EXPECT_TRUE(ReadRankEnvironment(With(without_job, {{"OMPI_MCA_ess_base_jobid", "99"}})).ok());
}

TEST(RankEnvironmentTest, TwoSourcesThatAgreeAreTaken) {
  const auto environment = ReadRankEnvironment(With(Slurm(5, 16), Torchrun(5, 16)));
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->source, "torchrun");
  EXPECT_EQ(environment->master_address, "10.0.0.1");
}

TEST(RankEnvironmentTest, TwoSourcesThatDisagreeAreRefusedByName) {
  ExpectRefused(With(Slurm(5, 16), Torchrun(6, 16)),
                {"torchrun says RANK=6", "slurm says SLURM_PROCID=5", "CRIA_COMM_LAUNCHER=slurm"});
  ExpectRefused(With(Slurm(5, 16), OpenMpi(5, 8, 8)),
                {"slurm says SLURM_PROCID=5 of SLURM_NTASKS=16",
                 "openmpi says OMPI_COMM_WORLD_RANK=5 of OMPI_COMM_WORLD_SIZE=8"});
}

TEST(RankEnvironmentTest, TheLauncherCanBeChosen) {
  const Variables both = With(Slurm(5, 16), OpenMpi(3, 4, 4));
  EXPECT_EQ(ReadRankEnvironment(With(both, {{"CRIA_COMM_LAUNCHER", "openmpi"}}))->rank, 3);
  EXPECT_EQ(ReadRankEnvironment(With(both, {{"CRIA_COMM_LAUNCHER", "slurm"}}))->rank, 5);
  ExpectRefused(With(both, {{"CRIA_COMM_LAUNCHER", "pbs"}}), {"CRIA_COMM_LAUNCHER=pbs"});
  ExpectRefused(With(both, {{"CRIA_COMM_LAUNCHER", "torchrun"}}), {"RANK is not set"});
}

// srun starts one torchrun a node: the task's number is the node's, and no contradiction.
TEST(RankEnvironmentTest, TorchrunInsideSlurmIsNoContradiction) {
  Variables variables = With(Slurm(1, 4), Torchrun(6, 16));
  variables["GROUP_RANK"] = "1";
  variables["GROUP_WORLD_SIZE"] = "4";
  const auto environment = ReadRankEnvironment(variables);
  ASSERT_TRUE(environment.ok()) << environment.status();
  EXPECT_EQ(environment->rank, 6);
  variables["GROUP_RANK"] = "2";
  ExpectRefused(variables, {"torchrun says", "slurm says"});
}

}  // namespace
}  // namespace cria::comm
