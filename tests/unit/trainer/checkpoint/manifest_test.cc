#include "trainer/checkpoint/manifest.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "base/hash.h"

namespace cria::trainer {
namespace {

CheckpointManifest Example() {
  CheckpointManifest manifest;
  manifest.state = {.step = 7,
                    .tokens = int64_t{1} << 53,
                    .samples = std::numeric_limits<int64_t>::max(),
                    .seed = std::numeric_limits<uint64_t>::max(),
                    .config_yaml = "a: \"b\"\nc: \xe2\x82\xac\n\t\\",
                    .scalars = {{"lr", 0.1}, {"beta_2", 0.95}}};
  manifest.files = {{"model.safetensors", 123, std::string(32, 'a')}};
  return manifest;
}

// A text with a right checksum, whatever its content.
std::string Sealed(const std::string& body) {
  return body + ",\n  \"checksum\": \"" + HashHex(body) + "\"\n}\n";
}

TEST(ManifestTest, RoundTripsEveryField) {
  const CheckpointManifest before = Example();
  const auto text = EncodeManifest(before);
  ASSERT_TRUE(text.ok()) << text.status();
  const auto after = DecodeManifest(*text, "m");
  ASSERT_TRUE(after.ok()) << after.status();
  EXPECT_EQ(after->state.step, before.state.step);
  EXPECT_EQ(after->state.tokens, before.state.tokens);
  EXPECT_EQ(after->state.samples, before.state.samples);
  EXPECT_EQ(after->state.seed, before.state.seed);
  EXPECT_EQ(after->state.config_yaml, before.state.config_yaml);
  EXPECT_EQ(after->state.scalars, before.state.scalars);
  ASSERT_EQ(after->files.size(), 1u);
  EXPECT_EQ(after->files[0].bytes, 123u);
  EXPECT_EQ(after->files[0].hash, std::string(32, 'a'));
}

// torchtitan PR #275, tt-metal #53212: what drives the optimizer after a resume is bit-equal.
TEST(ManifestTest, KeepsTheBitsOfScalars) {
  using Limits = std::numeric_limits<double>;
  CheckpointManifest manifest = Example();
  manifest.state.scalars = {{"zero", 0.0},
                            {"minus_zero", -0.0},
                            {"third", 1.0 / 3},
                            {"beta_power", std::pow(0.95, 12345)},
                            {"denormal", Limits::denorm_min()},
                            {"largest", Limits::max()},
                            {"whole", 3.0},
                            {"inf", Limits::infinity()},
                            {"minus_inf", -Limits::infinity()}};
  const auto read = DecodeManifest(*EncodeManifest(manifest), "m");
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ(read->state.scalars.size(), manifest.state.scalars.size());
  for (const auto& [name, value] : manifest.state.scalars) {
    EXPECT_EQ(std::bit_cast<uint64_t>(read->state.scalars.at(name)), std::bit_cast<uint64_t>(value))
        << name;
  }
  manifest.state.scalars = {{"nan", Limits::quiet_NaN()}};
  EXPECT_TRUE(std::isnan(DecodeManifest(*EncodeManifest(manifest), "m")->state.scalars.at("nan")));
}

TEST(ManifestTest, RefusesStringsThatAreNotUtf8) {
  CheckpointManifest manifest = Example();
  manifest.state.config_yaml = "\xff";
  EXPECT_FALSE(EncodeManifest(manifest).ok());
}

TEST(ManifestTest, RefusesEveryFlippedBitAndEveryCut) {
  const std::string text = *EncodeManifest(Example());
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_FALSE(DecodeManifest(text.substr(0, i), "m").ok()) << "cut to " << i;
    for (int bit = 0; bit < 8; ++bit) {
      std::string flipped = text;
      flipped[i] = static_cast<char>(flipped[i] ^ 1 << bit);
      const auto read = DecodeManifest(flipped, "ckpt/manifest.json");
      ASSERT_FALSE(read.ok()) << "byte " << i << " bit " << bit;
      EXPECT_EQ(read.status().code(), StatusCode::kDataLoss);
      EXPECT_TRUE(Message(read.status()).starts_with("ckpt/manifest.json: ")) << read.status();
    }
  }
  EXPECT_FALSE(DecodeManifest(text + "\n", "m").ok());
}

TEST(ManifestTest, RefusesSealedNonsenseWithFileAndField) {
  const std::string files = "\"files\": []";
  const std::string good =
      "{\n  \"format\": \"cria checkpoint\",\n  \"version\": 1,\n  \"step\": 1,\n  \"tokens\": 1,\n"
      "  \"samples\": 1,\n  \"seed\": 1,\n  \"scalars\": {},\n  \"config_yaml\": \"\",\n  " +
      files;
  ASSERT_TRUE(DecodeManifest(Sealed(good), "m").ok());
  const auto with = [&good](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return DecodeManifest(Sealed(text), "m").status();
  };
  EXPECT_NE(Message(with("\"version\": 1", "\"version\": 2")).find("version 2"), std::string::npos);
  EXPECT_NE(Message(with("\"step\": 1", "\"step\": \"1\"")).find("step"), std::string::npos);
  EXPECT_NE(Message(with("\"seed\": 1", "\"seed\": -1")).find("seed"), std::string::npos);
  EXPECT_NE(Message(with("\"tokens\": 1,", "")).find("tokens"), std::string::npos);
  EXPECT_FALSE(with("\"scalars\": {}", "\"scalars\": []").ok());
  EXPECT_FALSE(with("\"scalars\": {}", "\"scalars\": {\"a\": \"b\"}").ok());
  EXPECT_FALSE(with(files, "\"files\": [1]").ok());
  EXPECT_FALSE(with(files, "\"files\": {}").ok());
  EXPECT_FALSE(DecodeManifest(Sealed("{\"a\": 1"), "m").ok());
  EXPECT_FALSE(DecodeManifest(Sealed("not json"), "m").ok());
  EXPECT_FALSE(DecodeManifest(Sealed(""), "m").ok());
}

}  // namespace
}  // namespace cria::trainer
