#include "comm/engine/group_id.h"

#include <cstddef>
#include <cstring>
#include <string>

#include "base/hash.h"

namespace cria::comm {

uint64_t GroupId(const GroupKey& key) {
  const uint64_t head[] = {key.parent, key.instance, key.name.size(), key.world_ranks.size()};
  std::string text(reinterpret_cast<const char*>(head), sizeof(head));
  text += key.name;
  text.append(reinterpret_cast<const char*>(key.world_ranks.data()),
              key.world_ranks.size() * sizeof(int));
  return Hash64(text);
}

}  // namespace cria::comm
