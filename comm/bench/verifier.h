// What goes into a collective and what must come out, known exactly in any order of reduction.
//
//   Verifier verifier({.kind = OpKind::kAllReduce, .count = n}, rank, size);
//   verifier.FillInput(input);
//   ... run it ...
//   const int64_t wrong = verifier.CountWrong(output);      // elements, 0 when right
//
// Values depend on the rank and the position in its input, so that a part at a wrong place, of a
// wrong rank or combined twice shows. They are small integers (products: powers of two and signs),
// which every type holds and every order sums up to the same bits; avg is the exact sum divided
// once. They repeat after kPeriod elements, a prime: filling and checking run at the speed of
// memcpy and memcmp, and no power-of-two slip of an offset hides.
// Thread-compatible; checks are const. Source of the idea: nccl-tests' verifiable inputs.

#ifndef CRIA_COMM_BENCH_VERIFIER_H_
#define CRIA_COMM_BENCH_VERIFIER_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "comm/api/communicator.h"
#include "comm/api/types.h"

namespace cria::comm {

struct CollectiveShape {
  OpKind kind = OpKind::kAllReduce;  // kSend: a ring, to the next rank and from the one before
  DataType dtype = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int64_t count = 0;  // as in the options structs; of the V kinds the largest part
  int root = 0;
  bool in_place = false;
};

class Verifier {
 public:
  static constexpr int64_t kPeriod = 65521;

  Verifier(const CollectiveShape& shape, int rank, int size, uint64_t seed = 0);

  const CollectiveShape& shape() const { return shape_; }
  // Elements that this rank gives and gets; 0 where it gives or gets nothing.
  int64_t input_elements() const { return input_elements_; }
  int64_t output_elements() const { return output_elements_; }
  // Where the input starts in the output, or the output in the input, when they are in place.
  int64_t in_place_input() const { return in_place_input_; }
  int64_t in_place_output() const { return in_place_output_; }
  // True when the kind has a form in place.
  static bool HasInPlace(OpKind kind);

  // The counts of the V kinds. send_counts: of reduce_scatter_v (all ranks') and all_to_all_v;
  // recv_counts: of all_gather_v and all_to_all_v.
  const std::vector<int64_t>& send_counts() const { return send_counts_; }
  const std::vector<int64_t>& recv_counts() const { return recv_counts_; }

  void FillInput(void* input) const;
  // Elements of the output, or of `count` of them from `first` on, that are wrong. `output` is
  // where element `first` lies.
  int64_t CountWrong(const void* output) const { return CountWrong(output, 0, output_elements_); }
  int64_t CountWrong(const void* output, int64_t first, int64_t count) const;
  // Elements of the input that are not as FillInput left them.
  int64_t CountInputChanged(const void* input) const;

  // Runs the shape's operation; `input` and `output` as this object says.
  Work Run(Communicator* comm, const void* input, void* output, const CallOptions& call) const;

 private:
  // `count` elements of a table, from index `start` of the endless pattern, lie at `at`.
  struct Segment {
    int64_t at = 0;
    int64_t count = 0;
    int64_t start = 0;
    size_t table = 0;
  };

  void SetSizes();
  void SetSegments();
  void AddSegment(int64_t at, int64_t count, int64_t start, int table);
  void MakeTables(uint64_t seed);

  const CollectiveShape shape_;
  const int rank_;
  const int size_;
  int64_t input_elements_ = 0;
  int64_t output_elements_ = 0;
  int64_t in_place_input_ = 0;
  int64_t in_place_output_ = 0;
  std::vector<int64_t> send_counts_, recv_counts_;
  int64_t period_ = kPeriod;  // no longer than the longest index
  // By rank, and last the combination of all; those that this rank needs, others are empty. Each
  // holds the pattern once.
  std::vector<std::vector<std::byte>> tables_;
  std::vector<Segment> expected_;
};

}  // namespace cria::comm

#endif  // CRIA_COMM_BENCH_VERIFIER_H_
