// CHECK: an invariant of our own code. It is always on; when it breaks, the program prints the
// condition with its values and aborts. What the world can cause is a Status (base/status.h).
//
//   CRIA_CHECK(rows > 0) << ...   is not offered; values go in as arguments:
//   CRIA_CHECK(offset <= size, "offset ", offset, " size ", size);
//   CRIA_CHECK_EQ(a.dim(0), b.dim(0));
//
// Thread-safe. Cost: one compare and a branch that is never taken.

#ifndef CRIA_BASE_CHECK_H_
#define CRIA_BASE_CHECK_H_

#include <string>

#include "base/str.h"

namespace cria::check_internal {
[[noreturn]] void Fail(const char* file, int line, const char* condition,
                       const std::string& detail);
}  // namespace cria::check_internal

#define CRIA_CHECK(condition, ...)                                                               \
  do {                                                                                           \
    if (!(condition)) [[unlikely]]                                                               \
      ::cria::check_internal::Fail(__FILE__, __LINE__, #condition, ::cria::StrCat(__VA_ARGS__)); \
  } while (false)

#define CRIA_CHECK_OP_(a, op, b)                                                   \
  do {                                                                             \
    const auto& cria_a_ = (a);                                                     \
    const auto& cria_b_ = (b);                                                     \
    if (!(cria_a_ op cria_b_)) [[unlikely]]                                        \
      ::cria::check_internal::Fail(__FILE__, __LINE__, #a " " #op " " #b,          \
                                   ::cria::StrCat(cria_a_, " against ", cria_b_)); \
  } while (false)
#define CRIA_CHECK_EQ(a, b) CRIA_CHECK_OP_(a, ==, b)
#define CRIA_CHECK_NE(a, b) CRIA_CHECK_OP_(a, !=, b)
#define CRIA_CHECK_LE(a, b) CRIA_CHECK_OP_(a, <=, b)
#define CRIA_CHECK_LT(a, b) CRIA_CHECK_OP_(a, <, b)
#define CRIA_CHECK_GE(a, b) CRIA_CHECK_OP_(a, >=, b)
#define CRIA_CHECK_GT(a, b) CRIA_CHECK_OP_(a, >, b)

#endif  // CRIA_BASE_CHECK_H_
