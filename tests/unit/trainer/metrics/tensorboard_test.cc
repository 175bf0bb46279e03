#include "trainer/metrics/tensorboard.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/file.h"
#include "trainer/metrics/crc32c.h"

namespace cria::trainer {
namespace {

std::string TempFolder(const std::string& name) {
  const char* folder = std::getenv("TEST_TMPDIR");
  const std::string path = JoinPath(folder != nullptr ? folder : "/tmp", name);
  (void)RemoveAll(path);
  return path;
}

template <typename T>
T Fixed(std::string_view bytes) {
  T value;
  EXPECT_GE(bytes.size(), sizeof(T));
  std::memcpy(&value, bytes.data(), sizeof(T));
  return value;
}

// A message of any type, decoded by the wire format alone: field number -> contents in order.
// Varints and fixed fields are given as 8 or 4 little-endian bytes.
using Fields = std::multimap<int, std::string>;

uint64_t TakeVarint(std::string_view* in) {
  uint64_t value = 0;
  for (int shift = 0; !in->empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(in->front());
    in->remove_prefix(1);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) return value;
  }
  ADD_FAILURE() << "a varint has no end";
  return 0;
}

Fields Decode(std::string_view in) {
  Fields fields;
  while (!in.empty()) {
    const uint64_t tag = TakeVarint(&in);
    size_t size = 0;
    switch (tag & 7) {
      case 0: {
        const uint64_t value = TakeVarint(&in);
        fields.emplace(static_cast<int>(tag >> 3),
                       std::string(reinterpret_cast<const char*>(&value), sizeof(value)));
        continue;
      }
      case 1:
        size = 8;
        break;
      case 2:
        size = TakeVarint(&in);
        break;
      case 5:
        size = 4;
        break;
      default:
        ADD_FAILURE() << "wire type " << (tag & 7);
        return fields;
    }
    EXPECT_LE(size, in.size());
    fields.emplace(static_cast<int>(tag >> 3), std::string(in.substr(0, size)));
    in.remove_prefix(std::min(size, in.size()));
  }
  return fields;
}

// The records of an event file, checksums checked.
std::vector<Fields> ReadEvents(const std::string& path) {
  std::vector<Fields> events;
  const std::string file = *ReadFile(path);
  std::string_view rest = file;
  while (!rest.empty()) {
    const auto length = Fixed<uint64_t>(rest);
    EXPECT_EQ(Fixed<uint32_t>(rest.substr(8)), MaskedCrc32c(rest.substr(0, 8)));
    const std::string_view event = rest.substr(12, length);
    EXPECT_EQ(Fixed<uint32_t>(rest.substr(12 + length)), MaskedCrc32c(event));
    events.push_back(Decode(event));
    rest.remove_prefix(16 + length);
  }
  return events;
}

double WallTime(const Fields& event) { return Fixed<double>(event.find(1)->second); }
int64_t Step(const Fields& event) { return Fixed<int64_t>(event.find(2)->second); }

std::map<std::string, float> Values(const Fields& event) {
  std::map<std::string, float> values;
  const Fields summary = Decode(event.find(5)->second);
  for (const auto& [number, bytes] : summary) {
    EXPECT_EQ(number, 1);
    const Fields value = Decode(bytes);
    values[value.find(1)->second] = Fixed<float>(value.find(2)->second);
  }
  return values;
}

TEST(TensorBoardWriterTest, WritesVersionThenScalars) {
  FakeClock clock(1'700'000'000.5);
  const std::string folder = TempFolder("scalars");
  auto writer = TensorBoardWriter::Create(folder, 0, &clock);
  ASSERT_TRUE(writer.ok()) << writer.status();
  EXPECT_TRUE(BaseName((*writer)->path()).starts_with("events.out.tfevents.1700000000."));
  clock.Advance(2);
  ASSERT_TRUE((*writer)->Scalars(1, {{"loss", 3.25}, {"lr", 3e-4}}).ok());
  ASSERT_TRUE((*writer)->Scalars(int64_t{1} << 40, {{"loss", std::nan("")}}).ok());
  ASSERT_TRUE((*writer)->Flush().ok());
  const auto events = ReadEvents((*writer)->path());
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ(events[0].find(3)->second, "brain.Event:2");
  EXPECT_EQ(WallTime(events[0]), 1'700'000'000.5);
  EXPECT_EQ(WallTime(events[1]), 1'700'000'002.5);
  EXPECT_EQ(Step(events[1]), 1);
  EXPECT_EQ(Values(events[1]), (std::map<std::string, float>{{"loss", 3.25f}, {"lr", 3e-4f}}));
  EXPECT_EQ(Step(events[2]), int64_t{1} << 40);
  EXPECT_TRUE(std::isnan(Values(events[2]).at("loss")));
}

TEST(TensorBoardWriterTest, MarksTheStepThatAResumedRunGoesOnWith) {
  FakeClock clock;
  const auto writer = TensorBoardWriter::Create(TempFolder("resumed"), 40, &clock);
  ASSERT_TRUE(writer.ok());
  const auto events = ReadEvents((*writer)->path());
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(Step(events[1]), 41);
  const Fields session = Decode(events[1].find(7)->second);
  EXPECT_EQ(Fixed<int64_t>(session.find(1)->second), 1);
}

TEST(TensorBoardWriterTest, GivesEachWriterAFileOfItsOwn) {
  FakeClock clock;
  const std::string folder = TempFolder("two");
  const auto one = TensorBoardWriter::Create(folder, 0, &clock);
  const auto two = TensorBoardWriter::Create(folder, 0, &clock);
  ASSERT_TRUE(one.ok() && two.ok());
  EXPECT_NE((*one)->path(), (*two)->path());
  EXPECT_EQ(ListDir(folder)->size(), 2u);
}

TEST(TensorBoardWriterTest, FlushesWhenDestroyedAndWhenTheBufferIsFull) {
  FakeClock clock;
  std::string path;
  {
    const auto writer = TensorBoardWriter::Create(TempFolder("flush"), 0, &clock);
    path = (*writer)->path();
    for (int step = 1; step <= 3000; ++step) {
      ASSERT_TRUE((*writer)->Scalars(step, {{"loss", step}}).ok());
    }
    EXPECT_GT(*FileSize(path), uint64_t{64} << 10);
  }
  const auto events = ReadEvents(path);
  ASSERT_EQ(events.size(), 3001u);
  EXPECT_EQ(Step(events.back()), 3000);
}

TEST(TensorBoardWriterTest, FailsWithThePathWhenTheFolderCannotBe) {
  FakeClock clock;
  const std::string file = TempFolder("a_file");
  ASSERT_TRUE(WriteFileAtomic(file, "x").ok());
  const auto writer = TensorBoardWriter::Create(file, 0, &clock);
  ASSERT_FALSE(writer.ok());
  EXPECT_NE(Message(writer.status()).find(file), std::string::npos) << writer.status();
}

}  // namespace
}  // namespace cria::trainer
