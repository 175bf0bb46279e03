// Rows about values: sizes that are empty, odd, huge; types; places in memory; accuracy.

#include <sys/mman.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/file.h"
#include "base/hash.h"
#include "base/rng.h"
#include "base/str.h"
#include "comm/bench/verifier_values.h"
#include "comm/conformance/case.h"

namespace cria::comm {
namespace {

constexpr DataType kReducible[] = {DataType::kFloat32, DataType::kBfloat16, DataType::kFloat16,
                                   DataType::kInt8,    DataType::kUint8,    DataType::kInt16,
                                   DataType::kInt32,   DataType::kInt64};

// Runs a check; an operation that the library lacks is noted and passed over.
class Checks {
 public:
  explicit Checks(Communicator* comm) : comm_(comm) {}

  Status Run(const CollectiveShape& shape, const CheckOptions& options = {}) {
    const Status status = CheckCollective(comm_, shape, options);
    if (status.code() == StatusCode::kUnimplemented) {
      missing_ = status;
      return OkStatus();
    }
    ++done_;
    return status;
  }
  // Unimplemented when nothing ran.
  Status Outcome() const { return done_ > 0 ? OkStatus() : missing_; }

 private:
  Communicator* const comm_;
  int done_ = 0;
  Status missing_;
};

Status EmptyCounts(CaseContext& context) {
  Checks checks(context.world);
  for (const OpKind kind : DataKinds()) {
    CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .count = 0}));
    // Where it goes on afterwards.
    CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .count = 3}));
  }
  // Some ranks give nothing: the V kinds leave every third part empty.
  for (const OpKind kind : {OpKind::kAllGatherV, OpKind::kReduceScatterV, OpKind::kAllToAllV}) {
    CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .count = 1}));
  }
  return checks.Outcome();
}

Status EmptyGathers(CaseContext& context) {
  Checks checks(context.world);
  for (const OpKind kind : {OpKind::kAllGather, OpKind::kGather, OpKind::kScatter,
                            OpKind::kReduceScatter, OpKind::kAllToAll}) {
    CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .dtype = DataType::kInt64, .count = 0}));
    CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .dtype = DataType::kInt64, .count = 2}));
  }
  return checks.Outcome();
}

// Non-root buffers, on a page whose end is the end of the mapped memory.
Status OthersUntouched(CaseContext& context) {
  constexpr int64_t kCount = 1024;
  constexpr int64_t kBytes = kCount * 4;
  for (const OpKind kind : {OpKind::kReduce, OpKind::kGather}) {
    const Verifier verifier({.kind = kind, .count = kCount, .root = context.size() - 1},
                            context.rank(), context.size());
    constexpr size_t kPages = 16 * 4096;
    void* const pages =
        mmap(nullptr, kPages, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (pages == MAP_FAILED) return InternalError("mmap failed");
    auto* const base = static_cast<std::byte*>(pages);
    mprotect(base + 4096, 4096, PROT_NONE);
    std::byte* const input = base;  // [4096), then a guard page
    std::byte* const output = base + 8192;
    verifier.FillInput(input);
    std::memset(output, 0x77, kPages - 8192);
    const Status status = verifier.Run(context.world, input, output, {}).Wait();
    CRIA_RETURN_IF_ERROR(status);
    CRIA_RETURN_IF_ERROR(Expect(verifier.CountInputChanged(input) == 0, Name(kind),
                                " changed the input of rank ", context.rank()));
    const int64_t written = verifier.output_elements() * 4;
    for (size_t i = static_cast<size_t>(written); i < kPages - 8192; ++i) {
      CRIA_RETURN_IF_ERROR(Expect(output[i] == std::byte{0x77}, Name(kind), " wrote byte ", i,
                                  " of the output of rank ", context.rank()));
    }
    CRIA_RETURN_IF_ERROR(Expect(verifier.CountWrong(output) == 0, Name(kind), " is wrong"));
    munmap(pages, kPages);
  }
  static_assert(kBytes == 4096);
  return OkStatus();
}

Status AverageOfAllTypes(CaseContext& context) {
  Checks checks(context.world);
  for (const DataType dtype : kReducible) {
    for (const int64_t count : {1, 5, 1000}) {
      for (const OpKind kind : {OpKind::kAllReduce, OpKind::kReduce, OpKind::kReduceScatter}) {
        CRIA_RETURN_IF_ERROR(
            checks.Run({.kind = kind, .dtype = dtype, .op = ReduceOp::kAvg, .count = count}));
      }
    }
  }
  return checks.Outcome();
}

Status ViewsOfArrays(CaseContext& context) {
  // Rows of a matrix that start anywhere, with neighbours that must stay.
  Checks checks(context.world);
  for (const OpKind kind : DataKinds()) {
    for (const int64_t row : {0, 7, 13}) {
      CRIA_RETURN_IF_ERROR(
          checks.Run({.kind = kind, .count = 129},
                     {.input_offset_bytes = row * 4 * 129, .output_offset_bytes = row * 4 * 31}));
    }
  }
  return checks.Outcome();
}

Status MixedLayouts(CaseContext& context) {
  // Each rank's view starts elsewhere.
  Checks checks(context.world);
  for (const OpKind kind : {OpKind::kReduceScatter, OpKind::kAllGather, OpKind::kReduceScatterV}) {
    for (const int64_t count : {1, 17, 4099}) {
      CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .count = count},
                                      {.input_offset_bytes = 4 * (context.rank() * 5 + 1),
                                       .output_offset_bytes = 12 * context.rank()}));
    }
  }
  return checks.Outcome();
}

