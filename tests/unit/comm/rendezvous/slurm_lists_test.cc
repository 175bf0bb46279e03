#include "comm/rendezvous/slurm_lists.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

using Names = std::vector<std::string>;
using Counts = std::vector<int>;

TEST(SlurmListsTest, ExpandsNodeLists) {
  EXPECT_EQ(*ExpandNodeList("node7", 10), Names({"node7"}));
  EXPECT_EQ(*ExpandNodeList("node[01-03,07]", 10), Names({"node01", "node02", "node03", "node07"}));
  EXPECT_EQ(*ExpandNodeList("a[9-11],login,b[5]-ib", 10),
            Names({"a9", "a10", "a11", "login", "b5-ib"}));
  EXPECT_EQ(*ExpandNodeList("r[1-2]n[08-09]", 10), Names({"r1n08", "r1n09", "r2n08", "r2n09"}));
}

TEST(SlurmListsTest, RefusesNodeListsThatAreNone) {
  for (const char* list :
       {"", ",", "node[", "node[]", "node[1-", "node[3-1]", "node[x]", "node]1[", "node[1-3",
        "a,,b", "node[1]]", "node[-1]", "node[1--2]", "node[99999999999]"}) {
    const auto names = ExpandNodeList(list, 100);
    ASSERT_FALSE(names.ok()) << list;
    EXPECT_EQ(names.status().code(), StatusCode::kInvalidArgument) << list;
    EXPECT_NE(Message(names.status()).find(StrCat("\"", list, "\"")), std::string::npos)
        << names.status();
  }
}

TEST(SlurmListsTest, NeverMakesMoreHostsThanTheLimit) {
  EXPECT_TRUE(ExpandNodeList("n[1-100]", 100).ok());
  EXPECT_FALSE(ExpandNodeList("n[1-101]", 100).ok());
  EXPECT_FALSE(ExpandNodeList("n[0-999999999]", 100).ok());
  EXPECT_FALSE(ExpandNodeList("n[1-50][1-50][1-50]", 100).ok());
  EXPECT_FALSE(ExpandNodeList("a[1-60],b[1-60]", 100).ok());
}

TEST(SlurmListsTest, ExpandsTasksPerNode) {
  EXPECT_EQ(*ExpandTasksPerNode("4", 10), Counts({4}));
  EXPECT_EQ(*ExpandTasksPerNode("4(x2),3", 10), Counts({4, 4, 3}));
  EXPECT_EQ(*ExpandTasksPerNode("1,2(x3),8(x1)", 10), Counts({1, 2, 2, 2, 8}));
}

TEST(SlurmListsTest, RefusesTasksPerNodeThatAreNone) {
  for (const char* list :
       {"", "x", "4(x", "4(x)", "4(x2", "4(2)", "4,", "-1", "4(x99)", "4(x2)3"}) {
    EXPECT_FALSE(ExpandTasksPerNode(list, 10).ok()) << list;
  }
}

}  // namespace
}  // namespace cria::comm
