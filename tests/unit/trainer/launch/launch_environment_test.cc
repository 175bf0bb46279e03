#include "trainer/launch/launch_environment.h"

#include <gtest/gtest.h>

#include "comm/rendezvous/rank_environment.h"

namespace cria::trainer {
namespace {

using comm::EnvironmentVariables;

LaunchOptions Resolved(LaunchOptions options) {
  options.command = {"train"};
  const auto job = ResolveLaunch(options);
  EXPECT_TRUE(job.ok()) << job.status();
  return job.ok() ? *job : LaunchOptions();
}

void ExpectRefused(LaunchOptions options, const std::string& text) {
  if (options.command.empty()) options.command = {"train"};
  const auto job = ResolveLaunch(options);
  ASSERT_FALSE(job.ok());
  EXPECT_EQ(job.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(job.status()).find(text), std::string::npos) << job.status();
}

TEST(LaunchEnvironmentTest, IsTorchruns) {
  const LaunchOptions job = Resolved({.ranks = 4});
  const EnvironmentVariables all = EnvironmentOfRank(job, 3, 8, {{"HOME", "/root"}});
  EXPECT_EQ(all.at("RANK"), "3");
  EXPECT_EQ(all.at("WORLD_SIZE"), "4");
  EXPECT_EQ(all.at("LOCAL_RANK"), "3");
  EXPECT_EQ(all.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(all.at("GROUP_RANK"), "0");
  EXPECT_EQ(all.at("GROUP_WORLD_SIZE"), "1");
  EXPECT_EQ(all.at("MASTER_ADDR"), "127.0.0.1");
  EXPECT_EQ(all.at("MASTER_PORT"), StrCat(job.master_port));
  EXPECT_EQ(all.at("TORCHELASTIC_RUN_ID"), job.run_id);
  EXPECT_EQ(all.at("HOME"), "/root");
  // The kernel gives away those from 32768 on.
  EXPECT_GE(job.master_port, 10000);
  EXPECT_LT(job.master_port, 30000);
}

TEST(LaunchEnvironmentTest, RanksOfTheSecondMachineFollowThoseOfTheFirst) {
  const LaunchOptions job =
      Resolved({.ranks = 4, .num_nodes = 3, .node_rank = 2, .master_address = "gpu07"});
  const EnvironmentVariables all = EnvironmentOfRank(job, 1, 8, {});
  EXPECT_EQ(all.at("RANK"), "9");
  EXPECT_EQ(all.at("WORLD_SIZE"), "12");
  EXPECT_EQ(all.at("LOCAL_RANK"), "1");
  EXPECT_EQ(all.at("LOCAL_WORLD_SIZE"), "4");
  EXPECT_EQ(all.at("GROUP_RANK"), "2");
  EXPECT_EQ(all.at("GROUP_WORLD_SIZE"), "3");
  EXPECT_EQ(all.at("MASTER_ADDR"), "gpu07");
  // What all machines know without being told: torchrun's.
  EXPECT_EQ(all.at("MASTER_PORT"), "29500");
  EXPECT_EQ(all.at("TORCHELASTIC_RUN_ID"), "none");
}

TEST(LaunchEnvironmentTest, CommReadsItWhateverOtherLaunchersSay) {
  const LaunchOptions job = Resolved({.ranks = 4, .master_port = 4711, .run_id = "a"});
  const EnvironmentVariables slurm_and_mpi = {
      {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "2"},          {"OMPI_COMM_WORLD_RANK", "1"},
      {"RANK", "7"},         {"OMPI_COMM_WORLD_SIZE", "16"}, {"WORLD_SIZE", "8"},
      {"MASTER_PORT", "1"},  {"CRIA_COMM_LAUNCHER", "slurm"}};
  const auto read = comm::ReadRankEnvironment(EnvironmentOfRank(job, 2, 8, slurm_and_mpi));
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->rank, 2);
  EXPECT_EQ(read->world_size, 4);
  EXPECT_EQ(read->local_rank, 2);
  EXPECT_EQ(read->local_size, 4);
  EXPECT_EQ(read->master_port, 4711);
  EXPECT_EQ(read->job, "torchrun/a");
}

TEST(LaunchEnvironmentTest, DividesTheCoresUnlessToldOtherwise) {
  const auto threads = [](int ranks, int cores, const EnvironmentVariables& ours) {
    const EnvironmentVariables all = EnvironmentOfRank(Resolved({.ranks = ranks}), 0, cores, ours);
    return all.at("CRIA_THREADS") + " " + all.at("OMP_NUM_THREADS");
  };
  EXPECT_EQ(threads(1, 8, {}), "8 8");
  EXPECT_EQ(threads(3, 8, {}), "2 2");
  EXPECT_EQ(threads(9, 8, {}), "1 1");
  EXPECT_EQ(threads(2, 8, {{"CRIA_THREADS", "3"}}), "3 4");
  EXPECT_EQ(threads(2, 8, {{"OMP_NUM_THREADS", "5"}}), "4 5");
}

TEST(LaunchEnvironmentTest, RunsOfOneMachineDiffer) {
  const LaunchOptions a = Resolved({.ranks = 2}), b = Resolved({.ranks = 2});
  EXPECT_NE(a.run_id, b.run_id);
  EXPECT_EQ(Resolved({.run_id = "mine"}).run_id, "mine");
}

TEST(LaunchEnvironmentTest, NamesTheOptionThatIsWrong) {
  ExpectRefused({.ranks = 0}, "-n 0");
  ExpectRefused({.ranks = 1025}, "-n 1025");
  ExpectRefused({.num_nodes = 0}, "--nnodes 0");
  ExpectRefused({.ranks = 1024, .num_nodes = 1025}, "--nnodes 1025");
  ExpectRefused({.num_nodes = 2, .node_rank = 2, .master_address = "a"},
                "--node-rank 2 is not below --nnodes 2");
  ExpectRefused({.node_rank = -1}, "--node-rank -1");
  ExpectRefused({.num_nodes = 2}, "--nnodes 2 needs --master-addr");
  ExpectRefused({.master_port = 65536}, "--master-port 65536");
  ExpectRefused({.grace_s = -1}, "--grace -1");
  EXPECT_EQ(ResolveLaunch({}).status().code(), StatusCode::kInvalidArgument);  // no command
}

}  // namespace
}  // namespace cria::trainer
