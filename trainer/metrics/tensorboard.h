// TensorBoard event files: scalars by step, as `tensorboard --logdir run/` shows them. Called by
// the train loop. No protobuf: the few messages needed are encoded by hand.
//
//   CRIA_ASSIGN_OR_RETURN(auto board, TensorBoardWriter::Create("run/tensorboard", step,
//   RealClock())); CRIA_RETURN_IF_ERROR(board->Scalars(step, {{"train/loss", 3.2}, {"train/lr",
//   3e-4}})); CRIA_RETURN_IF_ERROR(board->Flush());
//
// The file is a sequence of TFRecords:
//
//   u64 length | u32 masked crc32c of these 8 bytes | an Event | u32 masked crc32c of the Event
//
// The first Event has file_version "brain.Event:2". Numbers are little-endian.
// A run that is resumed begins a file of its own, whose second Event (SessionLog START at the next
// step) makes TensorBoard drop what the former life of the run recorded from that step on.
// Single-threaded.
// Source: tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto,
// tensorflow/core/framework/summary.proto.

#ifndef CRIA_TRAINER_METRICS_TENSORBOARD_H_
#define CRIA_TRAINER_METRICS_TENSORBOARD_H_

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/status.h"

namespace cria::trainer {

class TensorBoardWriter {
 public:
  // A new file folder/events.out.tfevents.<seconds>.<host>.<pid>.<n>; makes the folder. `last_step`
  // is the step that the run goes on from, 0 for a new one. `clock` is borrowed.
  static StatusOr<std::unique_ptr<TensorBoardWriter>> Create(const std::string& folder,
                                                             int64_t last_step, Clock* clock);

  // Flushes; an error there is lost.
  ~TensorBoardWriter();
  TensorBoardWriter(const TensorBoardWriter&) = delete;
  TensorBoardWriter& operator=(const TensorBoardWriter&) = delete;

  // One Event with these values. Buffered (64 KiB): written at the next Flush at the latest. NaN
  // and infinities are legal; values are stored as 32-bit floats.
  Status Scalars(int64_t step, const std::vector<std::pair<std::string, double>>& values);

  // Hands all to the operating system. After an error nothing more is written and every call
  // returns it.
  Status Flush();

  const std::string& path() const { return path_; }

 private:
  TensorBoardWriter(std::string path, int fd, Clock* clock);
  Status AppendRecord(std::string_view event);

  const std::string path_;
  const int fd_;
  Clock* const clock_;
  std::string buffer_;
  Status error_;
};

}  // namespace cria::trainer

#endif  // CRIA_TRAINER_METRICS_TENSORBOARD_H_
