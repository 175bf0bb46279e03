// What the operations of a rank that holds a part of a job cost, beside the same work in one piece:
// attention of a context in stretches of queries, products as chains beside oneDNN's.
//
//   PartBench parts(shape, Precision::kBf16, ops.get(), RealClock());
//   CRIA_RETURN_IF_ERROR(parts.Verify());
//   for (int round = 0; round < 5; ++round) parts.Round();
//   for (const PartRow& row : parts.rows()) ... MedianRatio(row.whole_s, row.seconds) ...
//
// Single-threaded; the operations use threads inside.

#ifndef CRIA_TRAINER_BENCH_PART_BENCH_H_
#define CRIA_TRAINER_BENCH_PART_BENCH_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/status.h"
#include "model/arena.h"
#include "model/ops.h"
#include "model/precision.h"
#include "trainer/bench/bench_step.h"
#include "trainer/bench/samples.h"

namespace cria::trainer {

struct PartRow {
  std::string name;  // "attention forward, 8 stretches of 256"
  double flops = 0;
  Samples seconds = {};
  Samples whole_s = {};  // the same work in one piece, or by oneDNN
};

class PartBench {
 public:
  // One sequence of all of the shape's tokens, one layer. `ops` and `clock` stay the caller's.
  PartBench(const BenchShape& shape, model::Precision precision, model::Ops* ops, Clock* clock);

  // Internal when stretches give other bits than the whole, or chains other numbers than oneDNN.
  Status Verify();
  // Times each row once, in turns with what it is compared with.
  void Round();
  const std::vector<PartRow>& rows() const { return rows_; }

 private:
  struct Product {
    model::Tensor a, b, c;
    bool transpose_a = false, transpose_b = false;
  };

  model::AttentionForwardArgs Stretch(int64_t first, int64_t time) const;
  void Forward(int64_t stretches);
  void Backward(int64_t stretches);
  void Multiply(const Product& product, bool chain);
  double Time(const std::function<void()>& call) const;

  const model::LlamaConfig config_;
  const int64_t time_;  // of the whole context
  model::Ops* const ops_;
  Clock* const clock_;
  model::Arena arena_;
  model::Tensor q_, k_, v_, doc_start_, out_, lse_, dout_, dq_, dk_, dv_;
  std::vector<Product> products_;
  std::vector<PartRow> rows_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_BENCH_PART_BENCH_H_
