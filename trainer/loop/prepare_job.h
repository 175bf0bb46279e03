// From a job's configuration to its data: the prepared folder, its tokenizer and its two splits.
//
// Called by `cria train`. A job with data.path uses that folder; otherwise data.inputs, or the King
// James Bible where there are none, is prepared once into the user's cache and found there again.

#ifndef CRIA_TRAINER_LOOP_PREPARE_JOB_H_
#define CRIA_TRAINER_LOOP_PREPARE_JOB_H_

#include <atomic>
#include <cstdio>
#include <string>

#include "base/status.h"
#include "trainer/config/train_config.h"
#include "trainer/data/token_dataset.h"
#include "trainer/tokenizer/tokenizer.h"

namespace cria::trainer {

struct JobData {
  std::string dir;
  Tokenizer tokenizer;
  TokenDataset train, val;
};

// Prepares what is not there yet, with a progress bar on `progress`; opens and verifies all of it.
// `tokenizer`, when not null, is that of the model that the run starts from: text is prepared with
// it, and InvalidArgument is a folder that another one encoded, with both fingerprints and sizes.
StatusOr<JobData> PrepareJob(const TrainConfig& config, std::FILE* progress,
                             const std::atomic<bool>* stop, const Tokenizer* tokenizer = nullptr);

// Opens and verifies what another rank on this host has prepared.
StatusOr<JobData> OpenJob(const TrainConfig& config, const Tokenizer* tokenizer = nullptr);

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_LOOP_PREPARE_JOB_H_
