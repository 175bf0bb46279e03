#include "model/parallel/groups.h"

#include <utility>
#include <vector>

#include "base/str.h"

namespace cria::model {
namespace {

// Makes this rank's groups one by one; a group of one rank stays null.
class Maker {
 public:
  Maker(const Layout& layout, comm::Communicator* world) : layout_(layout), world_(world) {}

  Status Make(const std::string& name, std::vector<int> ranks, Groups::Group* group) {
    if (ranks.size() < 2) return OkStatus();
    CRIA_ASSIGN_OR_RETURN(*group, world_->NewGroup({.ranks = std::move(ranks), .name = name}));
    return OkStatus();
  }

  Status Along(const char* name, std::initializer_list<Axis> axes, Groups::Group* group) {
    return Make(name, RanksAlong(layout_, world_->rank(), axes), group);
  }

  // The ranks of this rank's pipeline, by stage.
  std::vector<int> Stages() const { return RanksAlong(layout_, world_->rank(), {Axis::kPp}); }

  // A link from one stage of the pipeline to another. Two links of two stages differ by direction
  // alone, so each has the stages in its name.
  Status Link(const char* what, int from, int to, Groups::Group* group) {
    const std::vector<int> stages = Stages();
    return Make(StrCat(what, " ", from, " to ", to),
                {stages[static_cast<size_t>(from)], stages[static_cast<size_t>(to)]}, group);
  }

 private:
  const Layout& layout_;
  comm::Communicator* const world_;
};

Status MakeLinks(const Layout& layout, int stage, Maker& maker, Groups* groups) {
  if (layout.pp == 1) return OkStatus();
  const bool ring = layout.pp_chunks > 1;
  if (stage > 0 || ring) {
    const int before = (stage + layout.pp - 1) % layout.pp;
    CRIA_RETURN_IF_ERROR(maker.Link("pp forward", before, stage, &groups->forward_in));
    CRIA_RETURN_IF_ERROR(maker.Link("pp backward", stage, before, &groups->backward_out));
  }
  if (stage + 1 < layout.pp || ring) {
    const int after = (stage + 1) % layout.pp;
    CRIA_RETURN_IF_ERROR(maker.Link("pp forward", stage, after, &groups->forward_out));
    CRIA_RETURN_IF_ERROR(maker.Link("pp backward", after, stage, &groups->backward_in));
  }
  return OkStatus();
}

// The tp ranks that hold the same kv heads as `at` are neighbours.
std::vector<int> RanksOfKvHeads(const Layout& layout, const LlamaConfig& config, Coordinates at) {
  const int replicas = KvReplicas(config, layout);
  const int first = at.tp / replicas * replicas;
  std::vector<int> ranks;
  for (at.tp = first; at.tp < first + replicas; ++at.tp) ranks.push_back(RankAt(layout, at));
  return ranks;
}

}  // namespace

StatusOr<Groups> MakeGroups(const Layout& layout, const LlamaConfig& config,
                            comm::Communicator* world) {
  if (world->size() != layout.world_size()) {
    return InvalidArgumentError("layout ", Name(layout), " is for ", layout.world_size(),
                                " ranks; the world has ", world->size());
  }
  Groups groups;
  groups.layout = layout;
  groups.at = CoordinatesOf(layout, world->rank());
  groups.world = world;
  Maker maker(layout, world);
  CRIA_RETURN_IF_ERROR(maker.Along("tp", {Axis::kTp}, &groups.tp));
  CRIA_RETURN_IF_ERROR(maker.Along("cp", {Axis::kCp}, &groups.cp));
  CRIA_RETURN_IF_ERROR(maker.Along("operands", {Axis::kTp, Axis::kCp}, &groups.operands));
  CRIA_RETURN_IF_ERROR(maker.Along("replicas", {Axis::kCp, Axis::kDp}, &groups.replicas));
  CRIA_RETURN_IF_ERROR(maker.Along("weights", {Axis::kCp, Axis::kDp}, &groups.weights));
  CRIA_RETURN_IF_ERROR(maker.Along("stage", {Axis::kTp, Axis::kCp, Axis::kDp}, &groups.stage));
  CRIA_RETURN_IF_ERROR(maker.Make("kv", RanksOfKvHeads(layout, config, groups.at), &groups.kv));
  const int stage = groups.at.pp;
  if (config.tied_head && layout.pp > 1 && (stage == 0 || stage + 1 == layout.pp)) {
    const std::vector<int> stages = maker.Stages();
    CRIA_RETURN_IF_ERROR(maker.Make("tied", {stages.front(), stages.back()}, &groups.tied));
  }
  CRIA_RETURN_IF_ERROR(MakeLinks(layout, stage, maker, &groups));
  return groups;
}

}  // namespace cria::model
