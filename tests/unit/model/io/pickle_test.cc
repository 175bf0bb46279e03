#include "model/io/pickle.h"

#include <gtest/gtest.h>

#include "tests/unit/model/io/torch_builder.h"

namespace cria::model {
namespace {

StatusOr<Pickle> Parse(const std::string& body, const std::vector<std::string>& allowed = {}) {
  static const auto* const kept = new std::vector<std::string>();  // views outlive the call
  auto* bytes = const_cast<std::vector<std::string>*>(kept);
  bytes->reserve(100'000);
  bytes->push_back(std::string("\x80\x02", 2) + body);
  return Pickle::Parse(bytes->back(), "file", allowed);
}

int64_t Integer(const std::string& body) {
  const auto pickle = Parse(body + ".");
  EXPECT_TRUE(pickle.ok()) << pickle.status();
  return pickle.ok() ? pickle->at(pickle->root()).integer : -999;
}

TEST(PickleTest, ReadsIntegersOfAllWidths) {
  EXPECT_EQ(Integer(std::string("K\xff", 2)), 255);
  EXPECT_EQ(Integer(std::string("M\x01\x02", 3)), 0x201);
  EXPECT_EQ(Integer(std::string("J\xfe\xff\xff\xff", 5)), -2);
  EXPECT_EQ(Integer(std::string("\x8a\x00", 2)), 0);
  EXPECT_EQ(Integer(std::string("\x8a\x01\xff", 3)), -1);
  EXPECT_EQ(Integer(std::string("\x8a\x02\xff\x00", 4)), 255);
  EXPECT_EQ(Integer("\x8a\x08" + std::string(7, '\0') + "\x80"), INT64_MIN);
  EXPECT_EQ(Integer("\x88"), 1);
}

TEST(PickleTest, KeepsListsDictsTuplesAndTheMemo) {
  // {"a": [1, 2], "b": (the same list,)}
  const auto pickle = Parse("}(" + PickleText("a") + std::string("]q\x07(K\x01K\x02", 8) + "e" +
                            PickleText("b") + std::string("h\x07\x85", 3) + "u.");
  ASSERT_TRUE(pickle.ok()) << pickle.status();
  const PickleValue& root = pickle->at(pickle->root());
  ASSERT_EQ(root.kind, PickleValue::Kind::kDict);
  ASSERT_EQ(root.items.size(), 4u);
  const PickleValue& list = pickle->at(root.items[1]);
  ASSERT_EQ(list.items.size(), 2u);
  EXPECT_EQ(pickle->at(list.items[1]).integer, 2);
  EXPECT_EQ(pickle->at(root.items[3]).items[0], root.items[1]);
}

TEST(PickleTest, AGlobalMustBeAllowedAndACallIsOnlyKept) {
  const std::string call = PickleGlobal("builtins", "eval") + PickleTuple({PickleText("1")}) + "R.";
  const auto refused = Parse(call, {"torch FloatStorage"});
  EXPECT_EQ(refused.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(Message(refused.status()).find("builtins.eval"), std::string::npos);
  const auto kept = Parse(call, {"torch FloatStorage", "builtins eval"});
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->at(kept->root()).kind, PickleValue::Kind::kCall);
  EXPECT_EQ(kept->at(kept->at(kept->root()).items[0]).integer, 1);
  // The name from the stack, as protocol 4 has it.
  EXPECT_FALSE(Parse(PickleText("os") + PickleText("system") + "\x93.").ok());
}

TEST(PickleTest, DamageIsAnErrorWithItsPlace) {
  const std::string bad[] = {
      "",                        // no end
      ".",                       // nothing there
      "NN.",                     // a value left
      "(N.",                     // a mark left
      "t.",                      // no mark
      "(\x85.",                  // below the mark
      "a.",                      // no list
      "N(Ne.",                   // None is no list
      "}(Nu.",                   // a key without a value
      "NR.",                     // no call
      "N)R.",                    // None is no name
      std::string("h\x05.", 3),  // nothing remembered
      "q.",                      // no number
      "X\xff\xff\xff\x7f.",      // text beyond the end
      std::string("\x8a\x09", 2) + "123456789.",
      "\x82\x01.",  // an extension
      "i.",         // protocol 0's instance
      "cos",        // a name without an end
  };
  for (const std::string& body : bad) {
    const auto pickle = Parse(body);
    ASSERT_FALSE(pickle.ok()) << body;
    EXPECT_EQ(Message(pickle.status()).rfind("file: byte ", 0), 0u) << pickle.status();
  }
}

// A list in itself, tuples in tuples: deep and cyclic values cost nothing, as nothing recurses.
TEST(PickleTest, DepthAndCyclesAreHarmless) {
  EXPECT_TRUE(Parse(std::string("]q\x00h\x00", 5) + "a.").ok());
  EXPECT_TRUE(Parse("N" + std::string(1'000'000, '\x85') + ".").ok());
  EXPECT_FALSE(Parse(std::string(5'000'000, 'N') + ".").ok());
}

}  // namespace
}  // namespace cria::model
