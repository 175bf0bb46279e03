// The fixture of the op harness: every backend times every compute type.
//
//   class SwigluTest : public OpsFixture {};
//   CRIA_INSTANTIATE_OPS_TEST(SwigluTest);
//   TEST_P(SwigluTest, ...) { const auto out = Run([&](Ops& ops) { ... dtype() ... }); }

#ifndef CRIA_TESTS_UNIT_MODEL_OPS_FIXTURE_H_
#define CRIA_TESTS_UNIT_MODEL_OPS_FIXTURE_H_

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <tuple>
#include <vector>

#include "model/ops.h"
#include "tests/unit/model/op_harness.h"

namespace cria::model {

class OpsFixture : public testing::TestWithParam<std::tuple<int, DType>> {
 public:
  static std::string Name(const testing::TestParamInfo<std::tuple<int, DType>>& info) {
    return Backends()[std::get<0>(info.param)].name + "_" + DTypeName(std::get<1>(info.param));
  }

 protected:
  const Backend& backend() const { return backends_[std::get<0>(GetParam())]; }
  // The compute type: of GEMM operands and of stored activations.
  DType dtype() const { return std::get<1>(GetParam()); }
  std::vector<TestTensor> Run(const std::function<std::vector<TestTensor>(Ops&)>& run) const {
    return OnAnyThreads(backend(), run);
  }

 private:
  const std::vector<Backend> backends_ = Backends();
};

#define CRIA_INSTANTIATE_OPS_TEST(Fixture)                                     \
  INSTANTIATE_TEST_SUITE_P(                                                    \
      Ops, Fixture,                                                            \
      testing::Combine(testing::Range(0, static_cast<int>(Backends().size())), \
                       testing::Values(DType::kF32, DType::kBF16)),            \
      [](const testing::TestParamInfo<std::tuple<int, DType>>& info) {         \
        return Fixture::Name(info);                                            \
      })

}  // namespace cria::model

#endif  // CRIA_TESTS_UNIT_MODEL_OPS_FIXTURE_H_