Status StorageOffset(CaseContext& context) {
  // Two chunks of one array, gathered: the second must not repeat the first, or rank 0's.
  constexpr int64_t kHalf = 500;
  const auto n = static_cast<size_t>(context.size());
  std::vector<int32_t> whole(2 * kHalf), gathered(n * kHalf);
  for (size_t i = 0; i < whole.size(); ++i) {
    whole[i] = static_cast<int32_t>(i) + 10000 * context.rank();
  }
  for (const int64_t chunk : {1, 0}) {
    CRIA_RETURN_IF_ERROR(context.world
                             ->AllGather({.input = whole.data() + chunk * kHalf,
                                          .output = gathered.data(),
                                          .count = kHalf,
                                          .dtype = DataType::kInt32})
                             .Wait());
    for (size_t i = 0; i < gathered.size(); ++i) {
      const auto rank = static_cast<int32_t>(i / kHalf);
      const auto want =
          static_cast<int32_t>(i % kHalf + static_cast<size_t>(chunk) * kHalf) + 10000 * rank;
      CRIA_RETURN_IF_ERROR(Expect(gathered[i] == want, "chunk ", chunk, ", element ", i, ": ",
                                  gathered[i], " instead of ", want));
    }
  }
  return OkStatus();
}

// Bytes of memory that are free to use.
int64_t AvailableBytes() {
  const auto text = ReadFile("/proc/meminfo");
  if (!text.ok()) return 0;
  const size_t at = text->find("MemAvailable:");
  return at == std::string::npos ? 0 : std::atoll(text->c_str() + at + 13) * 1024;
}

