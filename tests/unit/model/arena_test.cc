#include "model/arena.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <utility>

namespace cria::model {
namespace {

void AllocateSome(Arena* arena) {
  arena->Alloc(DType::kF32, {3, 5});
  arena->Alloc(DType::kBF16, {1});
  arena->Alloc(DType::kI32, {0});
  arena->Alloc(DType::kBF16, {64});
}

TEST(ArenaTest, ThePlanIsWhatIsUsed) {
  Arena plan = Arena::Planning();
  EXPECT_TRUE(plan.planning());
  AllocateSome(&plan);
  EXPECT_EQ(plan.used_bytes(), 64 + 64 + 0 + 128);
  Arena arena(plan.used_bytes());
  EXPECT_FALSE(arena.planning());
  AllocateSome(&arena);
  EXPECT_EQ(arena.used_bytes(), plan.used_bytes());
}

TEST(ArenaTest, TensorsAreZeroAlignedAndApart) {
  Arena arena(1 << 16);
  const Tensor a = arena.Alloc(DType::kF32, {3, 5});
  const Tensor b = arena.Alloc(DType::kBF16, {7});
  for (const Tensor& x : {a, b}) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(x.data()) % Arena::kAlignment, 0u);
  }
  for (int64_t i = 0; i < 15; ++i) {
    EXPECT_EQ(a.f32()[i], 0);
    a.f32()[i] = 1;
  }
  for (int64_t i = 0; i < 7; ++i) EXPECT_EQ(b.bf16()[i].bits, 0);
}

TEST(ArenaTest, MovesKeepTheMemory) {
  Arena arena(1 << 12);
  const Tensor x = arena.Alloc(DType::kF32, {8});
  x.f32()[7] = 3;
  Arena moved = std::move(arena);
  EXPECT_EQ(x.f32()[7], 3);
  EXPECT_EQ(moved.used_bytes(), 64);
  Arena other(0);
  other = std::move(moved);
  EXPECT_EQ(x.f32()[7], 3);
  other.Alloc(DType::kF32, {8}).f32()[0] = 1;
}

TEST(ArenaTest, PlansMoreThanAnyMachineHas) {
  Arena plan = Arena::Planning();
  for (int i = 0; i < 4; ++i) plan.Alloc(DType::kF32, {405'853'388'800});
  EXPECT_EQ(plan.used_bytes(), 4 * 4 * int64_t{405'853'388'800});
}

TEST(ArenaDeathTest, AnArenaTooSmallSaysWhatDidNotFit) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Arena arena(128);
  arena.Alloc(DType::kF32, {8});
  EXPECT_DEATH(arena.Alloc(DType::kF32, {17}), "128 bytes has 64 left; f32\\[17\\] needs 128");
}

TEST(ArenaTest, OverTheCallersMemoryHandsItOutAndLeavesIt) {
  alignas(Arena::kAlignment) char memory[256] = {};
  {
    Arena arena = Arena::Over(memory, sizeof(memory));
    const Tensor first = arena.Alloc(DType::kF32, {3});
    const Tensor second = arena.Alloc(DType::kF32, {1});
    EXPECT_EQ(first.data(), memory);
    EXPECT_EQ(second.data(), memory + Arena::kAlignment);
    first.f32()[0] = 5;
    Arena moved = std::move(arena);
    EXPECT_DEATH(moved.Alloc(DType::kF32, {64}), "arena of 256 bytes has 128 left");
  }
  float value = 0;
  std::memcpy(&value, memory, sizeof(value));
  EXPECT_EQ(value, 5);
}

}  // namespace
}  // namespace cria::model
