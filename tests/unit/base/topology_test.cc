#include "base/topology.h"

#include <gtest/gtest.h>

#include <string>

namespace cria {
namespace {

constexpr char kTwoTiers[] = R"(hosts: 12
ranks_per_host: 2
link: {latency_us: 5, gigabytes_per_s: 50}
tiers: [rack, pod]
rack: {hosts: 2}
pod: {hosts: 6, oversubscription: 7, latency_us: 3}
)";

std::string ErrorOf(const std::string& text) {
  return Message(ParseCluster(text, "c.yaml").status());
}

TEST(ClusterTest, ReadsWhatTheFileSays) {
  const auto cluster = ParseCluster(kTwoTiers, "configs/clusters/c.yaml");
  ASSERT_TRUE(cluster.ok()) << Message(cluster.status());
  EXPECT_EQ(cluster->name, "c");
  EXPECT_EQ(cluster->num_ranks(), 24);
  EXPECT_EQ(cluster->link.gigabytes_per_s, 50);
  EXPECT_EQ(cluster->link.message_us, Cluster().link.message_us);  // not in the file
  ASSERT_EQ(cluster->tiers.size(), 2u);
  EXPECT_EQ(cluster->tiers[0].name, "rack");
  EXPECT_EQ(cluster->tiers[0].oversubscription, 1);
  EXPECT_EQ(cluster->tiers[1].oversubscription, 7);
  EXPECT_EQ(cluster->UnitOf(0, 5), 2);
  EXPECT_EQ(cluster->UnitOf(1, 5), 0);
  EXPECT_EQ(cluster->UnitOf(1, 6), 1);
}

TEST(ClusterTest, TakesNamesForHosts) {
  const auto cluster = ParseCluster("host_names: [a, b, c]\n", "c.yaml");
  ASSERT_TRUE(cluster.ok()) << Message(cluster.status());
  EXPECT_EQ(cluster->hosts, 3);
  EXPECT_EQ(ErrorOf("hosts: 2\nhost_names: [a, b, c]\n"),
            "c.yaml: hosts is 2, but host_names has 3");
}

TEST(ClusterTest, NamesEachMistake) {
  EXPECT_EQ(ErrorOf("hostz: 2\n"), "c.yaml:1: hostz: unknown key; did you mean \"hosts\"?");
  EXPECT_EQ(ErrorOf("hosts: 0\n"), "c.yaml:1: hosts: 0 is out of range [1, 1e+06]");
  EXPECT_NE(ErrorOf("tiers: [rack]\n").find("rack: the key \"hosts\" is missing"),
            std::string::npos)
      << ErrorOf("tiers: [rack]\n");
  EXPECT_NE(ErrorOf("rack: {hosts: 2}\n").find("rack: unknown key"), std::string::npos);
  EXPECT_NE(ErrorOf("link: {gigabytes_per_s: 0}\n").find("out of range"), std::string::npos);
  EXPECT_EQ(ErrorOf("tiers: [rack, pod]\nrack: {hosts: 4}\npod: {hosts: 6}\n"),
            "c.yaml: pod.hosts is 6, no multiple of the 4 of rack");
  EXPECT_EQ(ErrorOf("tiers: [rack, rack]\nrack: {hosts: 4}\n"),
            "c.yaml: tiers: \"rack\" stands twice");
  EXPECT_EQ(ErrorOf("tiers: [hosts]\nhosts: 4\n"),
            "c.yaml: tiers: no tier can be called \"hosts\"");
  EXPECT_EQ(ReadCluster("nowhere").status().code(), StatusCode::kNotFound);
}

TEST(ClusterTest, PresetsAreTheClustersOfThePapers) {
  const auto llama3 = ReadCluster("llama3_24k");
  ASSERT_TRUE(llama3.ok()) << Message(llama3.status());
  EXPECT_EQ(llama3->num_ranks(), 24576);
  EXPECT_EQ(llama3->tiers[0].hosts * llama3->ranks_per_host, 16);    // GPUs of a rack
  EXPECT_EQ(llama3->tiers[1].hosts * llama3->ranks_per_host, 3072);  // of a pod
  EXPECT_EQ(llama3->tiers[1].hosts / llama3->tiers[0].hosts, 192);   // racks of a pod
  EXPECT_EQ(llama3->hosts / llama3->tiers[1].hosts, 8);              // pods
  EXPECT_EQ(llama3->tiers[1].oversubscription, 7);
  const auto meta = ReadCluster("meta_sigcomm24");
  ASSERT_TRUE(meta.ok()) << Message(meta.status());
  EXPECT_EQ(meta->tiers[1].hosts * meta->ranks_per_host, 4096);
  EXPECT_TRUE(ReadCluster("laptop").ok());
}

}  // namespace
}  // namespace cria