// Memory that exists where it is touched.
class SparseMemory {
 public:
  explicit SparseMemory(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  }
  ~SparseMemory() {
    if (data_ != MAP_FAILED) munmap(data_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;
  bool ok() const { return data_ != MAP_FAILED; }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  size_t bytes_;
  void* data_;
};

Status BeyondInt32(CaseContext& context) {
  constexpr int64_t kCounts[] = {(int64_t{1} << 31) - 1, int64_t{1} << 31, (int64_t{1} << 32) + 1};
  constexpr int64_t kMost = kCounts[2];
  // All ranks decide alike.
  CRIA_ASSIGN_OR_RETURN(const double most,
                        context.board->Max(-static_cast<double>(AvailableBytes())));
  const double needed = 1.3 * static_cast<double>(kMost) * context.size();
  if (-most < needed) {
    return UnimplementedError("needs ", HumanBytes(needed), " of free memory");
  }
  SparseMemory buffer(kMost);
  if (!buffer.ok()) return UnimplementedError("no address space of 4 GiB");
  const Rng rng(11, StreamOf("marks"));
  for (const int64_t count : kCounts) {
    // Marks at the ends and in between; the root's other bytes are zeros that take no memory.
    for (uint64_t mark = 0; mark < 64 && context.rank() == 0; ++mark) {
      const auto at = mark == 0
                          ? count - 1
                          : static_cast<int64_t>(rng.Below(mark, static_cast<uint64_t>(count)));
      buffer.data()[at] = static_cast<uint8_t>(mark + 1 + static_cast<uint64_t>(count % 7));
    }
    CRIA_RETURN_IF_ERROR(
        context.world
            ->Broadcast({.buffer = buffer.data(), .count = count, .dtype = DataType::kUint8})
            .Wait());
    std::vector<uint8_t> want(64);
    for (uint64_t pass = 0; pass < 2; ++pass) {
      // Marks may meet: the last written wins, here as at the root.
      for (uint64_t mark = 0; mark < 64; ++mark) {
        const auto at = mark == 0
                            ? count - 1
                            : static_cast<int64_t>(rng.Below(mark, static_cast<uint64_t>(count)));
        const auto value = static_cast<uint8_t>(mark + 1 + static_cast<uint64_t>(count % 7));
        CRIA_RETURN_IF_ERROR(Expect(buffer.data()[at] == value, count, " bytes: byte ", at, " is ",
                                    static_cast<int>(buffer.data()[at]), " instead of ",
                                    static_cast<int>(value)));
      }
    }
  }
  return OkStatus();
}

Status FarDisplacements(CaseContext& context) {
  // Parts of few elements, 3 GiB apart and beyond 2^31 elements: sparse memory.
  const int n = context.size();
  constexpr int64_t kFar = (int64_t{1} << 31) + 12345;
  constexpr int64_t kCount = 1000;
  const SparseMemory output((kFar * (n - 1) + kCount) * 1 + 4096);
  if (!output.ok()) return UnimplementedError("no address space");
  std::vector<int64_t> counts(static_cast<size_t>(n), kCount), places;
  for (int r = 0; r < n; ++r) places.push_back(kFar * r);
  std::vector<uint8_t> mine(static_cast<size_t>(kCount * n));
  for (size_t i = 0; i < mine.size(); ++i) {
    mine[i] = static_cast<uint8_t>(i * 7 + static_cast<size_t>(context.rank()) * 31 + 1);
  }
  const auto check = [&](const char* what, int64_t from) {
    for (int r = 0; r < n; ++r) {
      for (int64_t i = 0; i < kCount; ++i) {
        const auto want = static_cast<uint8_t>((from + i) * 7 + r * 31 + 1);
        const uint8_t got = output.data()[places[static_cast<size_t>(r)] + i];
        if (got != want) {
          return FailedPreconditionError(what, ": element ", i, " of rank ", r, " is ",
                                         static_cast<int>(got), " instead of ",
                                         static_cast<int>(want));
        }
      }
    }
    return OkStatus();
  };
  CRIA_RETURN_IF_ERROR(context.world
                           ->AllGatherV({.input = mine.data(),
                                         .output = output.data(),
                                         .counts = counts,
                                         .displacements = places,
                                         .dtype = DataType::kUint8})
                           .Wait());
  CRIA_RETURN_IF_ERROR(check("all_gather_v", 0));
  std::vector<int64_t> dense;
  for (int r = 0; r < n; ++r) dense.push_back(kCount * r);
  CRIA_RETURN_IF_ERROR(context.world
                           ->AllToAllV({.input = mine.data(),
                                        .output = output.data(),
                                        .send_counts = counts,
                                        .recv_counts = counts,
                                        .send_displacements = dense,
                                        .recv_displacements = places,
                                        .dtype = DataType::kUint8})
                           .Wait());
  return check("all_to_all_v", kCount * context.rank());
}

Status VerifierAbove4Gib(CaseContext& context) {
  // The suite's own arithmetic: a window of an all_gather of 5 GiB, right and with one wrong byte.
  constexpr int64_t kPart = int64_t{5} << 30;
  const CollectiveShape shape = {
      .kind = OpKind::kAllGather, .dtype = DataType::kUint8, .count = kPart};
  const Verifier verifier(shape, 0, 2);
  constexpr int64_t kFirst = kPart + (int64_t{1} << 32) + 77;  // in rank 1's part
  constexpr int64_t kWindow = 200000;
  std::vector<std::byte> window(kWindow);
  const ValueSpec spec = {.dtype = DataType::kUint8, .op = ReduceOp::kSum, .size = 2};
  for (int64_t i = 0; i < kWindow; ++i) {
    WriteValue(spec, 1, (kFirst - kPart + i) % Verifier::kPeriod, &window[static_cast<size_t>(i)]);
  }
  CRIA_RETURN_IF_ERROR(Expect(verifier.CountWrong(window.data(), kFirst, kWindow) == 0,
                              "right values count as wrong above 4 GiB"));
  window[150000] ^= std::byte{1};
  (void)context;
  return Expect(verifier.CountWrong(window.data(), kFirst, kWindow) == 1,
                "a wrong byte above 4 GiB is not counted once");
}

Status FewerElementsThanRanks(CaseContext& context) {
  Checks checks(context.world);
  for (const OpKind kind : DataKinds()) {
    for (int64_t count = 1; count <= context.size() + 1; ++count) {
      CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .count = count}));
    }
  }
  return checks.Outcome();
}

