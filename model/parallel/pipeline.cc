#include "model/parallel/pipeline.h"

#include "base/check.h"
#include "debug/trace.h"
#include "model/parallel/row_split.h"

namespace cria::model {
namespace {

constexpr int kSender = 0, kReceiver = 1;
// How long a wait goes on without a look at what can be posted meanwhile.
constexpr double kLookSeconds = 1e-3;

comm::Work SendTo(comm::Communicator* link, const Tensor& x) {
  return link->Send({.buffer = x.data(),
                     .count = x.num_elements(),
                     .dtype = WireType(x.dtype()),
                     .peer = kReceiver,
                     .call = {.async = true}});
}

comm::Work ReceiveFrom(comm::Communicator* link, const Tensor& x) {
  return link->Recv({.buffer = x.data(),
                     .count = x.num_elements(),
                     .dtype = WireType(x.dtype()),
                     .peer = kSender,
                     .call = {.async = true}});
}

}  // namespace

PipelineShape ShapeOf(const Layout& layout) {
  return {.pp = layout.pp, .chunks = layout.pp_chunks, .group = layout.pp_group};
}

int SlotsOf(const Layout& layout, int rank, int micro_batches) {
  const auto pp = static_cast<size_t>(CoordinatesOf(layout, rank).pp);
  return MakeSchedule(ShapeOf(layout), micro_batches).slots[pp];
}

Pipeline::Pipeline(Stage* stage, const Groups* groups)
    : stage_(stage), groups_(groups), slots_(static_cast<size_t>(stage->num_slots())) {}

bool Pipeline::HasInput(int chunk) const {
  return chunk > 0 || !stage_->parameters().slice().embedding;
}

bool Pipeline::HasOutput(int chunk) const {
  return chunk + 1 < static_cast<int>(stage_->parameters().slice().chunks.size()) ||
         !stage_->parameters().slice().head;
}

void Pipeline::PostInput(const PipelineAction& action, size_t index) {
  Slot& slot = At(action);
  if (HasInput(action.chunk)) {
    const TokenBatch& batch = batches_[static_cast<size_t>(action.micro_batch)];
    slot.input_recv = ReceiveFrom(groups_->forward_in.get(), stage_->Input(action.slot, batch));
  }
  slot.input_posted = true;
  slot.input_for = index;
}

void Pipeline::PostGradient(const PipelineAction& action, size_t index) {
  Slot& slot = At(action);
  const TokenBatch& batch = batches_[static_cast<size_t>(action.micro_batch)];
  slot.gradient_recv =
      ReceiveFrom(groups_->backward_in.get(), stage_->Boundary(action.slot, batch));
  slot.gradient_posted = true;
  slot.gradient_for = index;
}

void Pipeline::PostReceives(std::span<const PipelineAction> actions, size_t next) {
  // On each link in the link's order: what can't be posted yet holds back what follows it.
  bool inputs = true, gradients = true;
  for (size_t i = next; i < actions.size() && (inputs || gradients); ++i) {
    const PipelineAction& action = actions[i];
    Slot& slot = At(action);
    if (action.forward && inputs) {
      if (!slot.input_posted && !slot.busy) PostInput(action, i);
      if (HasInput(action.chunk)) inputs = slot.input_posted && slot.input_for == i;
    } else if (!action.forward && gradients && HasOutput(action.chunk)) {
      // The boundary's own content must have left.
      if (!slot.gradient_posted && slot.busy && slot.forward_send.done()) PostGradient(action, i);
      gradients = slot.gradient_posted && slot.gradient_for == i;
    }
  }
}

Status Pipeline::Await(const comm::Work& work, std::span<const PipelineAction> actions,
                       size_t index) {
  // Whoever is waited for may wait for a receive that can be posted by now.
  while (!work.done()) {
    PostReceives(actions, index);
    work.WaitFor(kLookSeconds).IgnoreError();
  }
  return work.Wait();
}

Status Pipeline::Forward(std::span<const PipelineAction> actions, size_t index, bool train,
                         LossSum* loss) {
  const PipelineAction& action = actions[index];
  const debug::TraceSpan span(stage_->options().trace, "forward",
                              {{"micro_batch", action.micro_batch}, {"chunk", action.chunk}});
  Slot& slot = At(action);
  const TokenBatch& batch = batches_[static_cast<size_t>(action.micro_batch)];
  CRIA_RETURN_IF_ERROR(Await(slot.gradient_send, actions, index));
  CRIA_RETURN_IF_ERROR(Await(slot.forward_send, actions, index));
  CRIA_RETURN_IF_ERROR(Await(slot.input_recv, actions, index));
  slot.input_posted = false;
  CRIA_RETURN_IF_ERROR(
      stage_->Forward({.chunk = action.chunk,
                       .slot = action.slot,
                       .batch = batch,
                       .record = train,
                       .backward = train,
                       .last = action.micro_batch + 1 == static_cast<int>(batches_.size()),
                       .grad_scale = grad_scale_},
                      loss));
  slot.busy = train;
  if (HasOutput(action.chunk)) {
    slot.forward_send = SendTo(groups_->forward_out.get(), stage_->Boundary(action.slot, batch));
  }
  return OkStatus();
}

Status Pipeline::Backward(std::span<const PipelineAction> actions, size_t index) {
  const PipelineAction& action = actions[index];
  const debug::TraceSpan span(stage_->options().trace, "backward",
                              {{"micro_batch", action.micro_batch}, {"chunk", action.chunk}});
  Slot& slot = At(action);
  const TokenBatch& batch = batches_[static_cast<size_t>(action.micro_batch)];
  if (HasOutput(action.chunk)) {
    CRIA_RETURN_IF_ERROR(Await(slot.forward_send, actions, index));
    PostReceives(actions, index);
    CRIA_RETURN_IF_ERROR(Await(slot.gradient_recv, actions, index));
    slot.gradient_posted = false;
  }
  CRIA_RETURN_IF_ERROR(
      stage_->Backward({.chunk = action.chunk,
                        .slot = action.slot,
                        .batch = batch,
                        .last = action.micro_batch + 1 == static_cast<int>(batches_.size()),
                        .grad_scale = grad_scale_}));
  slot.busy = false;
  if (HasInput(action.chunk)) {
    slot.gradient_send = SendTo(groups_->backward_out.get(), stage_->Boundary(action.slot, batch));
  }
  return OkStatus();
}

Status Pipeline::Run(std::span<const PipelineAction> actions, bool train, LossSum* loss) {
  for (size_t i = 0; i < actions.size(); ++i) {
    PostReceives(actions, i);
    CRIA_RETURN_IF_ERROR(actions[i].forward ? Forward(actions, i, train, loss)
                                            : Backward(actions, i));
  }
  return WaitForSends();
}

Status Pipeline::WaitForSends() {
  for (Slot& slot : slots_) {
    CRIA_RETURN_IF_ERROR(slot.forward_send.Wait());
    CRIA_RETURN_IF_ERROR(slot.gradient_send.Wait());
    slot = Slot{};
  }
  return OkStatus();
}

Status Pipeline::Train(std::span<const TokenBatch> micro_batches, float grad_scale, LossSum* loss) {
  batches_ = micro_batches;
  grad_scale_ = grad_scale;
  const Layout& layout = stage_->options().layout;
  const PipelineSchedule schedule =
      MakeSchedule(ShapeOf(layout), static_cast<int>(micro_batches.size()));
  const auto pp = static_cast<size_t>(CoordinatesOf(layout, stage_->options().rank).pp);
  CRIA_CHECK_LE(schedule.slots[pp], static_cast<int>(slots_.size()));
  return Run(schedule.ranks[pp], /*train=*/true, loss);
}

Status Pipeline::Evaluate(std::span<const TokenBatch> micro_batches, LossSum* loss) {
  batches_ = micro_batches;
  const Layout& layout = stage_->options().layout;
  std::vector<PipelineAction> actions;
  // The forward actions of training, in one slot a chunk, which each micro-batch leaves at once.
  // Groups as small as can be: a larger one would wait for the ring with all its results in hand.
  PipelineShape shape = ShapeOf(layout);
  shape.group = layout.pp;
  const PipelineSchedule schedule = MakeSchedule(shape, static_cast<int>(micro_batches.size()));
  const auto pp = static_cast<size_t>(CoordinatesOf(layout, stage_->options().rank).pp);
  for (PipelineAction action : schedule.ranks[pp]) {
    if (!action.forward) continue;
    action.slot = action.chunk;
    actions.push_back(action);
  }
  return Run(actions, /*train=*/false, loss);
}

}  // namespace cria::model
