#include "comm/bench/init/mesh_groups.h"

#include "base/check.h"
#include "base/str.h"
#include "comm/engine/group_id.h"

namespace cria::comm {
namespace {

constexpr unsigned kTp = 1;
constexpr unsigned kCp = 2;
constexpr unsigned kPp = 4;
constexpr unsigned kDp = 8;

struct NamedAxes {
  const char* name;
  unsigned axes;
};

// Those that training uses come first.
constexpr NamedAxes kGroups[kMeshGroupsMax] = {{"tp", kTp},
                                               {"cp", kCp},
                                               {"pp", kPp},
                                               {"dp", kDp},
                                               {"world", kTp | kCp | kPp | kDp},
                                               {"dp_cp", kDp | kCp},
                                               {"tp_cp", kTp | kCp},
                                               {"tp_pp", kTp | kPp},
                                               {"tp_dp", kTp | kDp},
                                               {"tp_dp_cp", kTp | kDp | kCp},
                                               {"tp_cp_pp", kTp | kCp | kPp},
                                               {"cp_pp", kCp | kPp},
                                               {"pp_dp", kPp | kDp},
                                               {"tp_pp_dp", kTp | kPp | kDp},
                                               {"cp_pp_dp", kCp | kPp | kDp}};

// The largest power of two that is at most `max` and divides *rest, taken out of it.
int TakePowerOfTwo(int max, int* rest) {
  int factor = 1;
  while (factor < max && *rest % 2 == 0) {
    factor *= 2;
    *rest /= 2;
  }
  return factor;
}

// Appends the ranks that differ from `base` in `axes` of index `axis` and below, ascending.
void AppendMembers(const Mesh& mesh, const std::array<int, kNumMeshAxes>& stride, unsigned axes,
                   int axis, int base, std::vector<int>* members) {
  if (axis < 0) {
    members->push_back(base);
    return;
  }
  const auto a = static_cast<size_t>(axis);
  const int steps = (axes >> axis & 1) != 0 ? mesh.size[a] : 1;
  for (int i = 0; i < steps; ++i) {
    AppendMembers(mesh, stride, axes, axis - 1, base + i * stride[a], members);
  }
}

}  // namespace

Mesh MeshOf(int num_ranks) {
  CRIA_CHECK(num_ranks >= 1);
  Mesh mesh;
  int rest = num_ranks;
  mesh.size[0] = TakePowerOfTwo(8, &rest);
  mesh.size[1] = TakePowerOfTwo(2, &rest);
  mesh.size[2] = TakePowerOfTwo(16, &rest);
  mesh.size[3] = rest;
  return mesh;
}

std::string Describe(const Mesh& mesh) {
  return StrCat("TP ", mesh.size[0], ", CP ", mesh.size[1], ", PP ", mesh.size[2], ", DP ",
                mesh.size[3]);
}

std::vector<MeshGroup> GroupsOf(const Mesh& mesh, int rank, int count) {
  CRIA_CHECK(count >= 0 && count <= kMeshGroupsMax);
  std::array<int, kNumMeshAxes> stride = {};
  std::array<int, kNumMeshAxes> coordinate = {};
  int ranks_below = 1;
  for (size_t axis = 0; axis < kNumMeshAxes; ++axis) {
    stride[axis] = ranks_below;
    coordinate[axis] = rank / ranks_below % mesh.size[axis];
    ranks_below *= mesh.size[axis];
  }
  std::vector<MeshGroup> groups;
  for (int g = 0; g < count; ++g) {
    const NamedAxes& named = kGroups[static_cast<size_t>(g)];
    MeshGroup group = {.name = named.name, .members = {}, .position = 0, .id = 0};
    int base = rank;
    int size = 1;
    for (size_t axis = 0; axis < kNumMeshAxes; ++axis) {
      if ((named.axes >> axis & 1) == 0) continue;
      base -= coordinate[axis] * stride[axis];
      group.position += coordinate[axis] * size;
      size *= mesh.size[axis];
    }
    group.members.reserve(static_cast<size_t>(size));
    AppendMembers(mesh, stride, named.axes, kNumMeshAxes - 1, base, &group.members);
    group.id = GroupId({.parent = 0, .name = named.name, .world_ranks = group.members});
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace cria::comm