float HalfToFloat(uint16_t bits) {
  const uint32_t exponent = bits >> 10 & 31;
  const auto mantissa = static_cast<float>(bits & 0x3ff);
  const float magnitude = exponent == 0 ? std::ldexp(mantissa, -24)
                          : exponent == 31
                              ? std::numeric_limits<float>::infinity()
                              : std::ldexp(1024 + mantissa, static_cast<int>(exponent) - 25);
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

float ToFloat(DataType dtype, uint16_t bits) {
  return dtype == DataType::kBfloat16 ? std::bit_cast<float>(static_cast<uint32_t>(bits) << 16)
                                      : HalfToFloat(bits);
}

uint16_t FromFloat(DataType dtype, float value) {
  return dtype == DataType::kBfloat16 ? BfloatBits(value) : HalfBits(value);
}

// The distance between neighbours at this value.
double Ulp(DataType dtype, double value) {
  const int digits = dtype == DataType::kBfloat16 ? 8 : 11;
  const int exponent = value == 0 ? -14 : std::max(std::ilogb(value), -14);
  return std::ldexp(1.0, exponent - digits + 1);
}

// The same bits on all ranks.
Status ExpectSameBits(CaseContext& context, const std::vector<uint16_t>& values) {
  const uint64_t hash =
      Hash64({reinterpret_cast<const char*>(values.data()), values.size() * sizeof(uint16_t)});
  CRIA_ASSIGN_OR_RETURN(const std::vector<double> all,
                        context.board->Gather(static_cast<double>(hash >> 16)));
  for (const double other : all) {
    CRIA_RETURN_IF_ERROR(Expect(other == all[0], "the ranks got different bits"));
  }
  return OkStatus();
}

Status AccurateSum(CaseContext& context, DataType dtype, bool large) {
  constexpr size_t kCount = 5000;
  std::vector<uint16_t> mine(kCount), sum(kCount);
  std::vector<double> exact(kCount, 0), magnitude(kCount, 0);
  for (int r = 0; r < context.size(); ++r) {
    const Rng rng(3, StreamOf(StrCat("rank", r)));
    for (size_t i = 0; i < kCount; ++i) {
      // Of float16's greatest values two already overflow; signs alternate, so that the sum fits.
      float value = large ? (r % 2 == 0 ? 60000.0F : -59000.0F) : 0.01F + rng.Normal(i);
      if (std::abs(value) < 0.001F) value = 0.001F;
      const uint16_t bits = FromFloat(dtype, value);
      if (r == context.rank()) mine[i] = bits;
      exact[i] += ToFloat(dtype, bits);
      magnitude[i] += std::abs(ToFloat(dtype, bits));
    }
  }
  CRIA_RETURN_IF_ERROR(
      context.world
          ->AllReduce({.input = mine.data(), .output = sum.data(), .count = kCount, .dtype = dtype})
          .Wait());
  CRIA_RETURN_IF_ERROR(ExpectSameBits(context, sum));
  for (size_t i = 0; i < kCount; ++i) {
    // Half a step of the type, and what float32 loses on the way.
    const double bound = Ulp(dtype, exact[i]) / 2 + context.size() * magnitude[i] * 0x1p-24;
    const double error = std::abs(ToFloat(dtype, sum[i]) - exact[i]);
    CRIA_RETURN_IF_ERROR(Expect(error <= bound, Name(dtype), " sum of ", context.size(),
                                " ranks: ", ToFloat(dtype, sum[i]), " instead of ", exact[i],
                                ": off by ", error, ", allowed ", bound));
  }
  return OkStatus();
}

Status Accuracy(CaseContext& context) {
  int done = 0;
  Status missing;
  for (const auto& [dtype, large] :
       {std::pair{DataType::kBfloat16, false}, std::pair{DataType::kFloat16, false},
        std::pair{DataType::kFloat16, context.size() % 2 == 0}}) {
    const Status status = AccurateSum(context, dtype, large);
    if (status.code() == StatusCode::kUnimplemented) {
      missing = status;
      continue;
    }
    CRIA_RETURN_IF_ERROR(status);
    ++done;
  }
  return done > 0 ? OkStatus() : missing;
}

Status AverageNearMax(CaseContext& context) {
  for (const DataType dtype : {DataType::kBfloat16, DataType::kFloat16}) {
    const float largest = dtype == DataType::kBfloat16 ? 3.3e38F : 65000.0F;
    const uint16_t bits = FromFloat(dtype, largest);
    const std::vector<uint16_t> mine(100, bits);
    std::vector<uint16_t> average(100);
    CRIA_RETURN_IF_ERROR(context.world
                             ->AllReduce({.input = mine.data(),
                                          .output = average.data(),
                                          .count = 100,
                                          .dtype = dtype,
                                          .op = ReduceOp::kAvg})
                             .Wait());
    for (const uint16_t value : average) {
      CRIA_RETURN_IF_ERROR(Expect(value == bits, Name(dtype), " avg of equal values ",
                                  ToFloat(dtype, bits), " is ", ToFloat(dtype, value)));
    }
  }
  return OkStatus();
}

// Messages of 1, 2, 3 ... bytes at odd places, all in one group: each beside the next.
Status TinyMessages(CaseContext& context) {
  constexpr int kMessages = 8;
  constexpr size_t kBytes = kMessages * (kMessages + 1) / 2;
  const int n = context.size();
  const auto value = [](int rank, size_t i) { return static_cast<uint8_t>(rank * 50 + 7 * i + 1); };
  std::vector<uint8_t> out(kBytes + 1), in(kBytes + 1, 0);
  for (size_t i = 0; i <= kBytes; ++i) out[i] = value(context.rank(), i);
  CRIA_RETURN_IF_ERROR(context.world->GroupStart());
  size_t at = 1;
  for (int64_t bytes = 1; bytes <= kMessages; at += static_cast<size_t>(bytes), ++bytes) {
    context.world->Send({.buffer = &out[at],
                         .count = bytes,
                         .dtype = DataType::kUint8,
                         .peer = (context.rank() + 1) % n});
    context.world->Recv({.buffer = &in[at],
                         .count = bytes,
                         .dtype = DataType::kUint8,
                         .peer = (context.rank() + n - 1) % n});
  }
  CRIA_RETURN_IF_ERROR(context.world->GroupEnd().Wait());
  for (size_t i = 1; i <= kBytes; ++i) {
    CRIA_RETURN_IF_ERROR(Expect(in[i] == value((context.rank() + n - 1) % n, i), "byte ", i,
                                " of tiny messages in a group is ", int{in[i]}));
  }
  return Expect(in[0] == 0, "tiny messages in a group wrote before their buffer");
}

Status TinySizes(CaseContext& context) {
  Checks checks(context.world);
  for (int64_t bytes = 1; bytes <= 17; ++bytes) {
    for (const OpKind kind : {OpKind::kAllReduce, OpKind::kAllGather, OpKind::kSend}) {
      const int64_t offset = bytes * 11 % 63 + 1;
      CRIA_RETURN_IF_ERROR(
          checks.Run({.kind = kind, .dtype = DataType::kUint8, .count = bytes},
                     {.input_offset_bytes = offset, .output_offset_bytes = 64 - offset}));
    }
  }
  for (int64_t offset = 1; offset < 64; ++offset) {
    CRIA_RETURN_IF_ERROR(
        checks.Run({.kind = OpKind::kAllReduce, .dtype = DataType::kFloat32, .count = 33},
                   {.input_offset_bytes = offset, .output_offset_bytes = 63 - offset}));
  }
  CRIA_RETURN_IF_ERROR(TinyMessages(context));
  return checks.Outcome();
}

Status InPlace(CaseContext& context) {
  Checks checks(context.world);
  for (const OpKind kind : DataKinds()) {
    if (!Verifier::HasInPlace(kind)) continue;
    for (const int64_t count : {1, 100, 70001}) {
      CRIA_RETURN_IF_ERROR(checks.Run({.kind = kind, .count = count, .in_place = true}));
    }
  }
  // A message, then a collective on the same buffer.
  CRIA_RETURN_IF_ERROR(checks.Run({.kind = OpKind::kSend, .count = 100}));
  CRIA_RETURN_IF_ERROR(checks.Run({.kind = OpKind::kAllReduce, .count = 100, .in_place = true}));
  // An output that overlaps the input in part is refused, and nothing breaks.
  std::vector<float> x(300, 1.0F);
  const Status overlap =
      context.world->AllReduce({.input = x.data(), .output = x.data() + 50, .count = 200}).Wait();
  CRIA_RETURN_IF_ERROR(Expect(overlap.code() == StatusCode::kInvalidArgument,
                              "a partial overlap gives \"", Message(overlap), "\""));
  return checks.Run({.kind = OpKind::kAllReduce, .count = 10});
}

}  // namespace

