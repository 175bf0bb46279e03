#include <cstdio>
#include <cstdlib>

#include "comm/bench/init/virtual_job.h"
int main(int argc, char** argv) {
  cria::comm::VirtualJobOptions o;
  if (argc > 1) o.num_ranks = atoi(argv[1]);
  if (argc > 2) o.num_groups = atoi(argv[2]);
  if (argc > 3) o.ranks_per_host = atoi(argv[3]);
  if (argc > 4) o.degree = atoi(argv[4]);
  for (int i = 0; i < 3; ++i) {
    auto s = cria::comm::RunVirtualJob(o);
    if (!s.ok()) {
      fprintf(stderr, "%s\n", cria::Message(s.status()).c_str());
      return 1;
    }
    printf(
        "N %d G %d: %.3f s map %.3f rounds %d conn %ld msgs %ld MB %.1f map %ld decode %.2f ms "
        "procs %d\n",
        o.num_ranks, o.num_groups, s->seconds, s->map_seconds, s->rounds, s->connections,
        s->messages, s->bytes / 1e6, s->map_bytes, s->decode_seconds * 1e3, s->processes);
  }
}
