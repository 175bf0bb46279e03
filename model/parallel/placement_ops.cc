#include "model/parallel/placement_ops.h"

#include <initializer_list>

#include "base/check.h"
#include "model/placement.h"

namespace cria::model {
namespace {

constexpr Placement kReplicate = Placement::kReplicate;
constexpr Placement kShard0 = Placement::kShard0;
constexpr Placement kShard1 = Placement::kShard1;
constexpr Placement kPartial = Placement::kPartial;

void Needs(const char* op, const char* role, const Tensor& x,
           std::initializer_list<Placement> allowed) {
  if (x.defined()) CheckPlacement(op, role, x.placement(), allowed);
}

void Same(const char* op, const char* role, const Tensor& x, const char* other_role,
          const Tensor& other) {
  if (x.defined()) CheckSamePlacement(op, role, x.placement(), other_role, other.placement());
}

// Of a matrix's transpose.
Placement Turned(Placement placement, bool transpose) {
  if (!transpose) return placement;
  if (placement == kShard0) return kShard1;
  return placement == kShard1 ? kShard0 : placement;
}

// What op(b) may be beside op(a).
std::initializer_list<Placement> RightSides(Placement left) {
  static constexpr std::initializer_list<Placement> kInner = {kShard0};
  static constexpr std::initializer_list<Placement> kWhole = {kReplicate};
  static constexpr std::initializer_list<Placement> kOuter = {kReplicate, kShard1};
  if (left == kShard1) return kInner;
  return left == kShard0 ? kWhole : kOuter;
}

}  // namespace

void PlacementOps::Matmul(const MatmulArgs& args) {
  const Placement a = args.a.placement(), b = args.b.placement();
  CheckPlacement("matmul", "a", a, {kReplicate, kShard0, kShard1});
  CheckPlacement("matmul", "b", b, {kReplicate, kShard0, kShard1});
  const Placement left = Turned(a, args.transpose_a), right = Turned(b, args.transpose_b);
  bool fits = false;
  for (const Placement allowed : RightSides(left)) fits = fits || right == allowed;
  CRIA_CHECK(fits, "matmul: b is ", PlacementName(b), ", with a ", PlacementName(a), " it needs ",
             PlacementName(Turned(*RightSides(left).begin(), args.transpose_b)));
  const Placement product = left == kShard1 ? kPartial : left == kShard0 ? kShard0 : right;
  CRIA_CHECK(args.c.placement() == product, "matmul: c is ", PlacementName(args.c.placement()),
             ", of a ", PlacementName(a), " and b ", PlacementName(b), " it is ",
             PlacementName(product));
  ForwardingOps::Matmul(args);
}

Quantized PlacementOps::Quantize(const QuantizeArgs& args) {
  Needs("quantize", "from", args.from, {kReplicate, kShard0, kShard1});
  Same("quantize", "to", args.to, "from", args.from);
  return ForwardingOps::Quantize(args);
}

void PlacementOps::Amax(const AmaxArgs& args) {
  Needs("amax", "from", args.from, {kReplicate, kShard0, kShard1});
  ForwardingOps::Amax(args);
}

void PlacementOps::RmsNormForward(const RmsNormForwardArgs& args) {
  Needs("rms_norm", "x", args.x, {kReplicate, kShard0});
  Needs("rms_norm", "weight", args.weight, {kReplicate});
  Same("rms_norm", "delta", args.delta, "x", args.x);
  Same("rms_norm", "sum", args.sum, "x", args.x);
  Same("rms_norm", "y", args.y, "x", args.x);
  Same("rms_norm", "rstd", args.rstd, "x", args.x);
  ForwardingOps::RmsNormForward(args);
}

void PlacementOps::RmsNormBackward(const RmsNormBackwardArgs& args) {
  Needs("rms_norm_backward", "x", args.x, {kReplicate, kShard0});
  Needs("rms_norm_backward", "weight", args.weight, {kReplicate});
  Same("rms_norm_backward", "dy", args.dy, "x", args.x);
  Same("rms_norm_backward", "rstd", args.rstd, "x", args.x);
  Same("rms_norm_backward", "dx", args.dx, "x", args.x);
  Same("rms_norm_backward", "dx_copy", args.dx_copy, "x", args.x);
  // A sum over rows: over this rank's alone where rows are divided.
  Needs("rms_norm_backward", "dweight", args.dweight,
        {args.x.placement() == kShard0 ? kPartial : kReplicate});
  ForwardingOps::RmsNormBackward(args);
}

void PlacementOps::Rope(const RopeArgs& args) {
  // Positions are those of all rows.
  Needs("rope", "x", args.x, {kReplicate, kShard1});
  ForwardingOps::Rope(args);
}

void PlacementOps::AttentionForward(const AttentionForwardArgs& args) {
  Needs("attention", "q", args.q, {kReplicate, kShard1});
  Same("attention", "k", args.k, "q", args.q);
  Same("attention", "v", args.v, "q", args.q);
  Same("attention", "out", args.out, "q", args.q);
  ForwardingOps::AttentionForward(args);
}

void PlacementOps::AttentionBackward(const AttentionBackwardArgs& args) {
  const Tensor& q = args.forward.q;
  Needs("attention_backward", "q", q, {kReplicate, kShard1});
  Same("attention_backward", "k", args.forward.k, "q", q);
  Same("attention_backward", "v", args.forward.v, "q", q);
  Same("attention_backward", "out", args.forward.out, "q", q);
  Same("attention_backward", "dout", args.dout, "q", q);
  Same("attention_backward", "dq", args.dq, "q", q);
  Same("attention_backward", "dk", args.dk, "q", q);
  Same("attention_backward", "dv", args.dv, "q", q);
  ForwardingOps::AttentionBackward(args);
}

void PlacementOps::SwigluForward(const SwigluForwardArgs& args) {
  Needs("swiglu", "gate_up", args.gate_up, {kReplicate, kShard0, kShard1});
  Same("swiglu", "act", args.act, "gate_up", args.gate_up);
  ForwardingOps::SwigluForward(args);
}

void PlacementOps::SwigluBackward(const SwigluBackwardArgs& args) {
  Needs("swiglu_backward", "gate_up", args.gate_up, {kReplicate, kShard0, kShard1});
  Same("swiglu_backward", "dact", args.dact, "gate_up", args.gate_up);
  Same("swiglu_backward", "dgate_up", args.dgate_up, "gate_up", args.gate_up);
  Same("swiglu_backward", "act", args.act, "gate_up", args.gate_up);
  ForwardingOps::SwigluBackward(args);
}

void PlacementOps::EmbeddingForward(const EmbeddingForwardArgs& args) {
  Needs("embedding", "tokens", args.tokens, {kReplicate});
  Needs("embedding", "table", args.table, {kReplicate, kShard0});
  // Words of other ranks are zeros.
  Needs("embedding", "out", args.out, {args.table.placement() == kShard0 ? kPartial : kReplicate});
  ForwardingOps::EmbeddingForward(args);
}

bool PlacementOps::EmbeddingBackward(const EmbeddingBackwardArgs& args) {
  Needs("embedding_backward", "tokens", args.tokens, {kReplicate});
  Needs("embedding_backward", "dout", args.dout, {kReplicate});
  Needs("embedding_backward", "dtable", args.dtable, {kReplicate, kShard0});
  return ForwardingOps::EmbeddingBackward(args);
}

void PlacementOps::CrossEntropy(const CrossEntropyArgs& args) {
  Needs("cross_entropy", "logits", args.logits, {kReplicate, kShard0});
  Same("cross_entropy", "targets", args.targets, "logits", args.logits);
  Same("cross_entropy", "losses", args.losses, "logits", args.logits);
  Same("cross_entropy", "dlogits", args.dlogits, "logits", args.logits);
  ForwardingOps::CrossEntropy(args);
}

void PlacementOps::LogitStats(const LogitStatsArgs& args) {
  Needs("logit_stats", "logits", args.logits, {kShard1});
  Needs("logit_stats", "targets", args.targets, {kReplicate});
  Needs("logit_stats", "max", args.max, {kPartial});
  Needs("logit_stats", "sum", args.sum, {kPartial});
  Needs("logit_stats", "target_logit", args.target_logit, {kPartial});
  ForwardingOps::LogitStats(args);
}

void PlacementOps::LogitGradient(const LogitGradientArgs& args) {
  Needs("logit_gradient", "logits", args.logits, {kShard1});
  Needs("logit_gradient", "targets", args.targets, {kReplicate});
  Needs("logit_gradient", "lse", args.lse, {kReplicate});
  Same("logit_gradient", "dlogits", args.dlogits, "logits", args.logits);
  ForwardingOps::LogitGradient(args);
}

void PlacementOps::Add(const AddArgs& args) {
  Same("add", "b", args.b, "a", args.a);
  Same("add", "out", args.out, "a", args.a);
  ForwardingOps::Add(args);
}

bool PlacementOps::AddFixed(const AddFixedArgs& args) {
  Same("add_fixed", "to", args.to, "from", args.from);
  return ForwardingOps::AddFixed(args);
}

void PlacementOps::FixedToFloat(const FixedToFloatArgs& args) {
  Same("fixed_to_float", "to", args.to, "from", args.from);
  ForwardingOps::FixedToFloat(args);
}

void PlacementOps::Copy(const Tensor& from, const Tensor& to) {
  Same("copy", "to", to, "from", from);
  ForwardingOps::Copy(from, to);
}

}  // namespace cria::model
