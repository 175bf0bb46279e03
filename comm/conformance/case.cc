#include "comm/conformance/case.h"

#include <algorithm>
#include <cstring>

#include "base/clock.h"
#include "base/str.h"

namespace cria::comm {
namespace {

constexpr int64_t kGuardBytes = 64;
constexpr std::byte kGuard{0x5a};

// A buffer with guards around it.
class GuardedBuffer {
 public:
  GuardedBuffer(int64_t bytes, int64_t offset)
      : bytes_(bytes), memory_(static_cast<size_t>(bytes + offset + 3 * kGuardBytes), kGuard) {
    const auto address = reinterpret_cast<uintptr_t>(memory_.data()) + kGuardBytes;
    const auto line = (address + 63) / 64 * 64;
    data_ = memory_.data() + (line - address) + kGuardBytes + offset;
  }
  std::byte* data() { return data_; }
  bool GuardsIntact() const {
    const auto intact = [](std::byte b) { return b == kGuard; };
    return std::all_of(memory_.data(), static_cast<const std::byte*>(data_), intact) &&
           std::all_of(static_cast<const std::byte*>(data_) + bytes_,
                       memory_.data() + memory_.size(), intact);
  }
  bool Untouched() const {
    return GuardsIntact() && std::all_of(static_cast<const std::byte*>(data_),
                                         static_cast<const std::byte*>(data_) + bytes_,
                                         [](std::byte b) { return b == kGuard; });
  }

 private:
  int64_t bytes_;
  std::vector<std::byte> memory_;
  std::byte* data_;
};

std::string Describe(const CollectiveShape& shape) {
  return StrCat(shape.kind == OpKind::kSend ? "sendrecv" : Name(shape.kind), " of ", shape.count,
                " ", Name(shape.dtype), Reduces(shape.kind) ? StrCat(" ", Name(shape.op)) : "",
                shape.in_place ? " in place" : "");
}

}  // namespace

double Now() { return RealClock()->MonotonicSeconds(); }

StatusOr<Joined> CaseContext::Join(double timeout_s) const {
  return JoinImplementation(
      {.impl = impl, .identity = identity, .folder = folder, .timeout_s = timeout_s});
}

StatusOr<std::unique_ptr<Communicator>> CaseContext::Everybody(const std::string& name) const {
  NewGroupOptions options;
  options.name = name;
  for (int r = 0; r < size(); ++r) options.ranks.push_back(r);
  return world->NewGroup(options);
}

const std::vector<OpKind>& DataKinds() {
  static const std::vector<OpKind> kinds = {
      OpKind::kAllReduce,  OpKind::kReduce,        OpKind::kBroadcast, OpKind::kAllGather,
      OpKind::kAllGatherV, OpKind::kReduceScatter, OpKind::kAllToAll,  OpKind::kAllToAllV,
      OpKind::kGather,     OpKind::kScatter,       OpKind::kSend,      OpKind::kReduceScatterV};
  return kinds;
}

Status CheckCollective(Communicator* comm, const CollectiveShape& shape,
                       const CheckOptions& options) {
  const Verifier verifier(shape, comm->rank(), comm->size());
  const int64_t element_bytes = ByteSize(shape.dtype);
  const int64_t input_bytes = verifier.input_elements() * element_bytes;
  const int64_t output_bytes = verifier.output_elements() * element_bytes;
  GuardedBuffer input(shape.in_place ? 0 : input_bytes, options.input_offset_bytes);
  const int64_t both = std::max(input_bytes + verifier.in_place_input() * element_bytes,
                                output_bytes + verifier.in_place_output() * element_bytes);
  GuardedBuffer output(shape.in_place ? both : output_bytes, options.output_offset_bytes);
  std::byte* in = input.data();
  std::byte* out = output.data();
  if (shape.in_place) {
    in = output.data() + verifier.in_place_input() * element_bytes;
    out = output.data() + verifier.in_place_output() * element_bytes;
  }
  verifier.FillInput(in);
  const Status status = verifier.Run(comm, in, out, options.call).Wait();
  if (!status.ok()) return Annotate(status, Describe(shape));
  const int64_t wrong = verifier.CountWrong(out);
  CRIA_RETURN_IF_ERROR(Expect(wrong == 0, Describe(shape), ": ", wrong, " of ",
                              verifier.output_elements(), " elements are wrong"));
  CRIA_RETURN_IF_ERROR(
      Expect(output.GuardsIntact(), Describe(shape), ": it wrote beside the output"));
  if (shape.in_place) return OkStatus();
  return Expect(input.GuardsIntact() && verifier.CountInputChanged(in) == 0, Describe(shape),
                ": it changed the input");
}

std::vector<Case> AllCases() {
  std::vector<Case> all;
  for (auto* cases : {&DataCases, &ErrorCases, &GroupCases, &StartCases}) {
    const std::vector<Case> some = cases();
    all.insert(all.end(), some.begin(), some.end());
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Case& a, const Case& b) { return a.row < b.row; });
  return all;
}

}  // namespace cria::comm
