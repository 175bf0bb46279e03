#include "model/parallel/parameter_buffers.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "base/parallel.h"

namespace cria::model {
namespace {

comm::DataType CommType(DType type) {
  switch (type) {
    case DType::kBF16:
      return comm::DataType::kBfloat16;
    case DType::kI64:
      return comm::DataType::kInt64;
    default:
      return comm::DataType::kFloat32;
  }
}

DType GradientType(const ParameterBuffersOptions& options) {
  return options.fixed_point ? DType::kI64 : DType::kF32;
}

ParameterParts PartsOf(const ParameterLayout& layout, const Groups* groups) {
  const bool alone = groups == nullptr || groups->replicas == nullptr;
  return ParameterParts(layout, alone ? Shard::kNone : groups->layout.shard,
                        alone ? 1 : groups->replicas->size(), alone ? 0 : groups->replicas->rank());
}

Tensor PartOfBuffer(const Tensor& buffer, const BlockPart& part) {
  return buffer.Rows(part.at, part.at + part.size());
}

// Elements of the largest block of layers, and of embedding and head.
struct LargestBlocks {
  int64_t layer = 0, vocabulary = 0;
};
LargestBlocks Largest(const ParameterLayout& layout) {
  LargestBlocks largest;
  for (const ParameterBlock& block : layout.blocks()) {
    if (block.kind == ParameterBlock::Kind::kNorms) continue;
    int64_t& size = block.kind == ParameterBlock::Kind::kLayer ? largest.layer : largest.vocabulary;
    size = std::max(size, block.size());
  }
  return largest;
}

// The same memory as n elements of another type.
Tensor ViewAs(const Tensor& memory, DType type, int64_t n) {
  CRIA_CHECK_LE(n * DTypeBytes(type), memory.bytes());
  return Tensor(memory.data(), type, {n});
}

// Flat buffers as rows, which is what operations share among threads: calls body(a', b') with all
// full rows of 4096 elements, then with the rest as a row.
template <typename Body>
void InRows(const Tensor& a, const Tensor& b, Body body) {
  constexpr int64_t kColumns = 4096;
  const int64_t n = a.num_elements(), rows = n / kColumns, full = rows * kColumns;
  if (rows > 0) body(a.Prefix({rows, kColumns}), b.Prefix({rows, kColumns}));
  if (full < n) body(a.Rows(full, n).View({1, n - full}), b.Rows(full, n).View({1, n - full}));
}

// to += from.
void AddTo(const Tensor& from, const Tensor& to, Ops* ops) {
  const int64_t n = to.num_elements();
  if (to.dtype() == DType::kF32) {
    InRows(from, to, [&](const Tensor& some, const Tensor& sum) {
      ops->Add({.a = sum, .b = some, .out = sum});
    });
    return;
  }
  constexpr int64_t kPerItem = 1 << 16;
  ParallelFor((n + kPerItem - 1) / kPerItem, [&](int64_t item) {
    const int64_t end = std::min(n, (item + 1) * kPerItem);
    for (int64_t i = item * kPerItem; i < end; ++i) to.i64()[i] += from.i64()[i];
  });
}

}  // namespace

ParameterBuffers::Buffers ParameterBuffers::Allocate(const ParameterLayout& layout,
                                                     const ParameterParts& parts,
                                                     const ParameterBuffersOptions& options,
                                                     Arenas* arenas, ParameterMemory* memory) {
  int64_t before = 0;
  const auto bytes_since = [&] {
    const int64_t now = arenas->own.used_bytes() + arenas->shared.used_bytes();
    return now - std::exchange(before, now);
  };
  const LargestBlocks largest = Largest(layout);
  const auto allocate_slots = [&](DType layer_type, int64_t vocabulary_bytes, Slots* slots) {
    for (Slot& slot : slots->layers)
      slot.memory = arenas->shared.Alloc(layer_type, {largest.layer});
    slots->vocabulary.memory =
        arenas->shared.Alloc(DType::kF32, {(vocabulary_bytes + 3) / DTypeBytes(DType::kF32)});
  };
  // What is gathered into, or reduced, where it lies.
  const bool gathers_weights = parts.weights().whole() && !parts.updated().whole();
  const bool reduces_gradients = parts.gradients().whole() && parts.replicas() > 1;

  Buffers b;
  Arena* arena = gathers_weights ? &arenas->shared : &arenas->own;
  b.weights = arena->Alloc(DType::kF32, {parts.weights().num_elements()});
  memory->weights = bytes_since();
  if (!parts.weights().whole()) {
    // The look-up reads the embedding in fp32.
    allocate_slots(options.compute_type, largest.vocabulary * DTypeBytes(DType::kF32), &b.gathered);
    if (options.fp8_gather) {
      for (Slot& slot : b.gathered.layers) {
        slot.codes = arenas->shared.Alloc(DType::kF32, {(largest.layer + 3) / 4});
      }
    }
  } else if (options.compute_type != DType::kF32) {
    b.operands = arenas->own.Alloc(options.compute_type, {parts.weights().num_elements()});
  } else {
    b.operands = b.weights;
  }
  memory->compute_copy = bytes_since();
  if (options.training) {
    const DType type = GradientType(options);
    arena = reduces_gradients ? &arenas->shared : &arenas->own;
    b.gradients = arena->Alloc(type, {parts.gradients().num_elements()});
    if (!parts.gradients().whole()) {
      allocate_slots(type, largest.vocabulary * DTypeBytes(type), &b.reduced);
    }
    if (options.fixed_point) {
      b.final_gradients = arenas->own.Alloc(DType::kF32, {parts.updated().num_elements()});
    }
    memory->gradients = bytes_since();
  }
  memory->shared = arenas->shared.used_bytes();
  return b;
}

ParameterMemory ParameterBuffers::Plan(const ParameterLayout& layout, const ParameterParts& parts,
                                       const ParameterBuffersOptions& options) {
  ParameterMemory memory;
  Arenas arenas = {Arena::Planning(), Arena::Planning()};
  Allocate(layout, parts, options, &arenas, &memory);
  return memory;
}

ParameterBuffers::Arenas ParameterBuffers::MakeArenas() {
  const ParameterMemory memory = Plan(layout_, parts_, options_);
  Arena own(memory.total() - memory.shared);
  if (memory.shared == 0) return {std::move(own), Arena(0)};
  StatusOr<std::unique_ptr<comm::SharedBuffer>> segment =
      groups_->replicas->Allocate(memory.shared);
  if (!segment.ok()) {
    LogWarning("weights and gradients in private memory, which is slower to reduce: ",
               Message(segment.status()));
    return {std::move(own), Arena(memory.shared)};
  }
  segment_ = *std::move(segment);
  // Somebody may have used it before.
  ops_->Zero(Tensor(segment_->data(), DType::kF32, {memory.shared / DTypeBytes(DType::kF32)}));
  return {std::move(own), Arena::Over(segment_->data(), memory.shared)};
}

ParameterBuffers::ParameterBuffers(ParameterLayout layout, const ParameterBuffersOptions& options,
                                   const Groups* groups, Ops* ops)
    : layout_(std::move(layout)),
      options_(options),
      groups_(groups),
      ops_(ops),
      parts_(PartsOf(layout_, groups)),
      arenas_(MakeArenas()),
      pending_(layout_.blocks().size()),
      reduced_(layout_.blocks().size()) {
  ParameterMemory unused;
  b_ = Allocate(layout_, parts_, options, &arenas_, &unused);
  if (options.fp8_gather && !parts_.weights().whole()) fp8_.emplace(layout_, ops);
}

ParameterBuffers::~ParameterBuffers() {
  // Outcomes don't matter any more; the memory does.
  for (const comm::Work& work : pending_) (void)work.Wait();
  for (Slots* slots : {&b_.gathered, &b_.reduced}) {
    for (Slot& slot : slots->layers) (void)slot.work.Wait();
    (void)slots->vocabulary.work.Wait();
  }
}

ParameterBuffers::Kept ParameterBuffers::KeptOf(const Parameter& parameter) const {
  const int64_t parameter_end = parameter.offset + parameter.num_elements();
  for (int b = 0; b < parts_.weights().num_blocks(); ++b) {
    const BlockPart& part = parts_.weights().block(b);
    const int64_t begin = std::max(parameter.offset, part.begin);
    const int64_t end = std::min(parameter_end, part.end);
    if (begin >= end) continue;
    const int64_t at = part.at + begin - part.begin;
    return {.begin = begin - parameter.offset, .values = b_.weights.Rows(at, at + end - begin)};
  }
  return {.begin = 0, .values = b_.weights.Rows(0, 0)};
}

void ParameterBuffers::Initialize(uint64_t seed) {
  for (const Parameter& parameter : layout_.parameters()) {
    const Kept kept = KeptOf(parameter);
    InitializeParameter(parameter, seed, kept.values, kept.begin);
  }
  WeightsChanged();
}

void ParameterBuffers::WeightsChanged() {
  ForgetGathered();
  rescaled_ = false;
  if (b_.operands.defined() && b_.operands.data() != b_.weights.data()) {
    ops_->Copy(b_.weights, b_.operands);
  }
  ops_->WeightsChanged();
}

Status ParameterBuffers::GatherWeights() {
  if (parts_.weights().whole() && !parts_.updated().whole()) {
    CRIA_RETURN_IF_ERROR(GatherUpdated());
  }
  WeightsChanged();
  return OkStatus();
}

Status ParameterBuffers::GatherUpdated() {
  std::vector<comm::Work> works;
  for (int b = 0; b < layout_.norms_block(); ++b) {
    float* whole = PartOfBuffer(b_.weights, parts_.weights().block(b)).f32();
    works.push_back(groups_->weights->AllGatherV({.input = UpdatedWeights(b).f32(),
                                                  .output = whole,
                                                  .counts = parts_.counts(b),
                                                  .call = {.async = true}}));
  }
  // All are waited for, whatever happens: they write into our memory.
  Status first;
  for (const comm::Work& work : works) {
    const Status status = work.Wait();
    if (first.ok()) first = status;
  }
  return first;
}

void ParameterBuffers::ForgetGathered() {
  const auto forget = [](Slot* slot) {
    (void)slot->work.Wait();
    slot->work = comm::Work();
    slot->block = -1;
    slot->encoded = false;
  };
  for (Slot& slot : b_.gathered.layers) forget(&slot);
  forget(&b_.gathered.vocabulary);
}

Tensor ParameterBuffers::UpdatedWeights(int b) const {
  const BlockPart& held = parts_.weights().block(b);
  const BlockPart& mine = parts_.updated().block(b);
  const int64_t at = held.at + mine.begin - held.begin;
  return b_.weights.Rows(at, at + mine.size());
}

Tensor ParameterBuffers::SummedGradients(int block) const {
  const BlockPart& held = parts_.gradients().block(block);
  const BlockPart& mine = parts_.updated().block(block);
  const int64_t at = held.at + mine.begin - held.begin;
  return b_.gradients.Rows(at, at + mine.size());
}

Tensor ParameterBuffers::UpdatedGradients(int b) const {
  if (!options_.fixed_point) return SummedGradients(b);
  return PartOfBuffer(b_.final_gradients, parts_.updated().block(b));
}

ParameterBuffers::Slot* ParameterBuffers::SlotFor(Slots* slots, int block) {
  if (BlockOf(block).kind != ParameterBlock::Kind::kLayer) return &slots->vocabulary;
  for (Slot& slot : slots->layers) {
    if (slot.block == block) return &slot;
  }
  return &slots->layers[1 - slots->last_layer];
}

// --- Weights -------------------------------------------------------------------------------------

StatusOr<Tensor> ParameterBuffers::Weights(int block) {
  CRIA_CHECK(!is_norms(block), "norms are no operands of GEMMs");
  if (!parts_.weights().whole()) return Gathered(block, options_.compute_type);
  return PartOfBuffer(b_.operands, parts_.weights().block(block));
}

StatusOr<Tensor> ParameterBuffers::EmbeddingTable() {
  const int block = layout_.embedding_block();
  if (!parts_.weights().whole()) return Gathered(block, DType::kF32);
  return PartOfBuffer(b_.weights, parts_.weights().block(block));
}

Tensor ParameterBuffers::Norms() {
  return PartOfBuffer(b_.weights, parts_.weights().block(layout_.norms_block()));
}

void ParameterBuffers::Prefetch(int block) {
  if (block < 0 || parts_.weights().whole() || !prefetch_error_.ok()) return;
  Slot* slot = SlotFor(&b_.gathered, block);
  prefetch_error_ = StartGather(slot, block, options_.compute_type);
}

StatusOr<Tensor> ParameterBuffers::Gathered(int block, DType type) {
  CRIA_RETURN_IF_ERROR(prefetch_error_);
  Slot* slot = SlotFor(&b_.gathered, block);
  CRIA_RETURN_IF_ERROR(StartGather(slot, block, type));
  CRIA_RETURN_IF_ERROR(slot->work.Wait());
  if (slot->encoded) DecodeGathered(slot);
  if (slot != &b_.gathered.vocabulary) {
    b_.gathered.last_layer = static_cast<int>(slot - b_.gathered.layers);
  }
  return slot->values;
}

Status ParameterBuffers::StartGather(Slot* slot, int block, DType type) {
  if (slot->block == block && slot->values.dtype() == type) return OkStatus();
  CRIA_RETURN_IF_ERROR(slot->work.Wait());
  if (fp8_ && slot->codes.defined()) return StartFp8Gather(slot, block);
  const ParameterBlock& whole = BlockOf(block);
  const BlockPart& part = parts_.weights().block(block);
  slot->block = block;
  slot->values = ViewAs(slot->memory, type, whole.size());
  const Tensor mine = slot->values.Rows(part.begin - whole.begin, part.end - whole.begin);
  if (part.size() > 0) ops_->Copy(PartOfBuffer(b_.weights, part), mine);
  if (whole.size() == 0) return OkStatus();
  slot->work = groups_->weights->AllGatherV({.input = mine.data(),
                                             .output = slot->values.data(),
                                             .counts = parts_.counts(block),
                                             .dtype = CommType(type),
                                             .call = {.async = true}});
  return OkStatus();
}

std::span<uint8_t> ParameterBuffers::CodesOf(const Slot& slot) const {
  return {static_cast<uint8_t*>(slot.codes.data()),
          static_cast<size_t>(BlockOf(slot.block).size())};
}

Status ParameterBuffers::StartFp8Gather(Slot* slot, int block) {
  if (!rescaled_) {
    // All ranks of the stage come here with the same block first.
    CRIA_RETURN_IF_ERROR(fp8_->Rescale(parts_.weights(), b_.weights, groups_->stage.get()));
    rescaled_ = true;
  }
  const ParameterBlock& whole = BlockOf(block);
  const BlockPart& part = parts_.weights().block(block);
  slot->block = block;
  slot->values = ViewAs(slot->memory, DType::kBF16, whole.size());
  const int64_t begin = part.begin - whole.begin;
  const std::span<uint8_t> codes = CodesOf(*slot);
  if (part.size() > 0) {
    const Tensor mine = slot->values.Rows(begin, begin + part.size());
    ops_->Copy(PartOfBuffer(b_.weights, part), mine);
    fp8_->Encode(block, part, mine,
                 codes.subspan(static_cast<size_t>(begin), static_cast<size_t>(part.size())));
  }
  slot->encoded = true;
  if (whole.size() == 0) return OkStatus();
  slot->work = groups_->weights->AllGatherV({.input = codes.data() + begin,
                                             .output = codes.data(),
                                             .counts = parts_.counts(block),
                                             .dtype = comm::DataType::kFloat8E4M3,
                                             .call = {.async = true}});
  return OkStatus();
}

void ParameterBuffers::DecodeGathered(Slot* slot) {
  slot->encoded = false;
  fp8_->Decode(CodesOf(*slot), slot->values);
}

const float* ParameterBuffers::WeightFactors(int block) const {
  return fp8_ ? fp8_->Factors(block).data() : nullptr;
}

// --- Gradients -----------------------------------------------------------------------------------

void ParameterBuffers::ZeroGradients() {
  ops_->Zero(b_.gradients);
  std::fill(reduced_.begin(), reduced_.end(), false);
}

StatusOr<Tensor> ParameterBuffers::Gradients(int block) {
  CRIA_CHECK(options_.training, "these buffers were made without gradients");
  if (parts_.gradients().whole() || is_norms(block)) {
    CRIA_CHECK(!reduced_[static_cast<size_t>(block)], "block ", block,
               " gets gradients after its last");
    return PartOfBuffer(b_.gradients, parts_.gradients().block(block));
  }
  Slot* slot = SlotFor(&b_.reduced, block);
  if (slot->block != block || slot->reducing) {
    CRIA_CHECK(slot->block < 0 || slot->reducing, "gradients of block ", slot->block,
               " were not added before those of ", block);
    CRIA_RETURN_IF_ERROR(FinishReduction(slot));
    slot->block = block;
    slot->values = ViewAs(slot->memory, GradientType(options_), BlockOf(block).size());
    ops_->Zero(slot->values);
  }
  if (slot != &b_.reduced.vocabulary) {
    b_.reduced.last_layer = static_cast<int>(slot - b_.reduced.layers);
  }
  return slot->values;
}

Status ParameterBuffers::GradientsAdded(int block, bool final) {
  if (is_norms(block)) return OkStatus();
  if (!parts_.gradients().whole() || final) return StartReduction(block);
  return OkStatus();
}

Status ParameterBuffers::StartReduction(int block) {
  if (parts_.replicas() == 1 || BlockOf(block).size() == 0) return OkStatus();
  comm::Communicator* group = groups_->replicas.get();
  const comm::DataType type = CommType(GradientType(options_));
  if (!parts_.gradients().whole()) {
    Slot* slot = SlotFor(&b_.reduced, block);
    CRIA_CHECK(slot->block == block && !slot->reducing, "block ", block, " has no gradients");
    const int64_t mine = parts_.gradients().block(block).begin - BlockOf(block).begin;
    slot->reducing = true;
    slot->work = group->ReduceScatterV({.input = slot->values.data(),
                                        .output = slot->values.Rows(mine, mine).data(),
                                        .counts = parts_.counts(block),
                                        .dtype = type,
                                        .call = {.async = true}});
    return OkStatus();
  }
  const Tensor whole = PartOfBuffer(b_.gradients, parts_.gradients().block(block));
  comm::Work* work = &pending_[static_cast<size_t>(block)];
  CRIA_CHECK(!reduced_[static_cast<size_t>(block)], "block ", block, " had its last gradients");
  reduced_[static_cast<size_t>(block)] = true;
  if (parts_.updated().whole()) {
    *work = group->AllReduce({.input = whole.data(),
                              .output = whole.data(),
                              .count = whole.num_elements(),
                              .dtype = type,
                              .call = {.async = true}});
  } else {
    *work = group->ReduceScatterV({.input = whole.data(),
                                   .output = SummedGradients(block).data(),
                                   .counts = parts_.counts(block),
                                   .dtype = type,
                                   .call = {.async = true}});
  }
  return OkStatus();
}

Status ParameterBuffers::FinishReduction(Slot* slot) {
  if (!slot->reducing) return OkStatus();
  const int block = std::exchange(slot->block, -1);
  slot->reducing = false;
  CRIA_RETURN_IF_ERROR(slot->work.Wait());
  const BlockPart& part = parts_.gradients().block(block);
  const int64_t begin = part.begin - BlockOf(block).begin;
  AddTo(slot->values.Rows(begin, begin + part.size()), PartOfBuffer(b_.gradients, part), ops_);
  return OkStatus();
}

Status ParameterBuffers::FinishGradients() {
  if (!parts_.gradients().whole()) {
    for (Slot& slot : b_.reduced.layers) CRIA_RETURN_IF_ERROR(FinishReduction(&slot));
    CRIA_RETURN_IF_ERROR(FinishReduction(&b_.reduced.vocabulary));
  } else {
    for (int b = 0; b < layout_.norms_block(); ++b) {
      if (!reduced_[static_cast<size_t>(b)]) CRIA_RETURN_IF_ERROR(StartReduction(b));
    }
    for (const comm::Work& work : pending_) CRIA_RETURN_IF_ERROR(work.Wait());
  }
  if (groups_ != nullptr) {
    const int norms = layout_.norms_block();
    const ParameterBlock& all = BlockOf(norms);
    CRIA_RETURN_IF_ERROR(SumOver(groups_->stage.get(), norms, all.begin, all.end));
    CRIA_RETURN_IF_ERROR(SumSharedHeads());
    if (groups_->tied != nullptr) {
      const ParameterBlock& tied = BlockOf(layout_.embedding_block());
      CRIA_RETURN_IF_ERROR(
          SumOver(groups_->tied.get(), layout_.embedding_block(), tied.begin, tied.end));
    }
  }
  if (options_.fixed_point) RoundGradients();
  return OkStatus();
}

Status ParameterBuffers::SumOver(comm::Communicator* group, int block, int64_t begin, int64_t end) {
  if (group == nullptr) return OkStatus();
  const BlockPart& mine = parts_.updated().block(block);
  begin = std::max(begin, mine.begin);
  end = std::min(end, mine.end);
  // The other ranks of the group have the same part of a block of the same shape.
  if (begin >= end) return OkStatus();
  const Tensor values = SummedGradients(block).Rows(begin - mine.begin, end - mine.begin);
  return group
      ->AllReduce({.input = values.data(),
                   .output = values.data(),
                   .count = values.num_elements(),
                   .dtype = CommType(values.dtype())})
      .Wait();
}

Status ParameterBuffers::SumSharedHeads() {
  if (groups_->kv == nullptr) return OkStatus();
  int64_t layer = 0;
  const std::vector<Parameter>& parameters = layout_.parameters();
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].name.ends_with("self_attn.k_proj.weight")) continue;
    // v lies behind k.
    const int64_t begin = parameters[i].offset;
    const int64_t end = begin + 2 * parameters[i].num_elements();
    CRIA_RETURN_IF_ERROR(SumOver(groups_->kv.get(), layout_.layer_block(layer++), begin, end));
  }
  return OkStatus();
}

void ParameterBuffers::RoundGradients() {
  for (int b = 0; b < parts_.updated().num_blocks(); ++b) {
    InRows(SummedGradients(b), UpdatedGradients(b), [&](const Tensor& fixed, const Tensor& to) {
      ops_->FixedToFloat({.from = fixed, .to = to, .log2_scale = kGradientLog2Scale});
    });
  }
}

}  // namespace cria::model
