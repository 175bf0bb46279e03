#include "base/json.h"

#include <gtest/gtest.h>

#include <string>

#include "base/file.h"

namespace cria {
namespace {

std::string ParseError(std::string_view text) {
  const StatusOr<Json> json = ParseJson(text, "f.json");
  if (json.ok()) return "OK";
  EXPECT_EQ(json.status().code(), StatusCode::kInvalidArgument);
  return Message(json.status());
}

TEST(JsonTest, RoundTripsEveryKindInOrder) {
  const std::string text =
      R"({"z":1,"a":[-1,2.5,true,null,"\u00e9\n"],"m":{"k":[],"j":{}},"big":18446744073709551615})";
  const StatusOr<Json> json = ParseJson(text, "f");
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(DumpJson(*json).value(),
            "{\"z\":1,\"a\":[-1,2.5,true,null,\"\u00e9\\n\"],\"m\":{\"k\":[],\"j\":{}},"
            "\"big\":18446744073709551615}");
  EXPECT_EQ(DumpJson(ParseJson("3", "f").value()).value(), "3");
}

TEST(JsonTest, ErrorsNameFileLineAndProblem) {
  EXPECT_EQ(ParseError("{\n\"a\": 1,\n}").rfind("f.json:3: not JSON: ", 0), 0u);
  EXPECT_EQ(ParseError("").rfind("f.json:1: not JSON: ", 0), 0u);
  EXPECT_NE(ParseError("{\"a\": 1} x"), "OK");
  EXPECT_NE(ParseError("[1e999]"), "OK");
  EXPECT_NE(ParseError("\"\xff\""), "OK");
  EXPECT_NE(ParseError(std::string_view("[1]\0", 4)), "OK");
  EXPECT_EQ(ParseError(R"({"a":{"b":1,"b":2}})"), "f.json: not usable JSON: the key \"b\" twice");
}

TEST(JsonTest, EveryPrefixOfAFileIsAnError) {
  const std::string text = R"({"a": [1, 2.5e3, "x\u1234"], "b": {"c": null}, "d": true})";
  for (size_t size = 0; size < text.size(); ++size) {
    EXPECT_NE(ParseError(text.substr(0, size)), "OK") << size;
  }
  EXPECT_EQ(ParseError(text), "OK");
}

TEST(JsonTest, DepthIsLimited) {
  EXPECT_EQ(ParseError(std::string(100, '[') + std::string(100, ']')), "OK");
  EXPECT_EQ(ParseError(std::string(101, '[') + std::string(101, ']')),
            "f.json: not usable JSON: nested deeper than 100");
  EXPECT_EQ(ParseError(std::string(1'000'000, '[')),
            "f.json: not usable JSON: nested deeper than 100");
}

// nlohmann's own builder is quadratic here: minutes instead of a fraction of a second.
TEST(JsonTest, AVocabularyOf128000ParsesInLinearTime) {
  Json vocab = Json::object();
  for (int i = 0; i < 128'000; ++i) JsonAppend(&vocab, StrCat("token", i), i);
  const std::string text = DumpJson(vocab).value();
  const Json parsed = ParseJson(text, "f").value();
  ASSERT_EQ(parsed.size(), 128'000u);
  int next = 0;
  for (const auto& [key, value] : parsed.items()) {
    ASSERT_EQ(value.get<int>(), next);
    ++next;
  }
}

TEST(JsonTest, GetChecksTypesAndRanges) {
  const Json json = ParseJson(R"({"i":300,"n":-1,"u":18446744073709551615,"d":2.5,"s":"x",
      "b":true,"l":[1,2,300],"o":{"k":1}})",
                              "f")
                        .value();
  EXPECT_EQ(JsonGet<int64_t>(json, "i", "f").value(), 300);
  EXPECT_EQ(JsonGet<uint64_t>(json, "u", "f").value(), ~uint64_t{0});
  EXPECT_EQ(JsonGet<double>(json, "d", "f").value(), 2.5);
  EXPECT_EQ(JsonGet<double>(json, "i", "f").value(), 300);
  EXPECT_EQ(JsonGet<std::string>(json, "s", "f").value(), "x");
  EXPECT_EQ(JsonGet<bool>(json, "b", "f").value(), true);
  EXPECT_EQ(JsonGet<std::vector<int>>(json, "l", "f").value(), (std::vector<int>{1, 2, 300}));
  const Json inner = JsonGet<Json>(json, "o", "f").value();
  EXPECT_EQ(JsonGet<int>(inner, "k", "f").value(), 1);

  const auto message = [](const auto& result) { return Message(result.status()); };
  EXPECT_EQ(message(JsonGet<int>(json, "x", "f")), "f: x: missing");
  EXPECT_EQ(message(JsonGet<int>(json, "s", "f")), "f: s: expected an integer, got \"x\"");
  EXPECT_EQ(message(JsonGet<int>(json, "d", "f")), "f: d: expected an integer, got 2.5");
  EXPECT_EQ(message(JsonGet<uint8_t>(json, "i", "f")),
            "f: i: expected an integer in [0, 255], got 300");
  EXPECT_EQ(message(JsonGet<uint64_t>(json, "n", "f")),
            "f: n: expected an integer in [0, 18446744073709551615], got -1");
  EXPECT_FALSE(JsonGet<int64_t>(json, "u", "f").ok());
  EXPECT_EQ(message(JsonGet<std::vector<uint8_t>>(json, "l", "f")),
            "f: l[2]: expected an integer in [0, 255], got 300");
  EXPECT_EQ(message(JsonGet<bool>(json, "i", "f")), "f: i: expected true or false, got 300");
  EXPECT_FALSE(JsonGet<std::string>(json, "o", "f").ok());
  EXPECT_FALSE(JsonGet<int>(Json(3), "k", "f").ok());
}

TEST(JsonTest, GetOrFallsBackOnlyWhenMissingOrNull) {
  const Json json = ParseJson(R"({"a":1,"n":null})", "f").value();
  EXPECT_EQ(JsonGetOr<int>(json, "a", 5, "f").value(), 1);
  EXPECT_EQ(JsonGetOr<int>(json, "b", 5, "f").value(), 5);
  EXPECT_EQ(JsonGetOr<int>(json, "n", 5, "f").value(), 5);
  EXPECT_FALSE(JsonGetOr<std::string>(json, "a", "x", "f").ok());
}

TEST(JsonTest, FilesRoundTripAndBadTextIsRefused) {
  const std::string path = JoinPath(testing::TempDir(), "x.json");
  ASSERT_TRUE(WriteJsonFile(path, Json{{"a", 1}}).ok());
  EXPECT_EQ(ReadFile(path).value(), "{\n  \"a\": 1\n}\n");
  EXPECT_EQ(JsonGet<int>(ReadJsonFile(path).value(), "a", path).value(), 1);
  const Status status = WriteJsonFile(path, Json{{"a", "\xff"}});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(Message(status).rfind(path, 0), 0u);
  EXPECT_EQ(ReadFile(path).value(), "{\n  \"a\": 1\n}\n");
}

}  // namespace
}  // namespace cria
