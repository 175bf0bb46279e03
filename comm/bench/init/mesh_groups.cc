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

// The ranks that differ from `base`, which is the first of them, in `axes`; ascending.
std::vector<int> Members(const Mesh& mesh, unsigned axes, int base) {
  size_t count = 1;
  for (size_t axis = 0; axis < kNumMeshAxes; ++axis) {
    if ((axes >> axis & 1) != 0) count *= static_cast<size_t>(mesh.size[axis]);
  }
  std::vector<int> members(count);
  members[0] = base;
  // Each axis repeats what the ones inside it made.
  size_t done = 1;
  int stride = 1;
  for (size_t axis = 0; axis < kNumMeshAxes; ++axis) {
    if ((axes >> axis & 1) != 0) {
      for (int step = 1; step < mesh.size[axis]; ++step) {
        const auto at = done * static_cast<size_t>(step);
        for (size_t i = 0; i < done; ++i) members[at + i] = members[i] + step * stride;
      }
      done *= static_cast<size_t>(mesh.size[axis]);
    }
    stride *= mesh.size[axis];
  }
  return members;
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
    group.members = Members(mesh, named.axes, base);
    group.id = GroupId({.parent = 0, .name = named.name, .world_ranks = group.members});
    groups.push_back(std::move(group));
  }
  return groups;
}

}  // namespace cria::comm
