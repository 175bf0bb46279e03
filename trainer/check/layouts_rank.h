// One process of `cria check layouts`: takes part in every layout that has a place for it.
//
//   const LayoutsRankJob job = {.config = config, .layouts = layouts, .folder = folder};
//   CRIA_RETURN_IF_ERROR(RunLayoutsRank(job, world.get(), print_row, &rows));
//
// Called on all ranks of the world with the same job. Single-threaded.

#ifndef CRIA_TRAINER_CHECK_LAYOUTS_RANK_H_
#define CRIA_TRAINER_CHECK_LAYOUTS_RANK_H_

#include <functional>
#include <string>
#include <vector>

#include "base/status.h"
#include "comm/api/communicator.h"
#include "model/parallel/mesh.h"
#include "trainer/check/layouts_report.h"
#include "trainer/config/train_config.h"

namespace cria::trainer {

struct LayoutsRankJob {
  TrainConfig config;  // of one rank; data.path names a prepared folder
  std::vector<model::Layout> layouts;
  std::string folder;  // for the runs, seen by all ranks
};

// The job's configuration on a layout.
TrainConfig WithLayout(const TrainConfig& config, const model::Layout& layout);

// Trains on one rank (rank 0 does), then on each layout. `on_row` is called on rank 0 with each
// layout's result, and *rows gets all of them there. An error here is one of the check itself: a
// rank that is lost, no reference.
Status RunLayoutsRank(const LayoutsRankJob& job, comm::Communicator* world,
                      const std::function<void(const LayoutRow&)>& on_row,
                      std::vector<LayoutRow>* rows);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_CHECK_LAYOUTS_RANK_H_