std::vector<Case> DataCases() {
  return {
      {.name = "empty_counts",
       .row = 1,
       .reports = "gloo#179",
       .what = "count 0 in every collective, on all ranks and on some",
       .ranks = {2, 3},
       .body = &EmptyCounts},
      {.name = "empty_gathers",
       .row = 2,
       .reports = "pytorch#85234",
       .what = "count 0 on 1, 2, 3 and 8 ranks",
       .ranks = {1, 2, 3, 8},
       .body = &EmptyGathers},
      {.name = "others_untouched",
       .row = 6,
       .reports = "pytorch#21480",
       .what = "reduce and gather leave the buffers of the other ranks alone",
       .ranks = {2, 3},
       .body = &OthersUntouched},
      {.name = "avg_all_types",
       .row = 7,
       .reports = "torchcomms#287",
       .what = "avg divides by the ranks, for all types; integers truncate",
       .ranks = {3},
       .body = &AverageOfAllTypes},
      {.name = "views",
       .row = 8,
       .reports = "pytorch#192920, #24836, #74809, #159548",
       .what = "dense views at any offset (the API takes no strides)",
       .ranks = {3},
       .body = &ViewsOfArrays},
      {.name = "mixed_layouts",
       .row = 9,
       .reports = "pytorch#128066",
       .what = "reduce_scatter and all_gather of views that differ by rank",
       .ranks = {3},
       .body = &MixedLayouts},
      {.name = "storage_offset",
       .row = 10,
       .reports = "pytorch#20421",
       .what = "all_gather of the chunks of one array",
       .ranks = {3},
       .body = &StorageOffset},
      {.name = "beyond_int32",
       .row = 11,
       .reports = "mpich#2257, #2317",
       .what = "2^31 - 1, 2^31 and 2^32 + 1 bytes",
       .ranks = {2},
       .body = &BeyondInt32,
       .limit_s = 120},
      {.name = "far_displacements",
       .row = 12,
       .reports = "ompi#9942, #5383",
       .what = "displacements above 2^31 in the V collectives",
       .ranks = {3},
       .body = &FarDisplacements},
      {.name = "verifier_above_4gib",
       .row = 13,
       .reports = "nccl-tests#37, nccl#184",
       .what = "this suite's own check above 4 GiB",
       .ranks = {1},
       .body = &VerifierAbove4Gib},
      {.name = "fewer_than_ranks",
       .row = 15,
       .reports = "ACCL#73",
       .what = "counts from 1 to ranks + 1",
       .ranks = {2, 3, 4},
       .body = &FewerElementsThanRanks},
      {.name = "accuracy",
       .row = 16,
       .reports = "nccl#1026, #1055, #855",
       .what = "bfloat16 and float16 sums round once; all ranks have the same bits",
       .ranks = {2, 5, 8, 64},
       .body = &Accuracy,
       .limit_s = 90},
      {.name = "avg_near_max",
       .row = 17,
       .reports = "torchcomms#4069",
       .what = "avg of values near the type's greatest",
       .ranks = {5, 10},
       .body = &AverageNearMax},
      {.name = "tiny_sizes",
       .row = 34,
       .reports = "NCCL 2.28.7 notes",
       .what = "1 to 17 bytes, at any alignment, and grouped",
       .ranks = {2, 3},
       .body = &TinySizes},
      {.name = "in_place",
       .row = 39,
       .reports = "nccl#1859",
       .what = "every collective in place; partial overlap refused",
       .ranks = {3},
       .body = &InPlace},
  };
}

}  // namespace cria::comm
