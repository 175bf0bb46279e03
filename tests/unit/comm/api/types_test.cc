#include "comm/api/types.h"

#include <gtest/gtest.h>

namespace cria::comm {
namespace {

TEST(TypesTest, EachNameParsesToItself) {
  for (int i = 0; i < kNumDataTypes; ++i) {
    const auto dtype = static_cast<DataType>(i);
    const auto parsed = ParseDataType(Name(dtype));
    ASSERT_TRUE(parsed.ok());
    EXPECT_EQ(*parsed, dtype);
  }
  for (int i = 0; i < kNumReduceOps; ++i) {
    EXPECT_EQ(*ParseReduceOp(Name(static_cast<ReduceOp>(i))), static_cast<ReduceOp>(i));
  }
  for (int i = 0; i < kNumOpKinds; ++i) {
    EXPECT_EQ(*ParseOpKind(Name(static_cast<OpKind>(i))), static_cast<OpKind>(i));
  }
}

TEST(TypesTest, TakesTheNamesOfNcclTests) {
  EXPECT_EQ(*ParseDataType("float"), DataType::kFloat32);
  EXPECT_EQ(*ParseDataType("half"), DataType::kFloat16);
  EXPECT_EQ(*ParseDataType("f8e4m3"), DataType::kFloat8E4M3);
}

TEST(TypesTest, AnUnknownNameIsAnErrorThatListsTheKnown) {
  const Status status = ParseReduceOp("median").status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(status).find("\"median\""), std::string::npos);
  EXPECT_NE(Message(status).find("sum, avg, min, max, prod"), std::string::npos);
}

TEST(TypesTest, SixteenBitFloatsAccumulateInFloat32) {
  EXPECT_EQ(AccumulateType(DataType::kBfloat16), DataType::kFloat32);
  EXPECT_EQ(AccumulateType(DataType::kFloat16), DataType::kFloat32);
  EXPECT_EQ(AccumulateType(DataType::kInt64), DataType::kInt64);
  EXPECT_FALSE(Reducible(DataType::kFloat8E4M3));
  EXPECT_TRUE(Reducible(DataType::kInt8));
}

}  // namespace
}  // namespace cria::comm
