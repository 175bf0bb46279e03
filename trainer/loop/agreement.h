// What all ranks of a job must know alike after a step: the loss, whether something was not finite,
// whether somebody was asked to stop.
//
//   Agreement agreement(world);                       // null: one rank
//   CRIA_ASSIGN_OR_RETURN(const StepReport all, agreement.Combine(mine));
//
// Sums are taken in rank order: every rank gets the same bits. Errors are the communicator's.

#ifndef CRIA_TRAINER_LOOP_AGREEMENT_H_
#define CRIA_TRAINER_LOOP_AGREEMENT_H_

#include <cstdint>
#include <string>

#include "base/status.h"
#include "comm/api/communicator.h"

namespace cria::trainer {

struct StepReport {
  double loss_sum = 0;  // of this rank's tokens, by one of the ranks that hold them
  int64_t num_valid = 0;
  bool bad_operand = false;  // an FP8 operand was not finite
  bool stop = false;
};

class Agreement {
 public:
  explicit Agreement(comm::Communicator* world) : world_(world) {}

  StatusOr<int64_t> Sum(int64_t value) const;
  StatusOr<StepReport> Combine(const StepReport& mine) const;
  struct FirstText {
    std::string text = {};
    int rank = 0;  // the first that gives it
  };
  // The first text in order, the empty one last, of those that the ranks give; cut at 200 bytes.
  StatusOr<FirstText> First(const std::string& text) const;

 private:
  comm::Communicator* const world_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_AGREEMENT_H_
