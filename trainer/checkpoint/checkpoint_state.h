// CheckpointState: what a run needs besides tensors to go on as if it had not stopped.
// A value; thread-safe as values are.

#ifndef CRIA_TRAINER_CHECKPOINT_CHECKPOINT_STATE_H_
#define CRIA_TRAINER_CHECKPOINT_CHECKPOINT_STATE_H_

#include <cstdint>
#include <map>
#include <string>

namespace cria::trainer {

struct CheckpointState {
  int64_t step = 0;     // optimizer steps done
  int64_t tokens = 0;   // tokens trained on
  int64_t samples = 0;  // data cursor: sequences taken from the stream
  uint64_t seed = 0;
  std::string config_yaml;                // the resolved config, UTF-8
  std::map<std::string, double> scalars;  // anything else; bits are kept, except a NaN's payload
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECKPOINT_CHECKPOINT_STATE_H_
